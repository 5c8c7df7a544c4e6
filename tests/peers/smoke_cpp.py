#!/usr/bin/env python3
"""Remoting protocol through the bundled C++ client (PyPI rocketmq 0.4.4, rocketmq-client-cpp 1.2.x inside the wheel).

usage: smoke_cpp.py HOST:PORT TOPIC GROUP COUNT
It prints one JSON line {client, ok, sent, consumed, duplicated, timers}.
With SMOKE_ACCESS_KEY and SMOKE_SECRET_KEY it signs. Timer messages are plain properties to this client; `timers` says
how many milliseconds after its time each came. The library's C functions know no transactions, no recall and no pop.
"""

import collections
import json
import os
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer

CONSUME_LIMIT_S = 150
OFFSET_PERSIST_INTERVAL_S = 5
TIMERS_MS = {"TIMER_DELAY_SEC": 3000, "TIMER_DELAY_MS": 2500, "TIMER_DELIVER_MS": 4000}


def finish(ok, **result):
    print(json.dumps({"client": "rocketmq 0.4.4 (C++)", "ok": ok, **result}), flush=True)
    os._exit(0 if ok else 1)  # the C++ threads do not always end


def sign(client):
    if "SMOKE_ACCESS_KEY" in os.environ:
        client.set_session_credentials(os.environ["SMOKE_ACCESS_KEY"], os.environ["SMOKE_SECRET_KEY"], "")


def produce(namesrv, topic, tag, count):
    producer = Producer("PID_smoke_cpp", timeout=3000)
    producer.set_namesrv_addr(namesrv)
    sign(producer)
    producer.start()
    sent = 0
    for i in range(count):
        message = Message(topic)
        message.set_keys(f"k{i}")
        message.set_tags(tag)
        message.set_body(f"cpp {i}")
        try:
            sent += producer.send_sync(message).status == 0
        except Exception as error:  # the client's exceptions have no common class
            finish(False, step="produce", sent=sent, error=f"{type(error).__name__}: {error}")
    return producer, sent


def send_timers(producer, topic, tag):
    """Sends a message by each property; returns when each is due, in milliseconds."""
    due = {}
    for name, after_ms in TIMERS_MS.items():
        due[name] = time.time() * 1000 + after_ms
        message = Message(topic)
        message.set_tags(tag)
        message.set_body(name)
        values = {"TIMER_DELAY_SEC": after_ms // 1000, "TIMER_DELIVER_MS": int(due[name])}
        message.set_property(name, str(values.get(name, after_ms)))
        if producer.send_sync(message).status:
            finish(False, step="timers", property=name)
    return due


def consume(namesrv, topic, group, tag, count):
    seen, arrived, lock = collections.Counter(), {}, threading.Lock()

    def on_message(message):
        with lock:
            seen[message.id] += 1
            arrived[message.body.decode()] = time.time() * 1000

    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, on_message, tag)
    sign(consumer)
    consumer.start()
    await_messages(seen, count)
    return consumer, seen, arrived


def await_messages(seen, count):
    deadline = time.monotonic() + CONSUME_LIMIT_S
    while time.monotonic() < deadline and len(seen) < count:
        time.sleep(0.1)


def main():
    namesrv, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    tag = f"t{int(time.time())}"
    producer, sent = produce(namesrv, topic, tag, count)
    consumer, seen, arrived = consume(namesrv, topic, group, tag, sent)
    consumed = len(seen)
    due = send_timers(producer, topic, tag)  # the consumer has its queues now
    await_messages(seen, consumed + len(due))
    time.sleep(OFFSET_PERSIST_INTERVAL_S + 1)
    consumer.shutdown()
    producer.shutdown()
    repeated = sum(times > 1 for times in seen.values())
    timers = {name: round(arrived[name] - at) for name, at in due.items() if name in arrived}
    finish(sent == count and consumed == count, sent=sent, consumed=consumed, duplicated=repeated, timers=timers)


main()
