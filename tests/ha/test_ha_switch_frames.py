"""The wire of controller mode: captured bytes, cut anywhere, and what no peer sends."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.ha.following import HaState
from understudy.ha.switch.epochs import EpochEntry, Epochs
from understudy.ha.switch.frames import (
    EpochTransfer,
    MasterFrameReader,
    MasterHandshake,
    Report,
    SlaveFrameReader,
    SlaveHandshake,
    header,
    joined,
)
from understudy.ha.wire import WireError

# What a real pair said (golden captures of controller mode).
SLAVE_SAYS = "00000001 0000 0000 0000000000000002 00000002 0000000000000000 00000002 00000000000001a8"
MASTER_SAYS = (
    "00000001 00000018 000000000000cf05 00000002 00000001 0000000000000000 00000002 000000000000483b"
    "00000002 00000000 ffffffffffffffff 00000001 0000000000000000 0000000000000000"
    "00000002 00000003 000000000000483b 00000002 000000000000483b 0000000000011abc 616263"
)


def pieces(data: bytes, seed: int) -> list[bytes]:
    rng, found = random.Random(seed), []
    while data:
        size = rng.choice((1, 2, 7, 30, 1000))
        found.append(data[:size])
        data = data[size:]
    return found


@pytest.mark.covers("R225")
def test_states_have_the_references_numbers_and_only_those_of_a_connection_at_work_are_said() -> None:
    states = {state.name: state.value for state in HaState}
    # SUSPEND, 3, is in the reference's list; nobody there enters it, and nobody here has it
    assert states == {"READY": 0, "HANDSHAKE": 1, "TRANSFER": 2, "SHUTDOWN": 4}
    for frame, state in (
        (SlaveHandshake(2).to_bytes(), HaState.HANDSHAKE),
        (Report(0).to_bytes(), HaState.TRANSFER),
        (MasterHandshake(0, Epochs(())).to_bytes(), HaState.HANDSHAKE),
        (header(0, 0, EpochEntry(1, 0), 0), HaState.TRANSFER),
    ):
        assert frame[:4] == struct.pack(">i", state.value)
    for state in (0, 3, 4):  # and what else a peer says ends its connection
        said = struct.pack(">iiq", state, 0, 0) + bytes(20)
        for reader in (SlaveFrameReader(), MasterFrameReader()):
            with pytest.raises(WireError, match=f"begins with state {state}; 1 or 2 is expected"):
                reader.feed(said)


@pytest.mark.covers("R221", "R224")
@pytest.mark.parametrize("seed", range(6))
def test_what_a_real_slave_says(seed: int) -> None:
    reader, data = SlaveFrameReader(), bytes.fromhex(SLAVE_SAYS)
    frames = [frame for piece in pieces(data, seed) for frame in reader.feed(piece)]
    assert [SlaveHandshake(2), Report(0), Report(0x1A8)] == frames
    assert data == b"".join(frame.to_bytes() for frame in frames)


@pytest.mark.covers("R222", "R223")
@pytest.mark.parametrize("seed", range(6))
def test_what_a_real_master_says(seed: int) -> None:
    reader, data = MasterFrameReader(), bytes.fromhex(MASTER_SAYS)
    handshake, idle, transfer = (frame for piece in pieces(data, seed) for frame in reader.feed(piece))
    assert handshake == MasterHandshake(0xCF05, Epochs.of([(1, 0), (2, 0x483B)]))
    assert idle == EpochTransfer(-1, 1, 0, 0)
    assert isinstance(transfer, EpochTransfer)
    assert (0x483B, 2, 0x483B, 0x11ABC, b"abc") == (
        transfer.offset, transfer.epoch, transfer.epoch_start, transfer.confirm_offset, bytes(transfer.body),
    )  # fmt: skip
    assert isinstance(handshake, MasterHandshake)
    ours = handshake.to_bytes() + header(-1, 0, EpochEntry(1, 0), 0)
    assert data == ours + header(0x483B, 3, EpochEntry(2, 0x483B), 0x11ABC) + b"abc"


def test_a_handshake_has_room_for_the_newest_thousand_epochs() -> None:
    epochs = Epochs.of([(number, number * 10) for number in range(1, 1203)])
    (frame,) = MasterFrameReader().feed(MasterHandshake(50_000, epochs).to_bytes())
    assert isinstance(frame, MasterHandshake)
    assert epochs.entries[-1000:] == frame.epochs.entries


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 3), st.binary(max_size=5)),
        max_size=12,
    )
)
def test_joined_frames_say_the_same(rows: list[tuple[int, int, bytes]]) -> None:
    transfers = [
        EpochTransfer(offset, epoch, epoch * 7, number, body) for number, (offset, epoch, body) in enumerate(rows)
    ]
    found = joined(transfers)

    def laid_out(frames: list[EpochTransfer]) -> list[tuple[int, int, int]]:
        return [(frame.offset + at, frame.epoch, byte) for frame in frames for at, byte in enumerate(frame.body)]

    assert laid_out(transfers) == laid_out(found)
    assert len([frame for frame in found if not frame.body]) == len([frame for frame in transfers if not frame.body])
    assert transfers[-1:] == [] or transfers[-1].confirm_offset == found[-1].confirm_offset


def test_frames_of_one_epoch_become_one() -> None:
    parts = [EpochTransfer(4, 1, 0, 4, b"ab"), EpochTransfer(6, 1, 0, 6, b"c"), EpochTransfer(7, 2, 7, 7, b"d")]
    assert [EpochTransfer(4, 1, 0, 6, b"abc"), EpochTransfer(7, 2, 7, 7, b"d")] == joined(parts)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("0000000000000000", "enableControllerMode"),  # the report of plain replication
        ("00000002 ffffffffffffffff", "below zero"),
        ("00000001 0000 0000 ffffffffffffffff", "broker id -1"),
        ("00000001 0002 0000 0000000000000001", "flags 2"),
    ],
)
def test_what_no_slave_sends(data: str, says: str) -> None:
    with pytest.raises(WireError, match=says):
        SlaveFrameReader().feed(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("0000000000000b13 00000000", "enableControllerMode"),  # the heartbeat of plain replication
        ("00000001 0000000d", "13 bytes"),
        ("00000001 00010000", "65536 bytes"),
        ("00000002 7fffffff", "plausible"),
        ("00000002 ffffffff", "-1 bytes"),
        ("00000001 00000000 0000000000000000 00000007", "another"),
        (
            "00000001 00000018 0000000000000000 00000001 00000002 0000000000000000 00000001 0000000000000000",
            "must grow",
        ),
        ("00000002 00000001 ffffffffffffffff 00000001 0000000000000000 0000000000000000 61", "offset -1"),
    ],
)
def test_what_no_master_sends(data: str, says: str) -> None:
    with pytest.raises(WireError, match=says):
        MasterFrameReader().feed(bytes.fromhex(data))
