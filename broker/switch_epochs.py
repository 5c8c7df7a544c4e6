"""What a led broker does to its log and to the history of its epochs before a role is true."""

from __future__ import annotations

from understudy.ha.switch.epoch_file import EpochFile
from understudy.ha.switch.epochs import EpochEntry, EpochError
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore
from understudy.store.truncation import TruncationError

log = get_logger("broker.replication")


def first_byte(store: MessageStore) -> int:
    """Return the first byte of the log."""
    return max(store.min_physical_offset, 0)


def hide_unconfirmed(store: MessageStore, led_from: int) -> None:
    """Hide what members of the set may lack: what is not noted as confirmed since this log was first led.

    The note is some seconds old after a crash. What is hidden too much is shown once a master says that it is
    confirmed, or when this broker leads and its set has it.

    Args:
        store: the log.
        led_from: where its first epoch begins, in bytes.
    """
    limit = max(store.confirmed_before, led_from)
    hidden = store.hide_after(limit)
    if hidden:
        log.info("messages are hidden until it is known that they are confirmed", count=hidden, after=limit)


async def prepare_to_lead(store: MessageStore) -> None:
    """Have the log end with a whole record, all of it durable, and what it lacks noted. Raises ``OSError``."""
    await store.finish_truncation()
    incomplete = store.drop_incomplete()
    if incomplete:
        log.warning("the last record had not come whole, it is cut off", bytes=incomplete)
    await flush_all(store)
    await store.note_stand_in()  # what its former master lacked another slave may have


async def flush_all(store: MessageStore) -> None:
    """Have all of the log durable. Raises ``OSError``."""
    if not await store.flush():
        raise OSError("the log could not be made durable")


async def begin_epoch(history: EpochFile, store: MessageStore, epoch: int, end: int) -> None:
    """Have *epoch* begin, durably. It begins once: that it began elsewhere, or that a later one has, is not undone.

    Args:
        history: of the log.
        store: the log.
        epoch: newer than all in which anything was written.
        end: where it begins, in bytes: where the log ends now, whatever is written meanwhile.

    Raises:
        OSError: it cannot.
    """
    if history.epochs.entries[-1:] == (EpochEntry(epoch, end),):
        return  # the role was refused then, for another reason; nothing was written
    if history.epochs.last_epoch >= epoch:
        last = history.epochs.entries[-1]
        raise OSError(f"epoch {epoch} cannot begin at {end}: epoch {last.epoch} has begun at {last.start}")
    try:
        known = history.epochs.within(end).from_offset(first_byte(store))
        await history.save(known.begun(epoch, end))
    except EpochError as error:
        raise OSError(f"epoch {epoch} cannot begin at {end}: {error}") from None


async def cut_at_hole(history: EpochFile, store: MessageStore, hole: int) -> None:
    """Cut the log of a slave where it lacks something: its master has it, and what follows, too.

    Args:
        history: of the log.
        store: the log.
        hole: where it is, in bytes.

    Raises:
        OSError: the history cannot be written.
    """
    try:
        cut = await store.truncate(hole)
    except TruncationError as error:
        log.error("what is missing in the log cannot be cut off", why=error)
        return
    await history.save(history.epochs.within(hole))
    log.warning("the log lacks bytes: it is cut there and copied again", at=hole, bytes=cut)
