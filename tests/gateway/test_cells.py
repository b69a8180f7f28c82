"""The balancers' configurations in `deploy/`, run by the real programs where they are installed, before scripted cells.

A view goes to one cell, whoever asks and whatever is asked about it; views spread; a cell that is gone or says 503
costs no request.
"""

import re
import shutil
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from mainspring.client import Client, Retries
from support.http_service import Heard, Service, Told, scored, service

DEPLOY = Path(__file__).parents[2] / "deploy"
CONF = {"nginx": "nginx-cells.conf", "haproxy": "haproxy-cells.cfg"}
WAIT_S = 60.0
HEALTHY = Told(body={"ready": True})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def configured(kind: str, folder: Path, port: int, cells: list[int]) -> list[str]:
    """The shipped file with this test's addresses; the command that runs it."""
    text = (DEPLOY / CONF[kind]).read_text()
    for number, cell in enumerate(cells, 1):
        assert f"10.0.{number}.1:8000" in text
        text = text.replace(f"10.0.{number}.1:8000", f"127.0.0.1:{cell}")
    if kind == "haproxy":
        (folder / "cfg").write_text(text.replace("bind :80 ", f"bind 127.0.0.1:{port} "))
        return [_program(kind), "-db", "-f", str(folder / "cfg")]
    text = re.sub(r"listen 80;", f"listen 127.0.0.1:{port};", text)
    places = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "cfg").write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{places}{text}\n}}\n"
    )
    return [_program(kind), "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "cfg")]


def _program(kind: str) -> str:
    found = shutil.which(kind) or shutil.which(kind, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{kind} is not installed")
    return found


@contextmanager
def balanced(kind: str, folder: Path, cells: list[int]) -> Iterator[str]:
    port = free_port()
    command = configured(kind, folder, port, cells)
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:  # noqa: S603
        try:
            until = time.monotonic() + WAIT_S
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1.0).close()
                    break
                except OSError:
                    assert process.poll() is None, (folder / "log").read_text()
                    assert time.monotonic() < until
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(WAIT_S)


def cell(broken: Callable[[], bool] = lambda: False) -> Callable[[int, Heard], Told]:
    def told(_number: int, heard: Heard) -> Told:
        if broken():
            return Told(503, {"detail": "draining", "reason": "draining"})
        return scored(heard) if heard.method == "POST" else HEALTHY

    return told


def span(number: int) -> dict[str, object]:
    question = {"role": "user", "content": f"Question {number}, " * 3000}  # larger than a balancer's buffers
    return {"input": [question], "output": {"role": "assistant", "content": "An answer."}}


def scores(there: Service) -> list[Heard]:
    return [heard for heard in there.heard if heard.method == "POST"]


@pytest.mark.parametrize("kind", CONF)
def test_a_view_stays_in_its_cell_and_a_lost_cell_costs_nothing(kind: str, tmp_path: Path) -> None:
    draining = False
    with ExitStack() as stack:
        cells = [stack.enter_context(service(cell(lambda: draining))), stack.enter_context(service(cell()))]
        url = stack.enter_context(balanced(kind, tmp_path, [each.port for each in cells]))
        client = stack.enter_context(Client(url, retries=Retries(attempts=20, total_s=WAIT_S)))
        for _ in range(3):
            for number in range(24):
                client.score(span(number), [f"behavior {_}"])
        where = defaultdict(set)
        for index, each in enumerate(cells):
            for heard in scores(each):
                where[heard.headers["x-view-hash"]].add(index)
        assert len(where) == 24
        assert all(len(places) == 1 for places in where.values()), "one cell a view"
        assert {index for places in where.values() for index in places} == {0, 1}
        draining = True
        before = len(scores(cells[1]))
        for number in range(24):
            assert client.score(span(number), ["behavior"]).input_tokens == 12
        assert len(scores(cells[1])) == before + 24


@pytest.mark.parametrize("kind", CONF)
def test_a_cell_that_is_not_there(kind: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        there = stack.enter_context(service(cell()))
        url = stack.enter_context(balanced(kind, tmp_path, [free_port(), there.port]))
        client = stack.enter_context(Client(url, retries=Retries(attempts=20, total_s=WAIT_S)))
        for number in range(12):
            client.score(span(number), ["behavior"])
        assert len(scores(there)) == 12
