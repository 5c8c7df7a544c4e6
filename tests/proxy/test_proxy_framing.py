"""Messages in bytes, time-outs and texts for people, as gRPC has them on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.proxy.grpc.framing import MessageReader, framed, percent_encoded, timeout_seconds
from understudy.proxy.grpc.status import RpcError, StatusCode


@given(st.lists(st.binary(max_size=50)), st.lists(st.integers(1, 30), min_size=1))
def test_messages_are_the_same_however_the_network_cuts_them(messages: list[bytes], cuts: list[int]) -> None:
    data, reader, found, at = b"".join(map(framed, messages)), MessageReader(50), list[bytes](), 0
    while at < len(data):
        size = cuts[at % len(cuts)]
        found += reader.feed(data[at : at + size])
        at += size
    assert messages == found


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_an_error_with_a_status(data: bytes) -> None:
    try:
        MessageReader(100, "gzip").feed(data)
    except RpcError as error:
        assert error.status in (StatusCode.INTERNAL, StatusCode.RESOURCE_EXHAUSTED)


@pytest.mark.parametrize(("text", "seconds"), [("3S", 3.0), ("8760H", 31_536_000.0), ("100m", 0.1), ("99999999n", 0.1)])
def test_timeouts_have_a_unit(text: str, seconds: float) -> None:
    assert seconds == pytest.approx(timeout_seconds(text), rel=1e-6)


@pytest.mark.parametrize("text", ["", "S", "3", "123456789S", "-1S", "3s", "٣S"])
def test_what_is_no_timeout_is_refused(text: str) -> None:
    with pytest.raises(RpcError):
        timeout_seconds(text)


def test_a_text_for_people_survives_a_header_field() -> None:
    assert ("plain text", "line%0Aä".replace("ä", "%C3%A4")) == (
        percent_encoded("plain text"),
        percent_encoded("line\nä"),
    )
