"""Writes store directories with known contents: for drills, for benchmarks and to try a plan before it is used.

The layouts are those of a broker's files; times, keys and sizes are given, never taken from a clock.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from understudy.format.java_hash import index_key_hash, java_hash
from understudy.format.light_queues import LIGHT_OFFSET_FILE, LIGHT_OFFSET_TABLE, is_light
from understudy.format.properties import format_properties
from understudy.format.record import BLANK_MAGIC, CRC_MASK, encode_host
from understudy.format.record import encode_record as format_record
from understudy.spark_tools.kernels.consumequeue import UNIT
from understudy.spark_tools.kernels.tables import dumps

_HOST = encode_host("127.0.0.1", 10911)


def encode_record(
    *,
    topic: str,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    body: bytes,
    properties: dict[str, str],
    sys_flag: int = 0,
) -> bytes:
    """One record with IPv4 hosts.

    Args:
        topic: of the message.
        queue_id: of its queue.
        queue_offset: its offset there.
        physical_offset: where the record begins in the log (bytes).
        store_timestamp: when it was stored and born (milliseconds since 1970).
        body: of the message.
        properties: of the message.
        sys_flag: of the record.
    """
    return format_record(
        topic,
        queue_id,
        queue_offset,
        physical_offset,
        body,
        format_properties(properties).encode(),
        sys_flag=sys_flag,
        born_ms=store_timestamp - 1,
        born_host=_HOST,
        store_ms=store_timestamp,
        store_host=_HOST,
    )


@dataclass(slots=True)
class SyntheticStore:
    """A store in memory that is written as files by `save`."""

    root: str
    log_file_bytes: int = 65536
    queue_file_units: int = 100
    index_slots: int = 100
    index_entries: int = 4000
    first_offset: int = 0
    _log: bytearray = field(default_factory=bytearray)
    _units: dict[tuple[str, int], list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    _keys: list[tuple[str, int, int]] = field(default_factory=list)
    _last_time: int = 0

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        store_timestamp: int,
        uniq_key: str | None = None,
        tags: str | None = None,
        keys: str | None = None,
        properties: dict[str, str] | None = None,
    ) -> int:
        """Stores one message and returns its queue offset.

        Args:
            topic: of the message.
            queue_id: of its queue.
            body: of the message.
            store_timestamp: when it was stored (milliseconds since 1970).
            uniq_key: its unique key.
            tags: its tags.
            keys: its keys, separated by blanks.
            properties: further ones.
        """
        named = (("UNIQ_KEY", uniq_key), ("KEYS", keys), ("TAGS", tags))
        pairs = dict(properties or {}) | {name: value for name, value in named if value}
        units = self._units[topic, queue_id]
        at = self.first_offset + len(self._log)

        def encode(physical_offset: int) -> bytes:
            return encode_record(
                topic=topic,
                queue_id=queue_id,
                queue_offset=len(units),
                physical_offset=physical_offset,
                store_timestamp=store_timestamp,
                body=body,
                properties=pairs,
            )

        record = encode(at)
        room = self.log_file_bytes - len(self._log) % self.log_file_bytes
        if len(record) + 8 > room:
            self._log += struct.pack(">iI", room, BLANK_MAGIC) + bytes(room - 8)
            at = self.first_offset + len(self._log)
            record = encode(at)
        self._log += record
        units.append((at, len(record), java_hash(tags or "")))
        if uniq_key:
            self._keys.append((f"{topic}#{uniq_key}", at, store_timestamp))
        self._keys += [(f"{topic}#{key}", at, store_timestamp) for key in (keys or "").split(" ") if key]
        if tags:
            self._keys.append((f"{topic}#T#{tags}", at, store_timestamp))
        self._last_time = store_timestamp
        return len(units) - 1

    @property
    def end_offset(self) -> int:
        """Physical offset after the last record."""
        return self.first_offset + len(self._log)

    def save(
        self,
        offsets: dict[str, dict[int, int]] | None = None,
        *,
        version: tuple[int, int, int] = (0, 0, 0),
        previous_offsets: dict[str, dict[int, int]] | None = None,
        previous_version: tuple[int, int, int] = (0, 0, 0),
        topics: list[str] | None = None,
        groups: list[str] | None = None,
        epochs: list[tuple[int, int]] | None = None,
        confirm_offset: int = 0,
        queues_per_topic: int = 4,
        light_offsets: dict[str, int] | None = None,
    ) -> None:
        """Writes the directory; versions are (stateVersion, counter, timestamp).

        Args:
            offsets: committed offsets by ``topic@group`` and queue.
            version: of that table.
            previous_offsets: content of its ``.bak``.
            previous_version: version in that.
            topics: in the table of topics; those that have messages if not given.
            groups: in the table of groups; those that have offsets if not given.
            epochs: epoch and first byte of each, as a controller's broker writes them.
            confirm_offset: in the checkpoint (bytes of the log).
            queues_per_topic: in the table of topics.
            light_offsets: of the groups of light queues by ``topic@group``; then the table is that of a broker that has
                such queues on. Neither they nor their topics are in any other table.
        """
        self._save_log()
        for (topic, queue_id), units in self._units.items():
            self._save_queue(topic, queue_id, units)
        self._save_index()
        self._write(
            "checkpoint", struct.pack(">5q", self._last_time, self._last_time, 0, 0, confirm_offset).ljust(4096, b"\0")
        )
        names = {key.partition("@")[0] for key in offsets or {}} | {topic for topic, _ in self._units}
        names = {name for name in names if not is_light(name)}
        known_topics = sorted(names) if topics is None else topics
        known_groups = sorted({key.partition("@")[2] for key in offsets or {}}) if groups is None else groups
        if light_offsets is not None:
            self._write_table(LIGHT_OFFSET_FILE, offsets or {}, version, {LIGHT_OFFSET_TABLE: light_offsets})
        else:
            self._write_table("consumerOffset.json", offsets or {}, version)
        if previous_offsets is not None:
            self._write_table("consumerOffset.json.bak", previous_offsets, previous_version)
        table = {
            name: {"perm": 6, "readQueueNums": queues_per_topic, "topicName": name, "writeQueueNums": queues_per_topic}
            for name in known_topics
        }
        self._write("config/topics.json", dumps({"dataVersion": _version(version), "topicConfigTable": table}).encode())
        groups_table = {name: {"consumeEnable": True, "groupName": name} for name in known_groups}
        body = {"dataVersion": _version(version), "forbiddenTable": {}, "subscriptionGroupTable": groups_table}
        self._write("config/subscriptionGroup.json", dumps(body).encode())
        if epochs is not None:
            lines = "".join(f"{epoch}-{start}\n" for epoch, start in epochs)
            crc = zlib.crc32(lines.encode()) & CRC_MASK
            self._write("epochFileCheckpoint", f"{len(epochs)}\n{crc}\n{lines}".encode())

    def _save_log(self) -> None:
        step = self.log_file_bytes
        for at in range(0, max(len(self._log), 1), step):
            piece = bytes(self._log[at : at + step]).ljust(step, b"\0")
            self._write(f"commitlog/{self.first_offset + at:020d}", piece)

    def _save_queue(self, topic: str, queue_id: int, units: list[tuple[int, int, int]]) -> None:
        array = np.array(units, dtype=UNIT)
        step = self.queue_file_units
        for at in range(0, len(units), step):
            data = array[at : at + step].tobytes().ljust(step * UNIT.itemsize, b"\0")
            self._write(f"consumequeue/{topic}/{queue_id}/{at * UNIT.itemsize:020d}", data)

    def _save_index(self) -> None:
        for number, at in enumerate(range(0, len(self._keys), self.index_entries - 1)):
            part = self._keys[at : at + self.index_entries - 1]
            slots = [0] * self.index_slots
            begin = part[0][2]
            entries = bytearray(20)
            used = 0
            for entry, (key, physical_offset, time) in enumerate(part, start=1):
                key_hash = index_key_hash(key)
                slot = key_hash % self.index_slots
                used += slots[slot] == 0
                entries += struct.pack(">iqii", key_hash, physical_offset, (time - begin) // 1000, slots[slot])
                slots[slot] = entry
            header = struct.pack(">qqqqii", begin, part[-1][2], part[0][1], part[-1][1], used, len(part) + 1)
            data = header + struct.pack(f">{self.index_slots}i", *slots) + bytes(entries)
            whole = 40 + 4 * self.index_slots + 20 * self.index_entries
            self._write(f"index/202601010000{number:05d}", data.ljust(whole, b"\0"))

    def _write_table(
        self,
        name: str,
        offsets: dict[str, dict[int, int]],
        version: tuple[int, int, int],
        more: dict[str, dict[str, int]] | None = None,
    ) -> None:
        table = {"dataVersion": _version(version)} | (more or {}) | {"offsetTable": offsets}
        self._write(f"config/{name}", dumps(table).encode())

    def _write(self, name: str, data: bytes) -> None:
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def _version(version: tuple[int, int, int]) -> dict[str, int]:
    return {"counter": version[1], "stateVersion": version[0], "timestamp": version[2]}


def _open(directory: str, offset: int) -> BinaryIO:
    return open(os.path.join(directory, f"{offset:020d}"), "wb")


def write_bulk_log(
    directory: str,
    *,
    records: int,
    body_bytes: int,
    file_bytes: int,
    topics: list[str],
    queues: int,
    uniform: bool,
    skew: float = 0.0,
    seed: int = 7,
) -> int:
    """Writes a large commit log quickly: the same few hundred template records, patched in place.

    Args:
        uniform: all bodies have `body_bytes`; otherwise between half and one and a half of that.
        skew: share of the records that go to the first topic.

    Returns: the number of bytes written. The queue offsets count up per topic and queue.
    """
    random = np.random.default_rng(seed)
    os.makedirs(directory, exist_ok=True)
    counters: dict[tuple[int, int], int] = defaultdict(int)
    body = bytes(random.integers(32, 127, size=body_bytes * 2, dtype=np.uint8))
    choices = np.where(random.random(records) < skew, 0, random.integers(0, len(topics), records))
    queue_ids = random.integers(0, queues, records)
    lengths = (
        np.full(records, body_bytes) if uniform else random.integers(body_bytes // 2, body_bytes * 3 // 2 + 1, records)
    )
    prefixes: dict[tuple[int, int], bytearray] = {}
    written = 0
    pieces: list[bytes] = []
    position = 0
    handle = _open(directory, 0)
    try:
        for number in range(records):
            topic, queue_id, length = int(choices[number]), int(queue_ids[number]), int(lengths[number])
            template = prefixes.get((topic, length))
            if template is None:
                properties = {"UNIQ_KEY": "0" * 32, "TAGS": "TagA", "WAIT": "true"}
                template = bytearray(
                    encode_record(
                        topic=topics[topic],
                        queue_id=0,
                        queue_offset=0,
                        physical_offset=0,
                        store_timestamp=1_700_000_000_000,
                        body=body[:length],
                        properties=properties,
                    )
                )
                prefixes[topic, length] = template
            if len(template) + 8 > file_bytes - position:
                rest = file_bytes - position
                pieces.append(struct.pack(">iI", rest, BLANK_MAGIC) + bytes(rest - 8))
                handle.write(b"".join(pieces))
                handle.close()
                pieces, position = [], 0
                written += rest
                handle = _open(directory, written)
            struct.pack_into(">i", template, 12, queue_id)
            struct.pack_into(">qq", template, 20, counters[topic, queue_id], written)
            struct.pack_into(">q", template, 56, 1_700_000_000_000 + number)
            at = template.index(b"UNIQ_KEY\x01", len(template) - 70) + 9
            template[at : at + 32] = b"%032X" % number
            counters[topic, queue_id] += 1
            pieces.append(bytes(template))
            written += len(template)
            position += len(template)
            if len(pieces) >= 4096:
                handle.write(b"".join(pieces))
                pieces = []
        handle.write(b"".join(pieces))
        handle.truncate(file_bytes)
    finally:
        handle.close()
    return written
