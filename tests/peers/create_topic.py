#!/usr/bin/env python3
"""Creates a topic on every master of a cluster with two raw requests, for clients that do not create topics themselves.

usage: create_topic.py HOST:PORT TOPIC [QUEUES [ATTRIBUTES]]      (the address of a name server; standard library only)
"""

import sys

from plain_requests import call, masters

UPDATE_AND_CREATE_TOPIC = 17


def main():
    namesrv, topic = sys.argv[1], sys.argv[2]
    queues = sys.argv[3] if len(sys.argv) > 3 else "8"
    attributes = {"attributes": sys.argv[4]} if len(sys.argv) > 4 else {}
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        **attributes,
    }
    for broker in masters(namesrv):
        call(broker, UPDATE_AND_CREATE_TOPIC, fields)


main()
