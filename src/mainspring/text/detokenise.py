"""Token after token into text, none of it before it is sure: a character of several bytes waits for its last one.

Byte-level vocabularies cut characters anywhere, also in the middle of one token: bytes go through an incremental
UTF-8 decoder, so only the character that is not whole is held. What has been given out never changes, and all of it
together is the text of all tokens.
"""

import codecs

from mainspring.text.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
MOST_HELD = 4  # tokens: a character has at most four bytes, so what is still no text then never will be


class Detokeniser:
    """`special`: whether special tokens are shown by their names; tags such as `<think>` always are."""

    def __init__(self, tokenizer: Tokenizer, *, special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._hidden = frozenset() if special else tokenizer.special_ids
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace") if tokenizer.byte_level else None
        self._held: list[int] = []

    def push(self, token: int) -> str:
        """The text that is sure now, often empty."""
        if token in self._hidden:
            return self.finish()
        if self._utf8 is not None:
            if token in self._tokenizer.special_ids:
                return self.finish() + self._tokenizer.decode([token])
            return self._utf8.decode(self._tokenizer.token_bytes(token))
        self._held.append(token)
        text = self._tokenizer.decode(self._held)
        if text.endswith(REPLACEMENT) and len(self._held) < MOST_HELD:
            return ""
        self._held = []
        return text

    def finish(self) -> str:
        """What is still held, with U+FFFD for characters that were cut."""
        if self._utf8 is not None:
            text = self._utf8.decode(b"", final=True)
            self._utf8.reset()
            return text
        text = self._tokenizer.decode(self._held) if self._held else ""
        self._held = []
        return text
