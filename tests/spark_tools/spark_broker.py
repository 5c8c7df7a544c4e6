"""A broker of a few requests in a thread: enough to see what a plan asks of a live one, with faults on demand."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from understudy.remoting import frame
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, response
from understudy.spark_tools.layout import Store, read_layout
from understudy.spark_tools.plan import record_at


class SmallBroker:
    """Answers admin requests from memory; `fail_after` breaks the connection after that many offset updates,
    `before_read` is called with the key of each offset that is asked for."""

    def __init__(self, store: Path, offsets: dict[tuple[str, str, int], int], queue_end: int = 25) -> None:
        self.files = read_layout(Store("live", str(store))).commit_log
        self.offsets = dict(offsets)
        self.queue_end = queue_end
        self.members: dict[str, list[str]] = {}
        self.resets: list[tuple[str, str, int]] = []
        self.updates = 0
        self.fail_after: int | None = None
        self.before_read: Callable[[tuple[str, str, int]], None] = lambda key: None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._ended = False

    def __enter__(self) -> SmallBroker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        socket.create_connection(self._listener.getsockname()).close()  # wakes the thread that waits for the next one
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._listener.close()

    def _serve(self) -> None:
        while not self._ended:
            connection, _ = self._listener.accept()
            with connection:
                reader = frame.FrameReader()
                while data := connection.recv(65536):
                    for command in reader.feed(data):
                        answer = self._answer(command)
                        if answer is None:
                            break
                        connection.sendall(frame.encode(answer))
                    else:
                        continue
                    break

    def _answer(self, command: Command) -> Command | None:
        fields = {key: value or "" for key, value in (command.ext or {}).items()}
        key = (
            fields.get("topic", ""),
            fields.get("consumerGroup", fields.get("group", "")),
            int(fields.get("queueId", 0)),
        )
        code, ext, body = 0, None, b""
        match command.code:
            case RequestCode.GET_ALL_CONSUMER_OFFSET:
                table: dict[str, dict[str, int]] = {}
                for (topic, group, queue), offset in self.offsets.items():
                    table.setdefault(f"{topic}@{group}", {})[str(queue)] = offset
                lights = {key: table.pop(key)["0"] for key in list(table) if "@%LMQ%" in key}
                body = json.dumps({"dataVersion": {}, "lmqOffsetTable": lights, "offsetTable": table}).encode()
            case RequestCode.GET_MIN_OFFSET:
                ext = {"offset": "0"}
            case RequestCode.GET_MAX_OFFSET:
                ext = {"offset": str(self.queue_end)}
            case RequestCode.VIEW_MESSAGE_BY_ID:
                record = record_at(self.files, int(fields["offset"]))
                code, body = (0, record) if record else (1, b"")
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                clients = self.members.get(fields["consumerGroup"], [])
                code, body = (0, json.dumps({"consumerIdList": clients}).encode()) if clients else (1, b"")
            case RequestCode.QUERY_CONSUMER_OFFSET:
                self.before_read(key)
                code, ext = (0, {"offset": str(self.offsets[key])}) if key in self.offsets else (22, None)
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                if self.fail_after is not None and self.updates >= self.fail_after:
                    return None
                self.updates += 1
                self.offsets[key] = int(fields["commitOffset"])
            case RequestCode.INVOKE_BROKER_TO_RESET_OFFSET:
                self.resets.append(key)
                self.offsets[key] = int(fields["offset"])
            case _:
                code = 3
        return response(command, code, ext=ext, body=body)
