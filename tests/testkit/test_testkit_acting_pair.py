"""The pair of groups that users test a failover of their own code with: real processes, real clients."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from understudy.mqclient.api import ConsumeFrom, MessageQueue, PullConsumerOptions, SendFailedError, message
from understudy.mqclient.blocking import PullConsumer, open_producer, open_pull_consumer
from understudy.testkit.acting_pair import ActingPair, acting_pair

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair() -> Iterator[ActingPair]:
    with acting_pair() as running:
        yield running


def read(consumer: PullConsumer, wanted: set[str], seconds: float = 60) -> list[str]:
    got: list[str] = []
    deadline = time.monotonic() + seconds
    while not wanted <= set(got):
        assert time.monotonic() < deadline, f"missing: {sorted(wanted - set(got))}"
        got += [each.body.decode() for each in consumer.poll(1_000)]
    return got


def test_what_a_dead_master_had_is_read_at_its_slave_and_nothing_comes_twice(pair: ActingPair) -> None:
    pair.make_topic("Orders")
    first = {f"{group} {number}" for group in ("broker-a", "broker-b") for number in range(5)}
    options = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    with (
        open_producer(pair.namesrv_address, "writers") as producer,
        open_pull_consumer(pair.namesrv_address, "readers", options=options) as consumer,
    ):
        consumer.subscribe({"Orders": "*"})
        for text in sorted(first):
            producer.send(message("Orders", text.encode()), queue=MessageQueue("Orders", text.split()[0], 0))
        # when a master is killed; then its slave has its messages, and sends go on with the other group
        pair.kill("broker-a")
        pair.await_acting("broker-a")
        got = read(consumer, first)
        producer.send(message("Orders", b"meanwhile"), queue=MessageQueue("Orders", "broker-b", 0))
        # and when it is back, it goes on where its slave stopped
        pair.restart("broker-a")
        pair.await_complete()
        producer.send(message("Orders", b"after"), queue=MessageQueue("Orders", "broker-a", 0), timeout_ms=10_000)
        got += read(consumer, {"meanwhile", "after"})
    assert sorted(got) == sorted([*first, "meanwhile", "after"])


def test_a_frozen_master_is_acted_for_and_comes_back(pair: ActingPair) -> None:
    pair.freeze("broker-b")
    pair.await_acting("broker-b")
    pair.thaw("broker-b")
    pair.await_complete()
    assert any("broker-b" in line for line in pair.warnings())


def test_a_master_that_is_cut_off_runs_on_unheard_and_comes_back(pair: ActingPair) -> None:
    pair.make_topic("Cut")
    with open_producer(pair.namesrv_address, "writers") as producer:
        there = MessageQueue("Cut", "broker-a", 0)
        producer.send(message("Cut", b"before"), queue=there)
        pair.cut("broker-a")
        with pytest.raises(SendFailedError):
            producer.send(message("Cut", b"unheard"), queue=there, timeout_ms=300)
        pair.await_acting("broker-a")
        pair.mend("broker-a")
        pair.await_complete()
        producer.send(message("Cut", b"after"), queue=there, timeout_ms=10_000)


def test_accidents_that_cannot_happen_are_refused(pair: ActingPair) -> None:
    with pytest.raises(ValueError, match="there is no group broker-c; there are: broker-a, broker-b"):
        pair.kill("broker-c")
    with pytest.raises(ValueError, match="the process of broker-a runs"):
        pair.restart("broker-a")
    with pytest.raises(ValueError, match="broker-a is not frozen"):
        pair.thaw("broker-a")
    with pytest.raises(ValueError, match="broker-a is not cut off"):
        pair.mend("broker-a")


def test_a_pair_is_whole_again_after_accidents_of_all_kinds_at_once(pair: ActingPair) -> None:
    pair.kill("broker-a")
    pair.cut("broker-b")
    pair.freeze("broker-b")
    pair.heal()
    pair._ring._processes["broker-b"].kill()  # by nobody that the pair knows of
    pair._ring._processes["broker-b"].wait()
    pair.heal()
    pair.make_topic("Healed")
    with open_producer(pair.namesrv_address, "writers") as producer:
        for group in ("broker-a", "broker-b"):
            queue = MessageQueue("Healed", group, 0)
            assert producer.send(message("Healed", b"x"), queue=queue, timeout_ms=10_000).queue == queue
