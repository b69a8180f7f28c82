"""Writing in the caller's process: a conversation in, the next reply out, token by token.

    generator = Generator.from_pretrained("path/to/model")  # or Generator.embedded()
    for piece in generator.stream("What do bees do in winter?", max_tokens=100):
        print(piece.text, end="")

The plain loop that faster engines are compared with: the prompt in one go, then one token at a time, fp32 on the CPU.
Greedy text is reproducible; sampled text is so by its seed. A `Generator` owns one model; calls from several threads
take turns token by token.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch

from mainspring.backend.threads import choose_threads
from mainspring.engine.sampling import Sampling, choose
from mainspring.errors import InputError, ModelError, TokenizerError, TooLargeError
from mainspring.hub import model_folder
from mainspring.model.hybrid import Hybrid
from mainspring.model.loading import load_hybrid
from mainspring.model.state import State
from mainspring.text.bundle import Bundle
from mainspring.text.detokenise import Detokeniser
from mainspring.text.formats import read_span
from mainspring.text.span import Message, ReadSpan, Span, Text

Finish = Literal["stop", "length"]
Prompt = Span | ReadSpan | Mapping[str, Any] | list[Any] | str
GREEDY = Sampling()
DEFAULT_TOKENS, PIECE_ROWS = 256, 2048
EMBEDDED_WRITER = Path(str(files("mainspring") / "data" / "writer"))


@dataclass(frozen=True)
class Piece:
    """`text` that became sure with one token, often empty. `finish` is set on the last one: "stop" at the model's end
    of turn, "length" at a limit."""

    text: str
    token: int
    finish: Finish | None = None


@dataclass(frozen=True)
class Generation:
    """A whole reply. `tokens` has the end-of-turn token where there is one; `text` does not."""

    text: str
    tokens: tuple[int, ...]
    finish: Finish
    prompt_tokens: int


class Generator:
    def __init__(self, bundle: Bundle, model: Hybrid) -> None:
        known, used = model.config.vocab_size, bundle.tokenizer.vocab_size
        if used > known:
            raise TokenizerError(
                f"the tokenizer has ids up to {used - 1}, the weights know {known}: they do not belong together"
            )
        if not bundle.eos_ids:
            raise ModelError("neither config.json nor the tokenizer names a token that ends a reply (eos_token_id)")
        self.bundle, self.model = bundle, model
        self._turn = Lock()

    @classmethod
    def from_pretrained(
        cls,
        path_or_id: str | Path,
        *,
        revision: str | None = None,
        token: str | None = None,
        threads: int | None = None,
    ) -> "Generator":
        """Any checkpoint folder of the hybrid family, or a hub id. `threads` sets how many CPU threads this process's
        products use; None measures which number pays.

        Raises ModelError (HubError, CheckpointError, TokenizerError, TemplateError) saying what is wrong with it.
        """
        folder = model_folder(path_or_id, revision=revision, token=token)
        torch.set_num_threads(threads or choose_threads())
        return cls(Bundle.load(folder), load_hybrid(folder))

    @classmethod
    def embedded(cls, *, threads: int | None = None) -> "Generator":
        """The small writer that comes with the package. ModelError while this version ships none."""
        if not (EMBEDDED_WRITER / "model.safetensors").is_file():
            raise ModelError(
                "this version ships no writer's weights: make them with `mainspring train distill` (docs/writer.md) "
                "and use Generator.from_pretrained"
            )
        return cls.from_pretrained(EMBEDDED_WRITER, threads=threads)

    @property
    def context_tokens(self) -> int:
        return self.model.config.max_position_embeddings

    def generate(self, prompt: Prompt, *, max_tokens: int = DEFAULT_TOKENS, sampling: Sampling = GREEDY) -> Generation:
        """`stream` to its end."""
        tokens = self.prompt(prompt, max_tokens)
        pieces = list(self._pieces(tokens, max_tokens, sampling))
        finish = pieces[-1].finish or "length"
        return Generation(
            "".join(piece.text for piece in pieces), tuple(piece.token for piece in pieces), finish, len(tokens)
        )

    def stream(
        self, prompt: Prompt, *, max_tokens: int = DEFAULT_TOKENS, sampling: Sampling = GREEDY
    ) -> Iterator[Piece]:
        """One piece a token, the last with `finish`. `prompt` is a user's message, a list of messages, or a
        conversation in any format that spans are read from (its output, if any, is left out).

        What is wrong with it is raised here, not on the way: InputError naming the field, TooLargeError where prompt
        and reply exceed the context."""
        return self._pieces(self.prompt(prompt, max_tokens), max_tokens, sampling)

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

    def _pieces(self, tokens: np.ndarray, max_tokens: int, sampling: Sampling) -> Iterator[Piece]:
        state = self.model.new_state(len(tokens) + max_tokens)
        chance = np.random.default_rng(sampling.seed)
        text, ends = Detokeniser(self.bundle.tokenizer), set(self.bundle.eos_ids)
        logits = self._advance(state, tokens)
        for number in range(1, max_tokens + 1):
            token = choose(logits[: self.bundle.tokenizer.vocab_size], sampling, chance)
            if token in ends:
                yield Piece(text.finish(), token, "stop")
                return
            sure = text.push(token)
            if number == max_tokens:
                yield Piece(sure + text.finish(), token, "length")
                return
            yield Piece(sure, token)
            logits = self._advance(state, np.array([token]))

    @torch.inference_mode()
    def _advance(self, state: State, tokens: np.ndarray) -> np.ndarray:
        """Logits [vocab] after `tokens`, in pieces so that activations stay bounded."""
        with self._turn:
            *before, last = torch.from_numpy(tokens).split(PIECE_ROWS)
            for piece in before:
                self.model.extend(piece, [len(piece)], [state], update=True, outputs="none")
            hidden = self.model.extend(last, [len(last)], [state], update=True, outputs="last")
            logits: np.ndarray = self.model.logits(hidden)[0].numpy()
        return logits


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
