"""A broker that the controllers take for the master it was in a former life: what it asks, and until when."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import attrs
import pytest
from trio.testing import MockClock

from understudy.broker.led.controllers import Controllers, RefusedError, UnansweredError
from understudy.broker.led.following import Word
from understudy.broker.led.former_life import let_others_first
from understudy.broker.led.id_keeper import IdKeeper, Registered
from understudy.testkit.sim.clock import VirtualClock

OWN = 2
HEARD, MISSED = 3.0, 20.0
NOBODY = Word(None, "", 5, frozenset({OWN}), 7)
ME = Word(OWN, "10.0.0.2:10911", 4, frozenset({1, OWN, 3}), 6)
OTHER = Word(3, "10.0.0.3:10911", 5, frozenset({3}), 7)


@attrs.define
class Script:
    """Controllers that answer as the test says; what they were asked, and when.

    Attributes:
        word: what they say, or raise, when they are asked who is master.
        elected: what they say from then on, when the one who asks for an election is given.
        leader: who answers; another one as soon as the first one has not.
    """

    word: Callable[[], Word]
    elected: Callable[[int], Word | None] = lambda asks: None
    asked: list[tuple[float, int]] = attrs.field(factory=list)
    registrations: int = 0
    leader: str = "10.0.1.1:9878"
    clock: VirtualClock = attrs.field(factory=VirtualClock)
    began: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.began = self.clock.monotonic()

    @property
    def waited(self) -> float:
        return self.clock.monotonic() - self.began

    async def replicas(self, leader: str) -> Word:
        await self.clock.sleep(0.001)
        try:
            return self.word()
        except (UnansweredError, RefusedError):
            self.leader = "10.0.1.2:9878"
            raise

    async def elect(self, leader: str, broker_id: int) -> Word:
        await self.clock.sleep(0.001)
        self.asked.append((self.waited, broker_id))
        said = self.elected(broker_id)
        if said is None:
            raise RefusedError(2012, "Failed to elect a new master")
        self.word = lambda: said
        return said

    async def register(self) -> Registered:
        await self.clock.sleep(0.001)
        self.registrations += 1
        return Registered(OWN, self.leader, NOBODY)

    async def run(self, first: Word = NOBODY) -> Registered:
        registered = Registered(OWN, self.leader, first)
        ids, controllers = cast(IdKeeper, self), cast(Controllers, self)
        return await let_others_first(self.clock, ids, controllers, registered, HEARD, MISSED)


@pytest.mark.parametrize("word", [NOBODY, OTHER], ids=["nobody", "another one"])
async def test_who_is_not_said_to_be_master_goes_on_at_once(word: Word, autojump_clock: MockClock) -> None:
    script = Script(lambda: word)
    assert await script.run(ME) == Registered(OWN, "10.0.1.1:9878", word)
    assert (script.waited < 0.1, script.asked) == (True, [])


async def test_a_registration_without_a_master_is_not_believed(autojump_clock: MockClock) -> None:
    script = Script(lambda: ME if script.waited < 2 else OTHER)
    assert (await script.run(NOBODY)).word == OTHER
    assert 2 <= script.waited < 3
    assert script.asked == []


async def test_who_lives_is_heard_before_an_election_is_asked_for(autojump_clock: MockClock) -> None:
    script = Script(lambda: ME, lambda asks: OTHER if asks == OWN else None)
    assert (await script.run()).word == OTHER
    assert [asks for _, asks in script.asked] == [OWN]
    assert script.asked[0][0] >= HEARD


async def test_controllers_that_never_miss_it_by_themselves_are_asked_as_they_ask_themselves(
    autojump_clock: MockClock,
) -> None:
    script = Script(lambda: ME, lambda asks: NOBODY if asks == -1 else None)
    assert (await script.run()).word == NOBODY
    assert {asks for at, asks in script.asked if at < MISSED} == {OWN}
    assert (script.asked[-1][1], script.asked[-1][0] >= MISSED) == (-1, True)


@pytest.mark.parametrize("error", [UnansweredError("away"), RefusedError(2008, "not known")], ids=["away", "refused"])
async def test_another_leader_is_given_as_much_time_to_hear_who_lives(
    error: Exception, autojump_clock: MockClock
) -> None:
    def word() -> Word:
        if script.waited > MISSED and script.leader != "10.0.1.2:9878":
            raise error
        return ME if script.waited < MISSED + HEARD + 5 else OTHER

    script = Script(word)
    assert await script.run() == Registered(OWN, "10.0.1.2:9878", OTHER)
    late = [(at, asks) for at, asks in script.asked if at > MISSED + 1]
    assert late[0][0] >= MISSED + HEARD
    assert {asks for _, asks in late} == {OWN}


@pytest.mark.parametrize("after", [HEARD, MISSED], ids=["soon", "late"])
async def test_controllers_that_start_between_two_questions_learn_that_it_waits(
    after: float, autojump_clock: MockClock
) -> None:
    known_since = 0

    def elected(asks: int) -> Word | None:
        nonlocal known_since
        if script.waited < after + 2:
            known_since = script.registrations + 1
        return NOBODY if script.registrations >= known_since else None

    script = Script(lambda: ME if script.waited < 2 * MISSED else OTHER, elected)
    assert (await script.run()).word == NOBODY
    assert script.waited < after + 3


async def test_a_leader_that_is_found_when_it_registers_is_given_its_time_too(autojump_clock: MockClock) -> None:
    def elected(asks: int) -> Word | None:
        script.leader = "10.0.1.2:9878"
        return OTHER if len(script.asked) > 1 else None

    script = Script(lambda: ME, elected)
    assert await script.run() == Registered(OWN, "10.0.1.2:9878", OTHER)
    (first, _), (second, _) = script.asked
    assert second >= first + HEARD
