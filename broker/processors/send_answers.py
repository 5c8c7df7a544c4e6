"""What every stored message carries and every sender is told, worked out once."""

from __future__ import annotations

import struct

from understudy.broker.broker_config import BrokerConfig
from understudy.format import json_dialect, names
from understudy.format.properties import format_properties
from understudy.format.recall_handle import Handle, encode_handle
from understudy.remoting.frame import success_format

_AT_ONCE = 128


class MessageIds:
    """Writes offset message ids of one broker: in hexadecimal its address and the physical offset of a message.

    Args:
        host: its address and port, 8 or 20 bytes.

    Attributes:
        format: takes the physical offset of one message.
    """

    def __init__(self, host: bytes) -> None:
        self._host = host
        self.format = (host.hex().upper() + "%016X").encode()
        self._layouts: dict[int, struct.Struct] = {}

    def of(self, offsets: list[int]) -> bytes:
        """Return the ids of messages at *offsets* of the log, separated by commas."""
        if len(offsets) > _AT_ONCE:
            several = range(0, len(offsets), _AT_ONCE)
            return b",".join([self.of(offsets[each : each + _AT_ONCE]) for each in several])
        count, host = len(offsets), self._host
        fields: list[bytes | int] = [host] * (2 * count)
        fields[1::2] = offsets
        layout = self._layouts.get(count)
        if layout is None:
            layout = self._layouts[count] = struct.Struct(">" + f"{len(host)}sq" * count)
        return layout.pack(*fields).hex(",", len(host) + 8).upper().encode()


class AnswerForms:
    """What answers to sends look like.

    Args:
        config: the settings in force.
        ids: ids of the broker.

    Attributes:
        region, trace: the settings these forms were made of; see :meth:`renew`.
        tail: properties that every stored message gets.
        single: header of the answer to a message; takes queue id, unique key, physical and queue offset, opaque.
        batch: inside of the ext object of the answer to a batch; takes queue id, transaction id, ids, queue offset.
    """

    __slots__ = ("_config", "_ids", "batch", "region", "single", "tail", "trace")

    def __init__(self, config: BrokerConfig, ids: MessageIds) -> None:
        self._config = config
        self._ids = ids
        self.region: str | None = None
        self.trace: bool | None = None
        self.tail = ""
        self.single = self.batch = b""

    def renew(self) -> None:
        """Work the forms out of the settings in force."""
        config = self._config
        self.region, self.trace = config.region_id, config.trace_on
        trace = "true" if config.trace_on else "false"
        self.tail = format_properties(
            {"MSG_REGION": config.region_id, "TRACE_ON": trace, "CLUSTER": config.broker_cluster_name}
        )
        region = json_dialect.dumps(config.region_id).replace(b"%", b"%%")
        traced = b'","TRACE_ON":"' + trace.encode() + b'","MSG_REGION":' + region + b',"queueOffset":"%d"'
        self.single = success_format(b'"queueId":"%d","transactionId":"%b","msgId":"' + self._ids.format + traced)
        self.batch = b'"queueId":"%d",%b"msgId":"%b' + traced


def with_recall_handle(form: bytes, topic: str, broker_name: str, out_ms: int, unique_key: str) -> bytes:
    """Return the form of an answer that tells how to take a timer message back; retry topics have no such way.

    Args:
        form: of an answer to a single message.
        topic: where the message shall be delivered.
        broker_name: the group that keeps it.
        out_ms: the second in whose slot it waits.
        unique_key: of the message.
    """
    if topic.startswith(names.RETRY_PREFIX):
        return form
    handle = encode_handle(Handle(topic, broker_name, out_ms + 1, unique_key)).encode()
    return form.replace(b',"queueOffset"', b',"recallHandle":"%b","queueOffset"' % handle)
