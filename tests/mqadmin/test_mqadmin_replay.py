"""Our tool against recorded answers of real servers must print what the real tool printed (captured from 5.4.0)."""

from __future__ import annotations

import gzip
import io
import json
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from understudy.mqadmin.command import Output
from understudy.mqadmin.main import load_commands, run_command
from understudy.mqadmin.options import parse
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.server import RemotingServer
from understudy.runtime.clock import SystemClock
from understudy.runtime.network import ByteStream
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import World, real_world

_DATA = Path(__file__).parent.parent / "data" / "mqadmin" / "replays.json.gz"
REPLAYS: dict[str, Any] = json.loads(gzip.decompress(_DATA.read_bytes()))
NAME_SERVER = "127.0.0.1:20000"

# When a command ran, where its output shows it.
_RECORDED_AT = {"resetOffsetByTime_now": 1_795_246_379_039}

# Requests that the recording has not: the real tool guesses settings from the route, ours asks the broker for them and
# keeps what it does not change; and repetitions of one request kind were thinned out of the recording.
_ORDER = {"request": 101, "fields": {}, "code": 22, "remark": "none", "header": {}, "text": ""}
_ORDER_GONE = {"request": 102, "fields": {}, "code": 0, "remark": None, "header": None, "text": ""}
_SETTINGS = {
    "request": 351,
    "fields": {},
    "code": 0,
    "remark": None,
    "header": None,
    "text": '{"topicName":"AdmTopic","readQueueNums":4,"writeQueueNums":4,"perm":6,"order":false,"topicSysFlag":0}',
}  # fmt: skip
_NOT_RECORDED = {
    "updateTopic_cluster": [_ORDER],
    "deleteTopic": [_ORDER_GONE],
    "updateTopicPerm": [_SETTINGS],
    "updateTopicPerm_cluster": [{**_SETTINGS, "text": str(_SETTINGS["text"]).replace('"perm":6', '"perm":4')}],
}

# Fields that say what a request is about; everything else may differ between tools.
_ABOUT = ("topic", "queueId", "consumerGroup", "producerGroup", "group", "key", "statsName", "statsKey", "brokerName")


class RecordedNetwork(TcpNetwork):
    """Sends connections to recorded addresses to the replaying server."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    async def connect(self, host: str, port: int, timeout_seconds: float) -> ByteStream:
        return await super().connect("127.0.0.1", self._port, timeout_seconds)


class RecordedClock(SystemClock):
    """The wall time of the recording."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms


@attrs.define
class Recorder:
    """Answers with what was recorded for the same request; notes what was asked."""

    replies: list[dict[str, Any]]
    asked: list[tuple[int, dict[str, str], str]] = attrs.field(factory=list)

    def __call__(self, connection: Connection, command: Command) -> Command:
        fields = command.ext or {}
        self.asked.append((command.code, dict(fields), command.body.decode()))
        for reply in self.replies:
            recorded = reply["fields"]
            about = [name for name in _ABOUT if name in recorded and name in fields]
            if reply["request"] == command.code and all(recorded[name] == fields[name] for name in about):
                body = bytes.fromhex(reply["hex"]) if "hex" in reply else reply["text"].encode()
                return response(command, reply["code"], reply["remark"], reply["header"], body)
        return response(command, 1, f"not recorded: {command.code} {fields}")


async def replay(name: str, arguments: list[str], as_json: bool = False) -> tuple[str, Recorder]:
    recorder = Recorder(REPLAYS[name]["replies"] + _NOT_RECORDED.get(name, []))
    world = real_world()
    server = RemotingServer(world, "127.0.0.1", 0)
    server.default(recorder)
    _, port = await server.bind()
    clock = RecordedClock(_RECORDED_AT.get(name, 1_795_246_360_000))
    recorded = World(clock, RecordedNetwork(port), world.disk, world.random)
    command = load_commands()[arguments[0]]
    stream = io.StringIO()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        values = parse(command.all_options, arguments[1:])
        await run_command(command, values, NAME_SERVER, Output(as_json, stream), recorded)
        nursery.cancel_scope.cancel()
    return stream.getvalue(), recorder


def in_order(text: str) -> list[str]:
    """Maps print in hash order in Java: sort what is inside braces; leave out what only the real client adds."""

    def sorted_map(match: re.Match[str]) -> str:
        entries = [entry for entry in match[1].split(", ") if not entry.startswith(("MIN_OFFSET=", "MAX_OFFSET="))]
        return "{" + ", ".join(sorted(entries)) + "}"

    lines = [re.sub(r"\{([^{}]*)\}", sorted_map, line).rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def in_any_order(text: str) -> list[str]:
    return sorted(line for line in in_order(text) if line)


def without_body(text: str) -> list[str]:
    """The real tool writes the body to a file and prints its path; ours prints the body."""
    return [line for line in in_order(text) if not line.startswith("Message Body")]


# Java prints these in hash order.
_ANY_ORDER = frozenset(
    {"resetOffsetByTime", "resetOffsetByTime_now", "skipAccumulatedMessage", "getNamesrvConfig", "consumerConnection"}
)
_WITH_BODY = frozenset({"queryMsgById", "queryMsgById_uniq", "queryMsgByOffset", "queryMsgByUniqueKey"})


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("name", sorted(REPLAYS))
async def test_prints_what_the_real_tool_printed(name: str) -> None:
    # Given recorded answers and the real tool's output
    arguments = shlex.split(REPLAYS[name]["command"])
    layout: Callable[[str], list[str]] = in_order
    if name in _ANY_ORDER:
        layout = in_any_order
    elif name in _WITH_BODY:
        layout = without_body
    # When our tool runs the same command
    printed, _ = await replay(name, arguments)
    # Then it prints the same
    assert layout("\n".join(REPLAYS[name]["output"])) == layout(printed)


@pytest.mark.parametrize("name", sorted(REPLAYS))
async def test_json_is_json(name: str) -> None:
    arguments = shlex.split(REPLAYS[name]["command"])
    printed, _ = await replay(name, [*arguments, "--json"], as_json=True)
    assert json.loads(printed) is not None


@pytest.mark.parametrize(
    "name",
    [
        "updateTopic", "updateSubGroup", "updateSubGroup_cluster", "setConsumeMode", "updateBrokerConfig",
        "updateNamesrvConfig", "deleteSubGroup", "deleteTopic", "wipeWritePerm", "updateKvConfig", "resetOffsetByTime",
        "createUser", "updateUser", "createAcl", "createAcl_cluster", "updateAcl", "deleteAcl",
    ],
)  # fmt: skip
async def test_asks_what_the_real_tool_asked(name: str) -> None:
    # Given what the real tool sent
    arguments = shlex.split(REPLAYS[name]["command"])
    wanted = [reply for reply in REPLAYS[name]["replies"] if reply["request"] not in (105, 106)]
    # When ours runs
    _, recorder = await replay(name, arguments)
    # Then each of its requests was sent with the same fields and the same body
    for reply in wanted:
        sent = [(fields, body) for code, fields, body in recorder.asked if code == reply["request"]]
        fields = dict(reply["fields"])
        assert any(fields.items() <= mine.items() and _same(reply.get("sent", ""), body) for mine, body in sent), sent


def _same(recorded: str, sent: str) -> bool:
    if recorded.startswith("{"):
        return bool(json.loads(recorded) == json.loads(sent))
    return recorded.strip() == sent.strip()
