"""HTTP/2 without I/O, with a client that keeps the protocol: h2's, for every kind of frame."""

from __future__ import annotations

import random

import pytest
from h2 import events
from h2.settings import SettingCodes
from hpack import Encoder
from http2_rig import FIELDS, HELLO, Pair, Told, data_frame, frames_in, headers, receive, talking
from hyperframe.frame import (
    ContinuationFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
)

from understudy.proxy.grpc import http2
from understudy.proxy.grpc.fields import block_of
from understudy.proxy.grpc.frames import ErrorCode
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.protocol import ProtocolError, ServerProtocol


def test_a_call_goes_there_and_back() -> None:
    pair = Pair()
    stream = pair.begin(("x-a", "b"), data=b"question")
    assert {**dict(FIELDS), "x-a": "b"} == pair.told.requests[stream]
    assert (b"question", [stream]) == (pair.told.data[stream], pair.told.ended)
    pair.server.send_fields(stream, http2.HEADERS, end=False)
    assert 6 == pair.server.send_data(stream, b"answer")
    pair.server.send_fields(stream, http2.GOOD_END, end=True)
    pair.exchange()
    (response,) = pair.of(stream, events.ResponseReceived)
    (data,) = pair.of(stream, events.DataReceived)
    (trailers,) = pair.of(stream, events.TrailersReceived)
    assert isinstance(response, events.ResponseReceived) and isinstance(trailers, events.TrailersReceived)
    assert {":status": "200", "content-type": "application/grpc"}.items() <= dict(response.headers or ()).items()
    assert isinstance(data, events.DataReceived) and b"answer" == data.data
    assert [("grpc-status", "0")] == list(trailers.headers or ())
    assert pair.of(stream, events.StreamEnded) and not pair.of(stream, events.StreamReset)
    assert 0 == len(pair.server)


def test_a_stream_that_its_client_has_not_ended_is_reset_behind_its_answer_and_what_comes_then_is_dropped() -> None:
    pair = Pair()
    stream = pair.begin(data=b"begun", end=False)
    pair.client.send_data(stream, b"under way")  # before it knows
    pair.server.send_fields(stream, http2.HEADERS + http2.GOOD_END, end=True)
    receive(pair.server, pair.client.data_to_send())
    pair.exchange()
    assert b"begun" == pair.told.data[stream]
    assert "control" in pair.told.others
    (reset,) = pair.of(stream, events.StreamReset)
    assert isinstance(reset, events.StreamReset) and 0 == reset.error_code
    assert [pair.begin()] == pair.told.ended  # the connection goes on


def test_a_client_may_reset_and_ping_and_say_priorities() -> None:
    pair = Pair()
    stream = pair.begin(end=False)
    pair.told.others.clear()
    pair.client.reset_stream(stream)
    pair.client.ping(b"12345678")
    pair.client.prioritize(stream + 2, weight=7)
    pair.exchange()
    assert [f"reset {stream}", "control", "control", "control"] == pair.told.others
    assert [b"12345678"] == [each.ping_data for each in pair.seen if isinstance(each, events.PingAckReceived)]
    assert 0 == len(pair.server)
    pair.server.ping()
    pair.exchange()
    assert "pong" == pair.told.others[4]
    pair.client.close_connection()
    pair.exchange()
    assert "goodbye" == pair.told.others[-1]


@pytest.mark.parametrize("window", [1, 7, 100_000])
def test_answers_stay_within_the_windows_of_the_client(window: int) -> None:
    pair = Pair()
    pair.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
    pair.exchange()
    stream, answer, got, at = pair.begin(), random.Random(1).randbytes(500 if window < 10 else 300_000), b"", 0
    pair.server.send_fields(stream, http2.HEADERS, end=False)
    while len(got) < len(answer):
        sent = pair.server.send_data(stream, answer, at)
        at += sent
        pair.seen.clear()
        pair.exchange()  # h2 raises for a byte too many
        for event in pair.seen:
            if isinstance(event, events.DataReceived):
                got += event.data or b""
        for wanted in (stream, None):
            if sent:
                pair.client.increment_flow_control_window(sent, wanted)
        pair.exchange()
    assert answer == got
    assert f"room {stream}" in pair.told.others and "room 0" in pair.told.others


def test_a_window_that_shrinks_below_nothing_must_grow_again() -> None:
    pair = Pair()
    stream = pair.begin()
    pair.server.send_fields(stream, http2.HEADERS, end=False)
    assert 100 == pair.server.send_data(stream, bytes(100))
    pair.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
    pair.exchange()
    assert (0, 0) == (pair.server.room(stream), pair.server.send_data(stream, b"x"))
    pair.client.increment_flow_control_window(95, stream)
    pair.exchange()
    assert 5 == pair.server.room(stream)


