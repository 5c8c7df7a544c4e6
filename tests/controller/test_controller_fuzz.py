"""Whatever arrives: frames between members, requests of brokers and tools. No crash, no hang, no growth."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, cast

import pytest
import trio
from controller_desk import Desk, FakeConnection
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from understudy.controller.election import Live
from understudy.controller.liveness import BrokerKey, Heartbeat, Liveness, TooManyBrokersError
from understudy.controller.raft.messages import (
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
    Acknowledgement,
    Append,
    FrameError,
    FrameReader,
    Handover,
    Hello,
    PeerMessage,
    PreVoteAnswer,
    PreVoteRequest,
    SnapshotChunk,
    SnapshotPending,
    TermNotice,
    Vote,
    VoteRefusal,
    VoteRequest,
    decode_answer,
    decode_hello,
    decode_peer_message,
    encode_frame,
)
from understudy.remoting.client import open_client
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError
from understudy.testkit.quorum.controllers import ControllersResult, SimControllers
from understudy.testkit.quorum.settings import API_PORT
from understudy.testkit.quorum.simulation import RAFT_PORT, CounterMachine, QuorumResult, SimQuorum
from understudy.testkit.waiting import until

LONG = "a name of 70 kB"
"""Stands for one in what is drawn, so that a failing example can be read."""

_index = st.integers(0, (1 << 63) - 1)
_entry = st.tuples(st.binary(max_size=20), _index, _index)
_messages: st.SearchStrategy[PeerMessage] = st.one_of(
    st.builds(Append, _index, _index, _index, _index, st.lists(_entry, max_size=4), _index, _index, st.booleans()),
    st.builds(SnapshotChunk, _index, _index, _index, _index, _index, _index, st.binary(max_size=40), _index),
    st.builds(SnapshotPending, _index, _index, _index),
    st.builds(Acknowledgement, _index, _index, st.booleans(), st.booleans(), _index, st.booleans()),
    st.builds(VoteRequest, _index, _index, _index, st.booleans()),
    st.builds(Vote, _index),
    st.builds(VoteRefusal, _index, _index, st.text(max_size=20), _index, _index),
    st.builds(PreVoteRequest, _index, _index, _index),
    st.builds(PreVoteAnswer, _index, _index, st.booleans(), st.text(max_size=20)),
    st.builds(TermNotice, _index),
    st.builds(Handover, _index),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw a valid frame with a few bytes changed, cut out or put in."""
    data = bytearray(encode_frame(draw(_messages)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        what = draw(st.sampled_from(["change", "cut", "insert", "end"]))
        if what == "change" and data:
            data[place] = draw(st.integers(0, 255))
        elif what == "cut":
            del data[place : place + draw(st.integers(1, 4))]
        elif what == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=6))
        else:
            del data[place:]
    return bytes(data)


class TestFrames:
    @given(_messages, st.data())
    def test_every_message_survives_any_cut_of_the_stream(self, message: PeerMessage, data: st.DataObject) -> None:
        frame = encode_frame(message)
        cut = data.draw(st.integers(0, len(frame)))
        reader = FrameReader(MAX_FRAME_BYTES)
        reader.feed(frame[:cut])
        early = reader.next_body()
        reader.feed(frame[cut:])
        body = early if early is not None else reader.next_body()
        assert body is not None
        assert decode_peer_message(body) == message
        assert reader.next_body() is None

    @settings(max_examples=200)
    @given(st.lists(st.one_of(damaged(), st.binary(max_size=60)), max_size=5))
    def test_anything_is_a_message_or_a_frame_error(self, parts: list[bytes]) -> None:
        reader = FrameReader(MAX_FRAME_BYTES)
        for part in parts:
            reader.feed(part)
            try:
                while (body := reader.next_body()) is not None:
                    assert len(body) <= MAX_FRAME_BYTES
                    again = encode_frame(decode_peer_message(body))
                    assert decode_peer_message(again[4:]) == decode_peer_message(body)
            except FrameError:
                return

    @given(st.binary(max_size=200))
    def test_greetings_and_their_answers_decode_or_are_frame_errors(self, body: bytes) -> None:
        for decode in cast(list[Callable[[bytes], object]], [decode_hello, decode_answer, decode_peer_message]):
            try:
                assert decode(body) is not None
            except FrameError as error:
                assert "\n" not in str(error)

    @given(st.integers(0, (1 << 32) - 1), st.sampled_from([MAX_HELLO_BYTES, MAX_FRAME_BYTES]))
    def test_a_length_beyond_the_limit_is_refused_before_its_bytes_come(self, length: int, limit: int) -> None:
        reader = FrameReader(limit)
        reader.feed(length.to_bytes(4, "big"))
        if 0 < length <= limit:
            assert reader.next_body() is None
        else:
            with pytest.raises(FrameError, match=f"frame of {length} bytes"):
                reader.next_body()


