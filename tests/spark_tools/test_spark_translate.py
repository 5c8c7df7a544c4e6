"""Offsets translated to another cluster's logs, by the identity of messages or by when they were stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from spark_plans import CREATED_MS, plan_rows
from spark_runs import START_MS, filled, rows, run

from understudy.spark_tools import exits
from understudy.spark_tools.jobs import messages
from understudy.spark_tools.kernels import tables
from understudy.spark_tools.main import main
from understudy.spark_tools.synthetic import SyntheticStore


@pytest.mark.parametrize("broadcast_bytes", [messages.BROADCAST_TABLE_BYTES, 0])
def test_offsets_translated_to_a_mirror_by_message_identity(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broadcast_bytes: int
) -> None:
    """The mirror has the same messages in other queues and started later; offsets are the lower end, never above.

    So it is, too, where the table of offsets is too large to go by way of the driver.
    """
    plans = []
    kept = messages.translate

    def translate(*arguments: Any) -> Any:
        frame = kept(*arguments)
        plans.append(str(frame._jdf.queryExecution().logical()))
        return frame

    monkeypatch.setattr(messages, "translate", translate)
    monkeypatch.setattr(messages, "BROADCAST_TABLE_BYTES", broadcast_bytes)
    source = filled(tmp_path / "source")
    source.save({"Orders@g": {0: 50, 1: 50, 2: 50, 3: 50}})
    mirror = SyntheticStore(str(tmp_path / "mirror"))
    for number in range(100, 400):
        key, stored = f"{0:016X}{number:016X}", START_MS + 1_000_000 + number
        mirror.append("Orders", (number // 4) % 2, b"m", store_timestamp=stored, uniq_key=key)
    mirror.save({}, topics=["Orders"], groups=["g"])
    out = tmp_path / "out"

    code, said = run(
        "translate", "--store", f"s={tmp_path / 'source'}", "--target", f"m={tmp_path / 'mirror'}", "--out", out
    )

    assert code == exits.AGREE, said
    assert [bool(broadcast_bytes)] == ["broadcast" in plan for plan in plans], plans
    # messages 0..199 were consumed: of the mirror's, 100..199, four in a row per queue
    assert [(row[3], row[5], row[6], row[8]) for row in rows(out, "Translated offsets")] == [
        (0, 48, 0, "uniq-key"),
        (1, 52, 0, "uniq-key"),
    ]
    assert [line.proposed for line in plan_rows(out / "plan-m.json")] == [48, 52]
    assert main(["plan", "apply", str(out / "plan-m.json")], CREATED_MS, said.append) == exits.AGREE
    table = tables.loads((tmp_path / "mirror" / "config" / "consumerOffset.json").read_bytes())
    assert table["offsetTable"] == {"Orders@g": {"0": 48, "1": 52}}


def test_offsets_translated_by_store_time_where_no_message_matches(spark: Any, tmp_path: Path) -> None:
    """The mirror wrote keys of its own: the group goes on at what was stored after the oldest one it has not seen."""
    filled(tmp_path / "source").save({"Orders@g": {0: 50, 1: 50, 2: 50, 3: 50}})
    mirror = SyntheticStore(str(tmp_path / "mirror"))
    for number in range(100, 400):
        stored = START_MS + number * 1_000 + 5
        mirror.append("Orders", (number // 4) % 2, b"m", store_timestamp=stored, uniq_key=f"{1:016X}{number:016X}")
    mirror.save({}, topics=["Orders"], groups=["g"])
    out = tmp_path / "out"

    code, said = run(
        "translate", "--store", f"s={tmp_path / 'source'}", "--target", f"m={tmp_path / 'mirror'}", "--out", out
    )

    assert code == exits.AGREE, said
    # messages 0..199 were consumed; whatever the mirror stored since may have been seen, and nothing older is asked for
    assert [(row[3], row[5], row[6], row[8], row[9]) for row in rows(out, "Translated offsets")] == [
        (0, 48, 100, "store-time", 0),
        (1, 52, 100, "store-time", 0),
    ]
    assert {line.reason for line in plan_rows(out / "plan-m.json")} == {"no message matched: by store time"}
