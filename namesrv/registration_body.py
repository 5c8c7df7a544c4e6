"""The body of a registration, plain or compressed, read into records (RegisterBrokerBody.java).

Peers of many versions send it, so scalars are taken as numbers or as text, unknown fields are ignored and missing ones
get the reference's defaults; what cannot be read at all is refused with a sentence that names the field.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import attrs

from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import JsonError, loads, loads_in_steps
from understudy.format.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, whole_number
from understudy.namesrv.records import NO_VERSION, MappingInfo, QueueData
from understudy.remoting.bodies import LARGE_BODY_BYTES, json_of
from understudy.remoting.command import Command
from understudy.remoting.frame import FRAME_LIMIT_BYTES

# MQVersion.java ordinals of the peers that changed the body.
FIRST_WITH_FILTER_SERVERS = 37
FIRST_WITH_MAPPINGS_COMPRESSED = 413

# What a compressed registration may be once inflated: no more than one that is not compressed. A small hostile stream
# could otherwise fill the memory.
INFLATED_LIMIT_BYTES = FRAME_LIMIT_BYTES
TOPICS_LIMIT = 100_000
"""Most topics of one registration, in any form."""

_INT = struct.Struct(">i")
_ZLIB_FIRST_BYTE = b"\x78"
_DEFAULT_QUEUES = 16
_DEFAULT_PERM = 6


class BodyError(ValueError):
    """A body that cannot be read; the message says where."""


@attrs.frozen
class RegistrationBody:
    """What the body of a registration says."""

    version: DataVersion = NO_VERSION
    topics: dict[str, QueueData] = attrs.field(factory=dict)
    mappings: tuple[MappingInfo, ...] = ()
    filter_servers: tuple[str, ...] | None = ()


def read_registration(
    body: bytes, peer_version: int, broker_name: str, *, compressed: bool = False
) -> RegistrationBody:
    """Read a registration's body.

    Args:
        body: as it arrived; an empty one means no topics and version 0.
        peer_version: version ordinal of the request.
        broker_name: whose queues these are.
        compressed: what the header says. Differs: a compressed body is recognised by its first byte as well, because
            brokers with ``compressedRegister=true`` say ``false`` and the reference then refuses them for ever.

    Raises:
        BodyError: it cannot be read.
    """
    if not body:
        return RegistrationBody(filter_servers=() if peer_version >= FIRST_WITH_FILTER_SERVERS else None)
    if is_compressed(body, says_compressed=compressed):
        return _Compressed(_inflate(body)).read(peer_version, broker_name)
    fields = _object(_json(body), "body")
    if peer_version < FIRST_WITH_FILTER_SERVERS:
        return _wrapper(fields, broker_name, None)
    servers = fields.get("filterServerList", [])
    wrapper = fields.get("topicConfigSerializeWrapper")
    return _wrapper(
        {} if wrapper is None else _object(wrapper, "topicConfigSerializeWrapper"), broker_name, _servers(servers)
    )


def is_compressed(body: bytes, *, says_compressed: bool) -> bool:
    """Return whether the body of a registration is compressed; *says_compressed* is what the header says."""
    return says_compressed or body[:1] == _ZLIB_FIRST_BYTE


def read_data_version(command: Command) -> DataVersion | None:
    """Read a version, or ``None`` from an empty body. Raises :class:`BodyError`."""
    return version_of(_json_of(command)) if command.body else None


def read_queues(command: Command) -> list[QueueData]:
    """Read the queues of a single topic's registration; empty without a body. Raises :class:`BodyError`."""
    if not command.body:
        return []
    items = _object(_json_of(command), "body").get("queueDatas")
    if items is None:
        return []
    if not isinstance(items, list):
        raise BodyError("queueDatas is not a list")
    result = []
    for item in items:
        fields = _object(item, "queueDatas")
        name = _text(fields.get("brokerName"), "queueDatas: brokerName")
        flags_name = "topicSysFlag" if "topicSysFlag" in fields else "topicSynFlag"  # what 4.x peers call it
        result.append(
            QueueData(
                name,
                _int(fields, "perm", 0),
                _int(fields, "readQueueNums", 0),
                _int(fields, flags_name, 0),
                _int(fields, "writeQueueNums", 0),
            )
        )
    return result


def version_of(value: Any) -> DataVersion:
    """Take a version from its JSON object; absent parts are 0."""
    if value is None:
        return NO_VERSION
    fields = _object(value, "dataVersion")
    return DataVersion(_long(fields, "stateVersion", 0), _long(fields, "counter", 0), _long(fields, "timestamp", 0))