@settings(max_examples=10)
@given(st.lists(st.one_of(damaged(), st.binary(min_size=1, max_size=300)), min_size=1, max_size=6), st.booleans())
def test_junk_on_the_members_port_closes_its_own_connection_only(junk: list[bytes], greet: bool) -> None:
    async def play() -> None:
        async with trio.open_nursery() as nursery:
            quorum = SimQuorum(random.Random(1), nursery, 3, QuorumResult(0))
            for host in quorum.hosts.values():
                host.start()
            leader = await quorum.wait_leader(10)
            assert leader is not None and leader.member is not None
            term = leader.member.term()
            for data in junk:
                stream = await quorum.network.host("stranger").connect(leader.name, RAFT_PORT, 1)
                if greet:
                    await stream.send_all(encode_frame(Hello("sim", "n7", leader.name, "disk", 1, 1)))
                await stream.send_all(data)
                with trio.fail_after(5):  # a greeting has two seconds
                    while await stream.receive_some(4096):
                        pass
                await stream.aclose()
            assert leader.member.leads()
            assert leader.member.term() == term
            assert await leader.member.propose("client", 1, b"x") == b"1"
            assert isinstance(leader.machine, CounterMachine)
            assert quorum.result.violations == []
            nursery.cancel_scope.cancel()

    trio.run(play, clock=MockClock(autojump_threshold=0))


# -- requests ----------------------------------------------------------------------------------------------------------


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


_names = st.sampled_from(["a", "b", "C", "", "%RETRY%", "ä b\n", LONG])
_numbers = st.one_of(
    st.integers(-2, 5).map(str),
    st.sampled_from(
        ["", "-1", "1e3", " 7 ", "9" * 18, str((1 << 63) - 1), str(1 << 63), str(1 << 70), str(-(1 << 63)), "9" * 5000]
    ),
    st.text(max_size=4),
)
_addresses = st.sampled_from(["10.0.0.1:10911;1", ";", "", ":", "h;1;2", LONG])
_fields = st.fixed_dictionaries(
    {},
    optional={
        "clusterName": _names,
        "brokerName": _names,
        "brokerAddr": _addresses,
        "brokerAddress": _addresses,
        "registerCheckCode": _addresses,
        "brokerControllerIdsToClean": st.one_of(_numbers, st.lists(_numbers, max_size=4).map(";".join)),
        "isCleanLivingBroker": st.sampled_from(["true", "false", "", "maybe"]),
        "designateElect": st.sampled_from(["true", "false", "", "maybe"]),
        **{
            name: _numbers
            for name in (
                "brokerId",
                "appliedBrokerId",
                "masterBrokerId",
                "masterEpoch",
                "epoch",
                "maxOffset",
                "confirmOffset",
                "heartbeatTimeoutMills",
                "electionPriority",
                "invokeTime",
            )
        },
    },
)
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
_sets = st.fixed_dictionaries(
    {}, optional={"syncStateSet": st.one_of(st.lists(st.integers(), max_size=4), _json), "syncStateSetEpoch": _json}
)
_lines = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "enableElectUncleanMaster",
                "scanInactiveMasterInterval",
                "controllerForgetMember",
                "controllerDLegerPeers",
                "configStorePath",
                "z",
            ]
        ),
        st.one_of(_numbers, st.sampled_from(["true", "n0-h:1", "\\u00"])),
    ),
    max_size=3,
).map(lambda pairs: "\n".join(f"{key}={value}" for key, value in pairs).encode())
_bodies = st.one_of(
    st.just(b""),
    st.binary(max_size=40),
    _lines,
    st.one_of(_json, _sets).map(_encoded),
    st.just(b"many"),
    st.just(b"[" * 5000),
)
MANY = b'{"syncStateSet":[' + b",".join(b"%d" % i for i in range(30_000)) + b'],"syncStateSetEpoch":1}'
CODES = sorted(Desk.codes())


@pytest.mark.parametrize("code", CODES)
@settings(max_examples=30)
@given(st.lists(st.tuples(_fields, _bodies), min_size=1, max_size=6))
def test_every_request_is_answered_or_refused_with_a_reason(
    code: int, sent: list[tuple[dict[str, str], bytes]]
) -> None:
    async def play() -> None:
        desk = Desk()
        for broker_id in (1, 2):  # a group for the requests to hit
            fields = {"clusterName": "C", "brokerName": "a", "appliedBrokerId": str(broker_id)}
            applied = await desk.ask(1013, {**fields, "registerCheckCode": f"10.0.0.{broker_id}:1;1"})
            assert applied.code == 0
        desk.alive("a", [1, 2])
        for ext, body in sent:
            with trio.fail_after(10):
                await _one(desk, code, ext, body)
        assert (await desk.ask(1012, {"brokerName": "a"})).code == 0  # it still works

    trio.run(play, clock=MockClock(autojump_threshold=0))


