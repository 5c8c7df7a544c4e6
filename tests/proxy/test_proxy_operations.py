"""What operators see of a proxy: its metrics, its health, and which call a log line is about."""

from __future__ import annotations

import logging

import pytest
import trio
from proxy_rig import GROUP, Rig, User, message, play, receive_request, received

from understudy.proxy.messages import rocketmq_v2 as v2

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
METRICS = {"metricsExporterType": 2, "metricsPromExporterPort": 5557, "metricsLabel": "site:here", "proxyName": "p-one"}


async def scraped(rig: Rig) -> dict[str, float]:
    stream = await rig.cluster.client_world().network.connect(rig.cluster.address("p1"), 5557, 5)
    await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: p1\r\n\r\n")
    answer = b""
    while data := await stream.receive_some(65536):
        answer += data
    await stream.aclose()
    lines = [line.rpartition(" ") for line in answer.decode().partition("\r\n\r\n")[2].splitlines()]
    return {name: float(number) for name, _, number in lines if not name.startswith("#")}


def value(numbers: dict[str, float], name: str, *labels: str) -> float:
    found = [number for key, number in numbers.items() if key.startswith(name) and all(each in key for each in labels)]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_metrics_have_the_name_of_the_reference_and_count_what_was_done() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume("readers", "Normal")
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code
        assert v2.OK != (await rig.user.send(message("Nothing"))).status.code
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.user.receive, "readers", "Fifo")
            await trio.sleep(1)
            numbers = await scraped(rig)
        common = ('cluster="DefaultCluster"', 'node_type="proxy"', 'node_id="p-one"', 'site="here"')
        assert 1 == value(numbers, "rocketmq_proxy_up", 'proxy_mode="cluster"', *common)
        assert 1 == value(numbers, "rocketmq_proxy_calls_total", 'rpc="SendMessage"', 'code="OK"')
        assert 1 == value(numbers, "rocketmq_proxy_calls_total", 'rpc="SendMessage"', 'code="MESSAGE_PROPERTY')
        assert (1, 1, 1) == tuple(
            value(numbers, f"rocketmq_proxy_{name}{{") for name in ("connections", "clients", "parked_receives")
        )

    play(test, config=METRICS)


def test_a_proxy_says_that_it_serves_and_of_what_it_does_not_know() -> None:
    async def test(rig: Rig) -> None:
        connection = rig.user.connection
        for service in (b"", b"\x0a\x23apache.rocketmq.v2.MessagingService"):
            answer = await connection.call(CHECK, service)
            assert (0, [b"\x08\x01"]) == (answer.status, answer.messages)
        assert 5 == (await connection.call(CHECK, b"\x0a\x05other")).status
        watch = await connection.begin(WATCH)
        await connection.send(watch, b"", end=True)
        await connection.until(lambda: watch.messages)
        assert ([b"\x08\x01"], False) == (watch.messages, watch.ended)

    play(test)


def test_a_call_that_is_not_served_is_in_the_log_with_the_id_by_which_its_client_knows_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.user.send(message("Normal"))
        await rig.cluster.kill("c1")
        user = User(rig.user.connection, "client-7")
        request = v2.SendMessageRequest(messages=[message("Normal")])
        answer = await user.ask("SendMessage", request, v2.SendMessageResponse, x_mq_request_id="request-4711")
        assert answer.status.code >= v2.INTERNAL_ERROR

    with caplog.at_level(logging.INFO):
        play(test)
    assert any("request-4711" in record.getMessage() and "client-7" in record.getMessage() for record in caplog.records)


def test_a_receive_whose_broker_does_not_serve_it_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        stream = await rig.user.begin(
            "ReceiveMessage", receive_request(GROUP, "Normal"), timeout="9S", x_mq_request_id="request-4712"
        )
        await trio.sleep(1)
        await rig.cluster.kill("c1")
        await rig.user.connection.wait(stream)
        status, messages = received(stream)
        assert status.code >= v2.INTERNAL_ERROR
        assert messages == []

    with caplog.at_level(logging.INFO):
        play(test)
    (line,) = (record.getMessage() for record in caplog.records if "request-4712" in record.getMessage())
    assert "ReceiveMessage" in line
