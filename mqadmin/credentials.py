"""With what the operator signs: ``$ROCKETMQ_HOME/conf/tools.yml``, as the reference's tool reads it (AclUtils.java)."""

from __future__ import annotations

import os.path

from understudy.mqadmin.options import UsageError
from understudy.runtime.files import RealFiles
from understudy.runtime.os_failure import os_reason
from understudy.runtime.property_file import HOME_VARIABLE
from understudy.security.signature import Credentials

_FILE = os.path.join("conf", "tools.yml")


def credentials() -> Credentials | None:
    """Return what the file says; ``None`` when there is no file, or no ``ROCKETMQ_HOME``.

    Raises:
        UsageError: it cannot be read, or one of its two keys is missing.
    """
    home = os.environ.get(HOME_VARIABLE)
    path = os.path.join(home, _FILE) if home else ""
    files = RealFiles()
    if not path or not files.exists(path):
        return None
    try:
        text = files.read(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(f"{path} cannot be read: {reason}") from None
    return read_credentials(text, path)


def read_credentials(text: str, path: str) -> Credentials:
    """Read ``accessKey: ...`` and ``secretKey: ...`` lines, values with or without quotes; *path* is for messages.

    Raises:
        UsageError: one of them is missing.
    """
    found = {}
    for line in text.splitlines():
        name, separator, value = line.partition(":")
        if separator and not line.lstrip().startswith("#"):
            found[name.strip()] = _scalar(value)
    missing = [name for name in ("accessKey", "secretKey") if not found.get(name)]
    if missing:
        raise UsageError(f"{path} has no {' and no '.join(missing)}: write 'accessKey: NAME' and 'secretKey: PASSWORD'")
    return Credentials(found["accessKey"], found["secretKey"])


def _scalar(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text.partition(" #")[0].strip()
