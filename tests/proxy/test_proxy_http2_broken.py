"""HTTP/2 without I/O, with bytes and frames that no client sends: the connection ends, and says why."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from http2_rig import FIELDS, HELLO, Told, data_frame, frames_in, headers, receive, talking
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import given
from hypothesis import strategies as st

from understudy.proxy.grpc import http2
from understudy.proxy.grpc.frames import PREFACE, ErrorCode
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.protocol import ProtocolError, ServerProtocol


def sized(kind: type[Frame], stream: int, content: bytes, flags: int = 0) -> bytes:
    return struct.pack(">HBBBL", 0, len(content), kind.type or 0, flags, stream) + content


def window(stream: int, by: int) -> bytes:
    return sized(WindowUpdateFrame, stream, struct.pack(">L", by))


def setting(number: int, value: int) -> bytes:
    return sized(SettingsFrame, 0, struct.pack(">HL", number, value))


OPEN, DONE = headers(end=False), headers()
BROKEN: list[tuple[str, bytes, ErrorCode]] = [
    ("no preface", b"GET / HTTP/1.1\r\n", ErrorCode.PROTOCOL_ERROR),
    ("a frame before the settings", PREFACE + headers(), ErrorCode.PROTOCOL_ERROR),
    ("an answer to settings before the settings", PREFACE + sized(SettingsFrame, 0, b"", 1), ErrorCode.PROTOCOL_ERROR),
    ("a frame that is too large", HELLO + b"\x00\x40\x01\x00\x00\x00\x00\x00\x01", ErrorCode.FRAME_SIZE_ERROR),
    ("settings that are cut", HELLO + sized(SettingsFrame, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
    ("settings of a stream", HELLO + sized(SettingsFrame, 1, b""), ErrorCode.PROTOCOL_ERROR),
    ("an answer to settings that says more", HELLO + sized(SettingsFrame, 0, bytes(6), 1), ErrorCode.FRAME_SIZE_ERROR),
    ("a push that is neither on nor off", HELLO + setting(2, 2), ErrorCode.PROTOCOL_ERROR),
    ("small frames", HELLO + setting(5, 16_383), ErrorCode.PROTOCOL_ERROR),
    ("large windows", HELLO + setting(4, 1 << 31), ErrorCode.FLOW_CONTROL_ERROR),
    ("windows that grow too large", HELLO + OPEN + window(1, 1 << 30) + setting(4, (1 << 31) - 1),
     ErrorCode.FLOW_CONTROL_ERROR),
    ("a ping that is cut", HELLO + sized(PingFrame, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    ("a ping of a stream", HELLO + sized(PingFrame, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    ("a goodbye that is cut", HELLO + sized(GoAwayFrame, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    ("a goodbye of a stream", HELLO + sized(GoAwayFrame, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    ("a priority that is cut", HELLO + sized(PriorityFrame, 1, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
    ("a priority of no stream", HELLO + sized(PriorityFrame, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR),
    ("a push", HELLO + sized(PushPromiseFrame, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    ("a window that grows by nothing", HELLO + window(0, 0), ErrorCode.PROTOCOL_ERROR),
    ("a window that is cut", HELLO + sized(WindowUpdateFrame, 0, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
    ("a window beyond all bounds", HELLO + window(0, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
    ("a stream's window beyond all bounds", HELLO + OPEN + window(1, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
    ("a window of a stream that has not begun", HELLO + window(1, 1), ErrorCode.PROTOCOL_ERROR),
    ("a reset that is cut", HELLO + DONE + sized(RstStreamFrame, 1, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
    ("a reset of a stream that has not begun", HELLO + sized(RstStreamFrame, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    ("a reset of no stream", HELLO + sized(RstStreamFrame, 0, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    ("data of a stream that has not begun", HELLO + data_frame(1, b"x"), ErrorCode.PROTOCOL_ERROR),
    ("data of no stream", HELLO + sized(DataFrame, 0, b"x"), ErrorCode.PROTOCOL_ERROR),
    ("data behind the end", HELLO + DONE + data_frame(1, b"x"), ErrorCode.STREAM_CLOSED),
    ("data behind a reset", HELLO + OPEN + sized(RstStreamFrame, 1, bytes(4)) + data_frame(1, b"x"),
     ErrorCode.STREAM_CLOSED),
    ("data that is padding alone", HELLO + OPEN + sized(DataFrame, 1, b"\x01", 8), ErrorCode.PROTOCOL_ERROR),
    ("data without its padding", HELLO + OPEN + sized(DataFrame, 1, b"", 8), ErrorCode.PROTOCOL_ERROR),
    ("a stream of the server", HELLO + headers(2), ErrorCode.PROTOCOL_ERROR),
    ("a stream that was passed by", HELLO + headers(5) + headers(3), ErrorCode.STREAM_CLOSED),
    ("a stream that ended", HELLO + DONE + DONE, ErrorCode.STREAM_CLOSED),
    ("header fields in the middle", HELLO + OPEN + OPEN, ErrorCode.PROTOCOL_ERROR),
    ("data behind the fields at the end", HELLO + OPEN + headers(fields=[("x", "y")]) + data_frame(1, b"x"),
     ErrorCode.STREAM_CLOSED),
    ("a path behind a request", HELLO + OPEN + headers(fields=[(":path", "/")]), ErrorCode.PROTOCOL_ERROR),
    ("a request without a path", HELLO + headers(fields=[(":method", "POST"), (":scheme", "http")]),
     ErrorCode.PROTOCOL_ERROR),
    ("a name in upper case", HELLO + headers(fields=[*FIELDS, ("X-A", "b")]), ErrorCode.PROTOCOL_ERROR),
    ("a large window before a good one", HELLO + sized(SettingsFrame, 0, struct.pack(">HLHL", 4, 1 << 31, 4, 65_535)),
     ErrorCode.FLOW_CONTROL_ERROR),
    ("a priority that is cut in header fields", HELLO + sized(HeadersFrame, 1, bytes(4), 0x24),
     ErrorCode.FRAME_SIZE_ERROR),
    ("a continuation of nothing", HELLO + sized(ContinuationFrame, 1, b""), ErrorCode.PROTOCOL_ERROR),
    ("a frame within header fields", HELLO + sized(HeadersFrame, 1, b"") + sized(PingFrame, 0, bytes(8)),
     ErrorCode.PROTOCOL_ERROR),
    ("header fields of two streams", HELLO + sized(HeadersFrame, 1, b"") + sized(ContinuationFrame, 3, b""),
     ErrorCode.PROTOCOL_ERROR),
    ("header fields without an end", HELLO + sized(HeadersFrame, 1, b"") + sized(ContinuationFrame, 1, b"") * 64,
     ErrorCode.ENHANCE_YOUR_CALM),
    ("header fields that are damaged", HELLO + sized(HeadersFrame, 1, b"\xff\xff\xff\xff\xff\xff", 4),
     ErrorCode.COMPRESSION_ERROR),
    ("header fields that are too many", HELLO + headers(fields=[("x", "y" * 9_000)]), ErrorCode.ENHANCE_YOUR_CALM),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "code"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN])
def test_what_breaks_the_protocol_ends_the_connection_with_its_reason(sent: bytes, code: ErrorCode) -> None:
    server = ServerProtocol(GrpcLimits(), Told())
    with pytest.raises(ProtocolError) as raised:
        receive(server, sent)
    assert code == raised.value.code
    goodbye = frames_in(server.take())[-1]
    assert isinstance(goodbye, GoAwayFrame) and code == goodbye.error_code


def test_a_client_that_opens_more_streams_than_it_may_is_disconnected_and_who_ends_some_is_not() -> None:
    server, told = talking(GrpcLimits(calls=3))
    for stream in range(1, 41, 2):
        receive(server, headers(stream))
        if stream > 3:
            server.send_fields(stream - 4, http2.GOOD_END, end=True)
    assert 20 == len(told.requests)
    with pytest.raises(ProtocolError, match="more than 3 streams"):
        receive(server, headers(43) + headers(45))


def test_data_beyond_the_windows_ends_the_connection() -> None:
    for streams in (1, 2):
        server, _ = talking(GrpcLimits(window_bytes=100_000))
        receive(server, b"".join(headers(1 + 2 * number, end=False) for number in range(streams)))
        each = data_frame(1, bytes(10_000)) + (data_frame(3, bytes(10_000)) if streams > 1 else b"")
        receive(server, each * (10 // streams))
        with pytest.raises(ProtocolError) as raised:
            receive(server, data_frame(1, b"x"))
        assert ErrorCode.FLOW_CONTROL_ERROR == raised.value.code


def test_data_beyond_the_window_of_a_stream_ends_the_connection_though_that_of_the_connection_has_room() -> None:
    server, _ = talking(GrpcLimits(window_bytes=100_000))
    receive(server, headers(1, end=False) + headers(3, end=False))
    for stream in (1, 3):
        receive(server, data_frame(stream, bytes(16_000)) * 2)
        server.give_back(32_000, stream)  # too little to be told for each, enough for both
    with pytest.raises(ProtocolError, match="window of the stream"):
        receive(server, data_frame(1, bytes(16_000)) * 5)


def test_what_comes_on_streams_that_were_left_is_given_back() -> None:
    server, _ = talking(GrpcLimits(window_bytes=100_000))
    for stream in range(1, 41, 2):
        receive(server, headers(stream, end=False))
        server.send_fields(stream, http2.GOOD_END, end=True)
        receive(server, data_frame(stream, bytes(16_000), end=True))
    assert 20 * 16_000 - 50_000 <= sum(
        frame.window_increment for frame in frames_in(server.take()) if isinstance(frame, WindowUpdateFrame)
    )


def test_very_many_settings_of_a_window_in_one_frame_count_as_one() -> None:
    server, told = talking()
    receive(server, headers())
    many = b"".join(struct.pack(">HL", 4, number) for number in range(2_000))
    receive(server, len(many).to_bytes(3, "big") + b"\x04\x00" + bytes(4) + many)
    assert (1_999, ["settings"]) == (server.room(1), told.others)


def test_of_streams_that_were_left_only_the_latest_are_known() -> None:
    server, _ = talking(GrpcLimits(calls=2_000))
    for number in range(1_100):
        receive(server, headers(1 + 2 * number, end=False))
        server.send_fields(1 + 2 * number, http2.GOOD_END, end=True)
    receive(server, data_frame(2_199, b"x") + data_frame(2_199, b"y", end=True))
    with pytest.raises(ProtocolError, match="STREAM_CLOSED"):
        receive(server, data_frame(2_199, b"z"))
    with pytest.raises(ProtocolError, match="STREAM_CLOSED"):
        receive(server, data_frame(1, b"x"))


@given(st.binary(max_size=400))
def test_any_bytes_are_taken_or_end_the_connection(data: bytes) -> None:
    server, _ = talking()
    try:
        receive(server, data)
    except ProtocolError:
        assert isinstance(frames_in(server.take())[-1], GoAwayFrame)


def drawn(source: random.Random) -> bytes:
    content = source.randbytes(source.choice((0, 1, 4, 5, 6, 8, source.randrange(60))))
    stream = source.choice((0, 1, 1, 3, 5, 2))
    return (
        struct.pack(">HBBBL", 0, len(content), source.randrange(12), source.choice((0, 1, 4, 5, 37)), stream) + content
    )


def test_any_frames_are_taken_or_end_the_connection() -> None:
    source = random.Random(5)
    for _ in range(3_000):
        server, told = talking()
        known: Callable[[], bytes] = lambda: headers(source.choice((1, 3, 5)), end=source.random() < 0.5)  # noqa: E731
        try:
            for _ in range(source.randrange(1, 12)):
                receive(server, known() if source.random() < 0.4 else drawn(source))
                for stream in list(told.requests):
                    if source.random() < 0.1:
                        server.send_fields(stream, http2.GOOD_END, end=source.random() < 0.5)
        except ProtocolError:
            assert isinstance(frames_in(server.take())[-1], GoAwayFrame)
