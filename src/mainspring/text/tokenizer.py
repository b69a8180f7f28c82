"""A model's tokenizer.json, read without the libraries that rebuild it.

Invariant: `encode_text` never yields a control id, whatever the text; templates place control tokens by `control`. That
is checked on loading for every control string and on every call on the ids. `fastokens` encodes where it agrees with
`tokenizers` (on loading, and on one call in `SAMPLE` afterwards; a mismatch switches for good).
"""

import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

import numpy as np
import tokenizers

from mainspring.errors import TokenizerError
from mainspring.text.fast import AWKWARD, EncodeMany, Ids, open_fast
from mainspring.text.plain import byte_letters, split_document, without_surrogates

SAMPLE = 1024  # one call in so many is compared with the reference
SAMPLE_CHARS = 8192  # ... and of it so much
BLOCK_CHARS = 65536  # the step in which long texts are counted
BLOCK_SLACK_TOKENS = 8  # more than a cut between two words can add to a count
KEPT_WORDS = 10_000  # that `tokenizers` remembers by itself

LETTERS = byte_letters()

log = logging.getLogger(__name__)


class Tokenizer:
    """`implementation` is `fastokens` or `tokenizers`; `reason` says why."""

    def __init__(self, document: bytes, *, where: str = "tokenizer.json", fast: bool = True) -> None:
        self.where = where
        self.document = document
        parts = split_document(document, where)
        self.control_tokens = parts.control
        self.control: Mapping[str, int] = MappingProxyType({token.text: token.id for token in parts.control})
        self.control_ids = MappingProxyType({t.text: np.array([t.id], dtype=np.uint32) for t in parts.control})
        self.vocab_size = parts.size
        self._names = {token.id: token.text for token in parts.control}
        self.special_ids = frozenset(token.id for token in parts.control if token.special)
        self.byte_level = parts.byte_level
        self._is_control = np.zeros(parts.size, dtype=bool)
        self._is_control[list(self._names)] = True
        try:
            self._plain = tokenizers.Tokenizer.from_buffer(parts.plain)
        except Exception as error:
            raise TokenizerError(f"{where} can't be loaded: {error}") from None
        self._calls = 0
        self._encode: EncodeMany = self._reference
        self.implementation, self.reason = "tokenizers", "asked for"
        if fast:
            self._try_fast(parts.plain)
        self._check_control()

    @classmethod
    def load(cls, folder: Path | str, *, fast: bool = True) -> "Tokenizer":
        path = Path(folder) / "tokenizer.json"
        try:
            document = path.read_bytes()
        except OSError as error:
            raise TokenizerError(f"{path} can't be read: {error.strerror}") from None
        return cls(document, where=str(path), fast=fast)

    def encode_text(self, text: str) -> Ids:
        """Ids of `text`, uint32, none of them control; lone surrogates count as U+FFFD."""
        return self.encode_texts([without_surrogates(text)])[0]

    def encode_texts(self, texts: Sequence[str]) -> list[Ids]:
        """`encode_text` for many texts, none of which may hold lone surrogates."""
        if not texts:
            return []
        found = self._encode(texts)
        self._calls += 1
        if self._calls % SAMPLE == 0 and self.implementation != "tokenizers":
            found = self._compare(texts, found)
        if self._is_control.take(found[0] if len(found) == 1 else np.concatenate(found)).any():
            raise TokenizerError(f"{self.where} encodes plain text to a control token")
        return found

    def count_tokens(self, text: str, stop: int) -> tuple[int, bool]:
        """(tokens, exact): counted in blocks, up to about `stop`. What is not exact is a lower bound."""
        if len(text) <= BLOCK_CHARS:
            return len(self.encode_texts([text])[0]), True
        total, start = 0, 0
        while start < len(text):
            end = _word_start(text, start + BLOCK_CHARS)
            total += len(self.encode_texts([text[start:end]])[0]) - BLOCK_SLACK_TOKENS
            if total > stop:
                return total, False
            start = end
        return len(self.encode_texts([text])[0]), True

    def head(self, text: str, tokens: int) -> str:
        """The longest beginning of `text` that its first `tokens` tokens cover; work bounded by `tokens`."""
        if tokens <= 0:
            return ""
        window = 8 * tokens + 64
        while True:
            ends = [end for _, end in self._plain.encode(text[:window], add_special_tokens=False).offsets]
            if len(ends) > tokens:
                return text[: ends[tokens - 1]]
            if window >= len(text):
                return text
            window *= 4

    def tail(self, text: str, tokens: int) -> str:
        """The same from the end."""
        if tokens <= 0:
            return ""
        window = 8 * tokens + 64
        while True:
            part = text[-window:]
            starts = [start for start, _ in self._plain.encode(part, add_special_tokens=False).offsets]
            if len(starts) > tokens:
                return part[starts[-tokens] :]
            if window >= len(text):
                return text
            window *= 4

    def token_id(self, word: str) -> int:
        """The id of a word that is one token; TokenizerError where it takes several."""
        ids = self.encode_text(word)
        if len(ids) != 1 or self.decode(ids) != word:
            raise TokenizerError(f"{word!r} is not one token of {self.where} but {len(ids)}")
        return int(ids[0])

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Text of `ids` with control tokens by their names, for people to read."""
        parts = []
        for control, group in groupby((int(i) for i in ids), self._names.__contains__):
            run = list(group)
            parts.append("".join(self._names[i] for i in run) if control else self._plain.decode(run))
        return "".join(parts)

    def token_bytes(self, token: int) -> bytes:
        """What one token stands for, control tokens by their names; of ids that the vocabulary lacks nothing. Exact
        where `byte_level`: the bytes of several are then those of their text."""
        name = self._names.get(token)
        if name is not None:
            return name.encode()
        piece = self._plain.id_to_token(token) if 0 <= token < self.vocab_size else None
        if piece is None:
            return b""
        if not self.byte_level:
            return self._plain.decode([token]).encode()
        try:
            return bytes(map(LETTERS.__getitem__, piece))
        except KeyError:  # an added token of white space stands for itself
            return str(piece).encode()

    def _reference(self, texts: Sequence[str]) -> list[Ids]:
        # The batch call lets other threads run; the plain one keeps the interpreter for 57 ms at 100k characters.
        encodings = self._plain.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]

    def _try_fast(self, plain: bytes) -> None:
        awkward = [*AWKWARD, *self.control, " ".join(self.control)]
        encode, self.reason = open_fast(plain, self._reference, awkward)
        if encode is not None:
            self._encode, self.implementation = encode, "fastokens"
            self._remember(0)
        else:
            log.info("%s: encoding with tokenizers: %s", self.where, self.reason)

    def _remember(self, words: int) -> None:
        """How many words the reference keeps with their tokens. By itself 8 MiB of them, which win nothing where it is
        asked once in `SAMPLE` calls, and make a process grow for hours."""
        resize = getattr(self._plain.model, "_resize_cache", None)  # of BPE and Unigram; the others keep none
        if resize is not None:
            resize(words)

    def _compare(self, texts: Sequence[str], found: list[Ids]) -> list[Ids]:
        """Of as many texts as fill a few milliseconds, the last ones of a call: the caller may be an event loop."""
        first, chars = len(texts) - 1, len(texts[-1])
        while first and chars + len(texts[first - 1]) <= SAMPLE_CHARS:
            first -= 1
            chars += len(texts[first])
        expected = self._reference(texts[first:])
        if all(np.array_equal(left, right) for left, right in zip(expected, found[first:], strict=True)):
            return found
        self._encode, self.implementation = self._reference, "tokenizers"
        self._remember(KEPT_WORDS)
        self.reason = "fastokens differed from tokenizers on a sampled call"
        log.warning("%s: %s; tokenizers from now on", self.where, self.reason)
        return self._reference(texts)

    def _check_control(self) -> None:
        for name, ids in zip(self.control, self._encode(list(self.control)), strict=True):
            if self._is_control[ids].any():
                raise TokenizerError(f"{self.where}: the text {name!r} encodes to a control token")


def _word_start(text: str, near: int) -> int:
    """A place to cut at or before `near`: before the white space that precedes a word, where there is any close by."""
    if near >= len(text):
        return len(text)
    space = text.rfind(" ", near - 4096, near)
    return space if space > 0 else near
