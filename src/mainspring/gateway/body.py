"""Bodies in, within limits of size, time and memory; structs out of them; answers."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from mainspring.errors import MalformedError, TooLargeError
from mainspring.gateway.errors import (
    RETRY_S,
    BodyTimeoutError,
    BusyError,
    HangUpError,
    MediaTypeError,
    ValidationError,
)
from mainspring.gateway.headers import first
from mainspring.gateway.visit import Visit, visit_of
from mainspring.gateway.watch import Watch
from mainspring.gateway.within import within

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
SMALL_BYTES = 256 << 10
"""Decoded on the loop; larger ones on the pool."""
ANY = "[...]"
SEARCHED = 2000
"""Values of an object among which the wrong one is looked for."""
POINTER_BYTES, CONTAINER_BYTES = 16, 80
"""Of a value in a list, of a list or an object, as Python holds them."""
LENGTH_DIGITS = 20
KEY_CHARS = 64
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


async def read_body(request: Request) -> bytes:
    """TooLargeError, BodyTimeoutError, MediaTypeError, BusyError, HangUpError."""
    visit = visit_of(request)
    limits = visit.gateway.config.limits
    most = limits.body_mib << 20
    _check_kind(visit)
    length = first(visit.headers, b"content-length").lstrip("0")[:LENGTH_DIGITS]
    if length.isdecimal() and int(length) > most:
        raise _too_large(most, int(length))
    try:
        body = await within(limits.body_s, _received(request, visit, most))
    except TimeoutError:
        raise BodyTimeoutError(f"limits.body_s: the body took longer than {limits.body_s:g} s",
                               limit=limits.body_s) from None  # fmt: skip
    _hold_values(visit, body)
    return body


async def _received(request: Request, visit: Visit, most: int) -> bytes:
    limits, counts = visit.gateway.config.limits, visit.gateway.counts
    pieces: list[bytes] = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise HangUpError("the client hung up while it sent its request")
        piece: bytes = message.get("body", b"")
        visit.held_bytes += len(piece)
        counts.buffered_bytes += len(piece)
        pieces.append(piece)
        if visit.held_bytes > most:
            raise _too_large(most, visit.held_bytes)
        if counts.buffered_bytes > limits.buffered_mib << 20:
            raise BusyError("limits.buffered_mib: bodies of open requests fill it", retry_after_s=RETRY_S,
                            limit=limits.buffered_mib)  # fmt: skip
        if not message.get("more_body", False):
            return b"".join(pieces)


def _hold_values(visit: Visit, body: bytes) -> None:
    """Lists and objects of few characters are many times as large in memory: that counts as held as well. Punctuation
    within texts counts too, which is right on the safe side. TooLargeError, BusyError."""
    limits, counts = visit.gateway.config.limits, visit.gateway.counts
    most = limits.buffered_mib << 20
    size = POINTER_BYTES * _count(body, ord(","), 0) + CONTAINER_BYTES * _count(body, ord("{"), ord("{") ^ ord("["))
    if visit.held_bytes + size > most:
        raise TooLargeError("limits.buffered_mib: so many values would fill it", limit=most,
                            actual=visit.held_bytes + size, param="body")  # fmt: skip
    if counts.buffered_bytes + size > most:
        raise BusyError("limits.buffered_mib: bodies of open requests fill it", retry_after_s=RETRY_S,
                        limit=limits.buffered_mib)  # fmt: skip
    visit.held_bytes += size
    counts.buffered_bytes += size


def _count(body: bytes, char: int, either: int) -> int:
    """Of `char` in `body`, with the bits of `either` or without: several times as fast as `bytes.count`."""
    values = np.frombuffer(body, np.uint8)
    return int(np.count_nonzero((values | either if either else values) == char))


def _too_large(most: int, size: int) -> TooLargeError:
    return TooLargeError(f"limits.body_mib: a body holds at most {most:,} bytes", limit=most, actual=size, param="body")


def _check_kind(visit: Visit) -> None:
    kind = first(visit.headers, b"content-type").partition(";")[0].strip().lower()
    if kind in FORMS:
        raise MediaTypeError("JSON is read here; send Content-Type: application/json")
    if first(visit.headers, b"content-encoding").strip().lower() not in ("", "identity"):
        raise MediaTypeError("compressed bodies are not read")


async def decode(request: Request, decoder: msgspec.json.Decoder[S]) -> tuple[S, bytes]:
    """MalformedError (400) for what is no JSON, ValidationError (422) naming the field."""
    body = await read_body(request)
    await visit_of(request).line_up()
    if _is_gone(request):
        raise HangUpError("the client hung up while it stood in line")
    if len(body) <= SMALL_BYTES:
        return decoded(body, decoder), body
    return await visit_of(request).gateway.pool.run(lambda: decoded(body, decoder)), body


def decoded(body: bytes, decoder: msgspec.json.Decoder[S]) -> S:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message, path = parts_of(error)
        if ANY in path:
            path = _with_key(body, decoder, path)
        raise ValidationError(message, param=path or "body") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # msgspec says what and at which byte, never with the text; what Unicode's error says has the bytes in it.
        what = str(error) if isinstance(error, msgspec.DecodeError) else "not UTF-8"
        raise MalformedError(what, param="body") from None
    except RecursionError:
        raise MalformedError("nested too deeply", param="body") from None


def parts_of(error: msgspec.ValidationError) -> tuple[str, str]:
    """(message, path of the field): `$.behaviors[...].id` is `behaviors[...].id`."""
    message, _, place = str(error).partition(" - at `")
    path = place.removesuffix("`").removeprefix("key` in `").removeprefix("$").removeprefix(".")
    return message[:1].lower() + message[1:], path


def _with_key(body: bytes, decoder: msgspec.json.Decoder[S], path: str) -> str:
    """msgspec numbers the elements of lists but does not say under which key of an object the wrong value stands: it is
    the first one that fails by itself."""
    before, _, after = path.partition(ANY)
    data = msgspec.json.decode(body)
    values = data.get(before) if isinstance(data, dict) else None
    if isinstance(values, dict):
        # The other fields were found sound, or stand behind this one: they are there, as small as may be.
        data = {name: "" for name in data if name != before}
        for key, value in list(values.items())[:SEARCHED]:
            data[before] = {key: value}
            try:
                msgspec.convert(data, decoder.type)
            except msgspec.ValidationError as error:
                if (found := parts_of(error)[1]).startswith(before + ANY):
                    return f"{before}.{key[:KEY_CHARS]}{found.removeprefix(before + ANY)}"
    return f"{before}.*{after}"


async def attended(request: Request, work: Awaitable[T]) -> T:
    """`work`'s result, unless the client hangs up first: then it is cancelled and HangUpError raised.

    The body must have been read: what comes after it is the end of the connection. The work runs in the caller's own
    task: one of its own costs four turns of the loop, and where turns are long, a tenth of all the time."""
    task, left = asyncio.current_task(), False
    assert task is not None  # noqa: S101 - a coroutine runs in one

    def gone() -> None:
        nonlocal left
        left = True
        task.cancel()

    # Closed where the work ends in the watch's last turn: a cancel then would hit whatever the caller does next.
    watch = Watch(_hung_up(request), gone)
    try:
        return await work
    except asyncio.CancelledError:
        if not left:
            raise
        task.uncancel()
        raise HangUpError("the client hung up") from None
    finally:
        watch.close()


def _is_gone(request: Request) -> bool:
    """Known now, without a turn of the loop: the first step of `receive` ends only where there is something to tell."""
    asked: Any = request.receive()
    try:
        asked.send(None)
    except StopIteration as told:
        return bool(told.value["type"] == "http.disconnect")
    finally:
        asked.close()
    return False


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def answer(value: Any, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None) -> Response:
    return json_response(msgspec.json.encode(value), status, headers)


def json_response(body: bytes, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None) -> Response:
    response = Response(body, status, media_type="application/json")
    response.raw_headers.extend(headers or [])
    return response
