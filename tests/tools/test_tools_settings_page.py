"""The page of settings is what the code says."""

from __future__ import annotations

from settings_page import PAGE, page


def test_the_page_of_settings_is_what_the_code_says() -> None:
    assert page() == PAGE.read_text(), "run .venv/bin/python tests/tools/settings_page.py"
