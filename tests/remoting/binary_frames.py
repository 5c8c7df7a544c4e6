"""Frames with binary headers, as clients write them that are told to; no program of ours does."""

from __future__ import annotations

import struct

from understudy.remoting.command import BINARY_HEADER, LANGUAGES, Command

_HEAD = struct.Struct(">II")
_FIXED = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, length of the remark
_LENGTH = struct.Struct(">i")
_KEY_LENGTH = struct.Struct(">h")


def encode_binary(command: Command) -> bytes:
    """Return the whole frame of *command*; its code must fit 16 bits."""
    language = LANGUAGES.index(command.language) if command.language in LANGUAGES else LANGUAGES.index("OTHER")
    remark = (command.remark or "").encode()
    entries = []
    for key, value in (command.ext or {}).items():
        name, text = key.encode(), value.encode()
        entries.append(_KEY_LENGTH.pack(len(name)) + name + _LENGTH.pack(len(text)) + text)
    ext = b"".join(entries)
    head = _FIXED.pack(command.code, language, command.version, command.opaque or 0, command.flag, len(remark))
    header = head + remark + _LENGTH.pack(len(ext)) + ext
    frame_head = _HEAD.pack(4 + len(header) + len(command.body), BINARY_HEADER << 24 | len(header))
    return frame_head + header + command.body
