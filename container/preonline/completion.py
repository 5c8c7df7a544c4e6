"""A broker that comes back takes the end of its log, as far as it lacks it, from slaves; :mod:`lost_end` decides.

A master may have lost it with the power. It takes no sends until every slave that answers was asked, in no life of its
process: what it stored itself would stand where the slaves have other messages. Slaves that copy meanwhile get nothing
of what comes before all of it is durable. When it dies in the middle, what has come is part of its log, and the next
start asks for the rest. The reference goes on without: its slaves are longer than it for ever.

A slave may have been away while its master died. It will act in the place of the slave that does until now, and there
is no master to copy from: without the rest nobody would find what was stored meanwhile, and what was popped of it would
go out again. That one acts until the rest has come, so there is no hurry; a master that comes gives the log as always.
Where the rest cannot come, that one goes on acting. In the reference it acts with what it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import trio

from understudy.broker.broker import Broker
from understudy.broker.log_history import LogHistory, history_of
from understudy.broker.logged_batches import LoggedBatches
from understudy.broker.lost_topics import rows_of_log
from understudy.container.preonline.asking import RefusedError
from understudy.container.preonline.common_log import beginning_of_log, end_of_log
from understudy.container.preonline.handshake import Member
from understudy.container.preonline.holes import fill_holes, read_log, share_of
from understudy.container.preonline.lost_end import (
    LostEnd,
    Reach,
    doubt,
    goes_on_ours,
    later_life,
    longest_first,
    most_of,
)
from understudy.ha.continuity import MismatchError
from understudy.ha.following import HaState
from understudy.ha.overlap import end_of
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger

log = get_logger("container.preonline.completion")

GIVE_SECONDS = 2.0
"""A master that has more than its slave, and lives, gives some of it in this time."""


@attrs.frozen
class Completion:
    """What one slave gave.

    Attributes:
        member: the slave.
        taken_bytes: how many bytes of the log came back.
        why_not: why what it has beyond them did not, ``""`` when there is nothing more.
        silent: it does not answer, or cannot be understood; it may be asked again.
        more: there was no time for all that it has, or a master may give it.
        behind: what is left cannot come, though it continues our log, or is of a later life: it serves better than this
            slave.
    """

    member: Member
    taken_bytes: int
    why_not: str = ""
    silent: bool = False
    more: bool = False
    behind: bool = False


async def complete_log(
    broker: Broker,
    member: Member,
    others: Sequence[Member],
    until: float,
    looked: set[tuple[Member, int]],
) -> list[Completion]:
    """Take the end of the log of *broker* as far as slaves have it; without effect when nothing can be missing.

    Of those that do not answer, one does not keep another one from giving, for time is short.

    Args:
        broker: it comes back.
        member: a slave whose turn it is.
        others: slaves whose turn comes later; who has most is asked first, if it answers.
        until: monotonic seconds when it goes on with what it has; a slave goes on to fill its holes after that.
        looked: who was asked to fill which hole of our log (bytes); to be kept for as long as this return lasts.

    Returns:
        What came of each slave that has more, or is silent.

    Raises:
        OSError: the disk of a master refused; what came before stays.
    """
    store = broker.store
    if not (broker.role.is_slave or broker.history.open):
        return []
    reaches, found = list[Reach](), list[Completion]()
    for each in (member, *others):
        try:
            reaches.append(Reach(each, await end_of_log(broker, each)))
        except (RemotingError, RefusedError, ValueError) as error:
            log.debug("it does not say where its log ends", slave=each, why=error)
            found.append(Completion(each, 0, str(error), silent=True))
    longer = longest_first(store.max_physical_offset, reaches)
    if longer and _copies(broker):
        return [*found, await _wait_for_master(broker, longer[0])]
    for reach in longer:
        if reach.end > store.max_physical_offset:
            found.append(await _ask(broker, reach, until, looked))
    for reach in reaches:
        if broker.role.is_slave and reach not in longer and await _Giver(broker, reach.member).lives_on(reach.end):
            found.append(Completion(reach.member, 0, "its log is that of a later life", behind=True))
    return found


async def _wait_for_master(broker: Broker, reach: Reach) -> Completion:
    """Let the master give what is missing, which no name server shows now; end a connection on which nothing comes.

    Its machine may have died without a word, or be there and in reach of us alone. One that has just said that it comes
    back may itself have to wait before it gives anything.
    """
    store, replication = broker.store, broker.replication
    begin = store.max_physical_offset
    await broker.world.clock.sleep(GIVE_SECONDS)
    returns = replication.awaits and replication.successor is None
    if store.max_physical_offset == begin and _copies(broker) and not returns:
        log.warning("the master that this slave is connected to gives nothing, and no name server shows it")
        replication.hang_up()
    return Completion(reach.member, 0, "the master gives it", more=True)


async def _ask(broker: Broker, reach: Reach, until: float, looked: set[tuple[Member, int]]) -> Completion:
    """Take back what one slave has beyond our log."""
    store, begin, silent = broker.store, broker.store.max_physical_offset, False
    is_slave, giver = broker.role.is_slave, _Giver(broker, reach.member)
    try:
        # Holes can be filled later, too, what follows the end of our log cannot: half of the time is for that.
        await fill_holes(broker, reach.member, share_of(broker, until, 2), looked)
        why_not = await _take(broker, giver, until)
    except (RemotingError, ValueError) as error:
        why_not, silent = str(error), True
    except OSError as error:
        if not is_slave:
            raise
        why_not = f"this slave's disk refused: {error}"
    end = store.max_physical_offset
    if end > begin:
        tell = log.info if giver.more else log.warning
        tell("the end of the log came from a slave", slave=reach.member, begin=begin, end=end, its_end=reach.end)
    left = bool(why_not) and not silent and reach.end > end
    behind = is_slave and left and not giver.more and await giver.goes_on_ours()
    return Completion(reach.member, end - begin, why_not, silent, giver.more, behind)


async def _take(broker: Broker, giver: _Giver, until: float) -> str:
    """Append what *giver* has beyond our log; return why something of it is left, ``""`` when nothing is."""
    store, serving, begin = broker.store, broker.replication.master, broker.store.max_physical_offset
    if serving is not None:
        serving.withhold(begin if store.hole is None else min(begin, store.hole))
    try:
        try:
            return await giver.give(until)
        except RefusedError as error:
            return str(error)
        except MismatchError as error:
            giver.mismatched = True
            return str(error)
        finally:
            if not (_copies(broker) or (giver.more and broker.role.is_slave)):
                store.drop_incomplete()  # a slave asks for the rest of its last record anew
            if store.max_physical_offset > begin:
                await _settle(broker, giver.history)
    finally:
        broker.replication.withhold(hole=True)


def _copies(broker: Broker) -> bool:
    """Whether a master gives *broker* its log: there is one writer."""
    slave = broker.replication.slave
    return slave is not None and slave.state in (HaState.HANDSHAKE, HaState.TRANSFER)


async def _settle(broker: Broker, theirs: LogHistory) -> None:
    """Make what came durable, and have everything that depends on the log know of it.

    It takes a few writes. Also when an operator ends the return meanwhile, for what came is part of the log.
    """
    store = broker.store
    with trio.CancelScope(shield=True):
        if not await store.flush():
            raise OSError("what came from a slave could not be made durable")
        if broker.role.is_slave:  # it takes the tables of who gave the log
            parting = broker.history.value.parting(theirs)
            if parting is None or parting.at == math.inf or parting.at <= store.max_physical_offset:
                # What was further than this log ever was is lost with the end of its master's: others are there now.
                await broker.history.cut_by(theirs, "who gave the log never had it, or has lost it")
                await broker.history.continued_by(theirs)
            return
        await store.note_stand_in()  # what its giver lacks, too, another one may have
        rows = rows_of_log(store.queues(), broker.topics.rows, LoggedBatches(store))
        broker.topics.take(rows)
        await broker.history.continued_by(theirs)
        await broker.pops.recover()


class _Giver:
    """A slave that gives the end of its log.

    Attributes:
        history: of its log.
        more: there was no time for all, or a master has begun to give it.
        mismatched: it has other bytes where our log ends.
    """

    def __init__(self, broker: Broker, member: Member) -> None:
        self._broker = broker
        self._member = member
        self.history = LogHistory()
        self.more = False
        self.mismatched = False

    async def give(self, until: float) -> str:
        """Append what it has beyond the log of the broker; return why something is left.

        Args:
            until: monotonic seconds after which no more is asked for.
        """
        broker, store, begin = self._broker, self._broker.store, self._broker.store.max_physical_offset
        empty = self._empty
        intact_from = 0 if store.hole is None else store.intact_from()
        overlap = None if empty else end_of(store, broker.options.store.mapped_file_size_commit_log, intact_from)
        if overlap is None and not empty:
            return "this broker's log is damaged at its end"
        if empty and broker.role.is_slave:
            begin = await self._first(begin)
        lost, own_end = LostEnd(begin, overlap), store.max_physical_offset
        while True:
            part, end, answer = await read_log(broker, self._member, lost.position)
            self.history = history_of(answer)
            why_not = doubt(
                broker.history.value,
                begin,
                self.history,
                compared=overlap is not None,
                begins=empty and broker.role.is_slave,
            )
            if why_not or not part:
                return why_not
            room = most_of(broker.history.value, begin, self.history) - lost.position
            if room <= 0:
                return f"its log is another one from {lost.position + room:.0f} on"
            part = part[: int(min(room, len(part)))]
            if _copies(broker) or store.max_physical_offset != own_end:
                self.more = True
                return "the master gives it"
            for frame in lost.take(part):
                store.append_raw(frame.offset, frame.body)
            own_end = store.max_physical_offset
            if broker.world.clock.monotonic() >= until and (own_end > begin or not broker.role.is_slave):
                # A slave has got on at least, for it compares the end of its log anew each time.
                self.more = lost.position < end
                taken = lost.position - begin
                return f"there was no time for more than {taken} of {end - begin} bytes" if self.more else ""

    @property
    def _empty(self) -> bool:
        store = self._broker.store
        return store.min_physical_offset in (-1, store.max_physical_offset)

    async def goes_on_ours(self) -> bool:
        """Return whether its log is ours continued, as far as histories tell; also when it has given nothing."""
        broker = self._broker
        if not self.history.lives:
            try:
                await self._learn_history()
            except (RemotingError, RefusedError, ValueError) as error:
                log.debug("it does not say whose log it has", slave=self._member, why=error)
                return False
        own = broker.history.value.within(broker.store.max_physical_offset)
        return goes_on_ours(own, self.history, empty=self._empty, mismatched=self.mismatched)

    async def lives_on(self, end: int) -> bool:
        """Return whether its log, which ends at *end* (bytes), is one of a later life than ours, though no longer."""
        broker = self._broker
        try:
            await self._learn_history()
            own, theirs = broker.history.value.within(broker.store.max_physical_offset), self.history.within(end)
            life = later_life(own, theirs)
            if life is None:
                return False
            # Bytes tell more: what we have of that life may have come before we were told of it.
            part, _, _ = await read_log(broker, self._member, life)
            ours = broker.store.slice(life, len(part))
            return ours != part[: len(ours)]
        except (RemotingError, RefusedError, ValueError) as error:
            log.debug("it does not say whose log it has", slave=self._member, why=error)
            return False

    async def _learn_history(self) -> None:
        first = await beginning_of_log(self._broker, self._member)
        self.history = history_of((await read_log(self._broker, self._member, first))[2])

    async def _first(self, begin: int) -> int:
        """Return where an empty slave begins: where the other log does.

        Its master would give it the last file alone where ``haTransferWholeLog`` is false. But it will act instead of
        one that has more, and nobody would read, or deliver, what it left out.
        """
        return max(await beginning_of_log(self._broker, self._member), begin)
