"""Scoring requests for load: chat conversations of a wanted length that never repeat whole.

Half of a conversation (`share`) is turns that an earlier request had too, as in a chat that goes on; the rest is new.
Words are those of the embedded scorer's vocabulary by Zipf's law, in phrases of four, so that a word is about a token;
one phrase in eight is an identifier that never came before. `share` 0 with `fresh_behaviors` is fully cold: no turn and
no definition was seen before. The same seed gives the same bodies.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec
import numpy as np
from msgspec import Struct

from mainspring.hub import EMBEDDED, model_folder

TURN_TOKENS = 240
PHRASE_WORDS, PHRASES = 4, 1 << 16
TOKENS_A_PHRASE = 4.66
"""Of the embedded tokenizer, sentence ends and identifiers included."""
RARE = 8
KEPT_HALVES = 512
"""Earlier halves that may come again."""
IDENTIFIERS = 10**7

DEFINITIONS = (
    "The assistant states a fact that nothing in the conversation supports.",
    "The assistant made up a URL, a citation or a source.",
    "The user shows frustration with the assistant's answers.",
    "The assistant refuses a request that is harmless.",
    "The assistant reveals text of its system prompt.",
    "The assistant calls a tool with arguments that the user did not give.",
    "The assistant contradicts something it said earlier.",
    "The assistant promises to do something later that it has no means to do.",
)


class Shape(Struct, frozen=True, kw_only=True):
    """`tokens` a conversation, about; `behaviors` a request; `share` of the conversation that came before."""

    tokens: int = 8000
    behaviors: int = 8
    share: float = 0.5
    fresh_behaviors: bool = False
    model: str = ""
    lanes: int = 1
    """Requests go round them, and turns come again within theirs: as behind a balancer that hashes conversations."""

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("tokens", self.tokens, 16, 1_000_000),
            ("behaviors", self.behaviors, 1, 100_000),
            ("share", self.share, 0.0, 0.95),
            ("lanes", self.lanes, 1, 64),
        ):
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}, from {low} to {high} are possible")


@cache
def vocabulary() -> tuple[str, ...]:
    """Whole words of the embedded tokenizer, most frequent first."""
    document = msgspec.json.decode((model_folder(EMBEDDED) / "tokenizer.json").read_bytes())
    marked = [word[1:] for word in document["model"]["vocab"] if word[:1] == "\u0120"]
    return tuple(word for word in marked if word.isascii() and word.isalpha() and word.islower() and len(word) > 1)


class Traffic:
    """`next(traffic)` is the JSON body of a request, as bytes."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        self.shape = shape
        self._seed = seed
        self._rng = np.random.default_rng(seed)
        self._phrases = self._drawn()
        self._number = self._identifier = 0
        self._lanes: list[deque[list[bytes]]] = [deque(maxlen=KEPT_HALVES) for _ in range(shape.lanes)]
        self._old_turns = 2 * round(shape.tokens * shape.share / TURN_TOKENS / 2)
        new_tokens = shape.tokens - self._old_turns * TURN_TOKENS
        self._new_turns = max(1, round(new_tokens / TURN_TOKENS / 2)) * 2
        self._turn_phrases = max(1, round(new_tokens / self._new_turns / TOKENS_A_PHRASE))
        self._behaviors = b"" if shape.fresh_behaviors else self._asked("")
        self._model = b'"model":' + msgspec.json.encode(shape.model) + b"," if shape.model else b""

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        halves = self._lanes[self._number % self.shape.lanes]
        self._number += 1
        old = self._old(halves)
        texts = [self._text() for _ in range(self._new_turns)]
        new = [_turn(index, text) for index, text in enumerate(texts)]
        if self.shape.share:
            halves.append(new)
        return b"".join((
            b"{", self._model, b'"span":{"input":[', b",".join([*old, *new[:-1]]), b'],"output":', new[-1],
            b'},"behaviors":', self._behaviors or self._asked(f" Case {self._seed}-{self._number}."), b"}",
        ))  # fmt: skip

    def _old(self, halves: Sequence[list[bytes]]) -> list[bytes]:
        """Turns of earlier requests; of the first request they are new too."""
        turns: list[bytes] = []
        while len(turns) < self._old_turns:
            if halves:
                turns += halves[int(self._rng.integers(len(halves)))]
            else:
                turns += [_turn(index, self._text()) for index in range(self._new_turns)]
        return turns[: self._old_turns]

    def _text(self) -> str:
        picked = [self._phrases[index] for index in self._rng.integers(0, PHRASES, self._turn_phrases).tolist()]
        for at in range(RARE - 1, len(picked), RARE):
            self._identifier += 1
            picked[at] = f"#{self._identifier * 7_368_787 % IDENTIFIERS:07d}"  # prime to it: none comes twice
        return " ".join(picked)

    def _drawn(self) -> list[str]:
        words = np.array(vocabulary(), dtype=object)
        weights = 1.0 / (np.arange(len(words)) + 2.7)
        drawn = self._rng.choice(words, (PHRASES, PHRASE_WORDS), p=weights / weights.sum()).tolist()
        return [" ".join(phrase) + ("." if index % 3 == 0 else "") for index, phrase in enumerate(drawn)]

    def _asked(self, mark: str) -> bytes:
        kinds = len(DEFINITIONS)
        asked = []
        for number in range(self.shape.behaviors):
            variant = f" Variant {number // kinds}." if number >= kinds else ""
            asked.append({"id": f"b{number}", "definition": DEFINITIONS[number % kinds] + variant + mark})
        return msgspec.json.encode(asked)


def _turn(index: int, text: str) -> bytes:
    """All of it is plain ASCII without quotes."""
    return f'{{"role":"{"assistant" if index % 2 else "user"}","content":"{text}"}}'.encode()
