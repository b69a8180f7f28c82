"""`mainspring serve` and `mainspring gateway` as people start them: real processes and signals, the embedded model."""

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.scorer import Scorer
from support.gateway import BEHAVIORS, CHAT, SCORES
from support.machines import WAIT_S, Machine
from support.processes import Process

URL = re.compile(r"serves at http://([\d.]+):(\d+)")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, int]]:
    process = Process(tmp_path_factory.mktemp("serve"), "serve", "serve", "--port", "0", "--threads", "1")
    try:
        yield process, int(process.wait_for(URL)[2])
    finally:
        process.end()


def test_the_banner_says_it_all(serving: tuple[Process, int]) -> None:
    text = serving[0].out.read_text()
    for words in (
        "models   embedded",
        "nodes    local (cpu",
        "interactive (1 s)",
        "standard (10 s)",
        "batch (no target)",
    ):
        assert words in text


def test_the_same_probabilities_as_in_process(serving: tuple[Process, int]) -> None:
    """Through HTTP, router and node, to 1e-5; and whatever else is asked beside."""
    process, port = serving
    scorer = Scorer.embedded(threads=1)
    definitions = [*(each["definition"] for each in BEHAVIORS), "the user asks for medical advice"]
    behaviors = [{"id": str(n), "definition": text} for n, text in enumerate(definitions)]
    status, reply = process.ask(port, "POST", "/v1/scores", SCORES | {"behaviors": behaviors})
    assert status == 200
    for row, one in zip(reply["results"], scorer.score(CHAT, definitions), strict=True):  # type: ignore[index]
        assert abs(row["p_present"] - one.p_present) < 1e-5
        assert abs(row["p_absent"] - one.p_absent) < 1e-5
        assert abs(row["p_not_observable"] - one.p_not_observable) < 1e-5
    _, alone = process.ask(port, "POST", "/v1/scores", SCORES | {"behaviors": behaviors[2:]})
    assert abs(alone["results"][0]["p_present"] - reply["results"][2]["p_present"]) < 1e-5  # type: ignore[index]


def test_a_second_gateway_on_the_same_router_and_a_fleet_file(tmp_path: Path) -> None:
    """`serve --config` with a router that others may dial, `gateway --router` beside it: one answer, one view kept."""
    with Machine(tmp_path) as machine:
        machine.pki.issue("client", "gate", time.time())
        file = tmp_path / "fleet.toml"
        file.write_text(
            f'[router]\nlisten = "127.0.0.1:{machine.port}"\n'
            '[[node]]\nname = "bee"\nmodel = "embedded"\nargs = ["--threads", "1", "--alias", "embedded"]\n'
            '[tls]\nfolder = "pki/router-hill"\nauthority = "pki"\n[gateway]\nport = 0\n'
        )
        first = Process(tmp_path, "serve", "serve", "--config", str(file))
        second = Process(tmp_path, "gateway", "gateway", "--router", f"127.0.0.1:{machine.port}", "--tls",
                         str(tmp_path / "pki/client-gate"), "--port", "0")  # fmt: skip
        try:
            port = int(first.wait_for(URL)[2])
            other = int(second.wait_for(re.compile(r"listening on http://([\d.]+):(\d+)"))[2])
            until = time.monotonic() + WAIT_S
            while second.ask(other, "GET", "/health/ready")[0] != 200:
                assert time.monotonic() < until
                time.sleep(0.1)
            one, two = first.ask(port, "POST", "/v1/scores", SCORES), second.ask(other, "POST", "/v1/scores", SCORES)
            assert one[0] == two[0] == 200
            for mine, theirs in zip(one[1]["results"], two[1]["results"], strict=True):  # type: ignore[index]
                assert abs(mine["p_present"] - theirs["p_present"]) < 1e-5
            second.process.send_signal(signal.SIGTERM)
            assert second.process.wait(WAIT_S) == 0
            assert first.ask(port, "GET", "/health/ready")[0] == 200
        finally:
            first.end()
            second.end()


