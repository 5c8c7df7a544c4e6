"""What a led broker does with the word of its controllers: which it takes, in which order, and what it asks."""

from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.led.controllers import RefusedError, word_of
from understudy.broker.led.following import (
    Action,
    Ask,
    Changed,
    Doubted,
    Event,
    Failed,
    LeaderIs,
    Looked,
    Pace,
    Pushed,
    Question,
    Said,
    State,
    TakeNews,
    TakeRole,
    Wanted,
    Word,
    begin,
    step,
)
from understudy.ha.switch.sync_state import NEVER, Moment
from understudy.remoting.bodies import JSON, JSON_BODIES, LARGE_BODY_BYTES, read_ahead, read_answer
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.threads import InPlace

PACE = Pace(leader=10.0, replicas=5.0, again=0.5)
OWN = 2
ME = "10.0.0.2:10911"


def word(master_id: int | None, epoch: int, members: tuple[int, ...] = (), set_epoch: int = 1) -> Word:
    address = "" if master_id is None else f"10.0.0.{master_id}:10911"
    return Word(master_id, address, epoch, frozenset(members or ([] if master_id is None else [master_id])), set_epoch)


class Story:
    """A broker with id 2, and what it was told."""

    def __init__(self, first: Word) -> None:
        self.now = 100.0
        self.state, self.actions = begin(OWN, "10.0.1.1:9878", first, self.now)

    def tell(self, event: Event, later: float = 0.0) -> list[Action]:
        self.now += later
        self.state, self.actions = step(self.state, event, self.now, PACE)
        return self.actions

    def answer_all(self, said: Word) -> None:
        """Answer what is under way, and take every role."""
        for _ in range(10):
            for ask in sorted(self.state.asked, key=lambda each: each.name):
                self.tell(LeaderIs("10.0.1.1:9878") if ask is Ask.LEADER else Said(ask, said))
            if self.state.changing is not None:
                self.tell(Changed(self.state.changing))
            if not self.state.asked and self.state.changing is None:
                return


def settled(first: Word) -> Story:
    story = Story(first)
    story.answer_all(first)
    assert story.state.role == first
    return story


@pytest.mark.covers("R253")
def test_the_role_of_the_registration_is_taken_at_once() -> None:
    story = Story(word(1, 3, (1, 2)))
    assert TakeRole(word(1, 3, (1, 2)), same=False) in story.actions
    assert story.state.changing == word(1, 3, (1, 2))
    assert story.state.role is None


@pytest.mark.covers("R325", "R326")
@pytest.mark.parametrize("epoch", [-5, 0, 1, 2, 3])
def test_a_push_of_an_epoch_that_is_not_newer_changes_nothing_and_asks_nobody(epoch: int) -> None:
    story = settled(word(1, 3, (1, 2)))
    before = story.state
    assert story.tell(Pushed(word(OWN, epoch, (OWN,)))) == []
    assert story.state == before


@pytest.mark.covers("R327")
@pytest.mark.parametrize(
    "pushed", [word(None, 9), word(0, 9), word(-1, 9), Word(5, "10.0.0.5:1", 9, frozenset({1, 2}), 1)]
)
def test_a_push_for_nobody_in_the_set_changes_nothing(pushed: Word) -> None:
    story = settled(word(1, 3, (1, 2)))
    before = story.state
    assert story.tell(Pushed(pushed)) == []
    assert story.state == before


@pytest.mark.covers("R329")
@pytest.mark.parametrize("master", [OWN, 3])
def test_a_newer_push_has_the_leader_asked_and_its_word_taken(master: int) -> None:
    story = settled(word(1, 3, (1, 2, 3)))
    # given a push that anybody may have sent
    assert story.tell(Pushed(word(master, 9, (master,)))) == [Question(Ask.REPLICAS)]
    # then it is what the leader says that counts
    said = word(master, 4, (master,), 7)
    assert story.tell(Said(Ask.REPLICAS, said)) == [TakeRole(said, same=False)]
    heard = [Question(Ask.SET, frozenset({OWN}))] if master == OWN else []
    assert story.tell(Changed(said)) == heard
    assert (story.state.role, story.state.is_master) == (said, master == OWN)


