"""A small blocking client for the admin requests a plan needs, towards Java brokers and ours alike."""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Any

from understudy.remoting import frame
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.spark_tools.kernels import tables

SUCCESS = 0
TIMEOUT_S = 10.0


class AdminError(RuntimeError):
    """A broker refused a request or cannot be reached; the text names the address, the request and the answer."""


class AdminClient:
    """One connection to one broker or name server; requests are answered one at a time."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        host, separator, port = address.rpartition(":")
        if not separator or not port.isdecimal():
            raise AdminError(f"{address}: not host:port")
        self.address = address
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
        except OSError as error:
            raise AdminError(f"{address}: cannot connect: {error}") from None
        self._reader = frame.FrameReader()

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def call(self, code: int, ext: dict[str, Any] | None = None) -> Command:
        """Sends one request and waits for its answer.

        Raises:
            AdminError: when the connection breaks or nothing comes in time.
        """
        fields = None if ext is None else {key: _text(value) for key, value in ext.items()}
        command = request(code, fields)
        try:
            self._socket.sendall(frame.encode(command))
            while True:
                data = self._socket.recv(1 << 16)
                if not data:
                    raise AdminError(f"{self.address}: connection closed during request {code}")
                for answer in self._reader.feed(data):
                    if answer.is_response and answer.opaque == command.opaque:
                        return answer
        except OSError as error:
            raise AdminError(f"{self.address}: request {code}: {error}") from None
        except frame.FrameError as error:
            raise AdminError(f"{self.address}: not a broker: {error}") from None

    def demand(self, code: int, ext: dict[str, Any] | None = None) -> Command:
        """As `call`, for requests that must succeed.

        Raises:
            AdminError: also when the answer is not SUCCESS.
        """
        answer = self.call(code, ext)
        if answer.code != SUCCESS:
            raise AdminError(f"{self.address}: request {code} answered {answer.code}: {_first_line(answer.remark)}")
        return answer

    def all_offsets(self) -> dict[tuple[str, str, int], int]:
        """Every committed offset by (topic, group, queue)."""
        answer = self.demand(RequestCode.GET_ALL_CONSUMER_OFFSET)
        rows, _ = tables.offset_rows(tables.loads(answer.body))
        return {(topic, group, queue_id): offset for topic, group, queue_id, offset in rows}

    def offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """One committed offset as it is now, None without an entry.

        Raises:
            AdminError: also when the broker answers neither with an offset nor that there is none.
        """
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": False}
        answer = self.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != SUCCESS:
            raise AdminError(f"{self.address}: no offset of {group} on {topic}: {_first_line(answer.remark)}")
        return int((answer.ext or {})["offset"] or 0)

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Smallest and next queue offset."""
        fields = {"topic": topic, "queueId": queue_id}
        low = self.demand(RequestCode.GET_MIN_OFFSET, fields)
        high = self.demand(RequestCode.GET_MAX_OFFSET, fields)
        return int((low.ext or {})["offset"] or 0), int((high.ext or {})["offset"] or 0)

    def record(self, physical_offset: int) -> bytes | None:
        """The stored record at a physical offset, None when the log has none there."""
        answer = self.call(RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "", "offset": physical_offset})
        return bytes(answer.body) if answer.code == SUCCESS and answer.body else None

    def members(self, group: str) -> list[str]:
        """Client ids of a group's connected consumers."""
        answer = self.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        if answer.code != SUCCESS or not answer.body:
            return []
        return list(json.loads(answer.body).get("consumerIdList") or [])

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Overwrites one committed offset.

        Args:
            topic: of the queue.
            group: whose offset it is.
            queue_id: of the queue.
            offset: the new committed offset.
        """
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
        self.demand(RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Has the broker reset one queue, which connected consumers cannot overwrite.

        Args:
            topic: of the queue.
            group: whose offset it is.
            queue_id: of the queue.
            offset: where the group goes on.
        """
        fields = {
            "topic": topic,
            "group": group,
            "queueId": queue_id,
            "offset": offset,
            "timestamp": -1,
            "isForce": True,
        }
        self.demand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)

    def master_addresses(self) -> dict[str, str]:
        """Addresses of all masters by broker name, asked of a name server."""
        answer = self.demand(RequestCode.GET_BROKER_CLUSTER_INFO)
        brokers = tables.loads(answer.body).get("brokerAddrTable", {})
        return {name: data["brokerAddrs"]["0"] for name, data in brokers.items() if "0" in data.get("brokerAddrs", {})}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _first_line(remark: str | None) -> str:
    return (remark or "no reason given").splitlines()[0]
