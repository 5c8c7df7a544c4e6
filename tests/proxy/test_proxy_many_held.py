"""Very many clients and messages that they hold: none is looked for among all others, and looks leave others turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import attrs
import trio
from hypothesis import given
from hypothesis import strategies as st
from test_proxy_renewal import HELD
from trio.testing import MockClock

from understudy.proxy.clients import EXPIRES_SECONDS, Clients
from understudy.proxy.config import ProxyConfig
from understudy.proxy.core.callers import Caller
from understudy.proxy.core.handles import Handle
from understudy.proxy.core.settings import GroupConfig
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.renewals import _AT_ONCE, _LOOKED_AT, Renewals, _HeldMessages
from understudy.runtime.pace import run_steps
from understudy.testkit.sim.clock import VirtualClock

MANY = 2_000
keys = st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2", "3"]))


@given(st.lists(st.tuples(st.booleans(), keys), max_size=30))
def test_messages_by_client_are_those_of_one_table(changes: list[tuple[bool, tuple[str, str]]]) -> None:
    table, plain = _HeldMessages(), dict[tuple[str, str], Any]()
    for number, (put, key) in enumerate(changes):
        if put:
            plain[key] = attrs.evolve(HELD, renewals=number)
            table.put(key, plain[key])
        else:
            assert table.pop(key) is plain.pop(key, None)
        assert len(table) == len(plain)
        assert set(table.keys()) == plain.keys()
        for client in "abc":
            assert set(table.keys_of(client)) == {each for each in plain if each[0] == client}
            assert all(table.get((client, text)) is plain.get((client, text)) for text in "123")
    assert len(table._of_client) == len({client for client, _ in plain})  # nothing is left of who holds nothing


def renewals(clock: Any, hidden: list[int]) -> Renewals:
    async def group(name: str) -> GroupConfig:
        return GroupConfig()

    async def hide(group: str, topic: str, handle: Handle, hide_ms: int) -> Handle:
        hidden.append(hide_ms)
        await trio.lowlevel.checkpoint()
        return handle

    clients = SimpleNamespace(get=lambda client_id: object() if client_id == "there" else None)
    parts = SimpleNamespace(config=ProxyConfig(), clock=clock, clients=clients, brokers=SimpleNamespace(group=group))
    return Renewals(cast(Any, parts), hide)


class Turns(trio.abc.Instrument):
    """Counts the turns of the loop."""

    number = 0

    def before_io_wait(self, timeout: float) -> None:
        self.number += 1


async def test_a_look_at_very_many_messages_and_their_release_leave_others_turns() -> None:
    turns, hidden = Turns(), list[int]()
    clock = VirtualClock()
    now_ms = clock.wall_ms()
    held = renewals(clock, hidden)
    for number in range(MANY):
        receipt = attrs.evolve(HELD.handle.receipt, pop_ms=now_ms, invisible_ms=60_000, offset=number)
        for client in ("there", "gone"):
            held.hold(client, "g", "T", Handle(receipt, number), 0)
    assert len(held) == 2 * MANY
    trio.lowlevel.add_instrument(turns)
    try:
        await held._look()  # those of the client that is gone are given back
        assert (len(held), len(hidden)) == (MANY, MANY)
        assert turns.number >= 2 * MANY // _LOOKED_AT + MANY // _AT_ONCE
        before = turns.number
        await held.release("nobody")
        assert turns.number - before < 5
        before = turns.number
        await held.release("there")
        assert (len(held), len(hidden)) == (0, 2 * MANY)
        assert turns.number - before >= MANY // _AT_ONCE
    finally:
        trio.lowlevel.remove_instrument(turns)


async def test_clients_that_are_gone_are_forgotten_in_steps(mock_clock: MockClock) -> None:
    clients = Clients(VirtualClock())
    stream = cast(Any, object())
    for number in range(MANY):
        caller = Caller(f"old-{number}", "JAVA", "", "", "10.0.0.1")
        client = clients.settle(caller, v2.Settings(), stream)
        if number:
            clients.closed(client, stream)
    mock_clock.jump(EXPIRES_SECONDS / 2)
    clients.closed(clients.settle(Caller("young", "JAVA", "", "", "10.0.0.1"), v2.Settings(), stream), stream)
    due = run_steps(clients.expire())
    assert len(clients) == MANY + 1
    assert due == trio.current_time() + EXPIRES_SECONDS / 2
    mock_clock.jump(EXPIRES_SECONDS / 2 + 1)
    steps = sum(1 for _ in clients.expire())
    assert steps >= MANY // 256
    assert sorted(each.caller.client_id for each in clients) == ["old-0", "young"]  # a stream is open, or it is young


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "x", "y", "xy", "gone"])), max_size=20))
def test_who_sends_to_a_topic_is_known_as_of_the_newest_settings(changes: list[tuple[str, str]]) -> None:
    for sent, senders, plain in trio.run(_settled, changes, clock=MockClock()):
        assert sent == sorted(set[str]().union(*plain.values()))
        for topic, found in senders.items():
            assert found == {each for each, topics in plain.items() if topic in topics}


Settled = tuple[list[str], dict[str, set[str]], dict[str, set[str]]]


async def _settled(changes: list[tuple[str, str]]) -> list[Settled]:
    """Return after each change: topics that are sent to, who sends to each, and what each client said last."""
    clients, plain, found = Clients(VirtualClock()), dict[str, set[str]](), list[Settled]()
    for name, what in changes:
        caller = Caller(name, "JAVA", "", "", "10.0.0.1")
        known = clients.get(name)
        if what != "gone":
            settings = v2.Settings()
            for topic in what:
                settings.publishing.topics.add().name = topic
            clients.settle(caller, settings, cast(Any, object()))
            plain[name] = set(what)
        elif known is not None:
            clients.forget(known)
            del plain[name]
        senders = {topic: {client.caller.client_id for client in clients.senders(topic)} for topic in "xyz"}
        found.append((clients.sent_topics, senders, dict(plain)))
    return found