def test_a_new_master_asks_for_the_set_that_it_has_until_the_controllers_have_heard_it() -> None:
    story = settled(word(1, 3, (1, 2)))
    leads = word(OWN, 4, (OWN,), 7)
    story.tell(Looked(), later=5.0)
    story.tell(Said(Ask.REPLICAS, leads))
    assert story.tell(Changed(leads)) == [Question(Ask.SET, frozenset({OWN}))]
    story.tell(Failed(Ask.SET, lost=False))
    assert not story.state.confirmed
    assert Question(Ask.SET, frozenset({OWN})) in story.tell(Looked(), later=0.5)
    story.tell(Said(Ask.SET, leads))
    assert story.state.confirmed
    assert story.state.due[Ask.SET] == math.inf


def test_a_new_master_whose_other_set_is_refused_is_heard_all_the_same() -> None:
    story = settled(word(1, 3, (1, 2)))
    leads = word(OWN, 4, (OWN,), 7)
    story.tell(Looked(), later=5.0)
    story.tell(Said(Ask.REPLICAS, leads))
    story.tell(Changed(leads))
    # given a slave that reports at once, and that the controllers do not let in; the first question is lost
    assert story.tell(Wanted(frozenset({OWN, 1}))) == []
    story.tell(Failed(Ask.SET, lost=True))
    story.tell(Looked(), later=PACE.again)
    story.tell(LeaderIs("10.0.1.2:9878"))
    assert Ask.SET in story.state.asked and story.state.asked_set == {OWN}
    # then it is heard, and the other set is asked for without a pause, and again after one
    assert Question(Ask.SET, frozenset({OWN, 1})) in story.tell(Said(Ask.SET, leads))
    assert story.state.confirmed
    assert Question(Ask.SET, frozenset({OWN, 1})) not in story.tell(Failed(Ask.SET, lost=False))
    assert Question(Ask.SET, frozenset({OWN, 1})) in story.tell(Looked(), later=PACE.again)


def test_a_push_that_nobody_confirms_is_forgotten() -> None:
    story = settled(word(1, 3, (1, 2)))
    story.tell(Pushed(word(OWN, 2**31 - 1, (OWN,))))
    assert story.tell(Said(Ask.REPLICAS, word(1, 3, (1, 2)))) == []
    newer = word(OWN, 4, (OWN,))
    story.tell(Pushed(newer))
    assert story.tell(Said(Ask.REPLICAS, newer)) == [TakeRole(newer, same=False)]


def test_the_same_master_in_a_newer_epoch_is_no_other_role() -> None:
    story = settled(word(1, 3, (1, 2)))
    story.tell(Looked(), later=5.0)
    assert story.tell(Said(Ask.REPLICAS, word(1, 4, (1,)))) == [TakeRole(word(1, 4, (1,)), same=True)]


def test_one_role_after_the_other_and_the_newest_at_the_end() -> None:
    story = Story(word(1, 3, (1, 2)))
    for epoch in (4, 5, 4, 6):
        assert TakeRole not in {type(action) for action in story.tell(Said(Ask.REPLICAS, word(3, epoch, (3,))))}
    assert story.tell(Changed(word(1, 3, (1, 2)))) == [TakeRole(word(3, 6, (3,)), same=False)]


def test_a_role_that_could_not_be_taken_is_taken_when_the_leader_is_asked_again() -> None:
    story = settled(word(1, 3, (1, 2)))
    story.tell(Looked(), later=5.0)
    said = word(OWN, 4, (OWN,))
    story.tell(Said(Ask.REPLICAS, said))
    assert story.tell(Changed(said, "the port is taken")) == []
    assert story.state.role == word(1, 3, (1, 2))
    assert story.tell(Looked(), later=PACE.again) == [Question(Ask.REPLICAS)]
    assert story.tell(Said(Ask.REPLICAS, said)) == [TakeRole(said, same=False)]


