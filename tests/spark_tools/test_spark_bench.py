"""``./understudy bench spark`` ends with 1 when a figure misses its aim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(("met", "code"), [(True, 0), (None, 0), (False, 1)])
def test_a_figure_that_misses_its_aim_is_no_success(
    met: bool | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import spark

    def plan(*arguments: Any) -> None:
        spark.say("a plan", met=met)

    monkeypatch.setattr(spark, "bench_plan", plan)
    assert code == spark.main(["--only", "plan", "--quick"])


def test_a_process_of_its_own_that_misses_its_aim_is_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import spark

    monkeypatch.setattr(spark, "write_bulk_log", lambda *arguments, **more: None)
    monkeypatch.setattr(spark.os, "fork", lambda: 4711)
    for status in (0, 256):
        monkeypatch.setattr(spark.os, "waitpid", lambda process, options, status=status: (process, status))
        assert bool(status) == spark.main(["--only", "memory"])
