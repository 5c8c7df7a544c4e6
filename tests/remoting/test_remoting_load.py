"""What hostile amounts of requests cost a server: answers, incomplete frames and turns are bounded, all together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from understudy.controller.configuration import ControllerConfig
from understudy.namesrv.config import NamesrvConfig
from understudy.remoting import frame
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Dispatcher
from understudy.remoting.frame import FrameReader, encode
from understudy.remoting.limits import ConnectionLimits, LaneLimits
from understudy.remoting.netty_config import NettyServerConfig
from understudy.runtime.configuration import with_values
from understudy.runtime.load import SMALL_BYTES, Budget, Load
from understudy.runtime.memory_limit import memory_limit_bytes
from understudy.runtime.properties import ConfigError, parse_properties
from understudy.runtime.signal import Signal
from understudy.testkit.sim.clock import VirtualClock

BIG, LANE, SEND, FLOOD = 1, 2, 3, 4
ANSWER_BYTES = 400_000


class Wire:
    """A connection's network: the test says what arrives, and how many bytes of answers are taken."""

    local = peer = ("127.0.0.1", 1)

    def __init__(self, *, takes: float = float("inf")) -> None:
        self.takes = takes
        self.taken = bytearray()
        self.more = Signal()
        self._arriving: list[bytes] = []

    def arrive(self, data: bytes) -> None:
        self._arriving.append(data)
        self.more.set()

    def read_on(self, takes: float) -> None:
        self.takes = takes
        self.more.set()

    async def receive_some(self, max_bytes: int) -> bytes:
        while not self._arriving:
            await self.more.wait()
        await trio.lowlevel.checkpoint()
        data = self._arriving.pop(0)
        if len(data) > max_bytes:
            self._arriving.insert(0, data[max_bytes:])
        return data[:max_bytes]

    def send_nowait(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        data = b"".join(buffers)[: int(min(self.takes, 1 << 40))]
        self.taken += data
        self.takes -= len(data)
        return len(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        while data:
            taken = self.send_nowait([data])
            data = data[taken:]
            if data:
                await self.more.wait()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    def answers(self) -> list[Command]:
        return FrameReader().feed(bytes(self.taken))


class Service:
    """Handlers that count what they are asked, on connections that share one load."""

    def __init__(self, nursery: trio.Nursery, load: Load, limits: ConnectionLimits | None = None) -> None:
        self.load = load
        self.clock = VirtualClock()
        self.made: list[bytes] = []
        self.dispatcher = Dispatcher(self.clock, load)
        self.dispatcher.register(BIG, self._big)
        self.dispatcher.register(SEND, lambda connection, command: response(command))
        self.dispatcher.register_async(LANE, self._lane, "lane")
        self.dispatcher.lane("lane", LaneLimits(running=4))
        self._limits = limits or ConnectionLimits()
        self._nursery = nursery

    def _big(self, connection: Connection, command: Command) -> Command:
        self.made.append(command.body)
        return response(command, body=bytes(ANSWER_BYTES))

    async def _lane(self, connection: Connection, command: Command) -> Command:
        await trio.lowlevel.checkpoint()
        return self._big(connection, command)

    def connect(self, *, takes: float = float("inf")) -> tuple[Wire, Connection]:
        wire = Wire(takes=takes)
        connection = Connection(wire, self.clock, self._limits, self.load)
        self._nursery.start_soon(connection.run, self.dispatcher.dispatch)
        return wire, connection


def frames(code: int, count: int, who: bytes = b"") -> bytes:
    return b"".join(encode(request(code, None, who)) for _ in range(count))


async def test_answers_of_one_receive_wait_until_those_before_were_read(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        service = Service(nursery, Load())
        # given a peer that sends a thousand requests in one packet and reads nothing
        wire, connection = service.connect(takes=0)
        wire.arrive(frames(BIG, 1000))
        await wait_all_tasks_blocked()
        # then no more answers are made than fill the pause, and one
        most = ConnectionLimits().pause_bytes // ANSWER_BYTES + 1
        assert 0 < len(service.made) <= most
        assert service.load.outgoing.used <= most * (ANSWER_BYTES + 200)
        # and they are made as they are read, to the last
        wire.read_on(float("inf"))
        await wait_all_tasks_blocked()
        assert 1000 == len(wire.answers()) == len(service.made)
        assert (0, True) == (service.load.outgoing.used, connection.alive)
        nursery.cancel_scope.cancel()


async def test_lanes_make_no_answers_for_a_peer_that_does_not_read(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        service = Service(nursery, Load())
        wire, _ = service.connect(takes=0)
        wire.arrive(frames(LANE, 30, b"slow"))
        await wait_all_tasks_blocked()
        # at most those that ran when the pause began
        assert len(service.made) <= ConnectionLimits().pause_bytes // ANSWER_BYTES + 1 + 4
        # and the lane is free for another peer
        other, _ = service.connect()
        other.arrive(frames(LANE, 10, b"other"))
        await wait_all_tasks_blocked()
        assert 10 == len(other.answers()) == service.made.count(b"other")
        wire.read_on(float("inf"))
        await wait_all_tasks_blocked()
        assert 30 == len(wire.answers())
        nursery.cancel_scope.cancel()


async def test_requests_of_a_peer_that_left_leave_the_lane(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        service = Service(nursery, Load())
        wire, connection = service.connect(takes=0)
        wire.arrive(frames(LANE, 30, b"x" * 100_000))
        await wait_all_tasks_blocked()
        assert service.load.incoming.used > 0
        connection.close("gone")
        await wait_all_tasks_blocked()
        assert (0, 0, 0) == (
            service.load.incoming.used,
            service.load.outgoing.used,
            service.dispatcher.lane("lane").waiting,
        )
        nursery.cancel_scope.cancel()


async def test_twenty_slow_readers_share_what_the_process_may_hold(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        load = Load(16 * 8_000_000)  # eight megabytes of answers
        service = Service(nursery, load, ConnectionLimits(pause_bytes=4_000_000))
        slow = [service.connect(takes=0) for _ in range(20)]
        highest = 0
        for _ in range(10):
            for wire, _ in slow:
                wire.arrive(frames(BIG, 5))
            await wait_all_tasks_blocked()
            highest = max(highest, load.outgoing.used)
        assert 0 < highest <= load.outgoing.limit
        # somebody who reads is served beside them
        wire, connection = service.connect()
        wire.arrive(frames(BIG, 3))
        await wait_all_tasks_blocked()
        assert (3, True) == (len(wire.answers()), connection.alive)
        nursery.cancel_scope.cancel()


async def test_the_largest_outbox_goes_when_all_together_are_too_large(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        load = Load(16 * 10 * ANSWER_BYTES)
        service = Service(nursery, load)
        _, greedy = service.connect(takes=0)
        for _ in range(4):  # what nobody asked for is not held back by a pause
            greedy.write(bytes(ANSWER_BYTES))
        modest = [service.connect(takes=0) for _ in range(7)]
        for wire, _ in modest:
            wire.arrive(frames(BIG, 1))
        await wait_all_tasks_blocked()
        assert (False, [True] * 7) == (greedy.alive, [connection.alive for _, connection in modest])
        assert load.outgoing.used <= load.outgoing.limit
        nursery.cancel_scope.cancel()


async def test_incomplete_requests_that_hold_too_much_are_answered_busy(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        load = Load(16 * 4_000_000)
        service = Service(nursery, load)
        command = request(SEND, {"a": "b"}, bytes(3_000_000))
        whole = encode(command)
        # given peers that begin large requests and do not end them
        begun = [service.connect() for _ in range(6)]
        for wire, _ in begun:
            for at in range(0, 2_900_000, 100_000):
                wire.arrive(whole[at : at + 100_000])
                await wait_all_tasks_blocked()
                assert load.incoming.used <= load.incoming.limit
        refused = [(wire, connection) for wire, connection in begun if wire.taken]
        assert len(refused) >= 5 and all(connection.alive for _, connection in begun)
        wire, _ = refused[0]
        (busy,) = wire.answers()
        assert (ResponseCode.SYSTEM_BUSY, command.opaque) == (busy.code, busy.opaque)
        # when one of them sends the rest and another request, that one is served
        wire.arrive(whole[2_900_000:] + encode(request(SEND, None, b"small")))
        await wait_all_tasks_blocked()
        assert [ResponseCode.SYSTEM_BUSY, 0] == [answer.code for answer in wire.answers()]
        for _, connection in begun:
            connection.close("gone")
        await wait_all_tasks_blocked()
        assert 0 == load.incoming.used
        nursery.cancel_scope.cancel()


async def test_a_flood_takes_turns_and_others_are_answered_between(mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        service = Service(nursery, Load())
        worked: list[bytes] = []

        def work(connection: Connection, command: Command) -> None:
            mock_clock.jump(0.0005)
            worked.append(command.body)

        service.dispatcher.register(FLOOD, work)
        floods = [service.connect()[0] for _ in range(10)]
        for number, wire in enumerate(floods):
            wire.arrive(frames(FLOOD, 400, b"%d" % number))
        # given ten floods of 200 ms each; when a small request comes in the middle
        while len(worked) < 100:
            await trio.lowlevel.checkpoint()
        wire, _ = service.connect()
        wire.arrive(frames(SEND, 1))
        before = trio.current_time()
        while not wire.taken:
            await trio.lowlevel.checkpoint()
        # then it waits for a few turns only
        assert trio.current_time() - before <= 0.04
        # and the floods go on side by side
        while len(worked) < 2000:
            await trio.lowlevel.checkpoint()
        shares = [worked.count(b"%d" % number) for number in range(10)]
        assert max(shares) - min(shares) <= 64
        nursery.cancel_scope.cancel()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 100_000)), max_size=300))
def test_a_total_is_never_exceeded_by_holders_that_ask(asked: list[tuple[int, int]]) -> None:
    budget = Budget(3_000_000)
    for holder, size in asked:
        if budget.allows(holder, size):
            budget.change(holder, size)
    assert budget.used <= budget.limit
    assert budget.used == sum(budget.held_by(holder) for holder in range(10))
    # whoever holds little is allowed a little more
    assert budget.allows("newcomer", SMALL_BYTES)


def test_a_lone_holder_gets_half_and_twenty_share_the_rest() -> None:
    for holders, least, most in ((1, 0.49, 0.51), (20, 0.94, 0.96)):
        budget = Budget(100_000_000)
        grown = True
        while grown:
            grown = False
            for holder in range(holders):
                if budget.allows(holder, 1000):
                    budget.change(holder, 1000)
                    grown = True
        assert least <= budget.used / budget.limit <= most


class Told:
    def __init__(self, **texts: str) -> None:
        self._texts = {path.replace("_", "/"): text for path, text in texts.items()}

    def exists(self, path: str) -> bool:
        return path in self._texts

    def size(self, path: str) -> int:
        return len(self._texts[path])

    def read(self, path: str) -> bytes:
        if path not in self._texts:
            raise FileNotFoundError(path)
        return self._texts[path].encode()


def test_the_least_limit_of_all_control_groups_counts() -> None:
    alone = memory_limit_bytes(Told())
    second = {"_proc_self_cgroup": "0::/a/b\n", "_sys_fs_cgroup_a_memory.max": "1000000\n"}
    assert 1_000_000 == memory_limit_bytes(Told(**second, **{"_sys_fs_cgroup_a_b_memory.max": "max\n"}))
    assert 500_000 == memory_limit_bytes(Told(**second, **{"_sys_fs_cgroup_a_b_memory.max": "500000\n"}))
    first = {"_proc_self_cgroup": "9:name=systemd:/\n4:cpu,memory:/x\n"}
    assert alone == memory_limit_bytes(Told(**first))
    assert Path("/proc").exists() and alone > 1 << 20


async def test_floods_of_many_peers_are_decoded_in_turns(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, decoded = [0], frame._decode_usual

    def counted(header: bytes) -> Command:
        turns[-1] += 1
        return decoded(header)

    class Turns(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            turns.append(0)

    monkeypatch.setattr(frame, "_decode_usual", counted)
    trio.lowlevel.add_instrument(instrument := Turns())
    async with trio.open_nursery() as nursery:
        service = Service(nursery, Load())
        # given ten peers that send five hundred requests each in one packet
        wires = [service.connect()[0] for _ in range(10)]
        for wire in wires:
            wire.arrive(frames(SEND, 500))
        await wait_all_tasks_blocked()
        # then one of them is served in a turn, and of the others no more than the first few are looked at
        most = max(turns)
        assert [500] * 10 == [len(wire.answers()) for wire in wires]
        assert most < 500 + 10 * 50
        nursery.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(instrument)


async def test_a_large_answer_that_waits_leaves_in_parts_and_is_not_copied(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        service = Service(nursery, Load())
        wire, connection = service.connect(takes=10)
        await wait_all_tasks_blocked()
        body = bytes(range(256)) * 8192
        connection.write([b"head", body, b"tail"])
        assert 2**21 - 2 == service.load.outgoing.used
        wire.read_on(500_000)
        await wait_all_tasks_blocked()
        # what has left in whole parts is waited for no longer
        assert 2**21 - 2 - 262_144 >= service.load.outgoing.used > 2**21 - 500_010
        wire.read_on(float("inf"))
        await wait_all_tasks_blocked()
        assert (b"head" + body + b"tail", 0) == (bytes(wire.taken), service.load.outgoing.used)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("settings", [NamesrvConfig, ControllerConfig, NettyServerConfig])
def test_the_totals_are_parts_of_the_memory_unless_settings_say_otherwise(settings: Any) -> None:
    def limits(text: str) -> tuple[int, int, int, int]:
        load = Load(1 << 30)
        load.limit(with_values(settings(), parse_properties(text), "server.conf"))
        return load.outgoing.limit, load.incoming.limit, load.parked.limit, load.kept.limit

    assert (64 << 20, 64 << 20, 32 << 20, 128 << 20) == limits("")
    assert (1000, 64 << 20, 32 << 20, 128 << 20) == limits("waitingOutgoingBytes=1000\n")
    text = f"waitingOutgoingBytes=1\nwaitingIncomingBytes=2\nwaitingParkedBytes={3 << 40}\nkeptForPeersBytes=4\n"
    assert (1, 2, 3 << 40, 4) == limits(text)
    with pytest.raises(ConfigError, match="waitingParkedBytes=0: expected bytes from 1 to"):
        limits("waitingParkedBytes=0\n")


async def test_answers_above_a_total_that_was_set_close_who_holds_most(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        load = Load()
        load.limit(NamesrvConfig(waiting_outgoing_bytes=3 * ANSWER_BYTES))
        service = Service(nursery, load)
        greedy, other = service.connect(takes=0), service.connect(takes=0)
        greedy[0].arrive(frames(BIG, 3))
        await wait_all_tasks_blocked()
        other[0].arrive(frames(BIG, 1))
        await wait_all_tasks_blocked()
        assert (False, True) == (greedy[1].alive, other[1].alive)
        assert (1, ANSWER_BYTES) == (load.outgoing.refused, load.outgoing.used // 1000 * 1000)
        nursery.cancel_scope.cancel()
