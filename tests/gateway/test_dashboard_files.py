"""The page's files: complete, without anything from elsewhere, under a policy that holds them to it."""

import re
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest

from mainspring.gateway.dashboard import page
from support.dashboard import FakeFleet, Served

ASSETS = page.load()
TEXTS = {name: asset.body.decode() for name, asset in ASSETS.items()}
NAMESPACE = "http://www.w3.org/2000/svg"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(FakeFleet()) as served:
        yield served


def get(served: Served, path: str, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", served.port, timeout=30.0)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def test_every_file_that_is_named_is_there() -> None:
    named = set(re.findall(r'(?:href|src)="assets/([^"]+)"', TEXTS["index.html"]))
    for name, text in TEXTS.items():
        if name.endswith(".js"):
            named |= set(re.findall(r'from "\./([^"]+)"', text))
    assert named == set(ASSETS) - {"index.html"}


def test_nothing_comes_from_elsewhere() -> None:
    for name, text in TEXTS.items():
        others = [url for url in re.findall(r"(?:https?:)?//[a-z0-9][\w.-]*\.[a-z]{2,}[^\s\"'`)]*", text, re.IGNORECASE)
                  if url != NAMESPACE and name != "examples.js"]  # fmt: skip
        assert others == [], name
        assert "@import" not in text, name
        assert re.findall(r"\burl\([^)]*[/:]", text) == [], name


def test_no_markup_is_made_of_strings_and_no_code_of_text() -> None:
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc"
    for name, text in TEXTS.items():
        assert re.findall(sinks, text) == [], name
    index = TEXTS["index.html"]
    assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", index) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", index) == []


def test_ids_that_the_scripts_ask_for_are_in_the_page() -> None:
    ids = re.findall(r'\bid="([^"]+)"', TEXTS["index.html"])
    assert len(ids) == len(set(ids))
    asked = {
        each for name, text in TEXTS.items() if name.endswith(".js") for each in re.findall(r'byId\("([^"]+)"\)', text)
    }
    assert asked - set(ids) == set()
    described = re.findall(r'aria-(?:labelledby|describedby)="([^"]+)"', TEXTS["index.html"])
    assert {each for group in described for each in group.split()} - set(ids) == set()
    assert set(re.findall(r'<label[^>]*\bfor="([^"]+)"', TEXTS["index.html"])) - set(ids) == set()


@pytest.mark.parametrize("path", ["/", "/assets/main.js", "/assets/base.css", "/assets/icon.svg"])
def test_every_file_is_served_under_the_policy(served: Served, path: str) -> None:
    response, body = get(served, path)
    assert response.status == 200
    assert body == ASSETS[path.rpartition("/")[2] or "index.html"].body
    policy = dict(part.split(" ", 1) for part in response.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"


def test_a_file_that_the_browser_has_is_not_sent_again(served: Served) -> None:
    first, _ = get(served, "/assets/main.js")
    etag = first.headers["etag"]
    again, body = get(served, "/assets/main.js", if_none_match=f'"other", W/{etag}')
    assert (again.status, body) == (304, b"")
    assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
    changed, _ = get(served, "/assets/main.js", if_none_match='"other"')
    assert changed.status == 200


@pytest.mark.parametrize("name", ["nothing.js", "..%2fpage.py", "%2e%2e/page.py", "page.py", "main.js/"])
def test_nothing_else_is_served(served: Served, name: str) -> None:
    response, body = get(served, f"/assets/{name}")
    assert response.status == 404
    assert b"import" not in body


def test_status_is_the_snapshot(served: Served) -> None:
    response, body = get(served, "/status")
    assert response.headers["content-type"] == "application/json"
    assert b'"nodes":[{"name":"ant"' in body


def test_a_browser_that_goes_away_is_counted_out(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), 30.0) as raw:
        raw.sendall(b"GET /status/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        seen = b""
        while b"event: snapshot" not in seen:
            seen += raw.recv(65_536)
        assert served.gateway.counts.listeners == 1
    deadline = served.gateway.now_s() + 30.0
    while served.gateway.counts.listeners and served.gateway.now_s() < deadline:
        get(served, "/health")
    assert served.gateway.counts.listeners == 0
