"""Single requests with nothing but the standard library: for scripts that run with a client's own interpreter."""

import json
import re
import socket
import struct
import sys

GET_BROKER_CLUSTER_INFO = 106
CLIENT_VERSION = 493


def call(address, code, fields):
    """Sends one request on a connection of its own; returns the body of the answer, ends the script on a refusal."""
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


def table(address, code, fields):
    """Returns the JSON body of an answer; the real servers write bare integer keys."""
    return json.loads(re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', call(address, code, fields)))


def masters(namesrv):
    """Returns the addresses of all masters that a name server knows."""
    brokers = table(namesrv, GET_BROKER_CLUSTER_INFO, {})["brokerAddrTable"].values()
    return [each["brokerAddrs"]["0"] for each in brokers if "0" in each["brokerAddrs"]]
