"""What a peer must not achieve: to stop a quorum by an entry, to block elections, to keep a dead broker alive."""

from __future__ import annotations

import msgspec
import pytest
import trio
import trio.testing
from controller_desk import Desk

from understudy.controller.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    MalformedCommandError,
    UnknownCommandError,
    encode,
    read_command,
    write_command,
)
from understudy.controller.metadata import Metadata
from understudy.controller.raft.errors import CommandRefusedError, FatalError
from understudy.controller.raft.sessions import COMMAND, REFUSED, ReplicatedState, encode_envelope
from understudy.controller.trust import MAX_STRANGERS
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.testkit.turns import turns_beside

FAR = 1 << 63
APPLIED = encode(ApplyBrokerId("C", "a", 1, "10.0.0.1:10911;1"))
POISON = msgspec.msgpack.encode(["alter", "a", 1, 1, 1, [True, 2], [1, 2]])


def state_with(*payloads: bytes) -> tuple[ReplicatedState, list[tuple[int, bytes]]]:
    state = ReplicatedState(Metadata())
    results = [
        state.apply(index, encode_envelope((COMMAND, 1, "client", index, 0, payload)))
        for index, payload in enumerate(payloads, 1)
    ]
    return state, results


def test_an_entry_that_cannot_be_applied_is_skipped_by_every_member_alike(caplog: pytest.LogCaptureFixture) -> None:
    one, results = state_with(APPLIED, POISON)
    other, same = state_with(APPLIED, POISON)
    assert results == same
    assert results[1][0] == REFUSED
    assert b"log entry 2 cannot be applied" in results[1][1]
    assert one.snapshot() == other.snapshot()
    assert any("is skipped" in each.getMessage() for each in caplog.records)


def test_a_command_that_fails_in_the_middle_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata()
    metadata.apply(1, 0, 1, APPLIED)
    before = metadata.snapshot()

    def breaks(command: AlterSyncStateSet, features: int) -> None:
        metadata.groups["a"].sync_state_set.append(7)
        metadata.groups["a"].replicas[1].address = "elsewhere"
        raise TypeError("unforeseen")

    monkeypatch.setattr(metadata, "_alter", breaks)
    with pytest.raises(CommandRefusedError, match="unforeseen"):
        metadata.apply(2, 0, 1, encode(AlterSyncStateSet("a", 1, 1, 1, [1], [1])))
    assert metadata.snapshot() == before


@pytest.mark.parametrize("payload", [msgspec.msgpack.encode(["newer", 1]), b"\xc1", msgspec.msgpack.encode({"a": 1})])
def test_an_entry_of_a_kind_that_is_not_known_stops_a_member_that_is_too_old(payload: bytes) -> None:
    with pytest.raises(UnknownCommandError):
        read_command(payload)
    with pytest.raises(FatalError, match="written by a newer version"):
        Metadata().apply(1, 0, 1, payload)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(ApplyBrokerId("C", "a", FAR * 2, "x"), id="no 64-bit number"),
        pytest.param(ApplyBrokerId("C", "\udc80", 1, "x"), id="half a character"),
        pytest.param(AlterSyncStateSet("a", 1, 1, 1, [True, 2], [1]), id="a boolean"),
        pytest.param(AlterSyncStateSet("a", 1.0, 1, 1, [1], [1]), id="a fraction"),  # type: ignore[arg-type]
    ],
)
def test_what_members_could_not_read_is_never_proposed(command: ApplyBrokerId | AlterSyncStateSet) -> None:
    with pytest.raises(MalformedCommandError):
        write_command(command)


@pytest.mark.parametrize(
    "body",
    [
        b'{"syncStateSet":[true,2],"syncStateSetEpoch":1}',
        b'{"syncStateSet":[1,2],"syncStateSetEpoch":true}',
        b'{"syncStateSet":[1.0,2],"syncStateSetEpoch":1}',
        b'{"syncStateSet":["1"],"syncStateSetEpoch":1}',
        b'{"syncStateSet":[18446744073709551616],"syncStateSetEpoch":1}',
        b'{"syncStateSet":[' + b"1," * 10_000 + b'2],"syncStateSetEpoch":1}',
    ],
)
async def test_a_set_that_is_none_is_refused_before_the_log(
    body: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk()
    proposed: list[bytes] = []

    async def propose(client: str, sequence: int, command: bytes, timeout_seconds: float = 5) -> bytes:
        await trio.lowlevel.checkpoint()
        proposed.append(command)
        return b""

    desk.quorum.propose = propose  # type: ignore[method-assign]
    ext = {"brokerName": "a", "masterBrokerId": "1", "masterEpoch": "1"}
    answer = await desk.ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, ext, body)
    assert answer.code in (ResponseCode.CONTROLLER_INVALID_REQUEST, ResponseCode.SYSTEM_ERROR)
    assert "the body is no" in (answer.remark or "")
    assert proposed == []


HEARTBEAT = {"clusterName": "C", "brokerName": "a", "brokerAddr": "10.0.0.9:1", "epoch": "1", "maxOffset": "5"}


async def with_group(desk: Desk) -> None:
    for broker_id in (1, 2):
        ext = {
            "clusterName": "C",
            "brokerName": "a",
            "appliedBrokerId": str(broker_id),
            "registerCheckCode": f"{HEARTBEAT['brokerAddr']};{broker_id}",
        }
        assert (await desk.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, ext)).code == 0


