"""Tokens of one reply -> what a client gets, cut at one place: text, ids, logprobs and counts end with the same token.

A reply ends with an end-of-turn token or a stop id (its text is not shown), or with the token that completes a stop
string (the text ends before the string), or after the first call where only one is wanted; tokens that were accepted
behind that are not part of it. Stop strings are looked for in the text as the model writes it, tags and reasoning
included, and like end tokens only after `least` tokens.
"""

from collections.abc import Collection, Sequence

from mainspring.text.detokenise import Detokeniser
from mainspring.text.reply.deltas import CallEnded, ContentText, Delta, joined
from mainspring.text.reply.parser import Parser
from mainspring.text.stops import Stops
from mainspring.text.tokenizer import Tokenizer


class Reply:
    """`parser` None: all text is content. `tokens` are the reply's own; `ended`: it is complete and `push` takes
    nothing more; `stop` is what ended it, a stop string or an id, None where that was an end token or a call. `cut`:
    it ended here, and whoever makes the tokens does not know."""

    def __init__(
        self, tokenizer: Tokenizer, *, ends: Collection[int], stop_ids: Collection[int] = (),
        stops: Sequence[str] = (), least: int = 0, parser: Parser | None = None, one_call: bool = False,
        special: bool = False,
    ) -> None:  # fmt: skip
        self._text = Detokeniser(tokenizer, special=special)
        self._ends, self._stop_ids, self._least = frozenset(ends), frozenset(stop_ids), least
        self._stops, self._parser, self._one_call = Stops(stops), parser, one_call
        self.tokens: list[int] = []
        self.ended = self.cut = self._after_call = False
        self.stop: str | int | None = None
        self._lengths: list[int] = []  # characters there were after each token that is not released
        self._chars = self._sure = 0
        self.released = 0

    @property
    def calls(self) -> int:
        """Complete ones."""
        return 0 if self._parser is None else self._parser.calls

    def push(self, tokens: Sequence[int]) -> list[Delta]:
        """What is sure with these tokens; those behind the end are not looked at."""
        out: list[Delta] = []
        for token in tokens:
            if self.ended:
                break
            out += self._push(token)
        return joined(out)

    def finish(self) -> list[Delta]:
        """No more tokens come: everything held is given out. Call it once, whatever ended the reply."""
        self.ended = True
        if self._after_call:
            self._release_all()
            return []
        out = self._sured(self._text.finish())
        if self._stops.found is None:
            out += self._parsed(self._stops.finish())
        self._release_all()
        return joined([*out, *(self._parser.finish() if self._parser is not None else [])])

    def _push(self, token: int) -> list[Delta]:
        self.tokens.append(token)
        over = len(self.tokens) > self._least
        if over and (token in self._ends or token in self._stop_ids):
            self.ended = True
            self.stop = token if token in self._stop_ids and token not in self._ends else None
            self._lengths.append(self._chars)
            return []
        text = self._text.push(token)
        self._chars += len(text)
        self._lengths.append(self._chars)
        if not over:
            return self._parsed(text)
        return self._sured(text)

    def _sured(self, text: str) -> list[Delta]:
        sure = self._stops.push(text)
        if self._stops.found is not None and self.stop is None:
            self.ended = self.cut = True
            self.stop = self._stops.found
        return self._parsed(sure)

    def _parsed(self, sure: str) -> list[Delta]:
        self._sure += len(sure)
        self._release()
        if self._parser is None:
            return [ContentText(sure)] if sure else []
        deltas = self._parser.push(sure)
        if self._one_call:
            for at, delta in enumerate(deltas):
                if isinstance(delta, CallEnded):
                    self.ended = self.cut = self._after_call = True
                    return deltas[: at + 1]
        return deltas

    def _release(self) -> None:
        """Tokens whose text is sure, or that have none."""
        while self._lengths and self._lengths[0] <= self._sure:
            del self._lengths[0]
            self.released += 1

    def _release_all(self) -> None:
        self.released += len(self._lengths)
        self._lengths.clear()
