"""A real browser: Debian's ``chromium``, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MISSING = "needs a browser: apt-get install chromium, and playwright (pip install playwright)"


def browser_path() -> str | None:
    """Return where the browser is; ``None`` when it, or what drives it, is not there."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        return None
    return shutil.which("chromium")


@contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser as long as the block lasts."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=browser_path(), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield opened
        finally:
            opened.close()


def watched(page: Page) -> list[str]:
    """Return a list that fills with what goes wrong in *page*: errors of scripts, and what its policy forbids."""
    wrong: list[str] = []

    def heard(said: Any) -> None:
        if said.type in ("error", "warning") and "Failed to load resource" not in said.text:
            wrong.append(said.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    return wrong
