"""Text of unknown origin made safe to print: every character that could steer a terminal is shown as an escape.

That is control characters (hence ANSI sequences), marks that reorder lines, separators that break them, invisible tags
and whatever the output's encoding can't say. Markup needs no escaping: nothing here is printed through a markup parser.
"""

import re
from functools import cache

_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1 controls, escape among them
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # direction, order, nothing to see
    "\u2028\u2029"  # lines and paragraphs
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e0fff]"  # lone surrogates, noncharacters, tags
)
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str, *, keep: str = "", encoding: str | None = "utf-8") -> str:
    """`text` with escapes like `\\x1b` for what steers or can't be encoded; `keep` names controls left alone."""
    text = _STEERING.sub(lambda match: match[0] if match[0] in keep else _escaped(match[0]), text)
    if speaks_unicode(encoding):
        return text
    encoding = encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def clipped(text: str, most: int, ellipsis: str) -> str:
    return text if len(text) <= most else text[: most - len(ellipsis)] + ellipsis


@cache
def speaks_unicode(encoding: str | None) -> bool:
    return (encoding or "ascii").lower().replace("_", "-") in ("utf-8", "utf8", "utf-16", "utf-32", "utf-8-sig")


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