@pytest.mark.covers("R328")
def test_who_is_elected_knows_since_when_whatever_older_change_of_its_role_is_in_the_way() -> None:
    story = Story(word(3, 4))
    heard_at = story.now + 3.0
    assert story.state.elected is None
    # given an older change that hangs
    story.tell(Said(Ask.REPLICAS, word(OWN, 5)), later=3.0)
    assert story.state.elected == (5, heard_at)
    story.tell(Looked(), later=2.0)
    story.tell(Changed(word(3, 4)), later=2.0)
    assert (story.state.changing, story.state.elected) == (word(OWN, 5), (5, heard_at))
    # then another one is elected in its place, and it again
    story.tell(Said(Ask.REPLICAS, word(3, 6)), later=2.0)
    assert story.state.elected is None
    story.tell(Said(Ask.REPLICAS, word(OWN, 7)))
    assert story.state.elected == (7, story.now)
    story.tell(Changed(word(OWN, 5)))
    story.tell(Changed(word(OWN, 7)), later=1.0)
    assert story.state.is_master and story.state.elected is None


def test_without_a_master_an_election_is_asked_for_until_there_is_one() -> None:
    story = Story(word(None, 0))
    assert Question(Ask.ELECTION) in story.tell(Said(Ask.REPLICAS, word(None, 0)))
    story.tell(Failed(Ask.ELECTION, lost=False))
    story.tell(Said(Ask.REPLICAS, word(None, 0)))
    assert Question(Ask.ELECTION) in story.actions or Question(Ask.ELECTION) in story.tell(Looked(), later=1.0)
    assert TakeRole(word(OWN, 1, (OWN,)), same=False) in story.tell(Said(Ask.ELECTION, word(OWN, 1, (OWN,))))


def test_only_the_answer_to_who_is_master_says_that_there_is_none() -> None:
    # given a registration with controllers that have not heard the master yet
    story = Story(word(None, 0))
    assert story.actions == [Question(Ask.LEADER), Question(Ask.REPLICAS)]
    # then it is followed, and nobody is asked to replace it
    assert story.tell(Said(Ask.REPLICAS, word(1, 3, (1, 2)))) == [TakeRole(word(1, 3, (1, 2)), same=False)]


def test_a_leader_that_is_lost_is_looked_for_after_a_moment_and_asked_again() -> None:
    story = settled(word(1, 3, (1, 2)))
    story.tell(Looked(), later=5.0)
    assert story.state.asked == {Ask.REPLICAS}
    assert story.tell(Failed(Ask.REPLICAS, lost=True)) == []
    assert story.state.leader == ""
    assert story.state.next_at() == pytest.approx(story.now + PACE.again)
    assert story.tell(Looked(), later=PACE.again) == [Question(Ask.LEADER)]
    assert story.state.next_at() == math.inf
    assert story.tell(LeaderIs("")) == []
    assert story.tell(Looked(), later=PACE.again) == [Question(Ask.LEADER)]
    assert story.tell(LeaderIs("10.0.1.2:9878")) == [Question(Ask.REPLICAS)]


@pytest.mark.covers("R182")
def test_a_set_is_in_force_once_the_leader_says_so() -> None:
    story = settled(word(OWN, 3, (OWN,), 1))
    assert story.tell(Wanted(frozenset({OWN, 1}))) == [Question(Ask.SET, frozenset({OWN, 1}))]
    assert story.tell(Wanted(frozenset({OWN, 1, 3}))) == []  # one at a time
    said = word(OWN, 3, (OWN, 1), 2)
    # then the newest wish is asked for
    assert story.tell(Said(Ask.SET, said)) == [TakeNews(said), Question(Ask.SET, frozenset({OWN, 1, 3}))]
    assert story.tell(Failed(Ask.SET, lost=False)) == []
    assert Question(Ask.SET, frozenset({OWN, 1, 3})) in story.tell(Looked(), later=PACE.again)


