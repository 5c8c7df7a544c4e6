"""Which replica a slave copies its tables from: a pure function of what it sees of its group."""

from __future__ import annotations

from collections.abc import Mapping

MASTER_ID = 0


def source_of(
    own_id: int, own_address: str, master: str | None, members: Mapping[int, str] | None, synced: bool
) -> tuple[str, bool] | None:
    """Return the address of the replica to copy from and whether it is the master; ``None``: there is none.

    Without a master it is the slave that acts: the one with the smallest id. A slave whose own id is smaller would act
    itself; it copies from the next one only as long as it does not know the tables of its group.

    Args:
        own_id, own_address: of the slave that asks.
        master: the master's address, as far as it is known.
        members: ids and addresses of the group as the name servers show them, ``None`` while they are unknown.
        synced: the slave has copied every table once.
    """
    if master is not None:
        return None if master == own_address else (master, True)
    others = {number: address for number, address in (members or {}).items() if number != own_id}
    if not others or MASTER_ID in others:  # a master that is not followed yet
        return None
    smallest = min(others)
    return (others[smallest], False) if smallest < own_id or not synced else None
