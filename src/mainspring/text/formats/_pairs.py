"""A request and its response in one object: `{request, response}`, HTTP bodies inside, or the request's keys spread.

What the OpenAI and Anthropic readers have in common; they differ in what they recognise and in the response's shape.
"""

import msgspec

from mainspring.text.formats._reading import Reading, decoded, join
from mainspring.text.span import Json

_RESPONSE_KEYS = ("response", "completion", "completion_message", "result")


class Pair(msgspec.Struct):
    """`response` is None where the object has only a request, or spreads both."""

    request: dict[str, Json]
    request_where: str = ""
    response: Json = None
    response_where: str = ""
    outer: tuple[str, ...] = ()  # keys of the whole object that are the pair's


def pair(r: Reading, data: dict[str, Json]) -> Pair:
    if isinstance(request := decoded(r, data.get("request"), "request"), dict):
        request, where = _body(r, request, "request")
        found = Pair(request, where, outer=("request",))
    else:
        found = Pair(data)
    keys = (*_RESPONSE_KEYS, "output") if "messages" in data else _RESPONSE_KEYS
    key = next((key for key in keys if data.get(key) is not None), None)
    if key:
        response = decoded(r, data[key], key)
        found.response, found.response_where = (
            _body(r, response, key) if isinstance(response, dict) else (data[key], key)
        )
        found.outer = (*found.outer, key)
    return found


def _body(r: Reading, value: dict[str, Json], where: str) -> tuple[dict[str, Json], str]:
    """The HTTP body inside a logged request or response, as in batch files."""
    body = decoded(r, value.get("body"), join(where, "body"))
    if not isinstance(body, dict):
        return value, where
    r.unread(value, where, ("body",))
    return body, join(where, "body")


def peek(data: Json) -> tuple[dict[str, Json], Json]:
    """Request and response to recognise a format by, without notes."""
    if not isinstance(data, dict):
        return {}, None
    found = pair(Reading(""), data)
    return found.request, found.response
