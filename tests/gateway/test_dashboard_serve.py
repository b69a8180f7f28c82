"""The page of `mainspring serve` as people start it: real router, node and embedded model, until it is told to end."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from mainspring.scorer import Scorer
from support.browser import LONGEST_MS, chromium, page_of
from support.machines import WAIT_S

expect.set_options(timeout=LONGEST_MS)
URL = re.compile(r"serves at (http://[\d.]+:\d+)")


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    out = tmp_path / "out"
    with out.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "mainspring", "serve", "--port", "0", "--threads", "1"],
            stdout=file, stderr=subprocess.STDOUT, cwd=tmp_path,
        )  # fmt: skip
    try:
        until_s = time.monotonic() + WAIT_S
        while not (found := URL.search(out.read_text())):
            assert process.poll() is None, out.read_text()[-3000:]
            assert time.monotonic() < until_s, out.read_text()[-3000:]
            time.sleep(0.05)
        yield process, f"{found[1]}/"
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_score_look_and_end(serving: tuple["subprocess.Popen[bytes]", str]) -> None:
    process, url = serving
    with chromium() as browser, page_of(browser, url, view="playground") as (page, seen):
        expect(page.locator("#link")).to_have_text("Live, 1 node")
        expect(page.locator("#model")).to_have_value("embedded")
        conversation = json.loads(page.get_by_label("Conversation", exact=True).input_value())
        behaviors = page.get_by_label("Behaviors", exact=True).input_value().split("\n")
        with page.expect_response("**/v1/scores") as answered:
            page.get_by_role("button", name="Score", exact=True).click()
        rows = page.locator("#scores > li")
        expect(rows.locator("h3")).to_have_text(behaviors)
        expected = Scorer.embedded(threads=1).score(conversation, behaviors)
        for row, one in zip(answered.value.json()["results"], expected, strict=True):
            assert abs(row["p_present"] - one.p_present) < 1e-5
        shown = rows.first.locator(".odds b").first.inner_text()
        assert float(shown.split("\u202f")[0]) == pytest.approx(100.0 * expected[0].p_present, abs=0.6)
        expect(page.locator("#view")).to_contain_text("You answer questions about a bicycle workshop")

        page.get_by_role("link", name="Overview", exact=True).click()
        expect(page.locator(".node h3")).to_have_text("local")
        expect(page.locator(".node circle").first).to_be_attached()

        process.send_signal(signal.SIGTERM)  # a page that watches keeps nobody from leaving
        expect(page.locator("#link")).to_have_text("Not connected")
        assert process.wait(WAIT_S) == 0
        seen.errors[:] = [error for error in seen.errors if "Failed to load resource" not in error]
