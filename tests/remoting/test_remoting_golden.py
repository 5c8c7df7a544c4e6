"""Every captured frame of RocketMQ 5.4.0 is understood, and what Java wrote is written again byte for byte."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from binary_frames import encode_binary

from understudy.remoting.codes import RequestCode
from understudy.remoting.command import LANGUAGES, Command
from understudy.remoting.frame import FrameReader, encode

DATA = Path(__file__).parent.parent / "data" / "remoting" / "frames.jsonl.gz"
COLUMNS = (
    "file",
    "kind",
    "code",
    "opaque",
    "flag",
    "version",
    "language",
    "remark",
    "header",
    "body_len",
    "type",
    "hex",
)


def captured() -> list[dict[str, Any]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        return [dict(zip(COLUMNS, json.loads(line), strict=True)) for line in lines]


FRAMES = captured()


def decode(frame: dict[str, Any]) -> Command:
    (command,) = FrameReader().feed(bytes.fromhex(frame["hex"]))
    return command


def language_name(value: object) -> object:
    return LANGUAGES[value] if isinstance(value, int) else value


def texts(header: dict[str, object]) -> dict[str, str]:
    """Field values as the protocol has them, for requests that were made by hand with other types."""
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in header.items() if v is not None}


def test_captures_hold_all_request_codes() -> None:
    codes = {frame["code"] for frame in FRAMES if frame["kind"] == "request"}
    known = {int(code) for code in RequestCode}

    assert len(codes) == 136
    assert {code for code in codes if code not in known} <= {0, 3442, 9999, 10000}  # sent to be refused


def test_every_captured_frame_is_decoded_to_its_fields() -> None:
    for frame in FRAMES:
        if frame["opaque"] is None:  # sent without one on purpose: replaced by a number of our own
            continue
        command = decode(frame)
        got = (command.code, command.opaque, command.flag, command.version, len(command.body))
        sent = (frame["code"], frame["opaque"], frame["flag"] or 0, frame["version"] or 0, frame["body_len"])
        assert sent == got
        assert (frame["remark"] or None) == (command.remark or None)
        assert texts(frame["header"] or {}) == (command.ext or {})
        if frame["language"] != "COBOL":
            assert (language_name(frame["language"]) or "JAVA") == command.language


def test_java_json_frames_are_written_again_byte_for_byte() -> None:
    compared = 0
    for frame in FRAMES:
        if frame["type"] == 0 and frame["language"] == "JAVA" and frame["version"] == 493:
            assert bytes.fromhex(frame["hex"]) == encode(decode(frame))
            compared += 1
    assert compared > 3000


def test_captured_binary_frames_survive_a_round_trip() -> None:
    compared = 0
    for frame in FRAMES:
        if frame["type"] == 1:
            command = decode(frame)
            (again,) = FrameReader().feed(encode_binary(command))
            assert command == again
            compared += 1
    assert compared > 90


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_frames_cut_anywhere_are_the_same_frames(size: int) -> None:
    frames = FRAMES[:60]
    stream = b"".join(bytes.fromhex(frame["hex"]) for frame in frames)
    reader = FrameReader()
    commands = [c for at in range(0, len(stream), size) for c in reader.feed(stream[at : at + size])]

    assert [frame["hex"] for frame in frames] == [
        encode(c).hex() if frame["version"] == 493 and frame["language"] == "JAVA" else frame["hex"]
        for frame, c in zip(frames, commands, strict=True)
    ]
    assert 0 == reader.pending_bytes
