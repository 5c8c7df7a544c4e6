"""What extends the units of consume queues (``enableConsumeQueueExt``): which conditions each message meets.

A unit that is extended has an address in the place of its tags code; there stand its tags code, its store time, and a
bit map of the conditions of groups that its message meets (:mod:`understudy.store.extension_files`). A read by a
condition leaves out by it what it need not look at in the log.

Units are written as ever and extended when they are in their queue, before the mark of what is complete moves past
them, so whoever writes units knows of none of this. One that is not extended is as good: its message is looked at. So
whatever is in doubt is not extended: after a loss of power what was not known to be durable loses its extension.
"""

from __future__ import annotations

import os.path
import struct
from collections.abc import Callable, Sequence

import attrs

from understudy.format.java_hash import java_hash_of_bytes
from understudy.format.properties import find_property
from understudy.format.record import properties_of
from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.store.batch_queue import BatchQueue
from understudy.store.commit_log import CommitLog
from understudy.store.consume_queue import FILLER_SIZE, UNIT, UNIT_BYTES, ConsumeQueue
from understudy.store.consume_queues import ConsumeQueues
from understudy.store.discarded import Discarded
from understudy.store.extension_files import Extension, ExtensionFiles
from understudy.store.heads import store_time
from understudy.store.mapped_files import MappedFiles
from understudy.store.properties_digest import TAGS

log = get_logger("store.extensions")

FOLDER = "consumequeue_ext"
LAST_ADDRESS = -(1 << 31) - 1
"""A tags code that is not above it is none: it is an address."""
_FIRST_ADDRESS = -(1 << 63)
_CODE = struct.Struct(">q")
_CODE_AT = UNIT_BYTES - _CODE.size
#: Units extended at one arrival, and looked at for one that is extended; others stay as they are.
_MOST_UNITS = 4096
#: Of a bit map, for some thousand groups with conditions; longer ones are left out.
_MOST_BITS_BYTES = 1000
#: More than one extension takes.
_MOST_BYTES = 1024
#: End in the log, queue, queue offset after it, tags code, store time, properties.
Held = tuple[int, ConsumeQueue | BatchQueue, int, int, int, bytes | None]


@attrs.frozen
class WantedBits:
    """What of bit maps tells that a group does not want a message.

    Attributes:
        positions: the bits of its condition.
        length: bits of a map that may be asked.
        born_ms: the maps of messages stored later know the condition.
    """

    positions: tuple[int, ...]
    length: int
    born_ms: int

    def allow(self, extension: Extension) -> bool:
        """Whether the group may want the message of a unit with this extension."""
        bits = extension.bits
        if extension.store_ms <= self.born_ms or len(bits) * 8 != self.length:
            return True
        return all(bits[position >> 3] >> (position & 7) & 1 for position in self.positions)


