"""A file of a compaction log is printed where it lies, and a bad one is one line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from understudy.format.properties import format_properties
from understudy.format.record import BLANK, BLANK_MAGIC, decode_records, encode_host, encode_record
from understudy.mqadmin.compaction_log import records_in
from understudy.mqadmin.main import main

HOST = encode_host("10.0.0.7", 10911)
LOCAL_V6 = encode_host("::1", 40000)
BLANK_MARKER = BLANK.pack(100, BLANK_MAGIC) + bytes(92)


def record(number: int, position: int, properties: dict[str, str], born_host: bytes = HOST) -> bytes:
    return encode_record(
        "Prices",
        3,
        number,
        position,
        b"body %d" % number,
        format_properties(properties).encode(),
        flag=5,
        born_ms=1_700_000_000_000,
        born_host=born_host,
        store_ms=1_700_000_000_111,
        store_host=HOST,
        reconsume_times=1,
    )


FIRST = record(17, 0, {"KEYS": "k1", "TAGS": "a"})
SECOND = record(40, len(FIRST), {}, LOCAL_V6)


def dump(path: Path, *more: str) -> int:
    return main(["dumpCompactionLog", "-f", str(path), *more])


@pytest.mark.parametrize("end", [b"", bytes(1000), bytes(3), BLANK_MARKER])
def test_every_message_is_a_line_as_the_reference_prints_it(
    end: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    path = tmp_path / "00000000000000000000"
    path.write_bytes(FIRST + SECOND + end)
    assert dump(path) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"MessageExt [brokerName=null, queueId=3, storeSize={len(FIRST)}, queueOffset=17, sysFlag=0, "
        "bornTimestamp=1700000000000, bornHost=/10.0.0.7:10911, storeTimestamp=1700000000111, "
        "storeHost=/10.0.0.7:10911, msgId=0A00000700002A9F0000000000000000, commitLogOffset=0, "
        f"bodyCRC={decode_records(FIRST)[0].body_crc}, reconsumeTimes=1, preparedTransactionOffset=0, "
        "toString()=Message{topic='Prices', flag=5, properties={KEYS=k1, TAGS=a}, body=null, transactionId='null'}]",
        f"MessageExt [brokerName=null, queueId=3, storeSize={len(SECOND)}, queueOffset=40, sysFlag=16, "
        "bornTimestamp=1700000000000, bornHost=/[::1]:40000, storeTimestamp=1700000000111, "
        f"storeHost=/10.0.0.7:10911, msgId=0A00000700002A9F{len(FIRST):016X}, commitLogOffset={len(FIRST)}, "
        f"bodyCRC={decode_records(SECOND)[0].body_crc}, reconsumeTimes=1, preparedTransactionOffset=0, "
        "toString()=Message{topic='Prices', flag=5, properties=null, body=null, transactionId='null'}]",
    ]
    assert path.read_bytes() == FIRST + SECOND + end


def test_json_has_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_bytes(FIRST + SECOND)
    assert dump(path, "--json") == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["queueOffset"], first["bodySize"], first["properties"]) == (17, 7, {"KEYS": "k1", "TAGS": "a"})
    assert (second["commitLogOffset"], second["bornHost"]) == (len(FIRST), "[::1]:40000")


def test_a_body_that_has_rotted_hides_no_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_bytes(FIRST.replace(b"body 17", b"bodx 17") + SECOND)
    assert dump(path) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("content", "printed", "why"),
    [
        (b"not a log at all", 0, "at byte 0: no record begins there (size 1852797984, magic 0x61206c6f)"),
        (
            FIRST + SECOND[:-1],
            1,
            f"at byte {len(FIRST)}: no record begins there (size {len(SECOND)}, magic 0xdaa320a7)",
        ),
        (FIRST + SECOND + b"\0\0\1", 2, f"at byte {len(FIRST + SECOND)}: 3 bytes left, too few for a record"),
        (FIRST[:-4] + b"\1\1\1\1", 1, ""),  # nothing but the properties is other than it was
        (FIRST[:3] + b"\x08" + FIRST[4:], 0, "at byte 0: no record begins there (size 8, magic 0xdaa320a7)"),
        (FIRST[:84] + b"\x7f" + FIRST[85:], 0, "at byte 0: body length"),
    ],
)
def test_damage_is_said_behind_what_could_be_read(
    content: bytes, printed: int, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    assert dump(path) == (1 if why else 0)
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == printed
    assert output.err.count("\n") == (1 if why else 0)
    assert why in output.err


def test_what_is_no_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump(tmp_path) == 1
    assert capsys.readouterr().err == f"mqadmin dumpCompactionLog: {tmp_path} is no file\n"
    assert dump(tmp_path / "nothing") == 1
    assert capsys.readouterr().err == f"mqadmin dumpCompactionLog: {tmp_path / 'nothing'} does not exist\n"
    assert main(["dumpCompactionLog"]) == 2
    assert "missing option: -f,--file" in capsys.readouterr().err


def test_no_more_is_read_than_the_file_has_when_it_is_opened() -> None:
    assert [each.queue_offset for each in records_in(io.BytesIO(FIRST + SECOND), len(FIRST))] == [17]
