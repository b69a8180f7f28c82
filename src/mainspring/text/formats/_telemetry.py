"""A telemetry span or log record around the attributes: plain mappings, OTLP lists, nested exports, events.

Attributes may be the object itself, under `attributes`, or OTLP's `[{key, value: {stringValue}}]`; exports that nest
by the dots of the keys are flattened back. Every attribute a reader does not take is noted by `leave`.
"""

from collections.abc import Iterator

from mainspring.errors import SpanError
from mainspring.text.formats._reading import Reading, decoded, join, label
from mainspring.text.span import Json

_CONTAINERS = ("attributes", "span_attributes", "SpanAttributes", "Attributes")
_PREFIXES = ("gen_ai.", "llm.", "openinference.", "langfuse.", "ai.", "traceloop.", "input.value", "output.value")
_ROOTS = ("gen_ai", "llm", "openinference", "langfuse", "ai")
_VALUES = frozenset((  # what holds content: an object here is a value, not a level of nesting
    "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions",
    "gen_ai.prompt", "gen_ai.completion", "gen_ai.input_messages", "gen_ai.output_messages",
    "langfuse.observation.input", "langfuse.observation.output", "langfuse.trace.input", "langfuse.trace.output",
    "input.value", "output.value", "ai.prompt.messages", "ai.prompt.tools", "ai.response.object",
    "ai.response.toolCalls", "ai.result.object", "ai.result.toolCalls",
))  # fmt: skip
_NO_CONVERSATION = {
    "embed": "an embedding call holds no conversation",
    "execute_tool": "a tool execution span holds no conversation",
    "tool": "a tool execution span holds no conversation",
    "retriev": "a retrieval span holds no conversation",
    "rerank": "a reranking call holds no conversation",
    "create_agent": "creating an agent holds no conversation",
}
_KIND_KEYS = (
    "gen_ai.operation.name", "openinference.span.kind", "ai.operationId", "llm.request.type",
    "langfuse.observation.type", "traceloop.span.kind",
)  # fmt: skip
_MAX_SEGMENTS = 16
_PLAIN = frozenset({"input", "output", "tools", "model"})


DETAILS = "gen_ai.client.inference.operation.details"  # the current event: its fields are a span's attributes


class Event:
    """One span event or log record: its name, its attributes and body merged, its path."""

    def __init__(self, name: str, fields: dict[str, Json], where: str) -> None:
        self.name = name
        self.fields = fields
        self.where = where


class Telemetry:
    """Attributes by flat key, events, and which of them a reader took."""

    def __init__(self, data: dict[str, Json], own: dict[str, Json], where: str, events: list[Event]) -> None:
        self.data = data
        self.where = where
        self.events = [event for event in events if event.name != DETAILS]
        self._details = [event for event in events if event.name == DETAILS]
        self.attributes = {**{key: value for event in self._details for key, value in event.fields.items()}, **own}
        self._own = own
        self._taken: set[str] = set()
        self._taken_events: set[str] = set()

    def path(self, key: str) -> str:
        source = (
            self.where if key in self._own else next((e.where for e in self._details if key in e.fields), self.where)
        )
        return join(source, key)

    def take(self, key: str) -> Json:
        self._taken.add(key)
        return self.attributes.get(key)

    def take_tree(self, prefix: str) -> dict[str, Json]:
        """`prefix.0.role` and its like as nested mappings."""
        root: dict[str, Json] = {}
        for key in sorted(key for key in self.attributes if key.startswith(prefix + ".")):
            self._taken.add(key)
            _insert(root, key[len(prefix) + 1 :].split(".", _MAX_SEGMENTS), self.attributes[key])
        return root

    def take_events(self, names: frozenset[str]) -> Iterator[Event]:
        for event in self.events:
            if event.name in names:
                self._taken_events.add(event.where)
                yield event

    def has(self, *prefixes: str) -> bool:
        return any(key == p or key.startswith(p + ".") for key in self.attributes for p in prefixes)

    def has_event(self, names: frozenset[str]) -> bool:
        return any(event.name in names for event in self.events)

    def refuse(self) -> None:
        """Raise SpanError for a kind of span that can't hold a conversation."""
        for key in _KIND_KEYS:
            kind = self.attributes.get(key)
            if isinstance(kind, str):
                plain = kind.lower().removeprefix("ai.")
                for start, reason in _NO_CONVERSATION.items():
                    if plain.startswith(start):
                        raise SpanError(reason, param=self.path(key))

    def leave(self, r: Reading) -> None:
        r.unread(self._own, self.where, self._taken)
        for event in self._details:
            r.unread(event.fields, event.where, self._taken)
        if self.where:
            r.unread(self.data, "", (self.where, "events"))
        for event in self.events:
            if event.where not in self._taken_events:
                r.unread({"name": event.name, **event.fields}, event.where)


def _insert(root: dict[str, Json], path: list[str], value: Json) -> None:
    node = root
    for i, segment in enumerate(path[:-1]):
        inner = node.setdefault(segment, {})
        if not isinstance(inner, dict):  # `content` and `content.0` both: keep the second under its full name
            node[".".join(path[i:])] = value
            return
        node = inner
    node[path[-1]] = value


