"""A view cut to a limit: the longest texts lose their middles first, then whole messages in the middle go.

Water-filling: every text keeps its first and last tokens up to one common level, the highest that fits, so that short
texts stay whole and structure (turns, names, tool calls) stays intact. Where even the lowest level does not fit,
messages go from the middle of the conversation outwards; the leading system and first messages, the last user's and the
output stay. Deterministic; every cut is noted. Work is bounded: texts are first cut by characters to `ROUGH_CHARS` a
token of the limit, so that token counts beyond that are estimates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mainspring.errors import TooLargeError
from mainspring.text.chat import Chat
from mainspring.text.guard import Leaf
from mainspring.text.span import Note, Span
from mainspring.text.tokenizer import Tokenizer
from mainspring.text.view import Rendered, View, finish, settle

ROUGH_CHARS = 16
KEPT_TOKENS = 32  # the least that is left of a text
KEPT_CHARS = 512
ROUNDS = 8
SEPARATE_NOTES = 64


@dataclass(frozen=True)
class Stub:
    """A text that may be cut: whole in `head`, or what is left of it by characters in `head` and `tail`, with an
    estimate of the tokens lost in between."""

    head: str
    tail: str
    tokens: int
    lost: int


@dataclass(frozen=True)
class Attempt:
    rendered: Rendered
    tokens: int
    level: int
    dropped: frozenset[int]


def water_level(lengths: Sequence[int], budget: int) -> int:
    """The largest level with sum(min(length, level)) <= budget; the longest length where all fit."""
    rest = budget
    for index, length in enumerate(ordered := sorted(lengths)):
        share = rest // (len(ordered) - index)
        if share < length:
            return max(0, share)
        rest -= length
    return ordered[-1] if ordered else 0


class Cutter:
    """Shortens the texts of one span; keeps what it has computed."""

    def __init__(self, chat: Chat, span: Span, choice: int, rendered: Rendered, limit: int) -> None:
        self._chat, self._span, self._choice, self._limit = chat, span, choice, limit
        self._plan = rendered.plan
        tokenizer = chat.tokenizer
        self._marker_tokens = len(tokenizer.encode_text(_marker(1_234_567_890, True)))
        self._floor = self._marker_tokens + KEPT_TOKENS
        self._stubs = _stubs(tokenizer, [leaf for leaf in rendered.guard.leaves if leaf.cuttable], limit)
        self._cache: dict[tuple[str, int], tuple[str, int]] = {}

    def best(self) -> Attempt:
        """The attempt that fits with the fewest messages dropped and the highest level. TooLargeError where none."""
        order = _droppable(self._span)
        drops = [frozenset(order[:count]) for count in (0, len(order))]
        fits = self._attempt(self._floor, drops[0])
        if fits.tokens > self._limit:
            fits = self._attempt(self._floor, drops[1])
            if fits.tokens > self._limit:
                raise TooLargeError(
                    f"the rendered span can't be cut below {fits.tokens:,} tokens, the limit is {self._limit:,}",
                    limit=self._limit,
                    actual=fits.tokens,
                    param="span",
                )
            fits = self._fewest(order, fits)
        return self._raised(fits)

    def notes(self, attempt: Attempt) -> list[Note]:
        notes = []
        if attempt.dropped:
            first, last = min(attempt.dropped), max(attempt.dropped)
            tokens = sum(stub.tokens + stub.lost for where, stub in self._stubs.items() if _gone(where, attempt))
            detail = f"{len(attempt.dropped):,} messages of about {tokens:,} tokens left out"
            notes.append(Note("cut", f"input[{first}:{last + 1}]", detail))
        cuts, total = [], 0
        for leaf in attempt.rendered.guard.leaves:
            if leaf.where in self._stubs and (left_out := self._shortened(leaf.where, attempt.level)[1]):
                stub = self._stubs[leaf.where]
                cuts.append((leaf.where, f"{'about ' if stub.lost else ''}{left_out:,}", stub.tokens + stub.lost))
                total += left_out
        if len(cuts) > SEPARATE_NOTES:
            return [*notes, Note("cut", "span", f"about {total:,} tokens left out of {len(cuts):,} texts")]
        return notes + [Note("cut", where, f"{out} of {size:,} tokens left out") for where, out, size in cuts]

    def _fewest(self, order: Sequence[int], fits: Attempt) -> Attempt:
        """Bisection over how many messages have to go."""
        too_few, enough = 0, len(order)
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            attempt = self._attempt(self._floor, frozenset(order[:middle]))
            if attempt.tokens <= self._limit:
                fits, enough = attempt, middle
            else:
                too_few = middle
        return fits

    def _raised(self, fits: Attempt) -> Attempt:
        """The highest level that fits with the same messages: by the figures, then corrected by what came out."""
        sizes = [self._stubs[leaf.where].tokens for leaf in fits.rendered.guard.leaves if leaf.where in self._stubs]
        structure = fits.tokens - sum(min(size, self._floor) for size in sizes)
        level = water_level(sizes, self._limit - structure)
        for _ in range(ROUNDS):
            if level <= self._floor:
                break
            attempt = self._attempt(level, fits.dropped)
            if attempt.tokens <= self._limit:
                return attempt
            cut = max(1, sum(size > level for size in sizes))
            level -= 1 + (attempt.tokens - self._limit) // cut
        return fits

    def _attempt(self, level: int, dropped: frozenset[int]) -> Attempt:
        short = {where: text for where in self._stubs if (text := self._shortened(where, level)[0])}
        rendered = settle(self._chat, self._span, self._choice, replace(self._plan, short=short, dropped=dropped))
        return Attempt(rendered, len(self._chat.encode(rendered.pieces)), level, dropped)

    def _shortened(self, where: str, level: int) -> tuple[str, int]:
        """(text, tokens left out) of a text at a level; ("", 0) where it stays whole."""
        stub = self._stubs[where]
        if stub.tokens <= level and not stub.lost:
            return "", 0
        if (where, level) not in self._cache:
            keep = level - self._marker_tokens
            head = self._chat.tokenizer.head(stub.head, keep - keep // 2)
            tail = self._chat.tokenizer.tail(stub.tail or stub.head, keep // 2)
            left_out = max(1, stub.tokens + stub.lost - keep)
            self._cache[where, level] = f"{head}{_marker(left_out, stub.lost > 0)}{tail}", left_out
        return self._cache[where, level]


def render_cut(chat: Chat, span: Span, rendered: Rendered, suffix: str, *, choice: int, limit: int) -> View:
    """The view of a span whose rendering is over the limit, at most `limit` tokens of it. TooLargeError."""
    cutter = Cutter(chat, span, choice, rendered, limit)
    best = cutter.best()
    return finish(chat, best.rendered, span, suffix, choice, limit, cutter.notes(best))


def _stubs(tokenizer: Tokenizer, leaves: Sequence[Leaf], limit: int) -> dict[str, Stub]:
    chars = max(KEPT_CHARS, water_level([len(leaf.text) for leaf in leaves], ROUGH_CHARS * limit))
    halves = [
        (leaf.text, "") if len(leaf.text) <= chars else (leaf.text[: chars - chars // 2], leaf.text[-(chars // 2) :])
        for leaf in leaves
    ]
    counts = [len(ids) for ids in tokenizer.encode_texts([head + tail for head, tail in halves])]
    stubs = {}
    for leaf, (head, tail), tokens in zip(leaves, halves, counts, strict=True):
        shown = max(1, len(head) + len(tail))
        lost = round((len(leaf.text) - shown) * tokens / shown) if tail else 0
        stubs[leaf.where] = Stub(head, tail, tokens, lost)
    return stubs


def _droppable(span: Span) -> list[int]:
    """Input messages that may go, the middle ones first."""
    size = len(span.input)
    start = next((index for index, message in enumerate(span.input) if message.role != "system"), size) + 1
    users = [index for index, message in enumerate(span.input) if message.role == "user"]
    last_user = users[-1] if users else size - 1
    indices = [index for index in range(start, size) if index != last_user]
    middle = len(indices) // 2
    order = sorted(range(len(indices)), key=lambda place: (abs(place - middle), place))
    return [indices[place] for place in order]


def _gone(where: str, attempt: Attempt) -> bool:
    return where.startswith("input[") and int(where[6:].partition("]")[0]) in attempt.dropped


def _marker(tokens: int, estimate: bool) -> str:
    return f"\n[… {'about ' if estimate else ''}{tokens:,} tokens left out …]\n"