def test_a_router_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    """Meanwhile 503 with a time to come back, alive and not ready; afterwards as before, without a restart."""
    asked = {"model": "tiny", "span": CHAT, "behaviors": BEHAVIORS}
    with Machine(tmp_path, context_tokens=4096) as machine:
        machine.router()
        machine.node("ant", device='"null"', probe_s="0.5", state='""')
        gateway = Process(tmp_path, "gateway", "gateway", "--router", f"127.0.0.1:{machine.port}", "--tls",
                          str(tmp_path / "pki/client-gate"), "--port", "0")  # fmt: skip
        try:
            port = int(gateway.wait_for(re.compile(r"listening on http://([\d.]+):(\d+)"))[2])

            def until(status: int) -> None:
                by = time.monotonic() + WAIT_S
                while gateway.ask(port, "GET", "/health/ready")[0] != status:
                    assert time.monotonic() < by
                    time.sleep(0.1)

            until(200)
            assert gateway.ask(port, "POST", "/v1/scores", asked)[0] == 200
            machine.processes["router"].kill()
            machine.processes["router"].wait()
            status, reply = gateway.ask(port, "POST", "/v1/scores", asked)
            assert status == 503
            assert reply["reason"] in ("no_node", "link_lost")  # type: ignore[index]
            until(503)
            assert gateway.ask(port, "GET", "/health")[0] == 200
            machine.router()
            until(200)
            assert gateway.ask(port, "POST", "/v1/scores", asked)[0] == 200
        finally:
            gateway.end()


def test_sigterm_drains_and_leaves_no_process_behind(tmp_path: Path) -> None:
    process = Process(tmp_path, "serve", "serve", "--port", "0", "--threads", "1")
    try:
        port = int(process.wait_for(URL)[2])
        children = child_ids(process.process.pid)
        assert len(children) == 1
        assert process.ask(port, "POST", "/v1/scores", SCORES)[0] == 200
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(WAIT_S) == 0
        assert not any(Path(f"/proc/{child}").exists() for child in children)
        assert "Traceback" not in process.out.read_text()
    finally:
        process.end()


def child_ids(parent: int) -> list[str]:
    return Path(f"/proc/{parent}/task/{parent}/children").read_text().split()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("serve", "no-such-model"), 3, "no-such-model"),
        (("serve", "--host", "0.0.0.0"), 2, "key file"),  # noqa: S104 - refused
        (("gateway",), 2, "pki issue client"),
        (("serve", "--config", "wrong.toml"), 2, "gateway.prot"),
        (("serve", "embedded", "--config", "nodes.toml"), 2, "[[node]]"),
    ],
)
def test_what_can_not_be_served_is_said_in_a_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:  # fmt: skip
    (tmp_path / "wrong.toml").write_text("[gateway]\nprot = 1\n")
    (tmp_path / "nodes.toml").write_text('[[node]]\nname = "a"\nmodel = "embedded"\n')
    process = Process(tmp_path, "out", *arguments)
    try:
        assert process.process.wait(WAIT_S) == code
        last = process.out.read_text().strip().splitlines()[-1]
        assert last.startswith("error:")
        assert words in last or "prot" in last
    finally:
        process.end()


def test_a_port_that_is_taken_is_said_in_a_line(serving: tuple[Process, int], tmp_path: Path) -> None:
    process = Process(tmp_path, "out", "serve", "--port", str(serving[1]))
    try:
        assert process.process.wait(WAIT_S) == 2
        assert "can't listen on" in process.out.read_text()
    finally:
        process.end()


def test_a_node_that_can_not_start_ends_serve_with_its_words(tmp_path: Path) -> None:
    """A folder that holds no weights: the child says why, and so does serve."""
    (tmp_path / "empty").mkdir()
    process = Process(tmp_path, "out", "serve", "empty", "--port", "0")
    try:
        assert process.process.wait(WAIT_S) != 0
        last = process.out.read_text().strip().splitlines()[-1]
        assert last.startswith("error:")
        assert "tokenizer.json" in last or "config.json" in last
    finally:
        process.end()
