"""A service over real sockets that answers by a script: what clients and load generators are tried against."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any


@dataclass(frozen=True)
class Heard:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    peer: int
    """The client's port: one a connection."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Told:
    """`after_s` before it; `cut`: the connection ends in the middle of the body; `close`: after it."""

    status: int = 200
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    after_s: float = 0.0
    cut: bool = False
    close: bool = False


class Service:
    """`told` answers request number n (from 0)."""

    def __init__(self, told: Callable[[int, Heard], Told]) -> None:
        self.told = told
        self.heard: list[Heard] = []
        self.lock = Lock()
        self.url = ""
        self.port = 0


@contextmanager
def service(told: Callable[[int, Heard], Told]) -> Iterator[Service]:
    made = Service(told)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            heard = Heard(self.command, self.path, headers, body, self.client_address[1])
            with made.lock:
                number = len(made.heard)
                made.heard.append(heard)
            answer = made.told(number, heard)
            time.sleep(answer.after_s)
            data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data) + answer.cut))
            if answer.close:
                self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = self.close_connection or answer.cut or answer.close

        do_GET = do_POST = handle_one  # noqa: N815 - the base class's names

        def log_message(self, *_arguments: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, *_arguments: object) -> None:
            """A client that hangs up is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    made.port = server.server_address[1]
    made.url = f"http://127.0.0.1:{made.port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def scored(heard: Heard) -> Told:
    """What a scoring route answers: halves for whatever was asked."""
    results = [
        {"id": each["id"], "p_present": 0.5, "p_absent": 0.25, "p_not_observable": 0.25}
        for each in heard.json["behaviors"]
    ]
    told = {"model": "tiny", "results": results, "usage": {"input_tokens": 12}}
    headers = {
        "x-request-id": "r-1",
        "x-slo-class": "standard",
        "x-predicted-ms": "41.5",
        "server-timing": "text;dur=1",
    }
    return Told(body=told, headers=headers)
