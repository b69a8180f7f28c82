"""Debian's Chromium under Playwright. A machine without it skips these tests, CI does not: there it is installed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable")
WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 375, "height": 812}
LONGEST_MS = 30_000


@contextmanager
def chromium() -> Iterator[Browser]:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs a browser: apt-get install chromium")
        pytest.skip("no Chromium here: apt-get install chromium")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Seen:
    """What a page did that a sound one does not: errors on its console, requests to others."""

    origin: str
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def check(self) -> None:
        assert self.strangers == []
        assert self.errors == []


@contextmanager
def page_of(browser: Browser, url: str, *, view: str = "overview", **context: Any) -> Iterator[tuple[Page, Seen]]:
    """A page at `url`, watched; what it must not do fails the test at the end unless it took `errors` away."""
    opened = browser.new_context(viewport=context.pop("viewport", WIDE), **context)
    opened.set_default_timeout(LONGEST_MS)
    seen = Seen(url)
    page = opened.new_page()
    page.on("console", lambda line: seen.errors.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(url) else seen.strangers.append(asked.url))
    try:
        page.goto(f"{url}#{view}")
        yield page, seen
        seen.check()
    finally:
        opened.close()
