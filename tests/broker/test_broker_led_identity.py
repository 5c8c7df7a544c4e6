"""The persistent id of a led broker: never lost, never given twice, whatever ends the process or the power and when."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.led import identity
from understudy.broker.led.identity import (
    Apply,
    AskNextId,
    Confirm,
    Done,
    Event,
    ForgetAll,
    ForgetClaim,
    Granted,
    Known,
    NextId,
    Register,
    Taken,
    Unanswered,
    Unknown,
    WriteClaim,
    Written,
)
from understudy.broker.led.identity_files import Claim, GroupName, IdentityError, IdentityFiles, Kept
from understudy.controller.commands import ApplyBrokerId, CleanBrokerData, RegisterBroker, decode_outcome, write_command
from understudy.controller.metadata import Metadata
from understudy.testkit.sim.disk import PowerCut, SimDisk

NAME = GroupName("W2", "broker-a")
PATH = "/store/brokerIdentity"
CODE = "127.0.0.1:21320;1795247168884"
DATA = Path(__file__).parents[1] / "data" / "led"


def a_disk(seed: int = 0) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.make_folder("/store")
    disk.sync_everything("/")
    return disk


def put(disk: SimDisk, path: str, text: bytes) -> None:
    disk.open(path).write_at(0, text)
    disk.sync_everything("/")


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("R260")
@pytest.mark.parametrize(("file", "broker_id"), [("brokerIdentity-1", 1), ("brokerIdentity-2", 2)])
def test_a_file_of_the_real_broker_is_taken_over_and_written_alike(file: str, broker_id: int) -> None:
    disk, text = a_disk(), (DATA / file).read_bytes()
    put(disk, PATH, text)
    files = IdentityFiles(disk, PATH, NAME)
    assert files.read() == Kept(broker_id)
    disk.remove(PATH)
    files.confirm(broker_id)
    assert disk.read(PATH) == text


@pytest.mark.covers("R245")
def test_a_claim_is_written_in_the_form_of_the_real_broker() -> None:
    disk = a_disk()
    files = IdentityFiles(disk, PATH, NAME)
    files.claim(Claim(1, CODE))
    assert disk.read(f"{PATH}-temp") == f"W2#broker-a#1#{CODE}".encode()
    assert files.read() == Kept(None, Claim(1, CODE))


@given(st.text("a#b", min_size=1, max_size=5), st.text("a#b", min_size=1, max_size=5), st.integers(1, 2**63 - 1))
def test_any_name_is_read_back(cluster: str, broker: str, broker_id: int) -> None:
    files = IdentityFiles(a_disk(), PATH, GroupName(cluster, broker))
    files.claim(Claim(broker_id, CODE))
    assert files.read() == Kept(None, Claim(broker_id, CODE))
    files.confirm(broker_id)
    assert files.read() == Kept(broker_id)


@pytest.mark.parametrize(
    ("text", "claim", "kept"),
    [
        (None, None, Kept()),
        (None, b"", Kept()),
        (None, b"W2#broker-a#1#", Kept()),
        (None, b"W2#broker-a#1", Kept()),
        (None, b"W2#broker-a", Kept()),
        # the reference deletes and writes anew: a process that ended in between left half a file beside the claim
        (b"", b"W2#broker-a#7#c;1", Kept(None, Claim(7, "c;1"))),
        (b"W2#brok", b"W2#broker-a#7#c;1", Kept(None, Claim(7, "c;1"))),
        (b"W2#broker-a#", b"W2#broker-a#7#c;1", Kept(None, Claim(7, "c;1"))),
        (b"W2#broker-a#7\n", b"W2#broker-a#7#c;1", Kept(7, Claim(7, "c;1"))),
    ],
)
@pytest.mark.covers("R250")
def test_half_a_file_is_never_used(text: bytes | None, claim: bytes | None, kept: Kept) -> None:
    disk = a_disk()
    for path, content in ((PATH, text), (f"{PATH}-temp", claim)):
        if content is not None:
            put(disk, path, content)
    assert IdentityFiles(disk, PATH, NAME).read() == kept


@pytest.mark.parametrize(
    ("text", "claim", "why"),
    [
        (b"W2#broker-b#1", None, f"{PATH} belongs to the broker W2#broker-b, this one is W2#broker-a: correct"),
        (b"W3#broker-a#1", None, f"{PATH} belongs to the broker W3#broker-a"),
        (None, b"W2#broker-b#1#c;1", f"{PATH}-temp belongs to the broker W2#broker-b"),
        (b"", None, f"{PATH} is damaged: it holds '' instead of W2#broker-a#ID; write that into it"),
        (b"W2#broker-a#0", None, f"{PATH} is damaged"),
        (b"W2#broker-a#-1", None, f"{PATH} is damaged"),
        (b"W2#broker-a#9223372036854775808", None, f"{PATH} is damaged"),
        (b"\xff\xfe#\x00#\x01", None, f"{PATH} is damaged"),
    ],
)
def test_a_file_of_another_broker_or_of_nobody_is_one_clear_line_and_stays(
    text: bytes | None, claim: bytes | None, why: str
) -> None:
    disk = a_disk()
    for path, content in ((PATH, text), (f"{PATH}-temp", claim)):
        if content is not None:
            put(disk, path, content)
    with pytest.raises(IdentityError) as refused:
        IdentityFiles(disk, PATH, NAME).read()
    assert str(refused.value).startswith(why)
    assert "\n" not in str(refused.value)
    assert (disk.read(PATH) if text is not None else disk.read(f"{PATH}-temp")) == (text if text is not None else claim)


# -- steps -------------------------------------------------------------------------------------------------------------


def walk(kept: Kept, *events: Event) -> list[identity.Action]:
    """Return every action on the way; what is claimed has the code "c"."""
    state = identity.begin(kept)
    actions = [state.action]
    for event in events:
        action = state.action
        state = identity.step(state, event, Claim(action.broker_id, "c") if isinstance(action, WriteClaim) else None)
        actions.append(state.action)
    return actions


MINE = Claim(3, "mine")


@pytest.mark.parametrize(
    ("kept", "events", "actions"),
    [
        pytest.param(
            Kept(),
            (NextId(1), Written(), Granted(), Written(), Known()),
            [AskNextId(), WriteClaim(1), Apply(Claim(1, "c")), Confirm(1), Register(1), Done(1)],
            marks=pytest.mark.covers("R243", "R246"),
            id="a first start",
        ),
        pytest.param(Kept(3), (Known(),), [Register(3), Done(3)], marks=pytest.mark.covers("R251"), id="a later start"),
        pytest.param(
            Kept(),
            (NextId(1), Written(), Taken(), Written(), NextId(2)),
            [AskNextId(), WriteClaim(1), Apply(Claim(1, "c")), ForgetAll(), AskNextId(), WriteClaim(2)],
            marks=pytest.mark.covers("R249"),
            id="another broker was faster",
        ),
        pytest.param(
            Kept(None, MINE),
            (Taken(), Written()),
            [Apply(MINE), ForgetAll(), AskNextId()],
            marks=pytest.mark.covers("R255"),
            id="a claim of a former life that is refused",
        ),
        pytest.param(
            Kept(None, MINE),
            (Unanswered(), Unanswered(), Granted(), Written()),
            [Apply(MINE), Apply(MINE), Apply(MINE), Confirm(3), Register(3)],
            marks=pytest.mark.covers("R256"),
            id="lost answers cost no claim",
        ),
        pytest.param(
            Kept(3, MINE),
            (Known(), Written()),
            [Register(3), ForgetClaim(), Done(3)],
            marks=pytest.mark.covers("R257"),
            id="ended before the claim was forgotten",
        ),
        pytest.param(
            Kept(3),
            (Unknown(), Written(), Granted(), Written(), Known()),
            [Register(3), WriteClaim(3), Apply(Claim(3, "c")), Confirm(3), Register(3), Done(3)],
            id="the group was cleaned",
        ),
        pytest.param(
            Kept(3, MINE), (Unknown(),), [Register(3), Apply(MINE)], id="the group was cleaned, and the claim is there"
        ),
        pytest.param(
            Kept(3),
            (Unknown(), Written(), Taken(), Written()),
            [Register(3), WriteClaim(3), Apply(Claim(3, "c")), ForgetAll(), AskNextId()],
            id="the group was cleaned, and the id went to another",
        ),
    ],
)
def test_each_step_follows_from_what_the_controller_says(
    kept: Kept, events: tuple[Event, ...], actions: list[identity.Action]
) -> None:
    assert walk(kept, *events) == actions


ANY_EVENT = st.sampled_from([NextId(9), Written(), Granted(), Taken(), Known(), Unknown(), Unanswered()])


@given(
    st.sampled_from([Kept(), Kept(3), Kept(None, MINE), Kept(3, MINE), Kept(4, MINE)]),
    st.lists(ANY_EVENT, max_size=12),
)
def test_an_id_is_given_up_only_when_it_is_taken_and_claimed_before_it_is_applied_for(
    kept: Kept, events: list[Event]
) -> None:
    state = identity.begin(kept)
    for event in events:
        before = state
        action = state.action
        state = identity.step(state, event, Claim(action.broker_id, "c") if isinstance(action, WriteClaim) else None)
        if isinstance(state.action, ForgetAll) and before != state:
            assert (type(before.action), event) == (Apply, Taken())
        if isinstance(state.action, Apply):
            assert state.kept.claim == state.action.claim
        if isinstance(event, Unanswered):
            assert state == before


# -- with a controller, and a power that goes --------------------------------------------------------------------------


class Controller:
    """The production state machine, asked without a network."""

    def __init__(self) -> None:
        self.metadata = Metadata()
        self._index = 0

    def run(self, command: ApplyBrokerId | CleanBrokerData | RegisterBroker) -> int:
        self._index += 1
        return decode_outcome.decode(self.metadata.apply(self._index, 0, 1, write_command(command))).code

    def apply(self, claim: Claim) -> int:
        return self.run(ApplyBrokerId(NAME.cluster, NAME.broker, claim.broker_id, claim.code))

    def holders(self) -> dict[int, str]:
        group = self.metadata.groups.get(NAME.broker)
        return {} if group is None else {number: replica.check_code for number, replica in group.replicas.items()}


@attrs.define
class Life:
    """One life of a broker process on *disk*: acts until it is done or ends."""

    disk: SimDisk
    controller: Controller
    code: str
    drop_answer: int = -1
    asked: int = 0

    def run(self, end_after: int = 1000) -> int | None:
        """Take *end_after* steps at most; return the id once it is done."""
        files = IdentityFiles(self.disk, PATH, NAME)
        state = identity.begin(files.read())
        for _ in range(end_after):
            action, claimed = state.action, None
            if isinstance(action, Done):
                return action.broker_id
            if isinstance(action, WriteClaim):
                claimed = Claim(action.broker_id, self.code)
                files.claim(claimed)
            elif isinstance(action, Confirm):
                files.confirm(action.broker_id)
            elif isinstance(action, ForgetClaim):
                files.forget_claim()
            elif isinstance(action, ForgetAll):
                files.forget_all()
            event = self.ask(action)
            state = identity.step(state, event, claimed)
        return None

    def ask(self, action: identity.Action) -> Event:
        event: Event
        if isinstance(action, AskNextId):
            event = NextId(self.controller.metadata.next_broker_id(NAME.broker))
        elif isinstance(action, Apply):
            event = Granted() if self.controller.apply(action.claim) == 0 else Taken()
        elif isinstance(action, Register):
            answer = self.controller.metadata.registration(NAME.broker, action.broker_id, [])
            event = Known() if answer.code == 0 else Unknown()
        else:
            return Written()
        self.asked += 1
        return Unanswered() if self.asked - 1 == self.drop_answer else event


@pytest.mark.covers("R250", "R254", "R256", "R257", "CC-19", "CC-21")
@pytest.mark.parametrize("drop_answer", [-1, 0, 1, 2])
@pytest.mark.parametrize("syncs", range(12))
def test_power_lost_at_any_sync_loses_no_id_and_gives_none_twice(syncs: int, drop_answer: int) -> None:
    for seed in range(8):
        disk, controller = a_disk(seed), Controller()
        first = Life(disk, controller, "a:1;1", drop_answer)
        disk.syncs_left = syncs
        with contextlib.suppress(PowerCut):
            first.run()
        disk.lose_power()
        # when another broker comes meanwhile, and this one again
        other = Life(a_disk(), controller, "b:1;1").run()
        own = Life(disk, controller, "a:1;2").run()
        # then each has one of its own, and none was lost
        assert own is not None and other is not None and own != other
        assert controller.holders().keys() == {own, other} == {1, 2}
        assert IdentityFiles(disk, PATH, NAME).read() == Kept(own)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(-1, 3), st.booleans()), max_size=8))
def test_two_brokers_that_end_anywhere_come_to_ids_of_their_own(ends: list[tuple[int, int, int, bool]]) -> None:
    disks, controller = [a_disk(1), a_disk(2)], Controller()
    for life, (which, steps, drop_answer, power) in enumerate(ends):
        disk = disks[which]
        Life(disk, controller, f"{which}:1;{life}", drop_answer).run(steps)
        if power:
            disk.lose_power()
        else:
            disk.kill_process()
    ids = [Life(disk, controller, f"{which}:1;99").run() for which, disk in enumerate(disks)]
    assert sorted(filter(None, ids)) == [1, 2] == sorted(controller.holders())


def test_a_broker_whose_group_was_cleaned_takes_its_id_again() -> None:
    disk, controller = a_disk(), Controller()
    assert Life(disk, controller, "a:1;1").run() == 1
    assert controller.run(CleanBrokerData(NAME.broker, None, True, [])) == 0
    assert controller.holders() == {}
    assert Life(disk, controller, "a:1;2").run() == 1
    assert controller.holders() == {1: "a:1;2"}


@pytest.mark.covers("R255")
@pytest.mark.parametrize("syncs", range(3))
def test_an_id_that_went_to_another_is_given_up_before_its_claim_is(syncs: int) -> None:
    left = set()
    for seed in range(20):
        disk = a_disk(seed)
        files = IdentityFiles(disk, PATH, NAME)
        files.confirm(3)
        files.claim(MINE)
        disk.syncs_left = syncs
        with contextlib.suppress(PowerCut):
            files.forget_all()
            assert syncs == 2
        disk.lose_power()
        left.add(files.read())
    # the id alone would be registered (1003), which nobody refuses, beside the broker that has it now
    assert left <= {Kept(3, MINE), Kept(None, MINE), Kept()}
    assert syncs < 2 or left == {Kept()}
