"""A broker whose topic of very many queues, or a file of whose log, is deleted: with what is on the disk."""

from __future__ import annotations

import time

from bench.load.broker_loads import Load
from bench.load.servers import Server, make_topic
from bench.load.wire import Peer, send_request
from understudy.remoting.codes import RequestCode

SECONDS = 2.0
QUEUES = 2_000
TOPICS = 2
"""A row that breaks a bound is measured again."""
FILES = 8
FILE_BYTES = 64 << 20
LARGE_BYTES = 256 << 10
FIRST_LOOK_S = 90.0
"""A broker looks at the age of its files from a minute after its start on."""
DELETED = "deleted commit log file"

KEYS: dict[str, object] = {"cleanResourceInterval": 500, "deleteFileBatchMax": 1, "mappedFileSizeCommitLog": FILE_BYTES}
"""Settings of a broker that deletes no more than one file of its log at a time."""


def fill(server: Server) -> None:
    """Store messages in very many queues, each of which gets a file, and fill files of the log; see the first one go.

    To make thousands of files takes what the disk's file system takes for it, so it is no part of a row.
    """
    with Peer(server.port) as peer:
        for number in range(TOPICS + 1):
            make_topic(server.port, _topic(number), QUEUES)
            for queue in range(QUEUES):
                _stored(peer, _topic(number), b"x", queue)
        for _ in range(FILES * FILE_BYTES // LARGE_BYTES):
            _stored(peer, _topic(TOPICS), bytes(LARGE_BYTES))
    _delete_files(server, 1)


def _topic(number: int) -> str:
    return f"Wide{number}"


def _stored(peer: Peer, topic: str, body: bytes, queue: int = 0) -> None:
    (answer,) = peer.ask_all(send_request(topic, body, queue))
    if answer.code:
        raise RuntimeError(f"not stored: {answer.remark}")


def delete_topic(server: Server) -> None:
    """Delete a topic of very many queues, and wait while their files go."""
    with Peer(server.port) as peer:
        for number in range(TOPICS):
            end = peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": _topic(number), "queueId": "0"})
            if not end.code and end.ext["offset"] != "0":
                break
        answer = peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": _topic(number)})
        if answer.code:
            raise RuntimeError(f"not deleted: {answer.remark}")
    time.sleep(SECONDS)


def delete_files(server: Server) -> None:
    """Delete files of the log, one after the other."""
    _delete_files(server, 3)


def _delete_files(server: Server, count: int) -> None:
    """Have *count* files of the log deleted whatever their age."""
    wanted, until = len(server.logged(DELETED)) + count, time.monotonic() + FIRST_LOOK_S
    with Peer(server.port) as peer:
        peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=0\n")
        peer.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
        while len(server.logged(DELETED)) < wanted:
            if time.monotonic() > until:
                raise RuntimeError(f"no {count} files of the log were deleted within {FIRST_LOOK_S:g} s")
            time.sleep(0.1)
        peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=72\n")


def _nothing(server: Server) -> None:
    """Nothing to prepare."""


LOADS: list[tuple[str, Load, Load]] = [
    (f"a topic of {QUEUES:,} queues deleted", delete_topic, _nothing),
    (f"log files deleted beside {QUEUES:,} queues", delete_files, _nothing),
]