def test_a_set_that_was_refused_keeps_no_other_one_waiting() -> None:
    story = settled(word(OWN, 3, (OWN, 1, 3), 1))
    assert story.tell(Wanted(frozenset({OWN, 3}))) == [Question(Ask.SET, frozenset({OWN, 3}))]
    # given another slave that leaves in the same moment, for which the controllers refuse a set with it
    assert story.tell(Wanted(frozenset({OWN}))) == []
    assert Question(Ask.SET, frozenset({OWN})) in story.tell(Failed(Ask.SET, lost=False))
    assert story.tell(Failed(Ask.SET, lost=False)) == []


def test_a_slave_asks_for_no_set() -> None:
    story = settled(word(1, 3, (1, 2)))
    assert story.tell(Wanted(frozenset({OWN}))) == []


def test_a_master_that_moved_is_followed_to_its_new_address() -> None:
    story = settled(word(1, 3, (1, 2)))
    story.tell(Looked(), later=5.0)
    moved = attrs.evolve(word(1, 3, (1, 2)), master_address="10.0.0.9:10911")
    assert story.tell(Said(Ask.REPLICAS, moved)) == [TakeNews(moved)]


WORDS = st.builds(
    lambda master, epoch, set_epoch: word(master, epoch, (), set_epoch),
    st.sampled_from([None, 1, 2, 3]),
    st.integers(0, 6),
    st.integers(0, 3),
)
ASKS = st.sampled_from([Ask.REPLICAS, Ask.ELECTION, Ask.SET])
EVENTS = st.one_of(
    st.builds(LeaderIs, st.sampled_from(["", "a:1", "b:1"])),
    st.builds(Said, ASKS, WORDS),
    st.builds(Failed, st.sampled_from(list(Ask)), st.booleans()),
    st.builds(Pushed, WORDS),
    st.builds(Changed, WORDS, st.sampled_from(["", "error"])),
    st.builds(Wanted, st.frozensets(st.integers(1, 3), min_size=1)),
    st.just(Looked()),
)


@given(WORDS, st.lists(st.tuples(EVENTS, st.floats(0, 6)), max_size=40))
def test_whatever_happens_epochs_of_roles_grow_and_nothing_is_done_twice_at_a_time(
    first: Word, events: list[tuple[Event, float]]
) -> None:
    story = Story(first)
    under_way: set[Ask] = set()

    def check(before: State | None, event: Event | None) -> None:
        taken = [action for action in story.actions if isinstance(action, TakeRole)]
        assert len(taken) <= 1
        for action in taken:
            assert action.word.master_id is not None
            if before is not None and before.role is not None:
                assert action.word.epoch > before.role.epoch or isinstance(event, Changed)
            assert not isinstance(event, Pushed | Wanted | Looked)
        for action in story.actions:
            if isinstance(action, Question):
                assert action.ask not in under_way
                assert action.ask is Ask.LEADER or story.state.leader
                under_way.add(action.ask)
        assert under_way == story.state.asked

    check(None, None)
    for event, later in events:
        # as the shell does: only what is under way is answered, only the role that is being taken has been taken
        if isinstance(event, Said | Failed) and event.ask not in under_way:
            continue
        if isinstance(event, LeaderIs) and Ask.LEADER not in under_way:
            continue
        if isinstance(event, Changed):
            if story.state.changing is None:
                continue
            event = attrs.evolve(event, word=story.state.changing)
        under_way -= {event.ask} if isinstance(event, Said | Failed) else set()
        under_way -= {Ask.LEADER} if isinstance(event, LeaderIs) else set()
        before = story.state
        story.tell(event, later)
        check(before, event)


