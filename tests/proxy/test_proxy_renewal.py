"""Messages that push consumers hold: renewed while their client lives, given back when it does not."""

from __future__ import annotations

import attrs
import pytest
import trio
from proxy_rig import Rig, User, message, play

from understudy.format.receipts import Receipt
from understudy.proxy.core.handles import Handle
from understudy.proxy.core.renewal import Held, RenewalRules, Step, step
from understudy.proxy.core.settings import GroupConfig
from understudy.proxy.messages import rocketmq_v2 as v2

GROUP = "readers"
RULES = RenewalRules(10_000, 10_800_000, 3, 1_000)
NOW = 1_000_000_000
HELD = Held("c", GROUP, "Normal", Handle(Receipt(0, NOW, 60_000, 0, "0", "broker-a", 0, 0), 0), NOW, 2)


@pytest.mark.parametrize(
    ("after_ms", "there", "changes", "expected"),
    [
        (49_999, True, {}, (Step.KEEP, 0)),
        (50_000, True, {}, (Step.RENEW, 60_000)),
        (50_000, True, {"renewals": 1}, (Step.RENEW, 180_000)),
        (50_000, True, {"renewals": 99}, (Step.RENEW, 3_600_000)),
        (0, False, {}, (Step.RELEASE, 1_000)),
        (60_000, True, {}, (Step.FORGET, 0)),
        (60_000, False, {}, (Step.FORGET, 0)),
        (50_000, True, {"failures": 3}, (Step.RENEW, 60_000)),
        (50_000, True, {"failures": 4}, (Step.FORGET, 0)),
        (50_000, True, {"since_ms": NOW - 10_800_000}, (Step.RELEASE, 10_000)),
    ],
)
def test_what_becomes_of_a_message_is_one_pure_step(
    after_ms: int, there: bool, changes: dict[str, int], expected: tuple[Step, int]
) -> None:
    held = attrs.evolve(HELD, **changes)
    assert expected == step(held, NOW + after_ms, client_is_there=there, group=GroupConfig(), rules=RULES)


async def held_message(rig: Rig, user: User) -> str:
    """Send a message and receive it as push consumers do; return its handle."""
    await user.consume(GROUP, "Normal")
    await user.receive(GROUP, "Normal", auto_renew=True)
    await rig.user.send(message("Normal"))
    _, (got,) = await user.receive(GROUP, "Normal", auto_renew=True)
    return got.system_properties.receipt_handle


async def seconds_until_again(user: User, limit: float) -> float | None:
    """Return after how long the message comes to another consumer of the group."""
    await user.consume(GROUP, "Normal")
    begin = trio.current_time()
    while trio.current_time() - begin < limit:
        if (await user.receive(GROUP, "Normal"))[1]:
            return trio.current_time() - begin
    return None


def test_a_held_message_stays_hidden_and_its_first_handle_acknowledges_it() -> None:
    async def test(rig: Rig) -> None:
        async with rig.another_user("push") as push:
            handle = await held_message(rig, push)
            assert await seconds_until_again(rig.user, 500) is None
            assert v2.OK == (await push.ack(GROUP, "Normal", handle)).status.code
        assert await seconds_until_again(rig.user, 600) is None

    play(test)


@pytest.mark.parametrize("terminates", [True, False])
def test_what_a_client_holds_that_has_gone_comes_to_others(terminates: bool) -> None:
    async def test(rig: Rig) -> None:
        async with rig.another_user("push") as push:
            await held_message(rig, push)
            if terminates:
                request = v2.NotifyClientTerminationRequest(group=v2.Resource(name=GROUP))
                await push.ask("NotifyClientTermination", request, v2.NotifyClientTerminationResponse)
        seconds = await seconds_until_again(rig.user, 400)
        assert seconds is not None
        assert seconds < (30 if terminates else 180)

    play(test)


def test_a_proxy_that_stops_gives_back_what_its_clients_hold() -> None:
    async def test(rig: Rig) -> None:
        async with rig.another_proxy("p2") as push:
            await held_message(rig, push)
        seconds = await seconds_until_again(rig.user, 400)
        assert seconds is not None
        assert seconds < 30

    play(test)


def test_an_acknowledgement_that_fails_leaves_the_message_held() -> None:
    async def test(rig: Rig) -> None:
        async with rig.another_user("push") as push:
            handle = await held_message(rig, push)
            rig.cluster.partition(["c1", "n1"], ["p1", "client", "push"])
            with trio.move_on_after(100):
                assert v2.OK != (await push.ack(GROUP, "Normal", handle)).status.code
            rig.cluster.heal()
            assert await seconds_until_again(rig.user, 300) is None
            assert v2.OK == (await push.ack(GROUP, "Normal", handle)).status.code

    play(test)
