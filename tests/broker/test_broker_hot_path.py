"""What a plain message pays for: no function runs for it that serves a feature it does not use."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import cast

from broker_rig import Rig, open_rig, pull_header, send_header
from pop_rig import POP, pop_header

from understudy.broker.arrivals import Arrivals
from understudy.broker.groups import GroupConfig
from understudy.broker.topics import TopicConfig
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection

MESSAGES = 16
UNIQUE = "7F0000010A2B18B4AAC21234567890"

SEND = {
    "Dispatcher.dispatch",
    "SendProcessor.send",
    "SystemClock.wall_ms",
    "CommonProperties.look_up",
    "Writer.append",
    "Arrivals.__init__.<locals>.arrived",
    "framed",
}
"""Called once for each plain send before its answer leaves."""

LATER = {"TopicCounters.add", "index_hashes", "_unique_hash", "index_hash", "Index.put", "Index.put_one"}
"""Called once for each plain send after that."""

RECEIVE = {
    "Admission.refusal",
    "SendProcessor.begin_receive",
    "Broker.end_requests",
    "PullHold.answer_ready",
    "SendProcessor.end_receive",
    "BrokerStatistics.put_took",
    "StoreCore.enter_keys",
}
"""Called once or twice for each receive."""

PULL = {
    "Dispatcher.dispatch",
    "Conditions.beside.<locals>.handle",
    "PullProcessor.pull",
    "PullProcessor._pull",
    "Subscriptions.of_header",
    "PullProcessor._commit",
    "SystemClock.wall_ms",
    "Reader.get",
    "CommitLog.end",
    "Segments.min_offset",
    "ConsumeQueues.units",
    "Reader._slices",
    "own_offset",
    "GetResult.__init__",
    "BrokerStatistics.get_took",
    "BrokerStatistics.group",
    "OffsetTable.record_pull",
    "OffsetTable.commit",
    "Persistence.changed",
    "Counters.add",
    "framed",
}
"""Called for a plain pull, none of them more than twice."""


class Silent:
    """A connection that keeps nothing."""

    address, peer, alive, choked = "127.0.0.1:46322", ("127.0.0.1", 46322), True, False

    def __init__(self) -> None:
        self.state: dict[str, object] = {}

    def write(self, frame: object) -> None:
        pass


def calls_of(rig: Rig, commands: list[Command]) -> Counter[str]:
    """Return how often each function of this project ran for the second of two alike receives."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is not Silent.write.__code__:
            found[frame.f_code.co_qualname] += 1

    connection, server = cast(Connection, Silent()), rig.broker.server

    def receive() -> None:
        for command in commands:
            server.dispatch(connection, command)
        for after in (server.handed_on, server.answered):
            assert after is not None
            after()

    receive()
    own: Callable[..., object] = receive
    sys.setprofile(note)
    try:
        own()
    finally:
        sys.setprofile(None)
    del found[receive.__qualname__]
    return found


def sends(topic: str) -> list[Command]:
    return [
        request(310, send_header(topic, f"UNIQ_KEY\x01{UNIQUE}{number:02X}\x02"), b"body") for number in range(MESSAGES)
    ]


async def test_a_plain_send_runs_what_it_needs_and_nothing_else(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.broker.topics.update([TopicConfig("Plain", 4, 4), TopicConfig("Popped", 4, 4)])
        rig.broker.groups.update([GroupConfig("g")])
        # Others use everything there is meanwhile.
        rig.tell(POP, pop_header("Popped", pollTime="20000"))
        rig.tell(11, pull_header("Popped", sysFlag="6", suspendTimeoutMillis="20000"))
        rig.send("Popped", b"soon", "TIMER_DELAY_SEC\x0160\x02")
        rig.send("Popped", b"half", "TRAN_MSG\x01true\x02PGROUP\x01pg\x02")
        found = calls_of(rig, sends("Plain"))
        own_sends = {name: count for name, count in found.items() if name not in RECEIVE}
        extra = {"SystemClock.wall_ms": MESSAGES + 1}  # once more for the whole receive
        assert own_sends == dict.fromkeys(SEND | LATER, MESSAGES) | extra
        assert {name for name, count in found.items() if count <= 2} == RECEIVE


async def test_a_plain_pull_runs_what_it_needs_and_nothing_else(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.broker.topics.update([TopicConfig("Plain", 4, 4)])
        for command in sends("Plain"):
            rig.broker.server.dispatch(cast(Connection, Silent()), command)
        rig.broker.send.end_receive()
        header = pull_header("Plain", sysFlag="5", commitOffset="3")
        found = calls_of(rig, [request(11, header) for _ in range(MESSAGES)])
        own_pulls = {name: count for name, count in found.items() if name not in RECEIVE}
        assert set(own_pulls) == PULL
        assert max(own_pulls.values()) <= 2 * MESSAGES
        assert sum(own_pulls.values()) == (len(PULL) + 2) * MESSAGES  # two looks at the clock, and at two ends


def test_listeners_of_a_topic_are_told_before_pulls_and_nobody_else_is() -> None:
    told: list[str] = []
    parked = {("T", 1)}
    arrivals = Arrivals(parked, lambda topic, queue_id, *rest: told.append(f"pulls {topic}{queue_id}"))

    def first(topic: str, queue_id: int, *rest: object) -> None:
        told.append(f"first {topic}{queue_id}")

    def second(topic: str, queue_id: int, *rest: object) -> None:
        told.append(f"second {topic}{queue_id}")

    def arrive(topic: str, queue_id: int) -> list[str]:
        told.clear()
        arrivals.arrived(topic, queue_id, 1, 0, 0, b"")
        return list(told)

    assert (arrive("T", 1), arrive("T", 0), arrive("U", 1)) == (["pulls T1"], [], [])
    arrivals.listen("T", first)
    arrivals.listen("T", second)
    assert arrive("T", 1) == ["first T1", "second T1", "pulls T1"]
    arrivals.leave("T", first)
    parked.clear()
    assert (arrive("T", 1), arrive("U", 1)) == (["second T1"], [])
    arrivals.leave("T", second)
    assert (arrive("T", 1), "T" in arrivals._listeners) == ([], False)
