"""Chat and scoring templates, run in a sandbox.

Templates come with weights and are not to be trusted: minijinja has no way out to Python, its fuel (about one unit an
instruction and one per 64 bytes of text handled) bounds time and memory, and output has a cap. The environment is the
one that `transformers` gives its templates: trim_blocks, lstrip_blocks, loop controls, Python's string and dict
methods, `tojson`, `raise_exception`, `strftime_now`, `{% generation %}`. The clock is an argument: a score does not
depend on the day it is asked for.

Two things the engine does not meter, padding by `str.format` and the printing of repeated lists, are refused where the
source shows them. A template that builds the latter out of sight can still waste seconds and is stopped by the cap.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import minijinja

from mainspring.errors import TemplateError

FUEL_FLOOR = 1 << 20
FUEL_PER_CHAR = 2
FUEL_PER_ITEM = 2048  # an item is a message, a call, a tool, a string of a schema
OUTPUT_FLOOR_CHARS = 1 << 20
OUTPUT_PER_CHAR = 8
SOURCE_CHARS = 1 << 20
MOST_INDENT = 16
CLOCK = datetime(2025, 1, 1, 12)

# Provenance marks (text/guard.py) pass through `tojson` unescaped and without influence on the order of keys.
_MARKS = re.compile("[\ufdd0-\ufdef]+")
_BEYOND_ASCII = re.compile("[^\x00-\x7f\ufdd0-\ufdef]+")
_UNMETERED = re.compile(r"""(?<!["'])\s*\.\s*format\s*\(|:[^"'}]*\}[^"']*["']\s*\.\s*format\s*\(|\]\s*\*|\*\s*\[""")
_RAISES = re.compile(r"""raise_exception\(\s*(["'])(.+?)\1""")
_GENERATION = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")


class RefusalError(TemplateError):
    """The template called `raise_exception`."""


class Number:
    """A float that prints as Python prints it: minijinja writes 1e-05 as 0.00001."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


class _Raised(Exception):  # noqa: N818 - a signal from inside the template, never seen outside
    pass


class Template:
    """A compiled template. `name` is how errors call it."""

    def __init__(self, source: str, name: str = "chat_template", *, clock: datetime = CLOCK) -> None:
        if len(source) > SOURCE_CHARS:
            raise TemplateError(f"{name} has {len(source):,} characters, the limit is {SOURCE_CHARS:,}")
        self.source = source
        self.name = name
        if unmetered := next(_unmetered(source), None):
            raise TemplateError(f"{name} line {unmetered} uses padding or repetition that can't be bounded")
        self._clock = clock
        self._environments: dict[int, minijinja.Environment] = {}
        self._environment(FUEL_FLOOR)

    def render(self, context: Mapping[str, Any], *, chars: int, items: int) -> str:
        """The output. `chars` and `items` size the input and with it fuel and cap."""
        environment = self._environment(FUEL_FLOOR + FUEL_PER_CHAR * chars + FUEL_PER_ITEM * items)
        try:
            text: str = environment.render_template("template", **context)
        except _Raised as raised:
            raise self._refusal(str(raised)) from None
        except minijinja.TemplateError as error:
            raise self._failure(error) from None
        except Exception as error:  # a filter or method of Python's that the template misused
            raise TemplateError(f"{self.name} fails: {type(error).__name__}") from None
        cap = OUTPUT_FLOOR_CHARS + OUTPUT_PER_CHAR * chars
        if len(text) > cap:
            raise TemplateError(f"{self.name} puts out {len(text):,} characters, the cap is {cap:,}")
        return text

    def _environment(self, fuel: int) -> minijinja.Environment:
        """One environment a power of two of fuel: compiled once, shared by threads, never changed."""
        level = fuel.bit_length()
        if level not in self._environments:
            environment = minijinja.Environment(fuel=1 << level, trim_blocks=True, lstrip_blocks=True)
            environment.add_filter("tojson", to_json)
            environment.add_global("raise_exception", _raise)
            environment.add_global("strftime_now", self._clock.strftime)
            try:
                environment.add_template("template", _GENERATION.sub(_as_condition, self.source))
            except minijinja.TemplateError as error:
                raise self._failure(error) from None
            self._environments[level] = environment
        return self._environments[level]

    def _failure(self, error: minijinja.TemplateError) -> TemplateError:
        # The engine's detail may quote values, that is, the conversation: only its kind is passed on.
        kind = error.kind
        what = "runs out of fuel" if kind == "OutOfFuel" else f"fails: {kind}"
        if kind in ("SyntaxError", "UnknownFilter", "UnknownTest", "UnknownFunction", "UnknownMethod"):
            what = f"fails: {error.message}"
        return TemplateError(f"{self._at(error.line)} {what}")

    def _at(self, line: int | None) -> str:
        return self.name if line is None else f"{self.name} line {line}"

    def _refusal(self, message: str) -> RefusalError:
        """Of what the template says, only what stands in its source: the rest may be a conversation's text."""
        for match in _RAISES.finditer(self.source):
            if message.startswith(match[2]):
                line = self.source.count("\n", 0, match.start()) + 1
                return RefusalError(f"{self._at(line)} refuses: {match[2]}{'' if message == match[2] else '…'}")
        return RefusalError(f"{self.name} refuses")


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """json.dumps as `transformers` hands it to templates, not the HTML-safe kind."""
    pair = None if separators is None else (str(separators[0]), str(separators[1]))
    if (indent or 0) > MOST_INDENT or (pair and len(pair[0]) + len(pair[1]) > MOST_INDENT):
        raise ValueError("indent or separators out of proportion")  # outside the engine no fuel is counted
    if sort_keys:
        value = _sorted(value)
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=pair, default=_plain_number)
    return _BEYOND_ASCII.sub(_escaped, text) if ensure_ascii else text


def _sorted(value: Any) -> Any:
    """Keys in order of their text, not of the marks around it."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=lambda key: _MARKS.sub("", str(key)))}
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def _plain_number(value: Any) -> Any:
    if isinstance(value, Number):
        return value.value
    raise TypeError(f"{type(value).__name__} is not JSON")


def _unmetered(source: str) -> Iterator[int]:
    """Lines of blocks and expressions that do what the engine does not meter."""
    for match in re.finditer(r"\{[%{].*?[%}]\}", source, re.DOTALL):
        if found := _UNMETERED.search(match[0]):
            yield source.count("\n", 0, match.start() + found.start()) + 1


def _raise(message: Any = "") -> None:
    raise _Raised(str(message))


def _as_condition(match: re.Match[str]) -> str:
    """`{% generation %}` marks what a model is trained on; for rendering it is a block like any other."""
    left, end, right = match.groups()
    return f"{{%{left} {'endif' if end else 'if true'} {right}%}}"
