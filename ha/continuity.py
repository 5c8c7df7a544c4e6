"""Whether what a master sends continues a slave's log. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from understudy.ha.wire import Transfer


class MismatchError(Exception):
    """The master's next byte does not follow our log; nothing was written. The message says what to do."""


def check_continues(transfers: Iterable[Transfer], end: int, *, known: bool) -> None:
    """Refuse all of *transfers* when one of them does not belong where the log would end then.

    Args:
        transfers: frames that arrived together, in order.
        end: where the log ends, or the part of it that is as the master's, in bytes.
        known: whether *end* binds; the first byte of an empty log may come from anywhere.

    Raises:
        MismatchError: nothing may be written.
    """
    for transfer in transfers:
        if known and end != transfer.offset:
            where = "ahead of" if end > transfer.offset else "behind"
            raise MismatchError(
                f"our log ends at {end}, the master sends from {transfer.offset}: this slave is {where} it or has "
                "another history. Nothing was written. Compare both logs; to follow this master, move this store "
                "away and start again"
            )
        known = known or bool(transfer.body)
        end = transfer.offset + len(transfer.body)
