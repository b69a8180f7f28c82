"""Behaviors from `-b` and from files: a JSON list, JSONL, or plain text with one definition a line.

The suffix settles the kind (.json, .jsonl, .ndjson, .txt); elsewhere a file that begins with `[` or `{` is JSON, then
JSONL. What is wrong is named with its file and its index or line.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mainspring.errors import BehaviorError, MalformedError, TooLargeError
from mainspring.text.question import Behavior, read_behaviors

MAX_BYTES = 20 * 1024 * 1024
Placed = tuple[str, Any]  # where a behavior stands, and what stands there


def gather(definitions: Sequence[str], files: Sequence[str]) -> tuple[Behavior, ...]:
    """All behaviors in order, checked. BehaviorError, MalformedError, TooLargeError name the place."""
    placed: list[Placed] = [(f"-b number {number}", text) for number, text in enumerate(definitions, 1)]
    for file in files:
        found = list(_read(Path(file)))
        if not found:
            raise BehaviorError("the file holds no behavior", param=file)
        placed += found
    if not placed:
        raise BehaviorError("at least one behavior is needed: -b TEXT or --behaviors FILE")
    return _checked(placed)


def _checked(placed: Sequence[Placed]) -> tuple[Behavior, ...]:
    behaviors: dict[str, Behavior] = {}
    places: dict[str, str] = {}
    for where, item in placed:
        try:
            (behavior,) = read_behaviors([item], param="")
        except BehaviorError as error:
            raise BehaviorError(error.message, param=where + (error.param or "").removeprefix("[0]")) from None
        if behavior.id in behaviors:
            raise BehaviorError(f"the id is that of {places[behavior.id]} already", param=where)
        behaviors[behavior.id], places[behavior.id] = behavior, where
    return tuple(behaviors.values())


def _read(path: Path) -> Iterator[Placed]:
    text = _text(path)
    suffix = path.suffix.lower()
    if suffix == ".txt" or (suffix != ".json" and not _is_lines(path) and text.lstrip()[:1] not in ("[", "{")):
        lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
        yield from ((f"{path} line {number}", line) for number, line in lines if line and not line.startswith("#"))
        return
    if not _is_lines(path):
        try:
            yield from _listed(json.loads(text), str(path))
            return
        except json.JSONDecodeError as error:
            if suffix == ".json" or error.msg != "Extra data":
                raise _malformed(path, error, 0) from None
        except RecursionError:
            raise MalformedError("nested too deeply", param=str(path)) from None
    yield from _by_line(text, path)


def _is_lines(path: Path) -> bool:
    return path.suffix.lower() in (".jsonl", ".ndjson")


def _listed(value: Any, where: str) -> Iterator[Placed]:
    if isinstance(value, list):
        yield from ((f"{where}[{index}]", item) for index, item in enumerate(value))
    elif isinstance(value, dict) and isinstance(value.get("behaviors"), list):  # a scoring request
        yield from _listed(value["behaviors"], f"{where} behaviors")
    else:
        yield where, value


def _by_line(text: str, path: Path) -> Iterator[Placed]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{path} line {number}", json.loads(line)
            except json.JSONDecodeError as error:
                raise _malformed(path, error, number - 1) from None
            except RecursionError:
                raise MalformedError("nested too deeply", param=f"{path} line {number}") from None


def _malformed(path: Path, error: json.JSONDecodeError, lines_before: int) -> MalformedError:
    return MalformedError(f"line {lines_before + error.lineno}, column {error.colno}: {error.msg}", param=str(path))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BehaviorError(f"can't be read: {error.strerror}", param=str(path)) from None
    if len(raw) > MAX_BYTES:
        raise TooLargeError(f"longer than {MAX_BYTES} bytes", limit=MAX_BYTES, actual=len(raw), param=str(path))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedError(f"not UTF-8 at byte {error.start}", param=str(path)) from None
