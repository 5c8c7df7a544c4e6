"""Tests of code that uses the C++ client by its Python binding (`pip install rocketmq==0.4.4`): no Java anywhere."""

import queue

from rocketmq.client import Message, Producer, PushConsumer  # type: ignore

from understudy.testkit.blocking import BlockingCluster


def place_order(servers: str, text: str) -> str:
    """Your own code: send one order, return its id."""
    producer = Producer("shop")
    producer.set_namesrv_addr(servers)
    producer.start()
    try:
        order = Message("Orders")
        order.set_tags("new")
        order.set_body(text)
        return str(producer.send_sync(order).msg_id)
    finally:
        producer.shutdown()


def test_an_order_that_is_placed_reaches_the_kitchen(rocketmq: BlockingCluster) -> None:
    rocketmq.make_topic("Orders")
    kitchen: queue.Queue[tuple[str, bytes]] = queue.Queue()
    consumer = PushConsumer("kitchen")
    consumer.set_namesrv_addr(rocketmq.namesrv_address)
    consumer.subscribe("Orders", lambda order: kitchen.put((order.id, order.body)), "new")
    consumer.start()
    try:
        placed = place_order(rocketmq.namesrv_address, "two apples")
        assert kitchen.get(timeout=60) == (placed, b"two apples")
    finally:
        consumer.shutdown()
