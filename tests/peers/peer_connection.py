"""A plain connection to a server of either kind, without any client library."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any


class Connection:
    """Sends one request at a time and waits for its answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._opaque = 0

    def call(self, code: int, fields: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Return header and body of the answer."""
        self._opaque += 1
        head = {"code": code, "flag": 0, "language": "JAVA", "opaque": self._opaque, "version": 493}
        header = json.dumps({**head, "extFields": {name: str(value) for name, value in fields.items()}}).encode()
        self._socket.sendall(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
        while True:
            answer, content = self._frame()
            if answer["flag"] & 1 and answer["opaque"] == self._opaque:
                return answer, content
            self.told(answer)

    def told(self, request: dict[str, Any]) -> None:
        """Take note of what the server asks or says by itself."""

    def _frame(self) -> tuple[dict[str, Any], bytes]:
        (length,) = struct.unpack(">I", self._read(4))
        frame = self._read(length)
        head_length = struct.unpack(">I", frame[:4])[0] & 0xFFFFFF
        return json.loads(frame[4 : 4 + head_length]), frame[4 + head_length :]

    def _read(self, length: int) -> bytes:
        parts = b""
        while len(parts) < length:
            part = self._socket.recv(length - len(parts))
            assert part, "the broker closed the connection"
            parts += part
        return parts

    def close(self) -> None:
        self._socket.close()
