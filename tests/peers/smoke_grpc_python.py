#!/usr/bin/env python3
"""The official gRPC client for Python against a proxy; prints one JSON line for each scenario.

usage: smoke_grpc_python.py HOST:PORT SCENARIO...; each needs the topic of its name (normal, fifo ...).
SMOKE_AWAIT_GROUP is a command that waits until the group and topic that follow have begun.
`reconnect` needs the topic `again`. SMOKE_ACCESS_KEY and SMOKE_SECRET_KEY sign calls.
"""

import collections
import json
import os
import pathlib
import shlex
import subprocess
import sys
import threading
import time
import traceback

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

LIMIT_S = 120


def configuration():
    keys = os.environ.get("SMOKE_ACCESS_KEY", ""), os.environ.get("SMOKE_SECRET_KEY", "")
    return ClientConfiguration(sys.argv[1], Credentials(*keys), request_timeout=5)


def made(topic, body, tag="wanted"):
    message = Message()
    message.topic, message.body, message.tag, message.keys = topic, body, tag, f"key-{body.decode()}"
    message.add_property("number", body.decode())
    return message


class Kept(MessageListener):
    """Fails each message that is to fail, once, and keeps the others."""

    def __init__(self, fails=()):
        self.bodies, self.failed, self.attempts = [], set(fails), collections.Counter()
        self.lock = threading.Lock()

    def consume(self, message):
        with self.lock:
            body = message.body.decode()
            self.attempts[body] += 1
            if body in self.failed:
                self.failed.discard(body)
                return ConsumeResult.FAILURE
            self.bodies.append(body)
            return ConsumeResult.SUCCESS


def wait_for(count, listener):
    end = time.monotonic() + LIMIT_S
    while len(listener.bodies) < count and time.monotonic() < end:
        time.sleep(0.05)


def await_begun(group, topic):
    """Waits until a push consumer has asked for its assignment, and its group has begun in every queue."""
    subprocess.run([*shlex.split(os.environ["SMOKE_AWAIT_GROUP"]), group, topic], check=True)


def received(consumer, count, limit_s=LIMIT_S):
    found, end = [], time.monotonic() + limit_s
    while len(found) < count and time.monotonic() < end:
        found += consumer.receive(32, 60) or []
    return found


def normal():
    """Tags, keys, properties; acknowledgements, and a longer time for one message."""
    topic = os.environ.get("SMOKE_TOPIC", "normal")
    producer = Producer(configuration(), (topic,))
    consumer = SimpleConsumer(configuration(), "GID_normal", {topic: FilterExpression("wanted")}, await_duration=5)
    producer.startup()
    consumer.startup()
    consumer.receive(1, 10)  # the group begins here
    ids = {sent_at_last(producer, made(topic, b"%d" % number)).message_id for number in range(10)}
    producer.send(made(topic, b"other", "other"))
    found = received(consumer, 10)
    consumer.change_invisible_duration(found[0], 90)
    for message in found:
        consumer.ack(message)
    seen = {message.message_id for message in found}
    good = all((m.tag, m.properties["number"], m.corrupted) == ("wanted", m.body.decode(), False) for m in found)
    again = [message.body.decode() for message in consumer.receive(32, 15) or []]
    consumer.shutdown()
    producer.shutdown()
    return ids == seen and good and not again, {"sent": len(ids), "seen": len(seen), "good": good, "again": again}


def push():
    """A push consumer gets a message again that it has failed."""
    listener = Kept(fails=["3"])
    topic, producer = "normal", Producer(configuration(), ("normal",))
    consumer = PushConsumer(configuration(), "GID_push", listener, {topic: FilterExpression("pushed")})
    producer.startup()
    consumer.startup()
    await_begun("GID_push", topic)
    for number in range(5):
        sent_at_last(producer, made(topic, b"%d" % number, "pushed"))
    wait_for(5, listener)
    consumer.shutdown()
    producer.shutdown()
    attempts = dict(listener.attempts)
    return sorted(listener.bodies) == list("01234") and attempts["3"] == 2, {"attempts": attempts}


def fifo():
    """Messages of each group in order, also when one is consumed twice."""
    listener = Kept(fails=["a2"])
    topic, producer = "fifo", Producer(configuration(), ("fifo",))
    consumer = PushConsumer(configuration(), "GID_fifo", listener, {topic: FilterExpression("*")})
    producer.startup()
    consumer.startup()
    await_begun("GID_fifo", topic)
    for number in range(5):
        for group in "ab":
            message = made(topic, f"{group}{number}".encode())
            message.message_group = group
            producer.send(message)
    wait_for(10, listener)
    consumer.shutdown()
    producer.shutdown()
    orders = ["".join(body[1] for body in listener.bodies if body[0] == group) for group in "ab"]
    return orders == ["01234", "01234"] and listener.attempts["a2"] == 2, {"orders": orders}


