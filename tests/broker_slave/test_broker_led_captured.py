"""What a led broker asks its controllers, beside what a broker of 5.4.0 was captured asking."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import trio
from test_broker_led_rows import part

from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command
from understudy.remoting.frame import FrameReader
from understudy.remoting.frame import encode as encode_frame
from understudy.testkit.led.group import API_PORT, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ROOT = Path(__file__).parent.parent
CAPTURED = json.loads((ROOT / "data/controller/captured_requests.json").read_text())
BY_CODE: dict[int, list[dict[str, Any]]] = defaultdict(list)
for each in CAPTURED:
    BY_CODE[each["code"]].append(each)
OF_OURS = frozenset({"storeIncarnation", "heartbeatInterval", "confirmsElection"})
"""Fields that a real broker does not send; docs/differences.md names them."""
FORMS = {
    "boolean": "true|false",
    "milliseconds": r"\d{13}",
    "number": r"-?\d{1,12}",
    "address": r"[\d.]+:\d+",
    "check code": r"[\d.]+:\d+;\d{13}",
}


def form(text: str) -> str:
    """What kind of value *text* is."""
    return next((name for name, pattern in FORMS.items() if re.fullmatch(pattern, text)), "name")


def forms(command: Command | dict[str, Any]) -> dict[str, str]:
    """Return the form of each header field."""
    ext = command.ext if isinstance(command, Command) else command["ext"]
    return {name: form(text) for name, text in (ext or {}).items()}


def shape(body: bytes | str) -> object:
    """Return a body's keys in their order, each with the kind of its value."""
    if not body:
        return None
    read = json.loads(body)
    kind = {list: lambda rows: sorted({type(row).__name__ for row in rows})}
    if isinstance(read, dict):
        return [(key, kind.get(type(value), lambda value: type(value).__name__)(value)) for key, value in read.items()]
    return kind[list](read)


class Wire:
    """What is sent to controllers, as it is read from the wire."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[RemotingClient, Command]] = []
        invoke, tell = RemotingClient.invoke, RemotingClient.invoke_oneway

        async def invoked(client: RemotingClient, address: str, command: Command, timeout_ms: float) -> Command:
            self._note(client, address, command)
            return await invoke(client, address, command, timeout_ms)

        async def told(client: RemotingClient, address: str, command: Command, timeout_ms: float) -> None:
            self._note(client, address, command)
            await tell(client, address, command, timeout_ms)

        monkeypatch.setattr(RemotingClient, "invoke", invoked)
        monkeypatch.setattr(RemotingClient, "invoke_oneway", told)

    def _note(self, client: RemotingClient, address: str, command: Command) -> None:
        if address.endswith(f":{API_PORT}"):
            [read] = FrameReader(1 << 20, 1 << 20).feed(b"".join([encode_frame(command)]))
            self.sent.append((client, read))


@pytest.fixture(scope="module")
def sent() -> list[tuple[RemotingClient, Command]]:
    """All requests to the controllers of a group that starts, loses its master, and gets it back."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        wire = Wire(monkeypatch)

        async def scenario(source: random.Random) -> None:
            async with led_group(source, {"allAckInSyncStateSet": "true"}) as group:
                first = await group.ready(3)
                await group.kill(first)
                await until(lambda: group.master() not in (None, first), 30)
                await group.start_broker(first)
                master = await group.ready(3)
                await until(lambda: len(part(group, master).followers()) == 2, 30)
                await trio.sleep(12.0)  # until each has asked who leads, and how its group is, once more

        run_seed(scenario, 1)
    return wire.sent


@pytest.mark.covers("R201")
@pytest.mark.parametrize("code", sorted(BY_CODE), ids=lambda code: f"{code}")
def test_a_request_to_controllers_has_the_fields_of_the_captured_one(
    sent: list[tuple[RemotingClient, Command]], code: int
) -> None:
    captured = BY_CODE[code]
    ours = [command for _, command in sent if command.code == code]
    assert ours, f"none of ours is {RequestCode(code).name}"
    allowed: dict[str, set[str]] = defaultdict(set)
    for real in captured:
        for name, found in forms(real).items():
            allowed[name].add(found)
    for command in ours:
        assert {real["flag"] for real in captured} == {command.flag}
        assert {real["version"] for real in captured} == {command.version}
        assert shape(command.body) in [shape(real["body"]) for real in captured]
        found = forms(command)
        assert set(allowed) == set(found) - OF_OURS, command
        for name in allowed:
            assert found[name] in allowed[name], (name, command)
    # an absent header stays absent
    assert {real["ext"] is None for real in captured} == {command.ext is None for command in ours}


def test_nothing_else_is_asked(sent: list[tuple[RemotingClient, Command]]) -> None:
    assert set(BY_CODE) == {command.code for _, command in sent}


def test_a_new_broker_asks_in_the_order_of_the_captured_one(sent: list[tuple[RemotingClient, Command]]) -> None:
    # given what brokers without a role have to do, in the order in which the capture begins
    order = [each["code"] for each in CAPTURED[:4]]
    assert [1005, 1012, 1013, 1003] == order
    lives: dict[RemotingClient, list[int]] = defaultdict(list)
    for client, command in sent:
        lives[client].append(command.code)
    fresh = [codes for codes in lives.values() if RequestCode.CONTROLLER_GET_NEXT_BROKER_ID in codes]
    assert len(fresh) == 3
    for codes in fresh:
        # then every broker of ours does it in that order, and is heard only afterwards
        assert order == [code for at, code in enumerate(codes) if code in order and code not in codes[:at]]
        assert codes.index(RequestCode.CONTROLLER_REGISTER_BROKER) < codes.index(RequestCode.BROKER_HEARTBEAT)


def test_the_page_of_differences_names_the_fields_that_are_ours() -> None:
    page = (ROOT.parent / "docs/differences.md").read_text()
    chapter = page.partition("\n## Controller\n")[2].partition("\n## ")[0]
    assert [name for name in sorted(OF_OURS) if f"`{name}`" not in chapter] == []