async def test_heartbeats_of_ids_that_were_never_given_block_no_election(
    autojump_clock: trio.testing.MockClock,
) -> None:
    desk = Desk()
    await with_group(desk)
    for ghost in range(3, 6_003):
        await desk.ask(RequestCode.BROKER_HEARTBEAT, {**HEARTBEAT, "brokerId": str(ghost)})
    await desk.ask(RequestCode.BROKER_HEARTBEAT, {**HEARTBEAT, "brokerId": "1"})
    ext = {"clusterName": "C", "brokerName": "a", "brokerId": "1"}
    assert (await desk.ask(RequestCode.CONTROLLER_ELECT_MASTER, ext)).code == 0
    assert desk.metadata.groups["a"].master_id == 1


@pytest.mark.parametrize("field", ["epoch", "maxOffset", "confirmOffset", "electionPriority", "heartbeatTimeoutMills"])
async def test_a_heartbeat_with_a_number_out_of_range_is_refused(
    field: str, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk()
    await with_group(desk)
    answer = await desk.ask(RequestCode.BROKER_HEARTBEAT, {**HEARTBEAT, "brokerId": "1", field: str(FAR)})
    assert answer.code != 0
    assert desk.liveness.record("a", 1) is None


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("clusterName", "other", "belongs to cluster C"),
        ("brokerAddr", "10.0.0.8:1", "BrokerId: 1 in broker-set: a belongs to 10.0.0.9:1"),
    ],
)
async def test_a_heartbeat_of_another_cluster_or_address_keeps_nobody_alive(
    field: str, value: str, why: str, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk()
    await with_group(desk)
    answer = await desk.ask(RequestCode.BROKER_HEARTBEAT, {**HEARTBEAT, field: value, "brokerId": "1"})
    assert answer.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert why in (answer.remark or "")
    assert desk.liveness.record("a", 1) is None


@pytest.mark.parametrize("broker_id", [0, -1, 1 << 31, FAR - 1])
async def test_an_id_after_which_there_is_no_next_one_is_not_given(
    broker_id: int, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk()
    await with_group(desk)
    ext = {"clusterName": "C", "brokerName": "a", "appliedBrokerId": str(broker_id), "registerCheckCode": "x;1"}
    answer = await desk.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, ext)
    assert (answer.code, desk.metadata.next_broker_id("a")) == (ResponseCode.CONTROLLER_BROKER_ID_INVALID, 3)


async def test_brokers_without_an_id_are_watched_up_to_a_number_and_those_with_one_always(
    autojump_clock: trio.testing.MockClock,
) -> None:
    desk = Desk()
    await with_group(desk)
    codes = [
        (await desk.ask(RequestCode.BROKER_HEARTBEAT, {**HEARTBEAT, "brokerName": f"g{ghost}", "brokerId": "1"})).code
        for ghost in range(MAX_STRANGERS + 5)
    ]
    assert codes == [0] * (MAX_STRANGERS + 2) + [2] * 3  # the two that have ids do not count
    for broker_id in ("1", "2"):
        assert (await desk.ask(RequestCode.BROKER_HEARTBEAT, {**HEARTBEAT, "brokerId": broker_id})).code == 0
    assert desk.liveness.alive("a", trio.current_time()).keys() == {1, 2}


async def test_ids_and_groups_that_anybody_may_apply_for_are_bounded(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    await with_group(desk)

    async def apply(name: str, broker_id: int) -> Command:
        ext = {"clusterName": "C", "brokerName": name, "appliedBrokerId": str(broker_id), "registerCheckCode": "x;1"}
        return await desk.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, ext)

    monkeypatch.setattr("understudy.controller.requests.MAX_REPLICAS", 3)
    monkeypatch.setattr("understudy.controller.requests.MAX_GROUPS", 2)
    assert [0, 1] == [(await apply("a", broker_id)).code for broker_id in (3, 4)]
    assert [0, 1] == [(await apply(name, 1)).code for name in ("b", "c")]
    assert "2 groups are registered already" in str((await apply("c", 1)).remark)
    assert (["a", "b"], [1, 2, 3]) == (sorted(desk.metadata.groups), sorted(desk.metadata.groups["a"].replicas))


async def test_others_have_their_turns_while_very_many_groups_are_shown_or_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("understudy.runtime.pace.PIECE_SECONDS", 0.0001)  # as if the machine were slow
    desk = Desk()
    await with_group(desk)
    for number in range(1_000):
        desk.metadata.groups[f"g{number}"] = desk.metadata.groups["a"]
    names = msgspec.json.encode([*desk.metadata.groups, ["no name"] * 9])
    answers: list[Command] = []

    async def ask() -> None:
        answers.append(await desk.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {}, names))

    assert await turns_beside(ask) >= 8
    assert len(msgspec.json.decode(answers[0].body)["replicasInfoTable"]) == 1_001
    assert await turns_beside(lambda: desk.failover._elect_where_needed(dict.fromkeys(desk.metadata.groups, ""))) >= 8
    too_many = await desk.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {}, b"[" + b"1," * 20_000 + b"1]")
    assert (1, "20001 broker names are asked for") == (too_many.code, str(too_many.remark)[:32])


async def test_questions_for_groups_that_nobody_has_leave_nothing(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk()
    for number in range(50):
        fields = {"clusterName": "C", "brokerName": f"stranger-{number}", "brokerId": "-1"}
        assert (await desk.ask(1002, fields)).code == 2010
    assert not desk.failover._refused
