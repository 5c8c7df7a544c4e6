#!/usr/bin/env python3
"""Remoting protocol through the bundled C++ client (PyPI rocketmq 0.4.4, rocketmq-client-cpp 1.2.x inside the wheel).

usage: smoke_cpp.py HOST:PORT TOPIC GROUP COUNT      prints one JSON line {client, ok, sent, consumed, duplicated}
With SMOKE_ACCESS_KEY and SMOKE_SECRET_KEY it signs.
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


def consume(namesrv, topic, group, tag, count):
    seen, lock = collections.Counter(), threading.Lock()

    def on_message(message):
        with lock:
            seen[message.id] += 1

    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, on_message, tag)
    sign(consumer)
    consumer.start()
    deadline = time.monotonic() + CONSUME_LIMIT_S
    while time.monotonic() < deadline and len(seen) < count:
        time.sleep(0.1)
    time.sleep(OFFSET_PERSIST_INTERVAL_S + 1)
    return consumer, seen


def main():
    namesrv, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    tag = f"t{int(time.time())}"
    producer, sent = produce(namesrv, topic, tag, count)
    consumer, seen = consume(namesrv, topic, group, tag, sent)
    consumer.shutdown()
    producer.shutdown()
    repeated = sum(times > 1 for times in seen.values())
    finish(sent == count and len(seen) == count, sent=sent, consumed=len(seen), duplicated=repeated)


main()
