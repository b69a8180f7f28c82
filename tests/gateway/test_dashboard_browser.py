"""The overview and the playground in a real browser, before the gateway's real routes and socket."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from mainspring.fleet.errors import RequestRefusedError
from mainspring.gateway.keys import Key, KeyFile, new_key, write_keys
from mainspring.text.bundle import Bundle
from mainspring.wire import messages as m
from support.browser import LONGEST_MS, PHONE, chromium, page_of
from support.dashboard import FakeFleet, Served, classes, embedded_bundle, ended, node

expect.set_options(timeout=LONGEST_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return embedded_bundle()


@pytest.fixture
def fleet(bundle: Bundle) -> FakeFleet:
    fleet = FakeFleet(bundle)
    fleet.passes = tuple(ended(number, ago_s=30.0 - number / 2.0) for number in range(60))
    return fleet


@pytest.fixture
def served(fleet: FakeFleet) -> Iterator[Served]:
    with Served(fleet) as served:
        yield served


# ---------------------------------------------------------------- overview


def test_the_overview_shows_the_fleet_and_follows_it(browser: Browser, served: Served, fleet: FakeFleet) -> None:
    with page_of(browser, served.url) as (page, _):
        expect(page.locator("#link")).to_have_text("Live, 2 nodes")
        ant = page.locator(".node", has_text="ant")
        expect(ant.locator(".pill")).to_have_text("ready")
        expect(ant).to_contain_text("25\u202f% busy")
        expect(ant).to_contain_text("4\u202fms a pass + 10\u202fµs a view token + 20\u202fµs a question token")
        expect(ant.locator("circle")).to_have_count(60)
        interactive = page.locator("#classes > li", has_text="interactive")
        expect(interactive).to_contain_text("target 1\u202fs")
        expect(interactive.locator(".chip")).to_have_text("contention 41")
        expect(page.locator("#models")).to_contain_text("tiny")
        expect(page.locator(".tile", has_text="p99, interactive")).to_contain_text("700")

        fleet.nodes = (node("ant", state="failing", note="too hot", failures=2), node("cow"))
        fleet.classes = classes(p99_s=1.4)
        expect(ant.locator(".pill")).to_have_text("failing")
        expect(ant).to_contain_text("too hot")
        expect(page.locator(".node h3")).to_have_text(["ant", "cow"])
        expect(page.locator("#link")).to_have_text("Live, 1 node")
        expect(page.locator(".tile", has_text="p99, interactive")).to_have_attribute("data-tone", "bad")


def generating(fleet: FakeFleet) -> None:
    """One node with streams, of which everything is told."""
    wrote = m.Written(streams=9, rounds=40, slot_rounds=100, tokens=250, drafted=400, accepted=150, prefilled=300,
                      cached=100, histogram=(40, *[10] * 5, *[1] * 14))  # fmt: skip
    fleet.nodes = (node("ant", slots=4, slots_used=3, written=wrote), *fleet.nodes[1:])
    fleet.totals = m.Totals(tokens_s=33.0, written=wrote)
    fleet.classes = (m.ClassStatus(name="interactive", priority=2, target_s=1.0, streams=7, first_p50_s=0.2,
                                   first_p99_s=0.5, gap_p50_s=0.02, token_s=0.1), *fleet.classes[:1])  # fmt: skip


def test_streams_and_acceptance_are_shown_where_nodes_generate(
    browser: Browser, served: Served, fleet: FakeFleet
) -> None:
    with page_of(browser, served.url) as (page, _):
        expect(page.locator(".tile", has_text="Nodes usable")).to_contain_text("2")
        expect(page.locator("#written")).to_be_hidden()
        expect(page.locator("#rounds-panel")).to_be_hidden()
        generating(fleet)
        expect(page.locator(".tile", has_text="Streams")).to_contain_text("of 4")
        expect(page.locator(".tile", has_text="Written")).to_contain_text("33tokens/s20\u202fms a token")
        expect(page.locator(".tile", has_text="First token, interactive")).to_contain_text("200")
        expect(page.locator(".tile", has_text="Tokens a round")).to_contain_text("2.5")
        expect(page.locator(".tile", has_text="Tokens a round")).to_contain_text("of drafts accepted")
        expect(page.locator(".tile", has_text="Prompts cached")).to_contain_text("25")
        expect(page.locator("#rounds .round")).to_have_count(16)
        expect(page.locator("#rounds .round").last).to_contain_text("16 or more")
        expect(page.locator(".node", has_text="ant")).to_contain_text("3 of 4")


def test_the_chart_and_the_timeline_draw_what_comes(browser: Browser, served: Served, fleet: FakeFleet) -> None:
    with page_of(browser, served.url) as (page, _):
        fleet.counters["answered"] += 500.0
        expect(page.locator("#throughput path.answered").first).to_be_attached()
        drawn = """() => { const c = document.querySelector('#timeline canvas');
            const all = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            return all.some((value, at) => at % 4 === 3 && value > 200); }"""
        until(page, lambda: bool(page.evaluate(drawn)))
        page.get_by_text("The last passes as a table").click()
        expect(page.locator("#pass-rows tr")).to_have_count(20)
        expect(page.locator("#pass-rows tr").first).to_contain_text("21\u202fms")


def test_no_nodes_and_no_router_are_said_and_not_drawn_as_health(
    browser: Browser, served: Served, fleet: FakeFleet
) -> None:
    with page_of(browser, served.url) as (page, _):
        fleet.nodes = ()
        expect(page.locator("#banner")).to_contain_text("No node has joined")
        expect(page.locator("#nodes")).to_contain_text("mainspring node --join")
        fleet.nodes = (node("ant", state="late"),)
        expect(page.locator("#link")).to_have_text("No usable node")
        fleet.draining = True
        expect(page.locator("#link")).to_have_text("Router draining")


def test_a_lost_gateway_is_said_and_found_again(browser: Browser, fleet: FakeFleet) -> None:
    first = Served(fleet)
    with first, page_of(browser, first.url) as (page, seen):
        expect(page.locator("#link")).to_have_text("Live, 2 nodes")
        first.stop()
        expect(page.locator("#link")).to_have_text("Not connected")
        expect(page.locator("#banner")).to_contain_text("lost")
        expect(page.locator("body")).to_have_class("stale")
        with Served(fleet, port=first.port):
            expect(page.locator("#link")).to_have_text("Live, 2 nodes")
            expect(page.locator("#banner")).to_be_hidden()
            expect(page.locator("body")).not_to_have_class("stale")
            page.close()
        seen.errors[:] = [error for error in seen.errors if "Failed to load resource" not in error]


def test_a_key_is_asked_for_kept_in_the_tab_and_used(browser: Browser, fleet: FakeFleet, tmp_path: Path) -> None:
    key, digest = new_key()
    write_keys(tmp_path / "keys.toml", KeyFile("00" * 32, (Key("alice", digest),)))
    with Served(fleet, keys=tmp_path / "keys.toml") as served, page_of(browser, served.url) as (page, seen):
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        expect(page.locator("#link")).to_have_text("Key needed")
        page.get_by_label("Key", exact=True).fill(key)
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
        expect(page.locator("#link")).to_have_text("Live, 2 nodes")
        page.reload()
        expect(page.locator("#link")).to_have_text("Live, 2 nodes")
        assert page.evaluate("Object.values(localStorage).join()") == ""
        page.get_by_role("button", name="API key").click()
        page.get_by_role("button", name="Forget it").click()
        expect(page.locator("#link")).to_have_text("Key needed")
        assert page.evaluate("Object.values(sessionStorage).join()") == ""
        seen.errors[:] = [error for error in seen.errors if "401" not in error]


# ---------------------------------------------------------------- playground


def until(page: Page, condition: Callable[[], bool]) -> None:
    """Not Playwright's own waiting for a function: that is code from a string, which the page's policy forbids."""
    for _ in range(LONGEST_MS // 20):
        if condition():
            return
        page.wait_for_timeout(20)
    raise AssertionError("it did not come to pass")


def score(page: Page, conversation: object, behaviors: str) -> None:
    text = conversation if isinstance(conversation, str) else json.dumps(conversation)
    page.get_by_label("Conversation", exact=True).fill(text)
    page.get_by_label("Behaviors", exact=True).fill(behaviors)
    page.get_by_role("button", name="Score", exact=True).click()


def test_bars_are_the_probabilities_that_came(browser: Browser, served: Served, fleet: FakeFleet) -> None:
    shares = np.array([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.1, 0.1, 0.8]])
    fleet.logits = lambda branches: np.log(shares[:branches])
    with page_of(browser, served.url, view="playground") as (page, _):
        with page.expect_response("**/v1/scores") as answered:
            score(page, {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]},
                  "first thing\nsecond thing\nthird thing")  # fmt: skip
        results = answered.value.json()["results"]
        rows = page.locator("#scores > li")
        expect(rows.locator("h3")).to_have_text(["first thing", "second thing", "third thing"])
        winners = [max(("p_present", "p_absent", "p_not_observable"), key=each.__getitem__) for each in results]
        names = {"p_present": "present", "p_absent": "absent", "p_not_observable": "not observable"}
        expect(rows.locator(".verdict")).to_have_text([names[each] for each in winners])
        widths = page.evaluate(
            """() => [...document.querySelectorAll('#scores .parts')].map(bar =>
                [...bar.children].map(part => part.getBoundingClientRect().width / (bar.clientWidth - 4)))"""
        )
        wanted = [[each["p_present"], each["p_absent"], each["p_not_observable"]] for each in results]
        assert np.abs(np.array(widths) - np.array(wanted)).max() < 0.01
        page.get_by_label("Order").select_option("present")
        by_presence = sorted(results, key=lambda each: -each["p_present"])
        expect(rows.locator("h3")).to_have_text([each["id"] for each in by_presence])
        expect(page.locator("#stage-list")).to_contain_text("21\u202fms")
        expect(page.locator("#timing-note")).to_contain_text("predicted 30\u202fms")
        expect(page.locator("#rendered-note")).to_have_text("read as openai-chat")
        expect(page.locator("#view .user").first).to_have_text("Hi")
        expect(page.locator("#view .control").first).to_be_visible()


def test_text_of_conversations_and_behaviors_never_becomes_markup(browser: Browser, served: Served) -> None:
    nasty = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    with page_of(browser, served.url, view="playground") as (page, _):
        score(
            page,
            {"input": [{"role": "user", "content": nasty}], "output": {"role": "assistant", "content": "x"}},
            nasty,
        )
        expect(page.locator("#scores h3")).to_have_text(nasty)
        expect(page.locator("#view")).to_contain_text(nasty)
        assert page.locator("main img, main script").count() == 0


def test_the_policy_stops_code_that_got_in(browser: Browser, served: Served) -> None:
    with page_of(browser, served.url) as (page, seen):
        blocked = page.evaluate(
            """async () => {
                const stopped = [];
                document.addEventListener('securitypolicyviolation', (e) => stopped.push(e.effectiveDirective));
                const script = document.createElement('script');
                try { script.textContent = 'stolen = 1'; document.body.append(script); } catch { stopped.push(''); }
                try { document.body.innerHTML += '<b>x</b>'; } catch { stopped.push('markup'); }
                try { await fetch('http://127.0.0.1:9/'); } catch { stopped.push('fetch'); }
                await new Promise((done) => setTimeout(done, 100));
                return [stopped, window.stolen ?? null];
            }"""
        )
        stopped, stolen = blocked
        assert stolen is None
        assert {"markup", "fetch", "connect-src"} <= set(stopped)
        seen.errors.clear()
        seen.strangers.clear()


@pytest.mark.parametrize(
    ("conversation", "behaviors", "field", "message"),
    [
        ("", "a thing", "conversation", "Paste a conversation"),
        ('{"messages": [', "a thing", "conversation", "begins like JSON"),
        ("User: hi", "", "behaviors", "at least one"),
        ("User: hi", "ok then\nno", "behaviors", "Line 2: at least 3"),
        ("User: hi", "twice\ntwice", "behaviors", "Line 2 is there twice"),
        ("User: hi", '[{"id": "a"}]', "behaviors", 'Behavior 1: an object with "id" and "definition"'),
        ("User: hi", "[1", "behaviors", "begins like a JSON list"),
    ],
)
def test_a_fault_is_said_at_its_field(
    browser: Browser, served: Served, fleet: FakeFleet, conversation: str, behaviors: str, field: str, message: str
) -> None:
    with page_of(browser, served.url, view="playground") as (page, _):
        score(page, conversation, behaviors)
        expect(page.locator(f"#{field}-error")).to_contain_text(message)
        area = page.locator(f"#{field}")
        expect(area).to_be_focused()
        expect(area).to_have_attribute("aria-invalid", "true")
        assert fleet.submits == []
        score(page, "User: hi", "a sound thing")
        expect(page.locator("#scores h3")).to_have_text("a sound thing")
        expect(page.locator(f"#{field}-error")).to_be_hidden()


def test_refusals_say_what_why_and_when(browser: Browser, served: Served, fleet: FakeFleet) -> None:
    with page_of(browser, served.url, view="playground") as (page, seen):
        fleet.fault = RequestRefusedError("contention", "would miss its target", status=429, retry_after_s=2.5)
        score(page, "User: hi", "a thing")
        failure = page.locator("#failure")
        expect(failure).to_contain_text("Too busy right now")
        expect(failure).to_contain_text("Would miss its target.")
        expect(failure).to_contain_text("Try again in 2.5\u202fs.")
        expect(failure).to_contain_text("HTTP 429 · contention · req-")
        fleet.fault = RequestRefusedError("contention", "can't be in time", status=429, retry_after_s=None)
        page.get_by_role("button", name="Score", exact=True).click()
        expect(failure).to_contain_text("Trying again will not help.")
        fleet.fault = None
        score(page, {"neither": "fish nor fowl"}, "a thing")
        expect(page.locator("#conversation-error")).to_contain_text("format")
        score(page, "User: hi", "a thing")
        expect(page.locator("#scores h3")).to_have_text("a thing")
        expect(failure).to_be_hidden()
        seen.errors[:] = [error for error in seen.errors if "429" not in error and "422" not in error]


def test_stop_takes_the_request_back(browser: Browser, served: Served, fleet: FakeFleet) -> None:
    with page_of(browser, served.url, view="playground") as (page, _):
        fleet.hold = asyncio.Event()
        score(page, "User: hi", "a thing")
        expect(page.get_by_role("button", name="Scoring…")).to_be_disabled()
        until(page, lambda: bool(fleet.submits))
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Score", exact=True)).to_be_enabled()
        expect(page.get_by_role("button", name="Score", exact=True)).to_be_focused()
        until(page, lambda: fleet.cancelled == 1)


def test_what_is_copied_is_a_request_that_works(browser: Browser, served: Served) -> None:
    with page_of(browser, served.url, view="playground", permissions=["clipboard-read", "clipboard-write"]) as (
        page,
        _,
    ):
        score(page, "User: it's here\n\nAssistant: where?", "the user's thing")
        expect(page.locator("#scores h3")).to_have_text("the user's thing")
        page.get_by_role("button", name="Copy as curl").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        command = page.evaluate("navigator.clipboard.readText()")
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60.0, check=True)  # noqa: S603, S607
    assert [each["id"] for each in json.loads(done.stdout)["results"]] == ["the user's thing"]


def test_a_file_can_be_opened(browser: Browser, served: Served, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(
        '{"input": [{"role": "user", "content": "from a file"}], "output": {"role": "assistant", "content": "x"}}'
    )
    with page_of(browser, served.url, view="playground") as (page, _):
        page.locator("#file").set_input_files(path)
        expect(page.get_by_label("Conversation", exact=True)).to_have_value(path.read_text())


def test_thousands_of_behaviors_are_shown(browser: Browser, served: Served) -> None:
    with page_of(browser, served.url, view="playground") as (page, _):
        lines = "\n".join(f"behavior number {number}" for number in range(3000))
        page.get_by_label("Behaviors", exact=True).evaluate("(area, lines) => { area.value = lines; }", lines)
        page.get_by_role("button", name="Score", exact=True).click()
        expect(page.locator("#scores > li")).to_have_count(3000)
        expect(page.locator("#results-note")).to_contain_text("3,000 behaviors")


# ---------------------------------------------------------------- for everybody


def test_everything_works_from_the_keyboard(browser: Browser, served: Served) -> None:
    with page_of(browser, served.url) as (page, _):
        expect(page.locator("#link")).to_have_text("Live, 2 nodes")
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the content")).to_be_focused()
        expect(page.get_by_text("Skip to the content")).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page.locator("#content")).to_be_focused()
        page.get_by_role("link", name="Playground").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Playground")
        expect(page.locator("#content")).to_be_focused()
        expect(page.get_by_role("link", name="Playground")).to_have_attribute("aria-current", "page")
        assert page.title() == "Playground · Mainspring"
        page.get_by_label("Behaviors", exact=True).focus()
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("status")).to_have_text("7 behaviors scored")
        expect(page.get_by_label("Behaviors", exact=True)).to_be_focused()
        page.go_back()
        expect(page.get_by_role("heading", level=1)).to_have_text("Fleet")


def test_news_reach_a_screen_reader_when_the_state_changes_and_not_each_second(
    browser: Browser, served: Served, fleet: FakeFleet
) -> None:
    with page_of(browser, served.url) as (page, _):
        expect(page.get_by_role("status")).to_have_text("Fleet: Live, 2 nodes")
        page.evaluate(
            """() => { window.said = []; new MutationObserver(() => said.push(announce.textContent))
                .observe(announce, { childList: true, characterData: true, subtree: true }); }"""
        )
        before = fleet.up_s
        page.wait_for_timeout(2500)
        assert fleet.up_s > before
        assert page.evaluate("said") == []
        fleet.nodes = (node("ant"),)
        expect(page.get_by_role("status")).to_have_text("Fleet: Live, 1 node")


@pytest.mark.parametrize("view", ["overview", "playground"])
@pytest.mark.parametrize("width", [320, 375, 768, 1024])
def test_nothing_is_cut_off_at_any_width(
    browser: Browser, served: Served, fleet: FakeFleet, view: str, width: int
) -> None:
    generating(fleet)
    size = {"width": width, "height": 800}
    with page_of(browser, served.url, view=view, viewport=size) as (page, _):
        expect(page.locator("#link")).to_contain_text("Live")
        if view == "playground":
            page.get_by_role("button", name="Score", exact=True).click()
            expect(page.locator("#scores > li")).to_have_count(7)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        crowded = page.evaluate(
            """() => { const boxes = [...document.querySelectorAll('.bar-in a, .bar-in button, .bar-in .pill')]
                .map((e) => e.getBoundingClientRect());
              return boxes.some((a, i) => a.right > innerWidth + 1 ||
                boxes.some((b, j) => j > i && a.left < b.right - 1 && b.left < a.right - 1)); }"""
        )
        assert not crowded
        clipped = """() => [...document.querySelectorAll('.pill, .primary, .quiet, .tabs a')]
            .filter((e) => e.offsetParent && e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)"""
        assert page.evaluate(clipped) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [{"width": 1280, "height": 900}, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("view", ["overview", "playground", "failure", "key"])
def test_axe_finds_nothing(
    browser: Browser, served: Served, fleet: FakeFleet, scheme: str, size: dict[str, int], view: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    generating(fleet)

    shown = "playground" if view == "failure" else "overview" if view == "key" else view
    with page_of(browser, served.url, view=shown, viewport=size, color_scheme=scheme, reduced_motion="reduce") as (
        page,
        seen,
    ):
        expect(page.locator("#link")).to_contain_text("Live")
        if view == "overview":
            expect(page.locator("#rounds .round")).to_have_count(16)
            page.get_by_text("The last passes as a table").click()
        if view == "playground":
            page.get_by_role("button", name="Score", exact=True).click()
            expect(page.locator("#scores > li")).to_have_count(7)
        if view == "failure":
            score(page, {"neither": "fish nor fowl"}, "a thing")
            expect(page.locator("#failure")).to_be_visible()
            seen.errors.clear()
        if view == "key":
            page.get_by_role("button", name="API key").click()
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


def test_colors_follow_the_button_and_are_kept(browser: Browser, served: Served) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with page_of(browser, served.url, color_scheme="light") as (page, _):
        light = page.evaluate(ground)
        button = page.get_by_role("button", name="Colors: as the system")
        button.click()
        page.get_by_role("button", name="Colors: light").click()
        expect(page.get_by_role("button", name="Colors: dark")).to_be_visible()
        dark = page.evaluate(ground)
        assert dark != light
        page.reload()
        assert page.evaluate(ground) == dark


def test_nothing_moves_where_motion_is_not_wanted(browser: Browser, served: Served) -> None:
    with page_of(browser, served.url, reduced_motion="reduce") as (page, _):
        expect(page.locator("#timeline canvas")).to_be_visible()
        frames = page.evaluate(
            """async () => {
                const pen = document.querySelector('#timeline canvas').getContext('2d');
                let frames = 0;
                const clear = pen.clearRect.bind(pen);
                pen.clearRect = (...box) => { frames += 1; clear(...box); };
                await new Promise((done) => setTimeout(done, 3000));
                return frames;
            }"""
        )
        assert frames <= 5
