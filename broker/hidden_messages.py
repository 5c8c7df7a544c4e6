"""What is said of messages that stand in the log of a broker, and that readers do not see yet, when it takes a role."""

from __future__ import annotations

from understudy.broker.role import Role
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore

log = get_logger("broker.role")

SAID_SECONDS = 1.0


async def tell_hidden(store: MessageStore, clock: Clock, name: str, role: Role) -> None:
    """Say how many messages are hidden as a role begins, and how far they are, until readers see all of them.

    Those wait until enough replicas are known to have them, and are shown in portions. What comes from now on is none
    of them. A number that has not changed is not said again.

    Args:
        store: of the broker.
        clock: of the broker.
        name: of the broker, for the log.
        role: that has begun.
    """
    end, began = store.max_physical_offset, clock.monotonic()
    count, size = store.hidden(end)
    if not count:
        return
    log.info("readers do not see all messages yet", broker=name, role=role, messages=count, bytes=size)
    said = count
    while True:
        await clock.sleep(SAID_SECONDS)
        left, size = store.hidden(end)
        if not left:
            break
        if left != said:
            log.info("messages are being shown", broker=name, messages_left=left, of=count, bytes_left=size)
            said = left
    log.info("readers see all of them", broker=name, messages=count, seconds=round(clock.monotonic() - began, 1))
