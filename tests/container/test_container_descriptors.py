"""A broker program with few descriptors and many idle peers: it stores and answers, refuses the peers and recovers."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.frame import FrameReader, encode
from understudy.runtime.descriptors import RESERVED_MOST, reserved
from understudy.testkit.port_blocks import PortBlocks

LIMIT = 256
IDLE = 400
PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv.pop(1)), int(sys.argv.pop(1))))
from understudy.programs.mqbroker import main
sys.exit(main(sys.argv[1:]))
"""


class Client:
    """A plain socket that sends one request and waits for its answer."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._reader = FrameReader()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, command: Command) -> Command:
        self.socket.sendall(encode(command))
        while True:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionResetError("closed by the broker")
            for answer in self._reader.feed(data):
                return answer

    def send(self, body: bytes) -> int:
        """Send one message with synchronous flush; return the code of the answer."""
        header = {"producerGroup": "P", "topic": "TBW102", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"}
        header |= {
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1",
            "flag": "0",
            "properties": "",
            "batch": "false",
        }
        return self.ask(request(RequestCode.SEND_MESSAGE, header, body)).code


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A broker with :data:`LIMIT` descriptors at most; its port and the file of its standard error."""
    blocks = PortBlocks(10)
    port = blocks.middles(1)[0]
    conf, errors = tmp_path / "broker.conf", tmp_path / "stderr"
    store = tmp_path / "store"
    conf.write_text(
        f"brokerName=b\nbrokerIP1=127.0.0.1\nlistenPort={port}\nstorePathRootDir={store}\n"
        f"storePathCommitLog={store}/commitlog\nflushDiskType=SYNC_FLUSH\nmappedFileSizeCommitLog=1048576\n"
        f"mappedFileSizeConsumeQueue=6000\nmaxHashSlotNum=1000\nmaxIndexNum=4000\nhaListenPort={port + 1}\n"
    )
    command = [sys.executable, "-c", PROGRAM, str(LIMIT // 2), str(LIMIT), "-c", str(conf), "-n", "127.0.0.1:1"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    with errors.open("w") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, env=environment, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "boot success" in line:
                break
        yield port, errors
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(30), errors.read_text()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
        blocks.release()


def test_idle_peers_never_take_the_descriptors_of_the_store(broker: tuple[int, Path]) -> None:
    port, errors = broker
    with Client(port) as client, contextlib.ExitStack() as held:
        assert ResponseCode.SUCCESS == client.send(b"before")
        idle = [held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)) for _ in range(IDLE)]
        refused = closed_by_the_peer(idle, at_least=IDLE - LIMIT + reserved(LIMIT))
        # the soft limit was raised to the hard one: more than half of the soft limit's peers are served
        assert LIMIT // 4 < IDLE - refused <= LIMIT - reserved(LIMIT)
        # every flush still finds a descriptor, for a megabyte and more: files of the log and of queues are opened, too
        assert {ResponseCode.SUCCESS} == {client.send(bytes(50_000)) for _ in range(60)}
    # a new peer is served as soon as the idle ones have gone
    deadline = time.monotonic() + 20
    while True:
        try:
            with Client(port) as late:
                assert ResponseCode.SUCCESS == late.send(b"after")
            break
        except (ConnectionError, BrokenPipeError):
            assert time.monotonic() < deadline
    # (but for how busy the machine was)
    text = "\n".join(line for line in errors.read_text().splitlines() if "held the event loop" not in line)
    told = [line for line in text.splitlines() if "connections are refused" in line]
    assert told and f"port={port}" in told[0]
    assert "Too many open files" not in text and "flush" not in text


def closed_by_the_peer(sockets: list[socket.socket], at_least: int) -> int:
    """Wait until so many of *sockets* were closed by the other side; return how many were."""
    watched = select.poll()
    for each in sockets:
        watched.register(each.fileno(), select.POLLIN)
    deadline = time.monotonic() + 20
    while True:
        closed = len(watched.poll(200))
        if closed >= at_least or time.monotonic() > deadline:
            return closed


def test_half_of_few_descriptors_are_kept_for_files_and_some_of_many() -> None:
    assert [0, 128, 512, 4096, RESERVED_MOST] == [reserved(limit) for limit in (1, 256, 1024, 8192, 1 << 20)]
