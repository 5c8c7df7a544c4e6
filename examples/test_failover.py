"""Your own code while a master dies: two broker groups in processes of their own, which you kill, freeze or cut off.

.venv/bin/pytest examples/test_failover.py
"""

from __future__ import annotations

from understudy.mqclient.api import ConsumeFrom, PullConsumerOptions, message
from understudy.mqclient.blocking import open_producer, open_pull_consumer
from understudy.testkit.acting_pair import ActingPair

FIRST = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)


def test_my_code_survives_the_death_of_a_master(rocketmq_pair: ActingPair) -> None:
    rocketmq_pair.make_topic("Orders")
    servers = rocketmq_pair.namesrv_address
    with open_producer(servers, "shop") as shop, open_pull_consumer(servers, "kitchen", FIRST) as kitchen:
        kitchen.subscribe({"Orders": "*"})
        orders = [f"order {number}" for number in range(10)]
        for order in orders[:5]:
            shop.send(message("Orders", order.encode()))
        rocketmq_pair.kill("broker-a")
        rocketmq_pair.await_acting("broker-a")  # its slave serves what it had
        for order in orders[5:]:
            shop.send(message("Orders", order.encode()), timeout_ms=10_000)  # the other group takes these
        got: set[str] = set()
        while missing := set(orders) - got:
            polled = kitchen.poll(30_000)
            assert polled, f"not delivered: {sorted(missing)}"
            got.update(each.body.decode() for each in polled)
