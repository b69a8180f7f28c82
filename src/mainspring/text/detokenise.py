"""Token after token into text, none of it before it is sure: a character of several bytes waits for its last one.

Byte-level vocabularies cut characters anywhere. What has been given out never changes, and all of it together is the
text of all tokens.
"""

from mainspring.text.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
MOST_HELD = 4  # tokens: a character has at most four bytes, so what is still no text then never will be


class Detokeniser:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._held: list[int] = []

    def push(self, token: int) -> str:
        """The text that is sure now, often empty."""
        self._held.append(token)
        text = self._tokenizer.decode(self._held)
        if text.endswith(REPLACEMENT) and len(self._held) < MOST_HELD:
            return ""
        self._held = []
        return text

    def finish(self) -> str:
        """What is still held, with U+FFFD for characters that were cut."""
        text = self._tokenizer.decode(self._held) if self._held else ""
        self._held = []
        return text
