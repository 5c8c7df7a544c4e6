"""A configuration file: where it is looked for, how its bytes become text, and one line for what is wrong with it."""

from __future__ import annotations

import os.path
import re

from understudy.runtime.files import Files
from understudy.runtime.properties import LIMIT_CHARACTERS, ConfigError, Properties, parse_properties

HOME_VARIABLE = "ROCKETMQ_HOME"
_WANTED = "name a text file of key=value lines"
_NO_TEXT = re.compile("[\x00-\x08\x0e-\x1f]")
_MOST_BYTES = LIMIT_CHARACTERS * 4  # as many as that many characters can have


def read_properties_file(disk: Files, path: str, home: str | None) -> Properties:
    """Return the keys of a configuration file; their source is the path at which it was found.

    The text is UTF-8, with or without a byte order mark; one that is not is read as ISO 8859-1. Differs: the reference
    reads every file as ISO 8859-1, and so takes a name in UTF-8 for another one.

    Args:
        disk: where it is.
        path: its path; a relative one is looked for below the current folder and then below *home*.
        home: the value of ``ROCKETMQ_HOME``, if it is set.

    Raises:
        ConfigError: there is no such file, it cannot be read, or it is no text of key=value lines.
    """
    text, found = read_text_file(disk, path, home)
    return parse_properties(text, found)


def read_text_file(disk: Files, path: str, home: str | None, wanted: str = _WANTED) -> tuple[str, str]:
    """Return the text of a configuration file, and where it was found.

    Args:
        disk, path, home: see :func:`read_properties_file`.
        wanted: what a user is told to name instead of a file that will not do.

    Raises:
        ConfigError: there is no such file, it cannot be read, or it is no text.
    """
    if not path:
        raise ConfigError(f"the path of the configuration file is empty; {wanted}")
    found = find_file(disk, path, home, wanted)
    try:
        size = disk.size(found)
        data = disk.read(found) if size <= _MOST_BYTES else b""
    except (OSError, ValueError) as error:  # ValueError: a path that no system can have
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise ConfigError(f"configuration file {found} cannot be read: {reason}; {wanted}") from None
    if size > _MOST_BYTES:
        raise ConfigError(f"configuration file {found} has {size} bytes, more than any can have; {wanted}")
    return _text(data, found, wanted), found


def find_file(disk: Files, path: str, home: str | None, wanted: str = _WANTED) -> str:
    """Return where the configuration file *path* is.

    Args:
        disk, path, home, wanted: see :func:`read_text_file`.

    Raises:
        ConfigError: it is nowhere.
    """
    if os.path.isabs(path) or disk.exists(path):
        return path
    if not home:
        second = f"{HOME_VARIABLE} is not set; give another path, or set {HOME_VARIABLE} to the installation"
    elif not disk.exists(os.path.join(home, ".")):  # which only a folder has
        second = f"{HOME_VARIABLE}={home} is no folder; give another path, or set {HOME_VARIABLE} to the installation"
    else:
        below = os.path.join(home, path)
        if disk.exists(below):
            return below
        second = f"neither is {below}, below {HOME_VARIABLE}; {wanted}"
    here = os.path.abspath(path)
    raise ConfigError(f"configuration file {path} cannot be read: {here} is not there, and {second}")


def _text(data: bytes, path: str, wanted: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    wrong = _NO_TEXT.search(text)
    if wrong is not None:
        line = text.count("\n", 0, wrong.start()) + 1
        hint = "save it as UTF-8" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else wanted
        raise ConfigError(f"{path}:{line}: byte {ord(wrong.group())} is no part of a text; {hint}")
    return text