def _wrapper(fields: dict[str, Any], broker_name: str, servers: tuple[str, ...] | None) -> RegistrationBody:
    topics = {}
    table = _object(fields.get("topicConfigTable") or {}, "topicConfigTable")
    if len(table) > TOPICS_LIMIT:
        raise BodyError(f"{len(table)} topics are above the limit of {TOPICS_LIMIT}")
    for key, value in table.items():
        config = _object(value, f"topic {key}")
        topics[_text(config.get("topicName") or key, "topicName")] = QueueData(
            broker_name,
            _int(config, "perm", _DEFAULT_PERM),
            _int(config, "readQueueNums", _DEFAULT_QUEUES),
            _int(config, "topicSysFlag", 0),
            _int(config, "writeQueueNums", _DEFAULT_QUEUES),
        )
    infos = _object(fields.get("topicQueueMappingInfoMap") or {}, "topicQueueMappingInfoMap")
    mappings = tuple(_mapping(topic, value) for topic, value in infos.items())
    return RegistrationBody(version_of(fields.get("dataVersion")), topics, mappings, servers)


def _mapping(topic: str, value: Any) -> MappingInfo:
    fields = _object(value, f"mapping of topic {topic}")
    current = _object(fields.get("currIdMap") or {}, "currIdMap")
    try:
        ids = tuple((whole_number(key, "an id", INT_MIN, INT_MAX), _int(current, key, 0)) for key in current)
    except ValueError as error:
        raise BodyError(f"mapping of topic {topic}: currIdMap: {error}") from None
    return MappingInfo(
        _text(fields.get("topic") or topic, "topic of a mapping"),
        _text(fields.get("bname"), f"mapping of topic {topic}: bname"),
        _text(fields.get("scope") or "__global__", f"mapping of topic {topic}: scope"),
        _long(fields, "epoch", 0),
        _int(fields, "totalQueues", 0),
        str(fields.get("dirty", False)).lower() == "true",
        ids,
    )


class _Compressed:
    """A cursor over the inflated form."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, peer_version: int, broker_name: str) -> RegistrationBody:
        version = version_of(_json(self._text("data version")))
        topics = {}
        count = self._count("topics")
        if count > TOPICS_LIMIT:
            raise BodyError(f"compressed body: {count} topics are above the limit of {TOPICS_LIMIT}")
        for _ in range(count):
            topic, queues = _topic_line(self._text("topic"), broker_name)
            topics[topic] = queues
        servers = _servers(_json(self._text("filter servers")))
        mappings: tuple[MappingInfo, ...] = ()
        if peer_version >= FIRST_WITH_MAPPINGS_COMPRESSED and self._at < len(self._data):
            infos = [_json(self._text("mapping")) for _ in range(self._count("mappings"))]
            mappings = tuple(_mapping(str(_object(info, "mapping").get("topic")), info) for info in infos)
        return RegistrationBody(version, topics, mappings, servers)

    def _count(self, what: str) -> int:
        if self._at + 4 > len(self._data):
            raise BodyError(f"compressed body ends before the number of {what}")
        (count,) = _INT.unpack_from(self._data, self._at)
        self._at += 4
        if not 0 <= count <= len(self._data) - self._at:
            raise BodyError(f"compressed body: {count} {what} do not fit into what follows")
        return int(count)

    def _text(self, what: str) -> bytes:
        length = self._count(f"bytes of a {what}")
        text = self._data[self._at : self._at + length]
        self._at += length
        return text


def _topic_line(line: bytes, broker_name: str) -> tuple[str, QueueData]:
    # "name readQueueNums writeQueueNums perm filterType attributes"; the form has no order flag and no topic flags.
    parts = line.decode("utf-8", "replace").split(" ")
    try:
        read_queues, write_queues, perm = (
            whole_number(part, what, INT_MIN, INT_MAX)
            for part, what in zip(parts[1:4], ("readQueueNums", "writeQueueNums", "perm"), strict=True)
        )
    except ValueError:
        raise BodyError(f"compressed body: topic line {line[:64]!r} cannot be read") from None
    return parts[0], QueueData(broker_name, perm, read_queues, 0, write_queues)


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, INFLATED_LIMIT_BYTES)
    except zlib.error as error:
        raise BodyError(f"compressed body: {error}") from None
    if inflater.unconsumed_tail:
        raise BodyError(f"compressed body is above {INFLATED_LIMIT_BYTES} bytes once inflated")
    if not inflater.eof:
        raise BodyError("compressed body ends in the middle")
    return data


def _servers(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise BodyError("filterServerList is not a list of addresses")
    return tuple(_text(item, "filterServerList: an address") for item in value)


def _json(text: bytes) -> Any:
    try:
        return loads_in_steps(text) if len(text) >= LARGE_BODY_BYTES else loads(text)
    except JsonError as error:
        raise BodyError(f"body is not JSON: {error}") from None


def _json_of(command: Command) -> Any:
    try:
        return json_of(command)
    except JsonError as error:
        raise BodyError(f"body is not JSON: {error}") from None


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BodyError(f"{what} is not an object")
    return value


def _int(fields: dict[str, Any], name: str, default: int, low: int = INT_MIN, high: int = INT_MAX) -> int:
    value = fields.get(name)
    if value is None:
        return default
    try:
        return whole_number(value, name, low, high)
    except ValueError as error:
        raise BodyError(str(error)) from None


def _long(fields: dict[str, Any], name: str, default: int) -> int:
    return _int(fields, name, default, LONG_MIN, LONG_MAX)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise BodyError(f"{what} is missing or no text")
    return value
