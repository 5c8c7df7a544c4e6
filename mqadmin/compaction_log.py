"""The command that prints a file of a compaction log where it lies; it asks no server.

Source: DumpCompactionLogCommand.java, MessageExt.java, Message.java (toString).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from understudy.format.record import (
    BLANK,
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    Record,
    RecordError,
    decode_host,
    decode_record,
)
from understudy.mqadmin.command import CommandFailedError, Context, Output, command
from understudy.mqadmin.options import needed
from understudy.mqadmin.text import map_text
from understudy.runtime.files import RealFiles

_MAGICS = (MAGIC_V1, MAGIC_V2)


def records_in(file: BinaryIO, size_bytes: int) -> Iterator[Record]:
    """Return the records of a file of the log, in order, until its blank marker or what was never written.

    Bodies are compared with their checksums only by who wants it: lengths alone say where the next record begins.

    Args:
        file: at its first byte.
        size_bytes: its length.

    Raises:
        RecordError: neither a whole record nor one of these ends stands there; the message names the byte.
    """
    at = 0
    while at < size_bytes:
        head = file.read(BLANK.size)
        if not any(head):  # files are made at their full length
            return
        if len(head) < BLANK.size:
            raise RecordError(f"at byte {at}: {len(head)} bytes left, too few for a record")
        length, magic = BLANK.unpack(head)
        if magic == BLANK_MAGIC:
            return
        if magic not in _MAGICS or not BLANK.size < length <= size_bytes - at:
            raise RecordError(f"at byte {at}: no record begins there (size {length}, magic {magic:#010x})")
        try:
            record = decode_record(head + file.read(length - BLANK.size), check_crc=False)
        except RecordError as error:
            raise RecordError(f"at byte {at}: {error}") from None
        yield record
        at += length


def record_line(record: Record) -> str:
    """Return a record as the reference prints it: without its body, and with ``null`` for what a file does not say."""
    properties = map_text(record.properties) if record.properties_text else "null"
    return (
        f"MessageExt [brokerName=null, queueId={record.queue_id}, storeSize={record.size_bytes}, "
        f"queueOffset={record.queue_offset}, sysFlag={record.sys_flag}, bornTimestamp={record.born_ms}, "
        f"bornHost={_host(record.born_host)}, storeTimestamp={record.store_ms}, "
        f"storeHost={_host(record.store_host)}, msgId={record.message_id}, "
        f"commitLogOffset={record.physical_offset}, bodyCRC={record.body_crc}, "
        f"reconsumeTimes={record.reconsume_times}, "
        f"preparedTransactionOffset={record.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{record.topic}', flag={record.flag}, properties={properties}, body=null, "
        "transactionId='null'}]"
    )


def _host(packed: bytes) -> str:
    address, port = decode_host(packed)
    return f"/[{address}]:{port}" if ":" in address else f"/{address}:{port}"


def _record_json(record: Record) -> dict[str, Any]:
    return {
        "offsetMsgId": record.message_id,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset,
        "storeSize": record.size_bytes,
        "bodySize": len(record.body),
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bornTimestamp": record.born_ms,
        "bornHost": _host(record.born_host)[1:],
        "storeTimestamp": record.store_ms,
        "storeHost": _host(record.store_host)[1:],
        "reconsumeTimes": record.reconsume_times,
        "properties": record.properties,
    }


@command(
    "dumpCompactionLog",
    "Print the messages in a file of a compaction log, without their bodies; asks no server.",
    needed("f", "file", "the file, below compaction/compactionLog of a store"),
    offline=True,
)
async def dump_compaction_log(context: Context) -> Any:
    path = context.values["f"]
    try:
        return _printed(path, context.output)
    except OSError as error:
        raise CommandFailedError(f"{path} cannot be read: {error.strerror}") from None
    except RecordError as error:
        raise CommandFailedError(f"{path} is damaged, or no file of a compaction log, {error}") from None


def _printed(path: str, output: Output) -> list[dict[str, Any]]:
    """Print the file as it is read, which keeps one message of it; return what ``--json`` prints."""
    files = RealFiles()
    if files.regular_file(path) is None:
        raise CommandFailedError(f"{path} is no file" if files.exists(path) else f"{path} does not exist")
    found = []
    with open(path, "rb") as file:
        for record in records_in(file, files.size(path)):
            output.line(record_line(record))
            if output.as_json:
                found.append(_record_json(record))
    return found