async def _one(desk: Desk, code: int, ext: dict[str, str], body: bytes) -> None:
    ext = {name: "x" * 70_000 if value == LONG else value for name, value in ext.items()}
    body = MANY if body == b"many" else body
    try:
        answer = await desk.handlers[code](cast(Connection, FakeConnection()), request(code, ext, body))
    except CommandError as error:
        assert error.code != 0
        assert error.remark
        assert len(error.remark) < 4000
        return
    assert isinstance(answer, Command)


@settings(max_examples=10)
@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=5))
def test_junk_on_the_api_port_closes_its_own_connection_only(junk: list[bytes]) -> None:
    async def play() -> None:
        outcome = ControllersResult(0)
        async with trio.open_nursery() as nursery:
            cluster = SimControllers(random.Random(1), nursery, outcome, {"a": 1}, 1)
            cluster.start()
            await cluster.wait_in_sync("a", 1)
            for data in junk:
                stream = await cluster.network.host("stranger").connect("n0", API_PORT, 1)
                await stream.send_all(data)
                await trio.sleep(0.1)
                await stream.aclose()
            active = await cluster.wait_active()
            assert active.controller is not None
            assert active.controller.metadata.groups["a"].master_id == 1
            await trio.sleep(3)
            assert active.controller.liveness.count() == 1
            assert outcome.violations == []
            nursery.cancel_scope.cancel()

    trio.run(play, clock=MockClock(autojump_threshold=0))


# -- liveness ----------------------------------------------------------------------------------------------------------

_keys = st.builds(BrokerKey, st.sampled_from("CD"), st.sampled_from("ab"), st.integers(1, 3))
_steps = st.one_of(
    st.tuples(st.just("heartbeat"), _keys, st.sampled_from("xyz"), st.sampled_from([-1.0, 0.5, 3.0])),
    st.tuples(st.just("close"), st.sampled_from("xyz")),
    st.tuples(st.just("expire")),
    st.tuples(st.just("forget"), st.sampled_from("ab"), st.none() | st.lists(st.integers(1, 3), max_size=2)),
)


@settings(max_examples=150)
@given(st.lists(_steps, max_size=30))
def test_liveness_takes_any_history_and_keeps_no_trace_of_what_is_forgotten(steps: list[tuple[Any, ...]]) -> None:
    liveness = Liveness(0.0)
    for now, step in enumerate(steps):
        if step[0] == "heartbeat":
            liveness.heartbeat(step[1], Heartbeat("h:1", now, step[3], step[2], Live()))
        elif step[0] == "close":
            liveness.connection_closed(step[1])
        elif step[0] == "expire":
            liveness.expire(now)
        else:
            liveness.forget(step[1], step[2])
        assert liveness.count() <= 6
        assert liveness.next_expiry(now) is not None or liveness.count() == 0
    for name in "ab":
        liveness.forget(name, None)
    assert (liveness.count(), liveness.next_expiry(30.0)) == (0, None)
    assert [liveness.connection_closed(connection) for connection in "xyz"] == [[], [], []]


def test_heartbeats_of_too_many_brokers_are_refused_and_the_known_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.controller.liveness.MAX_BROKERS", 2)
    liveness = Liveness(0.0)
    for broker_id in (1, 2):
        liveness.heartbeat(BrokerKey("C", "a", broker_id), Heartbeat("h:1", 0, 10, "x", Live()))
    with pytest.raises(TooManyBrokersError):
        liveness.heartbeat(BrokerKey("C", "b", 3), Heartbeat("h:1", 0, 10, "x", Live()))
    assert not liveness.heartbeat(BrokerKey("C", "a", 1), Heartbeat("h:1", 1, 10, "x", Live()))
    liveness.forget("a", [1])
    assert liveness.heartbeat(BrokerKey("C", "b", 3), Heartbeat("h:1", 1, 10, "x", Live()))


async def test_brokers_that_never_registered_are_forgotten_when_they_go(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "understudy.controller")
    outcome = ControllersResult(0)
    async with trio.open_nursery() as nursery:
        cluster = SimControllers(random.Random(1), nursery, outcome, {"a": 1}, 1)
        cluster.start()
        await cluster.wait_in_sync("a", 1)
        active = await cluster.wait_active()
        assert active.controller is not None
        liveness = active.controller.liveness
        async with open_client(cluster.brokers["a-1"].world) as client:
            for number in range(50):
                fields = {"clusterName": "C", "brokerName": f"ghost-{number}", "brokerAddr": "h:1", "brokerId": "1"}
                await client.invoke(f"n0:{API_PORT}", request(904, fields), 3000)
            await until(lambda: liveness.count() == 51)
        await until(lambda: liveness.record("ghost-7", 1) is None)
        assert liveness.record("ghost-49", 1) is None
        assert liveness.count() == 1
        lines = [record.getMessage() for record in caplog.records if "lost" in record.getMessage()]
        assert len(lines) == 21 and "more brokers lost at once count=30" in lines[-1]
        nursery.cancel_scope.cancel()
