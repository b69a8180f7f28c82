"""Commands of ours as processes, and a small client for those that serve."""

import http.client
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from support.machines import WAIT_S


class Process:
    """A command that prints where it listens. `wait_for` gives what a pattern found in its output."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.out = folder / f"{name}.out"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(folder)}
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(  # noqa: S603 - ours
                [sys.executable, "-m", "mainspring", *arguments], stdout=out, stderr=subprocess.STDOUT, cwd=folder,
                env=environment,
            )  # fmt: skip

    def wait_for(self, pattern: "re.Pattern[str]") -> "re.Match[str]":
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            text = self.out.read_text()
            if found := pattern.search(text):
                return found
            assert self.process.poll() is None, text[-3000:]
            time.sleep(0.05)
        raise AssertionError(self.out.read_text()[-3000:])

    def ask(self, port: int, method: str, path: str, value: object = None, **headers: str) -> tuple[int, object]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        try:
            body = None if value is None else json.dumps(value)
            connection.request(method, path, body, {"content-type": "application/json", **headers})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        finally:
            connection.close()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
