#!/usr/bin/env python3
"""Waits until a group has its place in so many queues of a topic at every master: from then on it misses nothing.

usage: await_group.py HOST:PORT QUEUES GROUP TOPIC      (the address of a name server; standard library only)
A group that pops begins with the newest message, and only when its first pop has come.
"""

import sys
import time

from plain_requests import masters, table

GET_ALL_CONSUMER_OFFSET = 43
LIMIT_S = 90


def main():
    namesrv, queues, group, topic = sys.argv[1:5]
    end = time.monotonic() + LIMIT_S
    for broker in masters(namesrv):
        known = {}
        while len(known) < int(queues):
            if time.monotonic() > end:
                sys.exit(f"{group} has its place in {sorted(known)} of {queues} queues of {topic} at {broker}")
            time.sleep(0.05)
            known = table(broker, GET_ALL_CONSUMER_OFFSET, {})["offsetTable"].get(f"{topic}@{group}", {})


main()
