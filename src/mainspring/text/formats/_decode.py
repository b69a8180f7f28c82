"""Bytes to JSON with errors that name line and column, columns in characters.

The fast decoder goes first; what it refuses goes to the standard library, which takes lone surrogates and NaN and
knows where it stopped. Byte order marks of UTF-8 and UTF-16 are understood; other encodings are refused by name.
"""

import codecs
import json
import re

import msgspec

from mainspring.errors import MalformedError, TooLargeError
from mainspring.text.formats._reading import loads
from mainspring.text.span import Json

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def text_of(raw: bytes, line: int = 1) -> str:
    """The characters of a document; `line` is the number of its first line."""
    encoding = "utf-8"
    if raw.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise MalformedError("UTF-32 is not read: UTF-8 is wanted")
    if raw.startswith(codecs.BOM_UTF8):
        raw = raw[3:]
    elif raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode(encoding, "replace")
        raise MalformedError(f"{_place(before, line)}: not {encoding.upper()}") from None


def _place(before: str, line: int) -> str:
    return f"line {line + before.count(chr(10))}, column {len(before) - before.rfind(chr(10))}"


def decode(text: str, max_depth: int, line: int = 1) -> Json:
    """One JSON value; `line` is the number of the text's first line in its document."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        pass
    try:
        return loads(text)
    except json.JSONDecodeError as error:
        message = error.msg.partition(":")[0]
        where = f"line {line + error.lineno - 1}, column {error.colno}"
        raise MalformedError(f"{where}: {message}") from None
    except RecursionError:
        depth = _depth(text)
        raise TooLargeError(f"nested more than {max_depth} levels deep", limit=max_depth, actual=depth) from None


def _depth(text: str) -> int:
    deepest = depth = 0
    for match in _TOKEN.finditer(text):
        if match[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif match[0] in "]}":
            depth -= 1
    return deepest
