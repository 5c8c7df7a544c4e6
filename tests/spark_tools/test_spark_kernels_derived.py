"""Damaged queues, indexes, tables and folders are named at their byte, and sound ones are not."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from hypothesis import example, given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from understudy.spark_tools.kernels import consumequeue, index, progress, tables  # noqa: E402
from understudy.spark_tools.layout import Store, read_layout  # noqa: E402
from understudy.spark_tools.synthetic import SyntheticStore  # noqa: E402


def queue_bytes(count: int = 50, empty: int = 14) -> bytes:
    units = np.zeros(count + empty, dtype=consumequeue.UNIT)
    units["physical_offset"][:count] = np.arange(count) * 200
    units["size"][:count] = 200
    units["tags_code"][:count] = 7
    raw: bytes = units.tobytes()
    return raw


@pytest.mark.parametrize(
    ("kind", "position", "damage"),
    [
        ("hole", 10 * 20, lambda raw: raw[:200] + bytes(40) + raw[240:]),
        ("invalid-unit", 10 * 20, lambda raw: raw[:200] + b"\xff" * 12 + raw[212:]),
        ("offset-goes-back", 11 * 20, lambda raw: raw[:220] + raw[:20] + raw[240:]),
        ("late-filler", 5 * 20, lambda raw: raw[:100] + struct.pack(">qiq", 0, 0x7FFFFFFF, 0) + raw[120:]),
    ],
)
def test_damaged_units_are_found_at_their_byte(kind: str, position: int, damage: object) -> None:
    raw = damage(queue_bytes())  # type: ignore[operator]

    found = consumequeue.faults(consumequeue.units(raw), "queue", 0, len(raw))

    assert [(item.kind, item.offset_bytes) for item in found] == [(kind, position)]


def test_units_in_the_wrong_byte_order_are_named() -> None:
    units = np.frombuffer(queue_bytes(), dtype=consumequeue.UNIT)[1:]
    swapped = units.astype([(name, units.dtype[name].newbyteorder("<")) for name in units.dtype.names]).tobytes()

    found = consumequeue.faults(consumequeue.units(swapped), "queue", 0, len(swapped))

    assert found[0].kind in ("wrong-byte-order", "invalid-unit", "offset-goes-back")
    assert found[0].offset_bytes <= 20


def test_a_good_queue_with_leading_fillers_has_nothing_to_report() -> None:
    filler = struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 5
    raw = filler + queue_bytes()

    assert consumequeue.faults(consumequeue.units(raw), "queue", 0, len(raw)) == []


def test_missing_short_and_foreign_files_are_named(tmp_path: Path) -> None:
    store = SyntheticStore(str(tmp_path), log_file_bytes=4096)
    for number in range(100):
        store.append("T", 0, b"x" * 100, store_timestamp=1000 + number, uniq_key=f"{number:032X}")
    store.save()
    files = sorted((tmp_path / "commitlog").iterdir())
    files[1].unlink()
    files[3].write_bytes(files[3].read_bytes()[:1000])
    (tmp_path / "commitlog" / "notes.txt").write_text("mine")

    damages = read_layout(Store("a", str(tmp_path))).damages

    assert {(item.kind, Path(item.path).name, item.offset_bytes) for item in damages} == {
        ("missing-file", files[0].name, 4096),
        ("short-file", files[3].name, 1000),
        ("foreign-file", "notes.txt", 0),
    }


def test_an_empty_or_missing_directory_is_no_store(tmp_path: Path) -> None:
    assert [item.kind for item in read_layout(Store("a", str(tmp_path / "none"))).damages] == ["no-store"]
    assert [item.kind for item in read_layout(Store("a", str(tmp_path))).damages] == ["no-store"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"offsetTable":{"T@g":{0:7,1:9}}}', {"offsetTable": {"T@g": {"0": 7, "1": 9}}}),
        ('{"a":{-1:2,},"b":[1,2,],}', {"a": {"-1": 2}, "b": [1, 2]}),
        ('{"tricky {1:2} , }":"a\\"{3:4}"}', {"tricky {1:2} , }": 'a"{3:4}'}),
        ("{\n\t\n}", {}),
        ("{'a':{{\"b\":1}:2},,c:3}", {"a": {'{"b":1}': 2}, "c": 3}),  # what a broker reads is no damaged table
    ],
)
def test_tables_in_the_dialect_of_fastjson(text: str, value: object) -> None:
    assert tables.loads(text) == value


def test_a_broken_table_says_at_which_byte() -> None:
    text = '{"é":{0:1,1:2},\n"x":oops}'

    with pytest.raises(tables.TableError) as caught:
        tables.loads(text.encode())

    assert caught.value.offset_bytes == text.encode().index(b"oops")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6) | st.integers(0, 99).map(str), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(json_values)
@example({"\u00b2": None, "\u0663": 1, "--5": 2, "-7": 3})
def test_written_tables_read_back(value: object) -> None:
    assert tables.loads(tables.dumps(value)) == value


def test_epoch_files_with_wrong_crc_order_or_count_are_named() -> None:
    good = b"2\n680153447\n1-0\n2-25565\n"
    assert progress.read_epochs(good, "e")[1] == []
    assert "CRC" in progress.read_epochs(good.replace(b"25565", b"25566"), "e")[1][0].detail
    assert "goes back" in progress.read_epochs(b"2\n0\n2-5\n1-9\n", "e")[1][0].detail
    assert "announced" in progress.read_epochs(b"3\n0\n1-5\n2-9\n", "e")[1][0].detail
    assert progress.read_epochs(b"hello", "e")[1][0].kind == "bad-epoch-file"


@pytest.mark.parametrize("damaged_byte", [36, 40 + 4 * 50 + 20 + 3])
def test_a_damaged_index_file_is_named(tmp_path: Path, damaged_byte: int) -> None:
    store = SyntheticStore(str(tmp_path))
    for number in range(50):
        store.append("T", 0, b"x", store_timestamp=1000 + number, uniq_key=f"{number:032X}")
    store.save()
    path = next((tmp_path / "index").iterdir())
    raw = bytearray(path.read_bytes())
    assert index.faults(bytes(raw), "i")[0] == []
    raw[damaged_byte] ^= 0xFF

    found, _ = index.faults(bytes(raw), str(path))

    assert {item.kind for item in found} <= {"bad-index", "bad-index-entry"}