def test_a_master_whose_connection_to_a_controller_ended_asks_at_once_and_after_an_answer_under_way() -> None:
    story = settled(word(OWN, 4, (OWN,)))
    assert story.tell(Doubted()) == [Question(Ask.REPLICAS)]
    # given a question that left before a second connection ended
    assert story.tell(Doubted()) == []
    assert story.tell(Said(Ask.REPLICAS, word(OWN, 4, (OWN,)))) == [Question(Ask.REPLICAS)]
    assert settled(word(1, 4, (1, OWN))).tell(Doubted()) == []


def test_a_slave_asks_at_once_when_a_log_claims_an_epoch_unheard_of() -> None:
    assert settled(word(1, 4, (1, OWN))).tell(Doubted(claims=True)) == [Question(Ask.REPLICAS)]


def test_a_master_knows_when_the_leader_was_asked_that_named_it_last() -> None:
    story = settled(word(1, 3, (1, 2)))
    assert story.state.proven_at == NEVER
    # elected, and not in force yet
    story.tell(Pushed(word(2, 4, (2,))))
    story.tell(Said(Ask.REPLICAS, word(2, 4, (2,)), asked_at=Moment(101, 1)))
    assert (story.state.proven_at, story.state.named_at(4)) == (NEVER, Moment(101, 1))
    story.tell(Changed(word(2, 4, (2,))))
    assert story.state.proven_at == Moment(101, 1)
    # an answer to an older question, or one that names another master, proves nothing
    story.tell(Said(Ask.SET, word(2, 4, (2,)), asked_at=Moment(100.5, 1)))
    story.tell(Said(Ask.REPLICAS, word(None, 5), asked_at=Moment(103, 1)))
    assert story.state.proven_at == Moment(101, 1)
    assert story.state.named.set_epoch == word(2, 4, (2,)).set_epoch
    # it is asked for again before it holds no longer
    story.tell(Said(Ask.REPLICAS, word(2, 4, (2,)), asked_at=Moment(104, 1)))
    assert story.state.due[Ask.REPLICAS] == story.now + PACE.proof < story.now + PACE.replicas


@pytest.mark.parametrize(
    ("ext", "body", "why"),
    [
        ({"masterBrokerId": "x", "masterEpoch": "1"}, b"", "masterBrokerId='x' is no number"),
        ({"masterBrokerId": "1"}, b"", "masterEpoch='' is no number"),
        ({"masterBrokerId": "1", "masterEpoch": "1"}, b"{", "cannot be read"),
        ({"masterBrokerId": "1", "masterEpoch": "1"}, b'{"syncStateSet":"12"}', "syncStateSet is no list of ids"),
        ({"masterBrokerId": "1", "masterEpoch": "1"}, b'{"syncStateSet":[true]}', "syncStateSet is no list of ids"),
        ({"masterBrokerId": "1", "masterEpoch": "1"}, b'{"syncStateSet":[' + b"1," * 20_000 + b"1]}", "no list of ids"),
    ],
)
async def test_a_word_that_cannot_be_read_is_one_clear_line(ext: dict[str, str], body: bytes, why: str) -> None:
    word = request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, ext, body)
    await read_answer(InPlace(), word)
    with pytest.raises(RefusedError) as refused:
        word_of(word)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_push_as_the_real_controller_sends_it_is_read() -> None:
    ext = {"masterBrokerId": "2", "masterAddress": ME, "masterEpoch": "4", "syncStateSetEpoch": "7"}
    body = b'{"syncStateSet":[2],"syncStateSetEpoch":7}'
    assert word_of(request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, ext, body)) == Word(2, ME, 4, frozenset({2}), 7)


async def test_a_large_push_is_read_in_a_thread_and_not_again() -> None:
    body = b'{"syncStateSet":[2],"syncStateSetEpoch":7}' + b" " * LARGE_BODY_BYTES
    push = request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, {"masterEpoch": "4"}, body)
    assert push.code in JSON_BODIES
    await read_ahead(InPlace(), push, JSON.read)
    push.body = b"is looked at no more"
    assert word_of(push) == Word(None, "", 4, frozenset({2}), 7)