def delay():
    """A delayed message comes at its time, a recalled one never."""
    topic, producer = "delay", Producer(configuration(), ("delay",))
    consumer = SimpleConsumer(configuration(), "GID_delay", {topic: FilterExpression("*")}, await_duration=5)
    producer.startup()
    consumer.startup()
    consumer.receive(1, 10)
    begin = time.time()
    receipts = []
    for name in (b"kept", b"recalled"):
        message = made(topic, name)
        message.delivery_timestamp = int(begin) + 9  # seconds, in this client
        receipts.append(producer.send(message))
    producer.recall_message(topic, receipts[1].recall_handle)
    found = received(consumer, 2, 18)
    took = time.time() - begin
    for message in found:
        consumer.ack(message)
    consumer.shutdown()
    producer.shutdown()
    bodies = [message.body.decode() for message in found]
    return bodies == ["kept"] and took > 8, {"bodies": bodies, "took": took}


def sql():
    """A condition over properties chooses; one that is none is refused."""
    topic, producer = "sql", Producer(configuration(), ("sql",))
    condition = FilterExpression("number BETWEEN 3 AND 5 AND TAGS = 'wanted'", FilterType.SQL)
    consumer = SimpleConsumer(configuration(), "GID_sql", {topic: condition}, await_duration=5)
    producer.startup()
    consumer.startup()
    consumer.receive(1, 10)
    for number in range(10):
        sent_at_last(producer, made(topic, b"%d" % number))
    found = received(consumer, 3)
    for message in found:
        consumer.ack(message)
    consumer.subscribe(topic, FilterExpression("number BETWEEN", FilterType.SQL))
    try:
        refused = f"received {consumer.receive(1, 10)}"
    except Exception as error:
        refused = str(error)
    consumer.shutdown()
    producer.shutdown()
    bodies = sorted(message.body.decode() for message in found)
    return bodies == ["3", "4", "5"] and refused.startswith("40010"), {
        "bodies": bodies,
        "refused": refused,
    }


def sent_at_last(producer, message):
    """Send until that succeeds, but not for ever."""
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            return producer.send(message)
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def reconnect():
    """The same producer and consumer go on each time the proxy is back; whoever ends it is told when it is time."""
    topic, marks = "again", pathlib.Path(os.environ["SMOKE_MARKS"])
    producer = Producer(configuration(), (topic,))
    consumer = SimpleConsumer(configuration(), "GID_again", {topic: FilterExpression("*")}, await_duration=5)
    producer.startup()
    consumer.startup()
    consumer.receive(1, 10)
    seen = set()
    for turn in range(3):
        sent = {f"{turn}-{number}" for number in range(3)}
        for body in sorted(sent):
            sent_at_last(producer, made(topic, body.encode()))
        end = time.monotonic() + LIMIT_S
        while sent - seen and time.monotonic() < end:
            try:
                for message in consumer.receive(32, 15) or []:
                    consumer.ack(message)
                    seen.add(message.body.decode())
            except Exception:
                time.sleep(0.2)
        if sent - seen:
            return False, {"turn": turn, "missing": sorted(sent - seen)}
        (marks / f"worked{turn}").touch()
        while turn < 2 and not (marks / f"back{turn}").exists() and time.monotonic() < end:
            time.sleep(0.05)
    return True, {"seen": len(seen)}


class Checker(TransactionChecker):
    def __init__(self):
        self.asked = set()

    def check(self, message):
        body = message.body.decode()
        if body.startswith("asked"):  # on a slow machine the others, too, before their decision is there
            self.asked.add(body)
        committed = body in ("asked-yes", "committed")
        return TransactionResolution.COMMIT if committed else TransactionResolution.ROLLBACK


def transaction():
    """What was committed, at once or when the broker asked, and nothing else."""
    topic, checker = "transaction", Checker()
    producer = Producer(configuration(), (topic,), checker)
    consumer = SimpleConsumer(configuration(), "GID_transaction", {topic: FilterExpression("*")}, await_duration=5)
    producer.startup()
    consumer.startup()
    consumer.receive(1, 10)
    for name in ("committed", "rolled-back", "asked-yes", "asked-no"):
        begun = producer.begin_transaction()
        producer.send(made(topic, name.encode()), begun)
        if name == "committed":
            begun.commit()
        elif name == "rolled-back":
            begun.rollback()
    found = received(consumer, 2)
    for message in found:
        consumer.ack(message)
    bodies = sorted(message.body.decode() for message in found)
    end = time.monotonic() + LIMIT_S
    while len(checker.asked) < 2 and time.monotonic() < end:  # the one to be rolled back may be asked about last
        time.sleep(0.1)
    consumer.shutdown()
    producer.shutdown()
    good = bodies == ["asked-yes", "committed"] and checker.asked == {"asked-yes", "asked-no"}
    return good, {"bodies": bodies, "asked": sorted(checker.asked)}


def play(scenario, results):
    try:
        ok, detail = scenario()
    except Exception:
        ok, detail = False, {"error": traceback.format_exc()[-1500:]}
    results[scenario.__name__] = {"name": scenario.__name__, "ok": ok, **detail}


def main():
    scenarios = [globals()[name] for name in sys.argv[2:]]
    results = {}
    threads = [threading.Thread(target=play, args=(each, results), daemon=True) for each in scenarios]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LIMIT_S + 60
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))
    for each in scenarios:
        print(json.dumps(results.get(each.__name__, {"name": each.__name__, "ok": False, "error": "not done in time"})))
    sys.stdout.flush()
    os._exit(0)


main()
