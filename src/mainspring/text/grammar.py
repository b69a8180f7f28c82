"""Replies that follow a grammar, by llguidance (the extra `grammar`): which tokens may come next, drafts included.

A `Grammar` is what the engine takes for a constraint: it looks ahead over drafts and takes that back, and moves on over
what was emitted. Masks cost the host a look at the whole vocabulary before each round, so such a reply has one wait
more a round than others.
"""

from collections import OrderedDict
from collections.abc import Sequence
from importlib.util import find_spec
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mainspring.errors import InputError
from mainspring.text.tokenizer import Tokenizer

KINDS = ("json_schema", "regex", "lark")
MESSAGE_CHARS = 300
KEPT = 16
"""Grammars that are kept as they were compiled."""


class GrammarError(InputError):
    """A schema or grammar that can't be followed here."""

    code = "bad_grammar"


def is_installed() -> bool:
    return find_spec("llguidance") is not None


def check_grammar(kind: str, source: str, param: str) -> None:
    """GrammarError where no reply could follow it. Nothing is checked where the extra is not installed: the node that
    has to follow it says so then."""
    if is_installed():
        from llguidance import LLMatcher

        error = LLMatcher.validate_grammar(_compiled(kind, source, param))
        if error and not error.startswith("WARNING"):
            raise GrammarError(_short(error), param=param)


class Grammars:
    """For one tokenizer; `ends` are the ids that may end a reply. GrammarError where the extra is not installed."""

    def __init__(self, tokenizer: Tokenizer, ends: Sequence[int]) -> None:
        if not is_installed():
            raise GrammarError("replies with a grammar need llguidance on the node: pip install 'mainspring[grammar]'")
        if not ends:
            raise GrammarError("the model names no token that ends a reply, and a grammar has an end")
        self._tokenizer, self._ends = tokenizer, tuple(ends)
        self._made: Any = None
        self._kept: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._lock = Lock()

    def grammar(self, kind: str, source: str) -> "Grammar":
        """GrammarError. Takes a moment: milliseconds, for large schemas much more; the last ones are kept."""
        from llguidance import LLMatcher

        with self._lock:
            found = self._kept.pop((kind, source), None)
        if found is None:
            found = LLMatcher(self._vocabulary(), _compiled(kind, source, "grammar"), log_level=0)
            if found.is_error():
                raise GrammarError(_short(found.get_error()), param="grammar")
        with self._lock:
            self._kept[kind, source] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return Grammar(found.deep_copy(), self._tokenizer.vocab_size, self._ends)

    def _vocabulary(self) -> Any:
        """Built once, from the bytes of every token."""
        from llguidance import LLTokenizer, TokenizerWrapper

        with self._lock:
            if self._made is None:
                self._made = LLTokenizer(
                    TokenizerWrapper(_Vocabulary(self._tokenizer, self._ends)), eos_token=list(self._ends)
                )
            return self._made


class _Vocabulary:
    """As llguidance asks for one. Control tokens are special: no grammar's text contains them."""

    def __init__(self, tokenizer: Tokenizer, ends: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id, self.bos_token_id = ends[0], None
        self.tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted({*tokenizer.control.values(), *ends})

    def __call__(self, text: bytes | str) -> list[int]:
        plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return [int(each) for each in self._tokenizer.encode_text(plain)]


class Grammar:
    """One reply's place in its grammar. Use from one thread at a time."""

    def __init__(self, matcher: Any, vocab_size: int, ends: Sequence[int]) -> None:
        self._matcher = matcher
        self._words = (vocab_size + 31) // 32
        self._end_mask = np.zeros(self._words, np.uint32)
        for end in ends:
            self._end_mask[end // 32] |= np.uint32(1 << (end % 32))

    @property
    def complete(self) -> bool:
        """Whether the reply may end here."""
        return bool(self._matcher.is_accepting())

    def masks(self, drafts: Sequence[int]) -> NDArray[np.uint32]:
        """[1 + n, ceil(vocab / 32)] uint32: row i has the tokens that may follow drafts[:i]; n is at most len(drafts),
        less where the grammar forbids one."""
        rows = [self._mask()]
        taken = 0
        for draft in drafts:
            if self._matcher.is_stopped() or not self._matcher.try_consume_tokens([draft]):
                break
            taken += 1
            rows.append(self._mask())
        if taken and not self._matcher.rollback(taken):
            raise GrammarError(f"the grammar can't be taken back: {_short(self._matcher.get_error())}")
        return np.stack(rows)

    def advance(self, tokens: Sequence[int]) -> None:
        """These were emitted. GrammarError where one was forbidden."""
        for token in tokens:
            if not self._matcher.consume_token(token):
                raise GrammarError(f"a token that the grammar forbids: {_short(self._matcher.get_error())}")

    def _mask(self) -> NDArray[np.uint32]:
        if self._matcher.is_error():
            raise GrammarError(_short(self._matcher.get_error()))
        if self._matcher.is_stopped():
            return self._end_mask
        row = np.zeros(self._words, np.uint32)
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        return row


def _compiled(kind: str, source: str, param: str) -> str:
    from llguidance import LLMatcher

    if kind not in KINDS:
        raise GrammarError(f"known kinds are {', '.join(KINDS)}", param=param)
    try:
        if kind == "json_schema":
            return str(LLMatcher.grammar_from_json_schema(source, overrides={"whitespace_flexible": False}))
        make = LLMatcher.grammar_from_regex if kind == "regex" else LLMatcher.grammar_from_lark
        return str(make(source))
    except ValueError as error:
        raise GrammarError(_short(str(error)), param=param) from None


def _short(text: str) -> str:
    """The first line of what llguidance says: the rest quotes the whole grammar."""
    return text.splitlines()[0][:MESSAGE_CHARS] if text else "not a grammar"
