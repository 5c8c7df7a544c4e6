"""The reference's file of TLS keys, whose keys count beside those of a server's own file, and before them."""

from __future__ import annotations

import os

from understudy.runtime.files import RealFiles
from understudy.runtime.properties import Properties
from understudy.runtime.property_file import HOME_VARIABLE, read_properties_file

FILE_KEY, DEFAULT_FILE = "tls.config.file", "/etc/rocketmq/tls.properties"
_PREFIX = "tls."


def with_tls_file(values: Properties, default: str = DEFAULT_FILE) -> Properties:
    """Return *values* with the keys of the file that they name, or of the usual one if it is there.

    Args:
        values: of a server's file.
        default: the usual file.

    Raises:
        ConfigError: a file that is named, or the usual one, cannot be read.
    """
    path = values.get(FILE_KEY, "").strip()
    if not path:
        if not os.path.exists(default):
            return values
        path = default
    found = read_properties_file(RealFiles(), path, os.environ.get(HOME_VARIABLE))
    for key, text in found.items():
        if key.startswith(_PREFIX) and key != FILE_KEY:
            values = values.changed({key: text}, found.where(key))
    return values
