#!/usr/bin/env python3
"""Creates a topic on every master of a cluster with two raw requests, for clients that do not create topics themselves.

usage: create_topic.py HOST:PORT TOPIC [QUEUES]      (the address of a name server; standard library only)
"""

import json
import re
import socket
import struct
import sys

GET_BROKER_CLUSTER_INFO, UPDATE_AND_CREATE_TOPIC = 106, 17
CLIENT_VERSION = 493


def call(address, code, fields):
    """Sends one request on a connection of its own; returns the body of the answer."""
    host, port = address.rsplit(":", 1)
    header = {
        "code": code,
        "language": "PYTHON",
        "version": CLIENT_VERSION,
        "opaque": 1,
        "flag": 0,
        "extFields": fields,
        "serializeTypeCurrentRPC": "JSON",
    }
    head = json.dumps(header).encode()
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(struct.pack(">II", 4 + len(head), len(head)) + head)
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack(">I", data[:4])[0]:
            chunk = connection.recv(65536)
            if not chunk:
                sys.exit(f"{address} closed the connection")
            data += chunk
    header_length = struct.unpack(">I", data[4:8])[0] & 0xFFFFFF
    answer = json.loads(data[8 : 8 + header_length])
    if answer["code"]:
        sys.exit(f"{address} answered {answer['code']}: {answer.get('remark')}")
    return data[8 + header_length :].decode()


def main():
    namesrv, topic = sys.argv[1], sys.argv[2]
    queues = sys.argv[3] if len(sys.argv) > 3 else "8"
    attributes = {"attributes": sys.argv[4]} if len(sys.argv) > 4 else {}
    body = call(namesrv, GET_BROKER_CLUSTER_INFO, {})
    cluster = json.loads(re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', body))  # the real server writes bare integer keys
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
    for broker in cluster["brokerAddrTable"].values():
        if "0" in broker["brokerAddrs"]:
            call(broker["brokerAddrs"]["0"], UPDATE_AND_CREATE_TOPIC, fields)


main()
