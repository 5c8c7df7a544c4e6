"""Bytes that a loss of power took out of the middle of a returning master's log come back from its slaves.

The way is that of a slave with holes (:mod:`understudy.ha.healing`): first the slave must show that it has everything
else the master has, as far as its log reaches, then what is missing is written in place. The master takes no sends
meanwhile, and gives no slave what stands behind the first hole: a slave that copied from the middle of damage would be
asked for it. What one slave lacks another one may have. What none can give stays away and noted.

The reference cuts its log in recovery, and the slaves are longer than it for ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from understudy.broker.admin.raw_log import MISSING_FROM, STAND_INS
from understudy.broker.broker import Broker
from understudy.broker.log_history import history_of
from understudy.container.preonline.asking import RefusedError, ask
from understudy.container.preonline.handshake import Member
from understudy.ha.continuity import MismatchError
from understudy.ha.healing import Look
from understudy.ha.hole_filling import HoleFilling
from understudy.ha.wire import Transfer
from understudy.remoting.codes import RequestCode
from understudy.runtime.log import get_logger

log = get_logger("container.preonline.holes")


async def fill_holes(broker: Broker, member: Member, until: float, looked: set[tuple[Member, int]]) -> bool:
    """Write what is missing in the log of *broker* as far as slave *member* has it; without effect on a whole log.

    Args:
        broker: it comes back.
        member: the slave.
        until: monotonic seconds; what has not come by then is asked for while the broker serves.
        looked: who was asked to fill which hole of our log (bytes), and is not asked again; *member* is added.

    Returns:
        Whether the slave was asked: nothing was copied from this broker meanwhile.

    Raises:
        RemotingError: the slave does not answer; it may be asked again, nothing has become worse.
        OSError: our disk refused.
    """
    hole, end = broker.store.hole, broker.store.max_physical_offset
    if hole is None or hole >= end or (member, hole) in looked:
        return False
    broker.store.set_writable(False)
    try:
        why_not = await fill(broker, member, hole, end, until)
        looked.add((member, hole))
    except (RefusedError, MismatchError) as error:
        why_not = str(error)
        looked.add((member, hole))
    finally:
        broker.store.set_writable(not broker.role.is_slave and not broker.history.open)
        broker.replication.withhold(hole=True)
    if why_not:
        log.warning(
            "messages are missing in the log, and this slave cannot give them",
            missing_from=broker.store.hole,
            slave=member.address,
            why=why_not,
        )
    else:
        log.info("the log has everything again", missing_from=hole, end=end, slave=member.address)
        await broker.history.believe_what_came_back()
    return True


def share_of(broker: Broker, until: float, parts: int) -> float:
    """Return when the first of so many equal *parts* of the time until *until* ends, all in monotonic seconds.

    A slave has time: another one acts meanwhile, and it must not act itself before it has everything.
    """
    now = broker.world.clock.monotonic()
    return math.inf if broker.role.is_slave else now + max(until - now, 0) / parts


async def fill(
    broker: Broker, member: Member, hole: int, end: int, until: float = math.inf, *, stand_ins: bool = False
) -> str:
    """Write what is missing of the log as far as a slave has it, once it shows that it has the rest.

    Args:
        broker: its log has holes.
        member: the slave.
        hole: physical offset of the first hole (bytes).
        end: nothing is looked at from here on (bytes).
        until: monotonic seconds after which nothing more is asked for; what was written until then stays.
        stand_ins: *member* is our master: what stands in its log for messages that it lacks itself is taken, too.

    Returns:
        Why holes are left, ``""`` when none is.

    Raises:
        RemotingError, RefusedError: it does not answer, or has nothing to give.
        MismatchError: it gives something else than it said.
        OSError: our disk refused.
    """
    store, clock = broker.store, broker.world.clock
    part, theirs, told = await read_log(broker, member, hole, stand_ins=stand_ins)
    parting, lacks = _parting(broker, told), math.inf if stand_ins else _missing_from(told)
    end = int(min(end, theirs, lacks, math.inf if parting is None else parting))
    if end <= hole:
        if theirs <= hole:
            return f"its log ends at {theirs}"
        return f"it lacks messages from {lacks} on" if lacks <= hole else f"its log is another one from {parting} on"
    compared = store.repair(hole)
    look, position = Look(hole, end, compared.differs_at), hole
    while True:
        if clock.monotonic() >= until:
            return f"there was no time to compare more than {position - hole} of {end - hole} bytes behind the hole"
        try:
            found = look.take(Transfer(position, part))
        except ValueError as error:  # a file grew too old meanwhile
            return str(error)
        if found is not None:
            break
        position += len(part)
        part, _, _ = await read_log(broker, member, position, stand_ins=stand_ins)
    if found:
        return found
    if parting is None and not compared.compared_bytes:
        return f"its log ends at {theirs}, within what is missing, and nothing shows that it is of this log"
    log.warning("writing what is missing from the first hole of the log on", hole=hole, end=end, slave=member.address)
    repair = store.repair(hole, keep_note=not broker.role.is_slave, copy=stand_ins)
    filling = HoleFilling(hole, end, repair)
    try:
        while filling.position < end and not filling.why_not:
            if clock.monotonic() >= until:
                return f"there was no time to take more than {filling.position - hole} of {end - hole} bytes"
            part, _, _ = await read_log(broker, member, filling.position, stand_ins=stand_ins)
            await filling.take([Transfer(filling.position, part)])
    finally:
        serving = broker.replication.master
        if repair.wrote and serving is not None:
            serving.disconnect_from(hole)  # who comes again looks at what it was given in place of lost messages
    left = "" if store.hole is None else f"its log ends at {theirs}, or lacks them, too"
    return filling.why_not or left


def _parting(broker: Broker, told: Mapping[str, str]) -> float | None:
    """Return from where on (bytes) the log of a member is another one, by what it *told*; ``None``: nothing tells.

    In a group that controllers lead whoever follows has had its log cut there, and nobody else is asked.

    Raises:
        RefusedError: it cannot be understood.
    """
    if broker.led is not None:
        return math.inf
    try:
        parting = broker.history.value.parting(history_of(told))
    except ValueError as error:
        raise RefusedError(str(error)) from None
    return None if parting is None else parting.at


def _missing_from(told: Mapping[str, str]) -> float:
    """Return from where on (bytes) messages are missing in the log of a member, by what it *told*."""
    missing = told.get(MISSING_FROM, "")
    return int(missing) if missing.isdecimal() else math.inf


async def read_log(
    broker: Broker, member: Member, offset: int, *, stand_ins: bool = False
) -> tuple[memoryview, int, Mapping[str, str]]:
    """Return bytes of the log of *member*, where that log ends, and the header of the answer.

    Args:
        broker: asks.
        member: of its group.
        offset: first byte; of one answer there are at most as many as up to the end of a file.
        stand_ins: ask also for what stands in place of messages that are missing there.

    Raises:
        RemotingError, RefusedError: it does not answer, or has nothing to give.
    """
    fields = {"offset": str(offset)} | ({STAND_INS: "true"} if stand_ins else {})
    answer = await ask(broker, member, RequestCode.READ_LOG, fields)
    end = (answer.ext or {}).get("maxOffset", "")
    if not end.isdecimal():
        raise RefusedError(f"{member.address} did not say where its log ends")
    if answer.body and offset + len(answer.body) > int(end):
        raise RefusedError(f"{member.address} gives more than the {end} bytes that it has")
    return memoryview(answer.body), int(end), answer.ext or {}
