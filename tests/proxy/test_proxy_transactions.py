"""Transactions of gRPC clients: decisions at any time, twice, through another proxy, and questions of brokers."""

from __future__ import annotations

import trio
from proxy_rig import Rig, User, message, play

from understudy.proxy.messages import rocketmq_v2 as v2

GROUP = "readers"
QUICK = {"transactionTimeOut": "2000", "transactionCheckInterval": "1000"}


def producer_settings(*topics: str) -> v2.Settings:
    settings = v2.Settings(client_type=v2.PRODUCER)
    for topic in topics:
        settings.publishing.topics.add(name=topic)
    return settings


async def send_half(user: User, message_id: str) -> str:
    """Send a half message; return the id of its transaction."""
    answer = await user.send(message("Tran", message_id.encode(), message_id, message_type=v2.TRANSACTION))
    assert answer.status.code == v2.OK, answer
    return answer.entries[0].transaction_id


async def end(user: User, transaction_id: str, resolution: v2.TransactionResolution, **fields: object) -> int:
    request = v2.EndTransactionRequest(
        topic=v2.Resource(name="Tran"), message_id="m", transaction_id=transaction_id, resolution=resolution, **fields
    )
    return (await user.ask("EndTransaction", request, v2.EndTransactionResponse)).status.code


async def known_group(user: User) -> None:
    await user.consume(GROUP, "Tran")
    await user.receive(GROUP, "Tran")


async def all_received(user: User, seconds: float) -> list[str]:
    found: list[str] = []
    with trio.move_on_after(seconds):
        while True:
            for each in (await user.receive(GROUP, "Tran"))[1]:
                found.append(each.body.decode())
                await user.ack(GROUP, "Tran", each.system_properties.receipt_handle)
    return sorted(found)


def test_only_what_was_committed_is_consumed_whenever_and_wherever_it_was_decided() -> None:
    async def test(rig: Rig) -> None:
        await known_group(rig.user)
        committed, twice, back, late = [
            await send_half(rig.user, name) for name in ("committed", "twice", "back", "late")
        ]
        assert v2.OK == await end(rig.user, committed, v2.COMMIT)
        assert v2.OK == await end(rig.user, back, v2.ROLLBACK)
        assert (v2.OK, v2.OK) == (await end(rig.user, twice, v2.COMMIT), await end(rig.user, twice, v2.COMMIT))
        await trio.sleep(300)
        async with rig.another_proxy("p2") as other:
            assert v2.OK == await end(other, late, v2.COMMIT)
        assert ["committed", "late", "twice"] == await all_received(rig.user, 40)

    play(test, broker_keys={"transactionCheckInterval": "3600000"})


def test_a_sender_that_does_not_decide_is_asked_and_its_answer_counts() -> None:
    async def test(rig: Rig) -> None:
        await known_group(rig.user)
        async with rig.another_user("sender") as sender:
            await sender.settle(producer_settings("Tran"))
            telemetry = sender.telemetry
            assert telemetry is not None
            for name in ("yes", "no"):
                await send_half(sender, name)
            decided = set()
            with trio.fail_after(60):
                while len(decided) < 2:
                    before = len(telemetry.messages)
                    await sender.connection.until(lambda before=before: len(telemetry.messages) > before)
                    command = v2.TelemetryCommand.FromString(
                        telemetry.messages[-1]
                    ).recover_orphaned_transaction_command
                    name = command.message.body.decode()
                    assert ("Tran", name) == (command.message.topic.name, command.message.system_properties.message_id)
                    resolution = v2.COMMIT if name == "yes" else v2.ROLLBACK
                    source = {"source": v2.SOURCE_SERVER_CHECK}
                    assert v2.OK == await end(sender, command.transaction_id, resolution, **source)
                    decided.add(name)
        assert ["yes"] == await all_received(rig.user, 30)

    play(test, broker_keys=QUICK)


def test_an_undecided_answer_has_the_broker_ask_another_time() -> None:
    async def test(rig: Rig) -> None:
        async with rig.another_user("sender") as sender:
            await sender.settle(producer_settings("Tran"))
            transaction_id = await send_half(sender, "m")
            unspecified = v2.TRANSACTION_RESOLUTION_UNSPECIFIED
            assert v2.OK == await end(sender, transaction_id, unspecified)
            telemetry = sender.telemetry
            assert telemetry is not None
            with trio.fail_after(60):
                await sender.connection.until(lambda: len(telemetry.messages) >= 3)

    play(test, broker_keys=QUICK)


def test_a_transaction_id_of_no_proxy_of_ours_is_refused() -> None:
    async def test(rig: Rig) -> None:
        for text, code in (
            (" ", v2.INVALID_TRANSACTION_ID),
            ("7F0000010001", v2.INTERNAL_SERVER_ERROR),
            ("m@1@2@", v2.INTERNAL_SERVER_ERROR),
            ("m@1@999999@broker-a", v2.INTERNAL_SERVER_ERROR),
            ("m@1@2@broker-z", v2.INVALID_RECEIPT_HANDLE),
        ):
            assert code == await end(rig.user, text, v2.COMMIT), text

    play(test)
