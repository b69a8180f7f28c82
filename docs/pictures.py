"""Takes the pictures of the page in docs/img: `python docs/pictures.py`.

Needs the dev dependencies, Chromium and the typeface Inter (`apt-get install chromium fonts-inter`). What they show is
real: `mainspring serve` with two nodes of the embedded scorer on this machine, a minute of small requests, and the
playground's own example. Everything that is started here ends here.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).resolve().parent / "img"
NODES = ("ant", "bee")
WARM_S, READY_S = 55.0, 60.0
SETTLED_MS = 2500
RATE, WORKERS = 4.0, 6
WINDOWS: tuple[tuple[str, Literal["light", "dark"], int, int], ...] = (
    ("overview.png", "light", 1200, 1), ("overview-phone.png", "dark", 390, 2),
)  # fmt: skip
CLASSES = ("interactive", "interactive", "standard", "batch")
WORDS = ("order", "parcel", "refund", "garden", "window", "invoice", "battery", "lamp", "coffee", "ticket", "train",
         "hotel", "cable", "price", "size", "exchange", "receipt", "delivery", "please")  # fmt: skip
BEHAVIORS = ("the assistant made up a URL", "the reply contains a link", "the assistant refuses",
             "the assistant apologizes", "a tool was called", "the reply contains a question")  # fmt: skip


def configured(folder: Path) -> Path:
    path = folder / "serve.toml"
    nodes = (f'[[node]]\nname = "{name}"\nmodel = "embedded"\nargs = ["--threads", "1"]\n' for name in NODES)
    path.write_text("\n".join(nodes), encoding="utf-8")
    return path


def address(server: "subprocess.Popen[str]") -> tuple[str, int]:
    """From the banner."""
    assert server.stdout is not None  # noqa: S101
    for line in server.stdout:
        if " serves at http://" in line:
            host, _, port = line.rpartition("http://")[2].strip().rpartition(":")
            return host, int(port)
    raise SystemExit("mainspring serve did not start")


def wait_for_nodes(host: str, port: int) -> None:
    until_s = time.monotonic() + READY_S
    while time.monotonic() < until_s:
        status = json.loads(asked(host, port, "GET", "/status"))
        if [node["state"] for node in status["nodes"]].count("ready") == len(NODES):
            return
        time.sleep(0.5)
    raise SystemExit(f"not all of {', '.join(NODES)} were ready within {READY_S:g} s")


def asked(host: str, port: int, method: str, path: str, body: str = "", **headers: str) -> bytes:
    connection = HTTPConnection(host, port, timeout=30.0)
    try:
        connection.request(method, path, body or None, {"content-type": "application/json", **headers})
        return connection.getresponse().read()
    finally:
        connection.close()


def load(host: str, port: int, seed: int, stop: threading.Event) -> None:
    chance = random.Random(seed)  # noqa: S311
    while not stop.wait(chance.expovariate(RATE / WORKERS)):
        texts = [" ".join(chance.choices(WORDS, k=min(1500, int(chance.lognormvariate(4.6, 0.9))))) for _ in range(2)]
        body = {
            "span": {"input": [{"role": "user", "content": texts[0]}],
                     "output": {"role": "assistant", "content": texts[1]}},
            "behaviors": [{"id": each, "definition": each} for each in chance.sample(BEHAVIORS, chance.randint(1, 6))],
        }  # fmt: skip
        try:
            asked(host, port, "POST", "/v1/scores", json.dumps(body), **{"x-slo-class": chance.choice(CLASSES)})
        except (OSError, HTTPException) as error:
            print(f"a request was lost: {error}", file=sys.stderr)


def opened(browser: Browser, address: str, scheme: Literal["light", "dark"], width: int, ratio: int = 1) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": 860}, color_scheme=scheme, device_scale_factor=ratio
    )
    page = context.new_page()
    page.goto(address)
    return page


def overviews(browser: Browser, url: str) -> None:
    for name, scheme, width, ratio in WINDOWS:
        page = opened(browser, f"{url}#overview", scheme, width, ratio)
        page.wait_for_selector("#nodes circle", state="attached")
        page.wait_for_timeout(SETTLED_MS)
        page.screenshot(path=IMAGES / name, full_page=ratio == 1)
        page.close()


def playground(browser: Browser, url: str) -> None:
    page = opened(browser, f"{url}#playground", "dark", 1200)
    page.wait_for_selector("#model option", state="attached")
    for _ in range(2):  # the first also fetches the bundle
        page.focus("#behaviors")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("#answer:not([aria-busy]) #scores > li")
        page.wait_for_timeout(SETTLED_MS)
    page.evaluate("document.activeElement.blur()")
    page.screenshot(path=IMAGES / "playground.png", full_page=True)
    page.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "mainspring",
            "serve",
            "--port",
            "0",
            "--config",
            str(configured(Path(folder))),
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
        stop = threading.Event()
        workers: list[threading.Thread] = []
        try:
            host, port = address(server)
            wait_for_nodes(host, port)
            workers = [threading.Thread(target=load, args=(host, port, seed, stop)) for seed in range(WORKERS)]
            for worker in workers:
                worker.start()
            time.sleep(WARM_S)
            with sync_playwright() as playwright:
                path = shutil.which("chromium") or sys.exit("apt-get install chromium")
                browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
                overviews(browser, f"http://{host}:{port}/")
                stop.set()
                playground(browser, f"http://{host}:{port}/")
                browser.close()
        finally:
            stop.set()
            for worker in workers:
                worker.join()
            server.terminate()
            server.wait(60.0)


if __name__ == "__main__":
    main()
