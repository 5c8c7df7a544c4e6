"""What gRPC clients are told: routes, assignments, settings; and who they are to the proxy."""

from __future__ import annotations

import pytest
import trio
from proxy_rig import GROUP, QUEUES, Rig, consumer_settings, message, play, resource

from understudy.proxy.core.durations import to_ms
from understudy.proxy.messages import rocketmq_v2 as v2


def test_a_route_has_every_queue_at_the_endpoints_by_which_the_client_asked() -> None:
    async def test(rig: Rig) -> None:
        endpoints = v2.Endpoints(scheme=v2.DOMAIN_NAME, addresses=[v2.Address(host="mq.example", port=1)])
        request = v2.QueryRouteRequest(topic=resource("Fifo"), endpoints=endpoints)
        answer = await rig.user.ask("QueryRoute", request, v2.QueryRouteResponse)
        assert answer.status.code == v2.OK
        queues = answer.message_queues
        assert [(name, number) for name in ("broker-a", "broker-b") for number in range(QUEUES)] == [
            (queue.broker.name, queue.id) for queue in queues
        ]
        assert {(v2.READ_WRITE, v2.FIFO, "mq.example", 8081)} == {
            (
                q.permission,
                *q.accept_message_types,
                q.broker.endpoints.addresses[0].host,
                q.broker.endpoints.addresses[0].port,
            )
            for q in queues
        }

    play(test, brokers=2)


def test_a_topic_without_route_or_name_is_refused_and_none_is_made() -> None:
    refusals = {
        "Nothing": v2.TOPIC_NOT_FOUND,
        "": v2.ILLEGAL_TOPIC,
        "a b": v2.ILLEGAL_TOPIC,
        "TBW102": v2.ILLEGAL_TOPIC,
    }

    async def test(rig: Rig) -> None:
        for topic, code in refusals.items():
            request = v2.QueryRouteRequest(topic=resource(topic))
            assert code == (await rig.user.ask("QueryRoute", request, v2.QueryRouteResponse)).status.code
        assert "Nothing" not in next(iter(rig.cluster.brokers("c1").values())).topics.rows

    play(test)


def test_a_push_consumer_is_assigned_each_broker_once() -> None:
    async def test(rig: Rig) -> None:
        request = v2.QueryAssignmentRequest(topic=resource("Normal"), group=resource(GROUP))
        answer = await rig.user.ask("QueryAssignment", request, v2.QueryAssignmentResponse)
        assert [("broker-a", -1), ("broker-b", -1)] == [
            (each.message_queue.broker.name, each.message_queue.id) for each in answer.assignments
        ]

    play(test, brokers=2)


def test_settings_are_answered_with_what_the_client_is_to_do() -> None:
    async def test(rig: Rig) -> None:
        consumer = await rig.user.settle(consumer_settings(GROUP, "Normal"))
        assert (False, 32, 20_000, 17, 1_000, 18) == (
            consumer.subscription.fifo,
            consumer.subscription.receive_batch_size,
            to_ms(consumer.subscription.long_polling_timeout),
            consumer.backoff_policy.max_attempts,
            to_ms(consumer.backoff_policy.customized_backoff.next[0]),
            len(consumer.backoff_policy.customized_backoff.next),
        )
        settings = v2.Settings(client_type=v2.PRODUCER)
        settings.publishing.topics.add(name="Normal")
        producer = await rig.user.settle(settings)
        assert (4_194_304, True, 3, 10) == (
            producer.publishing.max_body_size,
            producer.publishing.validate_message_type,
            producer.backoff_policy.max_attempts,
            to_ms(producer.backoff_policy.exponential_backoff.initial),
        )

    play(test)


def test_settings_that_no_client_may_have_end_the_stream_with_a_reason() -> None:
    async def test(rig: Rig) -> None:
        nothing, lite = v2.Settings(client_type=v2.PRODUCER), v2.Settings(client_type=v2.LITE_PUSH_CONSUMER)
        for number, settings in enumerate(
            [nothing, lite, consumer_settings("a b", "Normal"), consumer_settings(GROUP, "a b")]
        ):
            async with rig.another_user(f"bad-{number}") as user:
                with pytest.raises((AssertionError, IndexError)):
                    await user.settle(settings)
                assert user.telemetry is not None
                assert user.telemetry.status == 3, settings

    play(test)


@pytest.mark.parametrize("rpc", ["SyncLiteSubscription", "PullMessage", "UpdateOffset", "GetOffset", "QueryOffset"])
def test_calls_of_lite_and_pull_consumers_are_answered_that_there_is_no_such_method(rpc: str) -> None:
    async def test(rig: Rig) -> None:
        stream = await rig.user.begin(rpc, v2.SyncLiteSubscriptionRequest())
        await rig.user.connection.wait(stream)
        assert stream.status == 12
        assert rpc in stream.headers["grpc-message"]

    play(test)


def test_a_client_is_known_by_its_settings_until_it_terminates() -> None:
    async def test(rig: Rig) -> None:
        beat = v2.HeartbeatRequest(group=resource(GROUP), client_type=v2.SIMPLE_CONSUMER)
        assert v2.UNRECOGNIZED_CLIENT_TYPE == (await rig.user.ask("Heartbeat", beat, v2.HeartbeatResponse)).status.code
        await rig.user.consume(GROUP, "Normal")
        assert v2.OK == (await rig.user.ask("Heartbeat", beat, v2.HeartbeatResponse)).status.code
        other = v2.HeartbeatRequest(group=resource("others"))
        assert v2.ILLEGAL_CONSUMER_GROUP == (await rig.user.ask("Heartbeat", other, v2.HeartbeatResponse)).status.code
        end = v2.NotifyClientTerminationRequest(group=resource(GROUP))
        for code in (v2.OK, v2.UNRECOGNIZED_CLIENT_TYPE):
            answer = await rig.user.ask("NotifyClientTermination", end, v2.NotifyClientTerminationResponse)
            assert code == answer.status.code
        assert 0 == len(rig.proxy.clients)

    play(test)


def test_a_client_that_is_silent_without_a_stream_expires() -> None:
    async def test(rig: Rig) -> None:
        async with rig.another_user("leaves") as user:
            await user.consume(GROUP, "Normal")
            await trio.sleep(1000)
            assert 1 == len(rig.proxy.clients)  # its stream is open
        await trio.sleep(125)
        assert 0 == len(rig.proxy.clients)

    play(test)


def test_every_call_needs_a_client_id() -> None:
    async def test(rig: Rig) -> None:
        rig.user.client_id = ""
        request = v2.QueryRouteRequest(topic=resource("Normal"))
        answer = await rig.user.ask("QueryRoute", request, v2.QueryRouteResponse)
        assert v2.CLIENT_ID_REQUIRED == answer.status.code
        assert v2.CLIENT_ID_REQUIRED == (await rig.user.send(message("Normal"))).status.code

    play(test)
