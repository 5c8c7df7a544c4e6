"""The rules of the proxy as functions: handles, queues, routes, bodies, what is remembered."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter

import pytest
import trio
import trio.testing

from understudy.format.json_dialect import dumps, loads
from understudy.format.receipts import Receipt
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.popped import PoppedMessage
from understudy.mqclient.route import BrokerAddresses, QueueGroup, TopicRoute
from understudy.proxy.cache import CacheRules, LoadingCache
from understudy.proxy.core import forwarding
from understudy.proxy.core.forwarding import brokers_of_locks
from understudy.proxy.core.handles import read_handle
from understudy.proxy.core.queue_choice import consistent_hash
from understudy.proxy.core.receiving import handle_of, received_message
from understudy.proxy.core.routes import endpoints, message_queues
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.core.transaction_ids import TransactionPlace, read_transaction_id
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.bodies import JSON, json_of, read_ahead
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.fields import CommandError
from understudy.runtime.clock import SystemClock
from understudy.runtime.threads import InPlace

HANDLE = "7 1000 60000 3 0 broker-a 2 9 4711"


def test_a_changed_handle_has_one_form_and_begins_at_its_own_message() -> None:
    changed = read_handle(HANDLE).changed(2000, 30_000, 5)
    assert "9 2000 30000 5 0 broker-a 2 9 4711" == changed.text
    assert changed == read_handle(changed.text)
    assert HANDLE == read_handle(HANDLE).text


def test_a_handle_names_the_retry_topic_from_which_it_came() -> None:
    fields = read_handle(HANDLE.replace(" 0 broker-a", " 1 broker-a")).fields("g", "t")
    assert ("%RETRY%g_t", 2, 9) == (fields["topic"], fields["queueId"], fields["offset"])
    assert 8 == len(str(fields["extraInfo"]).split(" "))


def test_the_id_of_a_transaction_survives_any_message_id() -> None:
    for message_id in ("7F00", "a@b", "ä \n"):
        place = TransactionPlace(message_id, 3, 4711, "broker-a")
        assert place == read_transaction_id(place.text)
    with pytest.raises(ProxyError):
        read_transaction_id("7F00")


# Known answers of Guava's Hashing.consistentHash.
@pytest.mark.parametrize(
    ("state", "buckets", "expected"),
    [
        (10863919174838991, 11, 6),
        (2016238256797177309, 11, 3),
        (1673758223894951030, 11, 5),
        (2, 100001, 80343),
        (2201, 100001, 22152),
        (2202, 100001, 15018),
        (-1, 1, 0),
    ],
)
def test_messages_of_a_group_go_to_the_queue_that_the_reference_takes(state: int, buckets: int, expected: int) -> None:
    assert expected == consistent_hash(state, buckets)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (QueueGroup("b", 3, 1, 6), [v2.READ, v2.READ, v2.READ_WRITE]),
        (QueueGroup("b", 1, 3, 6), [v2.WRITE, v2.WRITE, v2.READ_WRITE]),
        (QueueGroup("b", 2, 5, 4), [v2.READ, v2.READ]),
        (QueueGroup("b", 2, 1, 2), [v2.WRITE]),
        (QueueGroup("b", 0, 0, 0), [v2.NONE]),
    ],
)
def test_queues_that_can_only_be_read_or_written_come_first(group: QueueGroup, expected: list[int]) -> None:
    brokers = {"b": BrokerAddresses("b", "c", {0: "h:1", 1: "h:2"})}
    queues = message_queues(
        v2.Resource(name="t"), TopicRoute("t", brokers, (group,)), [v2.NORMAL], lambda _: endpoints([("h", 1)])
    )
    numbered = list(enumerate(expected))
    assert [(0, *each) for each in numbered] + [(1, *each) for each in numbered] == [
        (queue.broker.id, queue.id, queue.permission) for queue in queues
    ]


def test_remoting_clients_are_told_no_route_of_a_static_topic() -> None:
    brokers, queues = {"b": BrokerAddresses("b", "c", {0: "h:1"})}, (QueueGroup("b", 2, 2, 6),)
    plain = loads(forwarding.told_route(TopicRoute("t", brokers, queues), "p:1"))
    assert plain["brokerDatas"][0]["brokerAddrs"] == {"0": "p:1"}
    with pytest.raises(CommandError, match="static topic") as refused:
        forwarding.told_route(TopicRoute("t", brokers, queues, leaders={0: "b"}), "p:1")
    assert refused.value.code == 16


@pytest.mark.parametrize(
    ("body", "sys_flag", "expected", "encoding"),
    [
        (b"plain", 0, b"plain", v2.IDENTITY),
        (gzip.compress(b"of a gRPC client", mtime=0), 1, gzip.compress(b"of a gRPC client", mtime=0), v2.GZIP),
        (zlib.compress(b"of a Java producer"), 1, b"of a Java producer", v2.IDENTITY),
        (b"neither", 1, b"neither", v2.GZIP),
    ],
)
def test_a_compressed_body_comes_as_clients_can_read_it(
    body: bytes, sys_flag: int, expected: bytes, encoding: int
) -> None:
    message = ReceivedMessage(
        "t", body, {"UNIQ_KEY": "id"}, 0, "b", 2, 9, 4711, sys_flag, 1, "h:1", 2, "h:2", 0, 0, 0, 100, "t"
    )
    popped = PoppedMessage(message, Receipt(9, 1000, 60_000, 0, "0", "b", 2, 9), "g")
    got = received_message(v2.Resource(name="t"), popped, handle_of(popped), 5)
    assert (expected, encoding) == (got.body, got.system_properties.body_encoding)


# --- what is remembered ------------------------------------------------------------------------------------------


async def test_what_is_remembered_is_renewed_while_it_is_used_and_bounded(
    autojump_clock: trio.testing.MockClock,
) -> None:
    loads: Counter[str] = Counter()

    async def load(key: str) -> str | None:
        loads[key] += 1
        await trio.sleep(0.1)
        return None if key == "absent" else f"{key}{loads[key]}"

    async with trio.open_nursery() as nursery:
        cache = LoadingCache[str, str](SystemClock(), nursery, load, CacheRules(20, 300, 1, most=2))
        results: list[str | None] = []

        async def ask() -> None:
            results.append(await cache.get("a"))

        async with trio.open_nursery() as askers:
            for _ in range(5):
                askers.start_soon(ask)
        assert (["a1"] * 5, 1) == (results, loads["a"])  # one load for all
        await trio.sleep(21)
        assert "a1" == await cache.get("a")  # the old one, while it is renewed
        await trio.sleep(1)
        assert "a2" == await cache.get("a")
        await trio.sleep(301)
        assert "a3" == await cache.get("a")  # forgotten meanwhile
        await trio.sleep(2)
        assert "a4" == await cache.get("a", fresh=True)
        assert (None, None, 1) == (await cache.get("absent"), await cache.get("absent"), loads["absent"])
        await trio.sleep(1.1)
        assert (None, 2) == (await cache.get("absent"), loads["absent"])
        await cache.get("c")
        await cache.get("d")
        assert (None, "d1") == (cache.at_hand("a"), cache.at_hand("d"))
        nursery.cancel_scope.cancel()


def lock_request(*brokers: object, **beside: str) -> Command:
    queues = [{"brokerName": name, "topic": "t", "queueId": number} for number, name in enumerate(brokers)]
    body = {"consumerGroup": "g", "clientId": "c", **beside, "mqSet": queues}
    return request(RequestCode.LOCK_BATCH_MQ, {}, dumps(body))


async def test_queues_to_lock_are_told_to_their_brokers_by_what_a_thread_has_read() -> None:
    command = lock_request("b", "a", "b")
    await read_ahead(InPlace(), command, JSON.read)
    command.body = b"never read again"
    parts = {name: loads(part.body) for name, part in brokers_of_locks(command, json_of).items()}
    assert {"a": [1], "b": [0, 2]} == {
        name: [each["queueId"] for each in part["mqSet"]] for name, part in parts.items()
    }
    assert {("g", "c")} == {(part["consumerGroup"], part["clientId"]) for part in parts.values()}


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (lock_request(*map(str, range(forwarding.MOST_LOCK_BROKERS + 1))), "ask for fewer"),
        (lock_request(*["b"] * (forwarding.MOST_LOCK_QUEUES + 1)), "ask for fewer"),
        (lock_request("b", clientId="c" * forwarding.MOST_LOCK_BESIDE_BYTES), "names of 4096 bytes"),
        (lock_request(1), "names no queues"),
        (lock_request(["b"]), "names no queues"),
        (request(RequestCode.LOCK_BATCH_MQ, {}, b""), "names no queues"),
        (request(RequestCode.LOCK_BATCH_MQ, {}, b'{"mqSet": 1}'), "names no queues"),
    ],
)
async def test_what_names_too_much_to_lock_or_nothing_is_refused(command: Command, why: str) -> None:
    if len(command.body) >= 1 << 14:
        await read_ahead(InPlace(), command, JSON.read)  # as servers do with large bodies
    with pytest.raises(CommandError, match=why):
        brokers_of_locks(command, json_of)
