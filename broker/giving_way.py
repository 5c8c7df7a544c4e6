"""When a led master had better give way to another member of its set: it cannot serve, and that one may."""

from __future__ import annotations

from understudy.ha.switch.keeper import SyncStateKeeper
from understudy.store.message_store import MessageStore


def why_to_give_way(keeper: SyncStateKeeper | None, store: MessageStore, patience_s: float, *, sync_flush: bool) -> str:
    """Return what keeps a master from serving that others could replace; "": nothing does.

    A disk that answers slowly is better waited for, as long as the controllers would miss a dead master.

    Args:
        keeper: of its set; ``None``: it is no master.
        store: its log.
        patience_s: how long a disk is waited for, in seconds.
        sync_flush: sends wait for the disk.
    """
    if keeper is None or not keeper.state.replaceable:
        return ""
    if store.disk_failed:
        return "its disk has failed"
    waits = sync_flush or keeper.waits_for_disk
    hangs = waits and store.syncing_seconds() >= patience_s
    return "its disk does not answer, and sends wait for it" if hangs else ""