def telemetry(data: Json) -> Telemetry | None:
    """None where nothing names a convention for language model calls."""
    if isinstance(data, list):
        if not data or as_event(data[0], "") is None:
            return None
        events = read_events(data, "")
        one = events and all(event.name.startswith("gen_ai.") and event.name != DETAILS for event in events)
        return Telemetry({}, {}, "", events) if one else None
    if not isinstance(data, dict) or _is_plain(data):
        return None
    where = next((key for key in _CONTAINERS if isinstance(data.get(key), dict | list)), "")
    if (event := as_event(data, "")) is not None:
        return Telemetry({}, {}, "", [event])
    attributes = flattened(plain_attributes(data[where] if where else data))
    events = read_events(data.get("events"), "events")
    if not any(key.startswith(_PREFIXES) for key in attributes) and not any(
        e.name.startswith("gen_ai.") for e in events
    ):
        return None
    return Telemetry(data, attributes, where, events)


def _is_plain(data: dict[str, Json]) -> bool:
    """Nothing but fields of our own shape, none of them an attribute's value: most of what comes, and each reader of a
    convention asks anew."""
    return _PLAIN.issuperset(data) and not _may_be_value(data.get("input")) and not _may_be_value(data.get("output"))


def _may_be_value(value: Json) -> bool:
    return isinstance(value, dict) and (len(value) < 2 or "value" in value)


def read_events(value: Json, where: str) -> list[Event]:
    if not isinstance(value, list):
        return []
    found = (as_event(inner, f"{where}[{i}]", named=False) for i, inner in enumerate(value))
    return [event for event in found if event is not None]


def as_event(value: Json, where: str, *, named: bool = True) -> Event | None:
    """An event of any spelling; `named` wants a name that begins with `gen_ai.`, as a span's own name does not."""
    if not isinstance(value, dict):
        return None
    attributes = plain_attributes(first_of(value, *_CONTAINERS))
    name = label(
        *(value.get(key) for key in ("event_name", "eventName", "event.name")), attributes.get("event.name"),
        value.get("name"), value.get("Name"),
    )  # fmt: skip
    if named and not (name or "").startswith("gen_ai."):
        return None
    body = value.get("body")
    body = any_value(body) if isinstance(body, dict) else body
    outer = (*_CONTAINERS, "body", "event_name", "eventName")
    rest = {key: inner for key, inner in value.items() if key not in outer and not (key == "name" and inner == name)}
    fields = {**rest, **attributes, **(body if isinstance(body, dict) else {} if body is None else {"content": body})}
    return Event(name or "", {key: inner for key, inner in fields.items() if key != "event.name"}, where)


def first_of(value: dict[str, Json], *keys: str) -> Json:
    return next((value[key] for key in keys if key in value), None)


def plain_attributes(value: Json) -> dict[str, Json]:
    """A mapping, or OTLP's list of keys and tagged values."""
    if isinstance(value, dict):
        return {key: any_value(inner) if _is_tagged(inner) else inner for key, inner in value.items()}
    if not isinstance(value, list):
        return {}
    pairs = (pair for pair in value if isinstance(pair, dict) and isinstance(pair.get("key"), str))
    return {pair["key"]: any_value(pair.get("value")) for pair in pairs}


_TAGS = {"stringvalue", "intvalue", "doublevalue", "boolvalue", "bytesvalue", "arrayvalue", "kvlistvalue"}


def _is_tagged(value: Json) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)).replace("_", "").lower() in _TAGS


def any_value(value: Json) -> Json:
    """OTLP's AnyValue: `{stringValue: "a"}` -> "a"; int64 travels as a string; anything else unchanged."""
    if not _is_tagged(value):
        return value
    tag, inner = next(iter(value.items()))
    match tag.replace("_", "").lower():
        case "arrayvalue":
            values = inner.get("values") if isinstance(inner, dict) else None
            return [any_value(element) for element in values] if isinstance(values, list) else []
        case "kvlistvalue":
            return plain_attributes(inner.get("values") if isinstance(inner, dict) else None)
        case "intvalue" if isinstance(inner, str) and inner.lstrip("-").isdecimal() and len(inner) < 20:
            return int(inner)
    return inner


def flattened(attributes: dict[str, Json]) -> dict[str, Json]:
    """`{llm: {model_name: x}}` -> `{"llm.model_name": x}` for the roots of the conventions only."""
    flat: dict[str, Json] = {}
    for key, value in attributes.items():
        nested = key in _ROOTS or (key in ("input", "output") and isinstance(value, dict) and "value" in value)
        if nested and isinstance(value, dict):
            flat.update(_levels(key, value))
        else:
            flat[key] = value
    return flat


def _levels(prefix: str, value: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    for key, inner in value.items():
        path = f"{prefix}.{key}"
        if isinstance(inner, dict) and inner and path not in _VALUES:
            yield from _levels(path, inner)
        else:
            yield path, inner


def finish_reason(r: Reading, value: Json, where: str) -> None:
    """`gen_ai.response.finish_reasons`: a list, the JSON of one, or a bare string."""
    value = decoded(r, value, where)
    r.finish_reason = r.finish_reason or label(*(value if isinstance(value, list) else [value]))
