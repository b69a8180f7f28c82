"""Writing in the caller's process: a conversation in, the next reply out.

    generator = Generator.embedded()  # or Generator.from_pretrained("path/to/model")
    for piece in generator.stream("What do bees do in winter?", max_tokens=100):
        print(piece.text, end="")

A `Generator` owns one model and its slots. Replies that are read side by side, from one thread or several, go through
the same rounds; a prompt that goes on from an earlier one is read from there. Greedy text is reproducible; sampled text
is so by its seed.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np

from mainspring.backend import open_backend
from mainspring.backend.generation import SlotLimits
from mainspring.backend.protocol import Backend
from mainspring.engine.sampling import Sampling
from mainspring.engine.stream_records import Emitted, StreamFailedError, StreamSpec
from mainspring.engine.streams import DEFAULT_CACHE_BYTES, Streams
from mainspring.errors import InputError, ModelError, TokenizerError, TooLargeError
from mainspring.hub import WRITER, model_folder
from mainspring.text.bundle import Bundle
from mainspring.text.detokenise import Detokeniser
from mainspring.text.formats import read_span
from mainspring.text.span import Message, ReadSpan, Span, Text

Finish = Literal["stop", "length"]
Prompt = Span | ReadSpan | Mapping[str, Any] | list[Any] | str
GREEDY = Sampling()
DEFAULT_TOKENS = 256
AHEAD = 64
"""Rounds that a reply may be ahead of its reader."""


@dataclass(frozen=True)
class Piece:
    """`text` that became sure with one token, often empty. `finish` is set on the last one: "stop" at the model's end
    of turn, "length" at a limit."""

    text: str
    token: int
    finish: Finish | None = None


@dataclass(frozen=True)
class Generation:
    """A whole reply. `tokens` has the end-of-turn token where there is one; `text` does not. `cached_tokens` of the
    prompt were not read again."""

    text: str
    tokens: tuple[int, ...]
    finish: Finish
    prompt_tokens: int
    cached_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0


class Generator:
    """`slots` is how many replies may be written side by side; `drafter` "" takes the model's own head where it has
    one, else n-gram lookup; "none" drafts nothing. `deterministic`: see `SlotLimits`."""

    def __init__(
        self,
        bundle: Bundle,
        backend: Backend,
        *,
        slots: int = 4,
        block_rows: int = 8,
        deterministic: bool = False,
        drafter: str = "",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        known, used = backend.limits.vocab_size, bundle.tokenizer.vocab_size
        if used > known:
            raise TokenizerError(
                f"the tokenizer has ids up to {used - 1}, the weights know {known}: they do not belong together"
            )
        if not bundle.eos_ids:
            raise ModelError("neither config.json nor the tokenizer names a token that ends a reply (eos_token_id)")
        self.bundle = bundle
        limits = SlotLimits(slots, block_rows, deterministic, vocab_size=used)
        self.streams = Streams(backend.generation(limits), cache_bytes=cache_bytes, drafter=drafter or None)
        self._turn = Lock()
        self._names = count()
        self._arrived: dict[str, deque[Emitted]] = {}

    @classmethod
    def from_pretrained(
        cls,
        path_or_id: str | Path,
        *,
        revision: str | None = None,
        token: str | None = None,
        threads: int | None = None,
        **options: Any,
    ) -> "Generator":
        """Any checkpoint folder of the hybrid family, or a hub id. `threads` sets how many CPU threads this process's
        products use; None measures which number pays. `options` as the class has them.

        Raises ModelError (HubError, CheckpointError, TokenizerError, TemplateError) saying what is wrong with it.
        """
        folder = model_folder(path_or_id, revision=revision, token=token)
        return cls(Bundle.load(folder), open_backend(folder, "cpu", threads=threads), **options)

    @classmethod
    def embedded(cls, *, threads: int | None = None, **options: Any) -> "Generator":
        """The small writer that comes with the package: fluent English, no knowledge (docs/writer.md)."""
        return cls.from_pretrained(WRITER, threads=threads, **options)

    @property
    def context_tokens(self) -> int:
        return self.streams.backend.context_tokens

    def generate(
        self, prompt: Prompt, *, max_tokens: int = DEFAULT_TOKENS, sampling: Sampling = GREEDY, drafter: str = ""
    ) -> Generation:
        """`stream` to its end."""
        text: list[str] = []
        tokens: list[int] = []
        for event, pieces in self._written(self.prompt(prompt, max_tokens), max_tokens, sampling, drafter):
            text.extend(piece.text for piece in pieces)
            tokens.extend(event.tokens)
        ended = event.ended
        assert ended is not None  # noqa: S101 - the last event has it
        finish: Finish = "stop" if ended.finish == "stop" else "length"
        return Generation(
            "".join(text), tuple(tokens), finish, ended.prompt_tokens, ended.cached_tokens, ended.rounds,
            ended.drafted, ended.accepted,
        )  # fmt: skip

    def stream(
        self, prompt: Prompt, *, max_tokens: int = DEFAULT_TOKENS, sampling: Sampling = GREEDY, drafter: str = ""
    ) -> Iterator[Piece]:
        """One piece a token, the last with `finish`. `prompt` is a user's message, a list of messages, or a
        conversation in any format that spans are read from (its output, if any, is left out).

        What is wrong with it is raised here, not on the way: InputError naming the field, TooLargeError where prompt
        and reply exceed the context. Its slot is taken with the first piece (SlotsFullError) and free when the iterator
        is closed."""
        tokens = self.prompt(prompt, max_tokens)
        return (piece for _, pieces in self._written(tokens, max_tokens, sampling, drafter) for piece in pieces)

    def prompt(self, prompt: Prompt, max_tokens: int = DEFAULT_TOKENS) -> np.ndarray:
        """Token ids [n], int64, that a reply of `max_tokens` fits behind."""
        if max_tokens < 1:
            raise InputError(f"max_tokens is 1 or more, not {max_tokens}", param="max_tokens")
        if max_tokens >= self.context_tokens:
            raise TooLargeError(
                f"max_tokens {max_tokens:,} leave no room in the model's context of {self.context_tokens:,}",
                limit=self.context_tokens - 1,
                actual=max_tokens,
                param="max_tokens",
            )
        view = self.bundle.prompt(_span(prompt), limit_tokens=self.context_tokens - max_tokens)
        if not len(view.tokens):
            raise InputError("the template makes no token of this conversation", param="prompt")
        return np.asarray(view.tokens, np.int64)

    def _written(
        self, tokens: np.ndarray, max_tokens: int, sampling: Sampling, drafter: str
    ) -> Iterator[tuple[Emitted, list[Piece]]]:
        """A round's tokens and their pieces."""
        name, ends = str(next(self._names)), self.bundle.eos_ids
        turns = tuple((int(at) + 1, b"") for at in np.flatnonzero(np.isin(tokens, ends)))
        spec = StreamSpec(id=name, tokens=tokens, max_tokens=max_tokens, sampling=sampling, stop_ids=tuple(ends),
                          drafter=drafter, marks=turns)  # fmt: skip
        with self._turn:
            self.streams.open(spec)
            self._arrived[name] = deque()
        text = Detokeniser(self.bundle.tokenizer)
        try:
            while True:
                event = self._next(name)
                if event.ended is not None and event.ended.finish == "failed":
                    raise StreamFailedError(event.ended.message)
                yield event, _pieces(event, text)
                if event.ended is not None:
                    return
        finally:
            with self._turn:
                del self._arrived[name]
                if name in self.streams.live:
                    self.streams.cancel(name)

    def _next(self, name: str) -> Emitted:
        """This stream's next round; others that are ready and not too far ahead take part."""
        while True:
            with self._turn:
                mine = self._arrived[name]
                if mine:
                    return mine.popleft()
                if name not in self.streams.ready:
                    self.streams.prefill(name)
                    continue
                together = [each for each in self.streams.ready if len(self._arrived[each]) < AHEAD]
                for event in self.streams.round(together):
                    self._arrived[event.id].append(event)


def _pieces(event: Emitted, text: Detokeniser) -> list[Piece]:
    pieces = []
    for number, token in enumerate(event.tokens, 1):
        ended = event.ended if number == len(event.tokens) else None
        if ended is None:
            pieces.append(Piece(text.push(token), token))
        elif ended.finish == "stop":
            pieces.append(Piece(text.finish(), token, "stop"))
        else:
            pieces.append(Piece(text.push(token) + text.finish(), token, "length"))
    return pieces


def _span(prompt: Prompt) -> Span:
    if isinstance(prompt, ReadSpan):
        return prompt.span
    if isinstance(prompt, Span):
        return prompt
    if isinstance(prompt, str):
        if not prompt.strip():
            raise InputError("the message is empty", param="prompt")
        return Span((Message("user", (Text(prompt),)),), ())
    return read_span(prompt).span
