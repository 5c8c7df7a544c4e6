"""The page of metrics is what servers export."""

from __future__ import annotations

from metrics_page import LEFT_OUT, NOT_IN_THE_SCRAPE, OF_THE_REFERENCE, PAGE, page


def test_the_page_of_metrics_is_what_servers_export() -> None:
    assert page() == PAGE.read_text(), "run .venv/bin/python tests/tools/metrics_page.py"


def test_every_metric_of_the_reference_is_there_or_left_out_with_a_reason() -> None:
    text = PAGE.read_text()
    for name in {*OF_THE_REFERENCE, *NOT_IN_THE_SCRAPE}:
        assert (f"\n* `{name}`: " in text) if name in LEFT_OUT else (f"\n| `{name}` | " in text), name
