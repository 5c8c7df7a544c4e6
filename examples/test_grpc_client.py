"""Tests of code that uses the gRPC client (`pip install rocketmq-python-client`): no Java anywhere."""

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer  # type: ignore

from understudy.testkit.blocking import BlockingCluster


def place_order(configuration: ClientConfiguration, text: bytes) -> str:
    """Your own code: send one order, return its id."""
    producer = Producer(configuration, ("Orders",))
    producer.startup()
    try:
        order = Message()
        order.topic, order.body, order.tag = "Orders", text, "new"
        return str(producer.send(order).message_id)
    finally:
        producer.shutdown()


def test_an_order_that_is_placed_reaches_the_kitchen(rocketmq_proxy: BlockingCluster) -> None:
    rocketmq_proxy.make_topic("Orders")
    configuration = ClientConfiguration(rocketmq_proxy.proxy_address, Credentials())
    kitchen = SimpleConsumer(configuration, "kitchen", {"Orders": FilterExpression("new")}, await_duration=5)
    kitchen.startup()
    try:
        kitchen.receive(1, 10)  # from here on the group gets what is sent
        placed = place_order(configuration, b"two apples")
        orders = kitchen.receive(16, 10)
        assert [(order.message_id, order.body) for order in orders] == [(placed, b"two apples")]
        kitchen.ack(orders[0])
    finally:
        kitchen.shutdown()
