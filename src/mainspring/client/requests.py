"""What a call sends and how its answer is read: JSON and headers, no sockets."""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from mainspring.client.errors import ReplyError
from mainspring.client.records import Answers, BehaviorScore, Received, Scores
from mainspring.errors import BehaviorError, InputError
from mainspring.version import __version__

SLO_CLASS, DEADLINE, IDEMPOTENCY, TRACE = "x-slo-class", "x-deadline-ms", "idempotency-key", "traceparent"
VIEW = "x-view-hash"
"""Hash of the span as sent: what a balancer in front of cells goes by, so that a conversation finds its kept view."""
REPLY_BYTES = 64 << 20
T = TypeVar("T")

BehaviorLike = str | Mapping[str, Any] | Any
"""A definition (its own id), `{id, definition}`, or anything with these two attributes."""


class Call(Struct, frozen=True):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


class Where(Struct, frozen=True):
    """A service's address taken apart. `prefix` begins with / or is empty, and does not end in /v1."""

    scheme: str
    host: str
    port: int
    prefix: str

    @classmethod
    def of(cls, url: str) -> "Where":
        """InputError unless it is http(s)://HOST[:PORT][/PREFIX], with or without /v1 at its end."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InputError(f"is not a URL: {error}", param="url") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError("http://HOST:PORT or https://HOST is needed", param="url")
        if parts.query or parts.fragment or parts.username is not None:
            raise InputError("takes no query, fragment or user; a key goes into `api_key`", param="url")
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), prefix)


def base_headers(api_key: str | None) -> dict[str, str]:
    headers = {"accept": "application/json", "user-agent": f"mainspring/{__version__}"}
    if api_key is not None:
        if not api_key.isascii() or not api_key.isprintable():
            raise InputError("has characters that can't be in a header", param="api_key")
        headers["authorization"] = f"Bearer {api_key}"
    return headers


def post(
    base: Mapping[str, str], path: str, body: Mapping[str, Any], *, span: Any, slo_class: str | None,
    traceparent: str | None, idempotency_key: str | None,
) -> Call:  # fmt: skip
    """InputError where a value is no JSON. An empty `model` is left to the service."""
    if not body.get("model"):
        body = {key: value for key, value in body.items() if key != "model"}
    try:
        told = msgspec.json.encode(span)
        encoded = msgspec.json.encode(body)
    except (TypeError, UnicodeEncodeError) as error:
        raise InputError(f"can't be written as JSON: {type(error).__name__}", param="span") from None
    headers = {
        **base, "content-type": "application/json", VIEW: hashlib.blake2b(told, digest_size=8).hexdigest(),
        IDEMPOTENCY: idempotency_key or uuid.uuid4().hex,
    }  # fmt: skip
    optional = {SLO_CLASS: slo_class, TRACE: traceparent}
    headers |= {name: value for name, value in optional.items() if value is not None}
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable():
            raise InputError("has characters that can't be in a header", param=name)
    return Call("POST", path, headers, encoded)


def behaviors_of(items: Sequence[BehaviorLike]) -> list[dict[str, str]]:
    """BehaviorError where one has no string for `id` or `definition`; the service judges the rest."""
    if isinstance(items, str | Mapping) or not isinstance(items, Sequence):
        raise BehaviorError("a list of behaviors is needed", param="behaviors")
    return [_behavior(item, index) for index, item in enumerate(items)]


def _behavior(item: BehaviorLike, index: int) -> dict[str, str]:
    if isinstance(item, str):
        return {"id": item, "definition": item}
    found: dict[str, str] = {}
    for key in ("id", "definition"):
        value = item.get(key) if isinstance(item, Mapping) else getattr(item, key, None)
        if not isinstance(value, str):
            raise BehaviorError("a string is needed", param=f"behaviors[{index}].{key}")
        found[key] = value
    return found


class _Usage(Struct):
    input_tokens: int = 0


class _ScoresReply(Struct):
    model: str
    results: tuple[BehaviorScore, ...]
    usage: _Usage = msgspec.field(default_factory=_Usage)


class _AnswersReply(Struct):
    model: str
    answers: dict[str, Any]
    usage: _Usage = msgspec.field(default_factory=_Usage)


def read(body: bytes, kind: type[T]) -> T:
    """ReplyError where the answer is not what it should be."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReplyError(f"the answer is not as agreed: {error}", reason="bad_reply") from None


def read_scores(body: bytes, received: Received, asked: Sequence[Mapping[str, str]]) -> Scores:
    """Results belong to what was asked, in that order, or it is a ReplyError."""
    reply = read(body, _ScoresReply)
    if [each.id for each in reply.results] != [each["id"] for each in asked]:
        raise ReplyError("the results are not those of the behaviors asked", param="results", reason="bad_reply")
    return Scores(reply.model, reply.results, reply.usage.input_tokens, received)


def read_answers(body: bytes, received: Received) -> Answers:
    reply = read(body, _AnswersReply)
    return Answers(reply.model, reply.answers, reply.usage.input_tokens, received)


class _Model(Struct):
    id: str


class _ModelsReply(Struct):
    data: tuple[_Model, ...]


def names(body: bytes) -> list[str]:
    """Of `/v1/models`."""
    return [each.id for each in read(body, _ModelsReply).data]
