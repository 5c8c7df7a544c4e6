"""Asks a cluster what the model wants to know: once a second, only while somebody looks, each broker on its own.

A look does not wait for a broker that is slow: its answer is part of the look after it. One that is dead is asked more
and more seldom. What is much (how far all consumers are, what waits) is asked every five seconds, and more seldom where
the answer takes long, so that it costs a broker a twentieth of its time at most. Controllers are asked every five
seconds for all groups that they lead; which those are stands in settings of brokers, which are asked for once a minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import attrs
import trio

from understudy.console import questions
from understudy.console.backoff import Backoff
from understudy.console.model import lag, memory, sync_sets
from understudy.console.model.looks import BrokerLook, GroupAddresses, Look
from understudy.console.model.memory import Memory
from understudy.mqclient.session import Session
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

log = get_logger("console.gatherer")

LOOK_SECONDS = 1.0
MOST_BROKERS = 512
MOST_AT_ONCE = 32
_ANSWERS_WITHIN_SECONDS = 0.8
_LINGER_SECONDS = 10.0
"""How long it goes on when nobody looks any more: a page that is loaded again finds what it knew."""
_DEPTH_SECONDS = 5.0
_DEPTH_SHARE = 20
_OLD_MS = 3_000
_ROSTER_AGAIN_SECONDS = 60.0
_SETTINGS_SECONDS = 60.0


@attrs.define
class _Asked:
    """One broker, as the gatherer deals with it; times are monotonic, in seconds."""

    backoff: Backoff = attrs.field(factory=Backoff)
    busy: bool = False
    listed: bool = True
    roster_at: float = 0.0
    replication_at: float = 0.0
    settings_at: float = 0.0
    depth_at: float = 0.0
    depth_busy: bool = False


@attrs.define
class _Led:
    """The controllers of some groups, as the gatherer deals with them; monotonic time in seconds."""

    not_before: float = 0.0
    busy: bool = False


@attrs.define
class Pace:
    """How often gatherers of one cluster look that sign as different users: brokers are asked once a second by all.

    Attributes:
        awake: how many look at the moment.
    """

    awake: int = 0

    @property
    def share(self) -> int:
        """By how much each one looks more seldom than it would alone."""
        return max(self.awake, 1)


class Gatherer:
    """Keeps what is known of one cluster.

    Args:
        session: connections to its servers.
        pace: that of all gatherers of the cluster.

    Attributes:
        known: what is known now.
        looked: set after each look.
        screen: the first screen as JSON, made once for all who look.
    """

    def __init__(self, session: Session, pace: Pace) -> None:
        self._session = session
        self._pace = pace
        self._clock = session.world.clock
        self._watchers = 0
        self._watched = Signal()
        self._until = 0.0
        self._asked: dict[str, _Asked] = {}
        self._led: dict[tuple[str, ...], _Led] = {}
        self._answers: dict[str, BrokerLook] = {}
        self._limiter = trio.CapacityLimiter(MOST_AT_ONCE)
        self.known = Memory()
        self.looked = Signal()
        self.screen = _page(self.known)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Have it look as long as the block lasts."""
        self._watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self._watchers -= 1
            self._until = self._clock.monotonic() + _LINGER_SECONDS

    async def not_old(self) -> None:
        """Wait for a look when what is known is old, or nothing is; at most as long as a look takes."""
        handled = self.looked.count
        if self._clock.wall_ms() - self.known.at_ms > _OLD_MS * self._pace.share:
            with self._clock.move_on_after(5 * LOOK_SECONDS * self._pace.share):
                await self.looked.wait(handled)

    async def run(self) -> None:
        """Look until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                while not self._watched_now():
                    await self._watched.wait()
                self._pace.awake += 1
                try:
                    while self._watched_now():
                        await self._look_and_wait(nursery)
                finally:
                    self._pace.awake -= 1

    def _watched_now(self) -> bool:
        return bool(self._watchers) or self._clock.monotonic() < self._until

    async def _look_and_wait(self, nursery: trio.Nursery) -> None:
        began = self._clock.monotonic()
        try:
            await self._look(nursery)
        except Exception as error:
            log.error("a look failed", exc=error)  # whatever a server answered: the next look may be better
        self.looked.set()
        await self._clock.sleep_until(began + LOOK_SECONDS * self._pace.share)

    async def _look(self, nursery: trio.Nursery) -> None:
        groups: Mapping[str, GroupAddresses] | None = None
        error = "it does not answer in time"
        with self._clock.move_on_after(3 * LOOK_SECONDS):
            try:
                groups = await questions.groups(self._session)
            except questions.NoAnswerError as failed:
                error = str(failed)
        self._list(groups)
        now = self._clock.monotonic()
        done = [self._start(nursery, address, each) for address, each in self._asked.items() if _due(each, now)]
        with self._clock.move_on_after(_ANSWERS_WITHIN_SECONDS):
            for event in done:
                await event.wait()
        answers, self._answers = self._answers, {}
        self.known = memory.observe(
            self.known, Look(self._clock.wall_ms(), groups, answers, "" if groups is not None else error)
        )
        self._ask_depth(nursery)
        self._ask_controllers(nursery)
        self.screen = _page(self.known)

    def _list(self, groups: Mapping[str, GroupAddresses] | None) -> None:
        """Take over whom to ask: who is registered, and who was and is shown still."""
        if groups is None:
            return
        addresses = [address for each in groups.values() for address in each.registered.values()]
        shown = [address for each in self.known.groups.values() for address in each.members]
        wanted = dict.fromkeys([*addresses, *shown][:MOST_BROKERS])
        listed = set(addresses)
        asked = {address: self._asked.get(address) or _Asked() for address in wanted}
        for address, each in asked.items():
            if address in listed and not each.listed:
                each.backoff, each.settings_at = Backoff(), 0.0  # it is back, maybe with another file
            each.listed = address in listed
        self._asked = asked

    def _start(self, nursery: trio.Nursery, address: str, asked: _Asked) -> trio.Event:
        done = trio.Event()
        asked.busy = True
        nursery.start_soon(self._ask, address, asked, done)
        return done

    async def _ask(self, address: str, asked: _Asked, done: trio.Event) -> None:
        try:
            async with self._limiter:
                now = self._clock.monotonic()
                with_roster, with_replication = now >= asked.roster_at, now >= asked.replication_at
                with_settings = now >= asked.settings_at
                look = await questions.broker(
                    self._session,
                    address,
                    with_roster=with_roster,
                    with_replication=with_replication,
                    with_settings=with_settings,
                )
            now = self._clock.monotonic()
            asked.backoff = asked.backoff.after(look.answered, now)
            if look.of_reference:
                asked.roster_at = now + _ROSTER_AGAIN_SECONDS
            if look.answered and with_replication:
                asked.replication_at = now + _DEPTH_SECONDS * self._pace.share
            if look.answered and with_settings:
                asked.settings_at = now + _SETTINGS_SECONDS * self._pace.share
            before = self._answer_of(address)
            if before is not None and not with_replication:
                look = attrs.evolve(look, replication=before.replication)
            if before is not None and look.settings is None:
                look = attrs.evolve(look, settings=before.settings)
            self._answers[address] = look
        except Exception as error:
            log.error("an answer could not be used", exc=error, broker=address)
            asked.backoff = asked.backoff.after(False, self._clock.monotonic())
        finally:
            asked.busy = False
            done.set()

    def _answer_of(self, address: str) -> BrokerLook | None:
        for group in self.known.groups.values():
            member = group.members.get(address)
            if member is not None and member.answer is not None:
                return member.answer
        return None

    # --- what is much ------------------------------------------------------------------------------------------

    def _ask_depth(self, nursery: trio.Nursery) -> None:
        now = self._clock.monotonic()
        for name, group in self.known.groups.items():
            asked = self._asked.get(group.leader)
            if asked is None or asked.depth_busy or now < asked.depth_at or not group.members[group.leader].answers:
                continue
            asked.depth_busy = True
            nursery.start_soon(self._depth, name, group.leader, asked)

    async def _depth(self, name: str, address: str, asked: _Asked) -> None:
        try:
            async with self._limiter:
                began = self._clock.monotonic()
                stuck = await questions.stuck(self._session, address, name)
                lags = await questions.lags(self._session, address)
                ended = self._clock.monotonic()
            asked.depth_at = ended + max(_DEPTH_SECONDS, _DEPTH_SHARE * (ended - began)) * self._pace.share
            self.known = memory.with_lag(memory.with_stuck(self.known, name, stuck), name, lags)
            table = await self._session.world.threads.run(partial(lag.ranking, tuple(self.known.lags.values())))
            self.known = attrs.evolve(self.known, ranking=table)
        except Exception as error:
            log.error("an answer could not be used", exc=error, broker=address)
            asked.depth_at = self._clock.monotonic() + _ROSTER_AGAIN_SECONDS
        finally:
            asked.depth_busy = False

    # --- controllers -------------------------------------------------------------------------------------------

    def _ask_controllers(self, nursery: trio.Nursery) -> None:
        now, led = self._clock.monotonic(), sync_sets.led(self.known.groups)
        self._led = {controllers: self._led.get(controllers) or _Led() for controllers in led}
        for controllers, names in led.items():
            asked = self._led[controllers]
            if not asked.busy and now >= asked.not_before:
                asked.busy = True
                nursery.start_soon(self._sync_state_sets, controllers, names, asked)

    async def _sync_state_sets(self, controllers: tuple[str, ...], names: list[str], asked: _Led) -> None:
        try:
            async with self._limiter:
                looks = await questions.sync_state_sets(self._session, controllers, names)
            self.known = memory.with_sync_sets(self.known, looks)
        except Exception as error:
            log.error("an answer could not be used", exc=error, controllers=";".join(controllers))
        finally:
            asked.not_before = self._clock.monotonic() + _DEPTH_SECONDS * self._pace.share
            asked.busy = False


def _page(known: Memory) -> bytes:
    return json.dumps(memory.first_screen(known), ensure_ascii=False).encode(errors="replace")


def _due(asked: _Asked, now: float) -> bool:
    return not asked.busy and now >= asked.backoff.not_before
