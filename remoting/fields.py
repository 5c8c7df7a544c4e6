"""Header fields by name and type, with the errors a peer should see."""

from __future__ import annotations

from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command


class CommandError(Exception):
    """A request is refused: the answer carries this code and remark, and nothing was changed.

    Args:
        code: a :class:`ResponseCode`.
        remark: what is wrong and what to do, for the person who reads the client's log.
        ext: header fields of the answer, where the reference sends some with its errors.
    """

    def __init__(self, code: int, remark: str, ext: dict[str, str] | None = None) -> None:
        super().__init__(f"{int(code)}: {remark}")
        self.code = int(code)
        self.remark = remark
        self.ext = ext


def required(command: Command, name: str) -> str:
    """Return field *name*. Raises :class:`CommandError` (1) when it is missing or null."""
    value = command.ext.get(name) if command.ext else None
    if value is None:
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"the request header has no field {name}")
    return value


def optional(command: Command, name: str) -> str | None:
    """Return field *name*, or ``None`` when it is missing or null."""
    return command.ext.get(name) if command.ext else None


def required_int(command: Command, name: str) -> int:
    """Return field *name* as a 64-bit integer. Raises :class:`CommandError` (1)."""
    return _int(name, required(command, name))


def optional_int(command: Command, name: str) -> int | None:
    """Return field *name* as a 64-bit integer, or ``None`` when it is missing. Raises :class:`CommandError` (1)."""
    value = optional(command, name)
    return None if value is None else _int(name, value)


def optional_bool(command: Command, name: str) -> bool | None:
    """Return whether field *name* says ``true`` in any case (anything else is false); ``None`` when it is missing."""
    value = optional(command, name)
    return None if value is None else value.lower() == "true"


def _int(name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"field {name} is {text[:64]!r}, not a number") from None
    if not -(1 << 63) <= value < 1 << 63:
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"field {name} is outside the range of 64-bit integers")
    return value
