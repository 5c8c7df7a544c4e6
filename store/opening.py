"""Opening a store's folder: a lock file as the reference writes it, recovery, and the marker of an unclean end.

The marker holds the process id, as the reference's does, and stands for as long as the store is open: who finds one
recovers as after a crash.
"""

from __future__ import annotations

import os

from understudy.runtime.disk import Disk, Lock
from understudy.store.config import StoreConfig
from understudy.store.core import StoreCore
from understudy.store.deletions import LivingTopics
from understudy.store.dispatch import Dispatcher
from understudy.store.flush import sync_files
from understudy.store.recovery import Recovery

_LOCK_CONTENT = b"lock"


def hold(disk: Disk, config: StoreConfig) -> Lock:
    """Hold the folder of a store for this process. Raises ``DiskLockedError``."""
    return disk.lock(os.path.join(config.folder, "lock"), _LOCK_CONTENT)


def recover(core: StoreCore, dispatcher: Dispatcher, process_id: int, living: LivingTopics | None = None) -> None:
    """Make log, queues and index agree, set the marker, and make durable what readers are to see.

    Args:
        core, dispatcher: of the store.
        process_id: stands in the marker.
        living: the table of topics beside the store.
    """
    disk = core.disk
    unclean = disk.exists(core.path("abort"))
    recovery = Recovery(core, dispatcher, living)
    recovery.run()
    core.compacted.load(core.deletions, unclean=unclean)
    core.extensions.doubtful = unclean
    core.extensions.recover(recovery.doubtful_from, goes_on=core.config.enable_consume_queue_ext)
    if core.config.enable_consume_queue_ext:
        core.arrived.append(core.extensions.arrived)
        core.hidden_grew.append(core.extensions.hidden)
    abort = disk.open(core.path("abort"))
    try:
        abort.truncate(0)
        abort.write_at(0, str(process_id).encode())
        abort.sync()
    finally:
        abort.close()
    disk.sync_folder(core.config.folder)
    if core.sync_flush and core.flushed < core.log.end:
        # Readers see only what is durable, so make durable what is to be seen.
        paths = [item.path for item in core.segments.items if item.end > core.flushed]
        sync_files(disk, paths, sorted(core.segments.unsynced_folders))
        core.flushed = core.log.end
    core.marks.write_live(core.mark())