def test_a_client_sends_as_much_as_was_given_back_and_is_told_in_large_pieces() -> None:
    pair = Pair(GrpcLimits(window_bytes=100_000))
    stream = pair.begin(end=False)
    updates, sent = 0, 0
    while sent < 1_000_000:
        size = min(pair.client.local_flow_control_window(stream), 10_000)
        assert size > 0
        pair.client.send_data(stream, bytes(size))
        receive(pair.server, pair.client.data_to_send())
        pair.server.give_back(size, stream)
        sent += size
        pair.exchange()
    updates = sum(isinstance(each, events.WindowUpdated) for each in pair.seen)
    assert sent == len(pair.told.data[stream])
    assert updates <= 2 * (sent // 50_000) + 2


def test_a_client_that_has_ended_its_stream_gets_no_window_of_it_back() -> None:
    pair = Pair(GrpcLimits(window_bytes=65_535))
    stream = pair.begin(data=bytes(16_000), end=False)
    for _ in range(3):
        pair.client.send_data(stream, bytes(16_000))
    pair.client.end_stream(stream)
    pair.exchange()
    pair.server.give_back(64_000, stream)
    assert [0] == [frame.stream_id for frame in frames_in(pair.server.take())]


def test_larger_frames_are_sent_to_who_takes_them() -> None:
    pair = Pair()
    stream = pair.begin()
    pair.server.send_fields(stream, http2.HEADERS, end=False)
    assert 16_384 == pair.server.send_data(stream, bytes(60_000))
    pair.client.update_settings({SettingCodes.MAX_FRAME_SIZE: 20_000})
    pair.exchange()
    assert 20_000 == pair.server.send_data(stream, bytes(60_000))
    pair.exchange()


def test_long_header_fields_of_an_answer_go_on_in_further_frames() -> None:
    pair = Pair()
    stream = pair.begin()
    pair.server.send_fields(stream, block_of([(b":status", b"200"), (b"x-long", b"y" * 40_000)]), end=True)
    pair.exchange()
    (response,) = pair.of(stream, events.ResponseReceived)
    assert isinstance(response, events.ResponseReceived)
    assert "y" * 40_000 == dict(response.headers or ())["x-long"]


@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_header_fields_are_the_same_however_frames_cut_them(size: int) -> None:
    server, told = talking()
    block = Encoder().encode([*FIELDS, ("x-long", "z" * (40 if size < 1_000 else 4_000))])
    parts = [block[at : at + size] for at in range(0, len(block), size)]
    first = HeadersFrame(1, parts[0])
    first.flags.add("END_STREAM")
    rest: list[Frame] = [ContinuationFrame(1, part) for part in parts[1:]]
    rest[-1].flags.add("END_HEADERS")
    if len(parts) > 64:
        with pytest.raises(ProtocolError, match="ENHANCE_YOUR_CALM"):
            receive(server, first.serialize() + b"".join(each.serialize() for each in rest))
        return
    receive(server, first.serialize() + b"".join(each.serialize() for each in rest))
    assert told.requests[1]["x-long"][0] == "z"
    assert [1] == told.ended


def test_padding_counts_for_the_window_and_is_nothing_else() -> None:
    server, told = talking()
    receive(server, headers(end=False) + data_frame(1, b"abc", pad=10, end=True))
    assert (b"abc", [(1, 14)]) == (told.data[1], told.sizes)


def test_bytes_mean_the_same_however_the_network_cuts_them() -> None:
    source = random.Random(3)
    whole = HELLO + headers(end=False) + data_frame(1, b"abc") + PingFrame(0, b"12345678").serialize()
    whole += data_frame(1, b"def", end=True) + headers(3)
    for _ in range(50):
        told, at = Told(), 0
        server = ServerProtocol(GrpcLimits(), told)
        while at < len(whole):
            size = source.randrange(1, 40)
            receive(server, whole[at : at + size])
            at += size
        assert (b"abcdef", [1, 3]) == (told.data[1], told.ended)


def test_no_more_frames_are_dealt_with_at_once_than_are_asked_for() -> None:
    server, told = talking()
    assert server.receive(b"".join(headers(stream) for stream in range(1, 21, 2)), 4)
    assert 4 == len(told.requests)
    assert server.receive(b"", 4)
    assert not server.receive(b"", 4)
    assert 10 == len(told.requests)


def test_a_stop_lets_open_streams_go_on_and_an_end_says_why() -> None:
    server, _ = talking()
    receive(server, headers())
    server.goodbye()
    server.send_fields(1, http2.HEADERS, end=False)
    server.close(ErrorCode.ENHANCE_YOUR_CALM)
    first, second, third = frames_in(server.take())
    assert isinstance(first, GoAwayFrame) and isinstance(second, HeadersFrame) and isinstance(third, GoAwayFrame)
    assert ((1 << 31) - 1, 0) == (first.last_stream_id, first.error_code)
    assert (1, 11) == (third.last_stream_id, third.error_code)


def test_what_is_said_on_a_stream_that_is_gone_is_not_said() -> None:
    server, _ = talking()
    receive(server, headers() + RstStreamFrame(1, error_code=8).serialize())
    server.send_fields(1, http2.HEADERS, end=True)
    assert (0, 0, b"") == (server.room(1), server.send_data(1, b"x"), server.take())


def test_frames_of_extensions_are_let_through() -> None:
    server, told = talking()
    receive(server, b"\x00\x00\x03\x10" + bytes(5) + b"u=1" + headers())
    assert ([1], ["control"]) == (told.ended, told.others)