class Extensions:
    """The extensions of all queues of one store.

    Args:
        disk: where they are.
        root: of the store.
        file_size: bytes of a new file.
        queues: what is extended.
        mapped: the mapped queue files.
        discarded: where the files of deleted queues go.
        commit_log: the messages.
        held: those that nobody sees yet, as of :class:`understudy.store.core.StoreCore`.

    Attributes:
        present: whether there may be any; nothing is asked here before.
        newest_ms: the greatest store time of what was extended.
        doubtful: whether the process before this one was stopped in the middle.
        bits: returns the bit map of a message, by its topic and its raw properties; nothing where no group asks for
            messages of the topic by conditions.
    """

    def __init__(
        self,
        disk: Disk,
        root: str,
        file_size: int,
        queues: ConsumeQueues,
        mapped: MappedFiles,
        discarded: Discarded,
        commit_log: CommitLog,
        held: Sequence[Held],
    ) -> None:
        self._disk = disk
        self._folder = os.path.join(root, FOLDER)
        self._file_size = file_size
        self._queues = queues
        self._mapped = mapped
        self._discarded = discarded
        self._log = commit_log
        self._held = held
        self._files: dict[tuple[str, int], ExtensionFiles] = {}
        self._full = False
        self.newest_ms = 0
        self.doubtful = False
        self.present = disk.exists(self._folder)
        self.bits: Callable[[str, bytes], bytes] = lambda topic, properties: b""

    # Opening

    def recover(self, doubtful_from: int | None, *, goes_on: bool) -> None:
        """Find what is there, after the queues have their ends. Blocking.

        Args:
            doubtful_from: units of records from this physical offset on are not known to be durable with their
                extensions, and lose them; ``None`` when all are.
            goes_on: whether units are extended from now on.
        """
        if not (self.present or goes_on):
            return
        if not self.present:
            self._disk.make_folder(self._folder)
            self._queues.unsynced_folders.add(os.path.dirname(self._folder))
            self.present = True
        before, deleted_before = self._queues.on_changed, self._queues.on_deleted

        def changed(queue: ConsumeQueue, offset: int) -> None:
            before(queue, offset)
            self._changed(queue, offset)

        def deleted(topic: str) -> None:
            deleted_before(topic)
            self._deleted(topic)

        self._queues.on_changed, self._queues.on_deleted = changed, deleted
        known = {
            (topic, int(name))
            for topic in self._disk.listdir(self._folder)
            for name in self._disk.listdir(os.path.join(self._folder, topic))
            if name.isascii() and name.isdigit()
        }
        for topic, queue_id in known - self._queues.by_key.keys():
            self._disk.remove_tree(os.path.join(self._folder, topic, str(queue_id)))
        for queue in self._queues:
            files = self._of(queue)
            files.extended_to = queue.next_offset  # what is there stays as it is
            if doubtful_from is not None:
                self._take_back(queue, self._queues.first_at_or_after(queue, doubtful_from))
            if (queue.topic, queue.queue_id) in known:
                self._end(queue)
                if self.doubtful:
                    files.doubt()
            elif queue.next_offset:
                files.begin_at(queue.next_offset * _MOST_BYTES)  # where units say that something was, nothing may stand

    def _take_back(self, queue: ConsumeQueue, offset: int) -> None:
        """Give the units from queue offset *offset* on, as far as they are extended, their tags codes again."""
        while offset < queue.next_offset:
            units = self._queues.units(queue, offset, queue.next_offset - offset)
            if not units:
                break
            for at in range(0, len(units), UNIT_BYTES):
                physical, size, code = UNIT.unpack_from(units, at)
                record = self._log.bytes_at(physical, size) if code <= LAST_ADDRESS else None
                if record is not None:
                    tags = find_property(properties_of(record), TAGS)
                    _CODE.pack_into(units, at + _CODE_AT, 0 if tags is None else java_hash_of_bytes(tags))
            self._queues.dirty_paths.add(queue.path(queue.start_of(offset)))
            offset += len(units) // UNIT_BYTES

    def _end(self, queue: ConsumeQueue) -> None:
        """Find where the next extension of *queue* goes: behind the last one that a unit names."""
        files, last = self._of(queue), None
        for offset in range(queue.next_offset - 1, max(queue.next_offset - _MOST_UNITS, 0) - 1, -1):
            unit = self._queues.unit(queue, offset)
            if unit is None:
                break
            if unit[2] <= LAST_ADDRESS:
                last = unit[2] - _FIRST_ADDRESS
                break
        files.end_after(last)
        extension = None if last is None else files.read(last)
        if extension is not None:
            self.newest_ms = max(self.newest_ms, extension.store_ms)

    # Extending

    def hidden(self) -> None:
        """Extend the unit of the message that was held back just now: what is marked as complete must be so."""
        if self._held:
            _, queue, next_offset, code, store_ms, properties = self._held[-1]
            self.arrived(queue.topic, queue.queue_id, next_offset, code, store_ms, properties)

    def arrived(
        self, topic: str, queue_id: int, next_offset: int, code: int, store_ms: int, properties: bytes | None
    ) -> None:
        """Extend the units of a queue before *next_offset*; see :data:`understudy.store.core.Arrival`.

        Args:
            topic, queue_id: the queue.
            next_offset: queue offset after its last unit that is there.
            code, store_ms, properties: of the message there; what is needed is taken from the records.
        """
        queue = self._queues.by_key.get((topic, queue_id))
        if queue is None or queue.is_schedule:  # its units have the time of delivery, which services read there
            return
        files = self._of(queue)
        offset = max(files.extended_to, next_offset - _MOST_UNITS)
        files.extended_to = max(files.extended_to, next_offset)
        while offset < next_offset:
            units = self._queues.units(queue, offset, next_offset - offset)
            if not units or not self._extend(files, topic, units):
                break
            self._queues.dirty_paths.add(queue.path(queue.start_of(offset)))
            offset += len(units) // UNIT_BYTES

    def _extend(self, files: ExtensionFiles, topic: str, units: memoryview) -> bool:
        """Extend *units*; return whether there was space."""
        for at in range(0, len(units), UNIT_BYTES):
            physical, size, code = UNIT.unpack_from(units, at)
            record = self._log.bytes_at(physical, size) if 0 < size < FILLER_SIZE else None
            if record is None or code <= LAST_ADDRESS:
                continue
            bits = self.bits(topic, properties_of(record))
            extension = Extension(code, store_time(record), bits if len(bits) <= _MOST_BITS_BYTES else b"")
            self.newest_ms = max(self.newest_ms, extension.store_ms)
            try:
                position = files.put(extension)
            except OSError as error:
                if not self._full:
                    self._full = True
                    log.warning("units of queues are not extended, conditions look at each message", error=error)
                return False
            self._full = False
            _CODE.pack_into(units, at + _CODE_AT, position + _FIRST_ADDRESS)
        return True

    # Reading

    def accepting(
        self, queue: ConsumeQueue, accept: Callable[[int], bool] | None, wanted: WantedBits | None
    ) -> Callable[[int], bool]:
        """Return what tells by the code of a unit of *queue*, its tags code or an address, whether its message counts.

        Args:
            queue: whose units are asked about.
            accept: by tags code; ``None`` takes all.
            wanted: by bit map; ``None`` takes all.
        """
        files = self._of(queue)

        def accepted(code: int) -> bool:
            if code > LAST_ADDRESS:
                return accept is None or accept(code)
            extension = files.read(code - _FIRST_ADDRESS)
            if extension is None:
                return True  # the message itself will tell
            return (accept is None or accept(extension.code)) and (wanted is None or wanted.allow(extension))

        return accepted

    # Inside

    def _of(self, queue: ConsumeQueue) -> ExtensionFiles:
        key = queue.topic, queue.queue_id
        files = self._files.get(key)
        if files is None:
            queues = self._queues
            files = self._files[key] = ExtensionFiles(
                self._disk,
                self._mapped,
                os.path.join(self._folder, queue.topic, str(queue.queue_id)),
                self._file_size,
                lambda: (queues.dirty_paths, queues.unsynced_folders),
                lambda: self._forget_old(queue),
            )
        return files

    def _forget_old(self, queue: ConsumeQueue) -> None:
        """Delete the files that no unit names any more: those of messages that are gone from the log."""
        for offset in range(queue.min_offset, min(queue.min_offset + _MOST_UNITS, queue.next_offset)):
            unit = self._queues.unit(queue, offset)
            if unit is not None and unit[2] <= LAST_ADDRESS:
                self._of(queue).forget_before(unit[2] - _FIRST_ADDRESS)
                return

    def _changed(self, queue: ConsumeQueue, offset: int) -> None:
        """Follow a queue that lost its units from *offset* on, or was deleted; one anew in its middle is as it is."""
        key = queue.topic, queue.queue_id
        if self._queues.by_key.get(key) is not queue:
            files = self._files.pop(key, None)
            if files is not None:
                self._discarded.take(files.folder, self._mapped.take_all({files}))
        elif offset >= queue.next_offset:
            files = self._of(queue)
            files.extended_to = min(files.extended_to, offset)
            self._end(queue)

    def _deleted(self, topic: str) -> None:
        """Forget the extensions of all queues of a topic."""
        keys = [key for key in self._files if key[0] == topic]
        files = [self._files.pop(key) for key in keys]
        if files:
            self._discarded.take(os.path.join(self._folder, topic), self._mapped.take_all(set(files)), files)
