"""A plain blocking peer of a server: it sends bytes, whole requests, or floods of them."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from types import TracebackType

from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.frame import FrameReader, encode

TIMEOUT_S = 30.0


class Peer:
    """One connection to a server on the loopback.

    Args:
        port: of the server.
        small_buffer: take few bytes at a time, as a slow reader does.
    """

    def __init__(self, port: int, *, small_buffer: bool = False) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT_S)
        if small_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader(256 << 20, 64 << 20)
        self._answers: dict[int, Command] = {}

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def send(self, *commands: Command) -> None:
        """Send requests in one go, without waiting for answers."""
        self.socket.sendall(b"".join(map(encode, commands)))

    def wait(self, command: Command) -> Command:
        """Return the answer to *command*; others that come meanwhile are kept. Raises ``ConnectionError``."""
        wanted = command.opaque or 0
        while wanted not in self._answers:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionResetError("closed by the server")
            self._keep(data)
        return self._answers.pop(wanted)

    def kept_answers(self) -> list[Command]:
        """Take what the server has sent so far; return the answers that nobody waited for."""
        self.socket.setblocking(False)
        with contextlib.suppress(OSError):
            while data := self.socket.recv(1 << 20):
                self._keep(data)
        self.socket.settimeout(TIMEOUT_S)
        return list(self._answers.values())

    def _keep(self, data: bytes) -> None:
        for answer in self._reader.feed(data):
            if answer.is_response:
                self._answers[answer.opaque or 0] = answer

    def ask_all(self, *commands: Command) -> list[Command]:
        """Send requests in one go and return their answers."""
        self.send(*commands)
        return [self.wait(command) for command in commands]

    def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
        """Send one request and return its answer."""
        command = request(code, ext, body)
        self.send(command)
        return self.wait(command)


def send_request(
    topic: str, body: bytes, queue_id: int = 0, properties: str = "", *, oneway: bool = False, broker: str = ""
) -> Command:
    """Return a send of one message; a proxy must be told the name of the broker."""
    ext = {"a": "bench", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0"}
    ext |= {"g": str(int(time.time() * 1000)), "h": "0", "i": properties, "j": "0", "k": "false", "m": "false"}
    if broker:
        ext["n"] = broker
    return request(RequestCode.SEND_MESSAGE_V2, ext, body, oneway=oneway)


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value below which *part* of *values* lie; infinity when there are none."""
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] if values else float("inf")
