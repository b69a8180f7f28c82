"""One choice on its way: a lease's rounds through a `Reply`, in steps that a surface can show, and its tally."""

from collections.abc import AsyncGenerator, Callable
from typing import Literal

from msgspec import Struct, field

from mainspring.gateway.errors import GenerationFailedError
from mainspring.gateway.generation.lease import Lease
from mainspring.text.reply.deltas import Delta
from mainspring.text.reply.reply import Reply
from mainspring.wire import messages as m

Finish = Literal["stop", "length", "tool_calls"]
BUCKETS = 64


class Token(Struct, frozen=True, gc=False):
    """`logprob` and `top`, (id, logprob) by falling logprob, where asked."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Tally(Struct, kw_only=True):
    """Of one choice. Seconds on the gateway's clock: `first_s` when the first tokens came, `last_s` the last. A round
    emits its bonus token and the drafts that were accepted; `histogram[i]`: rounds that gave i + 1."""

    began_s: float
    predicted_s: float = 0.0
    first_s: float | None = None
    last_s: float = 0.0
    tokens: int = 0
    cached: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    histogram: list[int] = field(default_factory=list)
    queue_s: float = 0.0
    node: str = ""

    @property
    def token_s(self) -> float | None:
        """Mean seconds between tokens after the first."""
        if self.first_s is None or self.tokens < 2:
            return None
        return (self.last_s - self.first_s) / (self.tokens - 1)


class Step(Struct, frozen=True):
    """`tokens`: those whose text is in the deltas so far. The last step has `finish`."""

    index: int
    deltas: list[Delta]
    tokens: list[Token]
    finish: Finish | None = None
    stop: str | int | None = None


class ChoiceRun:
    """`steps()` once. Leaving them early takes the lease back, and so does a stop string."""

    def __init__(self, index: int, lease: Lease, reply: Reply, now_s: Callable[[], float], began_s: float) -> None:
        self.index, self._lease, self._reply, self._now_s = index, lease, reply, now_s
        self.tally = Tally(began_s=began_s, predicted_s=lease.predicted_s)
        self._tokens: list[Token] = []
        self._shown = 0

    async def steps(self) -> AsyncGenerator[Step, None]:
        """GenerationFailedError and the errors of links where it breaks on the way."""
        try:
            async for message in self._lease:
                if isinstance(message, m.LeaseEnded):
                    self._ended(message)
                    yield self._last("length" if message.finish == "length" else "stop")
                    return
                deltas = self._rounds(message)
                if self._reply.ended:
                    if self._reply.cut:  # what the node goes on to write is of no use to anybody
                        await self._lease.aclose()
                    else:
                        await self._until_end()
                    yield self._last("stop", deltas)
                    return
                if deltas or self._reply.released > self._shown:
                    yield Step(self.index, deltas, self._release())
        finally:
            await self._lease.aclose()

    async def aclose(self) -> None:
        """The lease is taken back where it is open."""
        await self._lease.aclose()

    async def _until_end(self) -> None:
        """The node ends at the same token and says what it took."""
        async for message in self._lease:
            if isinstance(message, m.LeaseEnded):
                self._ended(message)
                return

    def _rounds(self, message: m.Rounds) -> list[Delta]:
        ids = m.u32(message.tokens).tolist()
        before = len(self._reply.tokens)
        deltas = self._reply.push(ids)
        kept = len(self._reply.tokens) - before
        self._tokens += tokens_of(message, ids[:kept])
        tally = self.tally
        tally.last_s = self._now_s()
        if tally.first_s is None:
            tally.first_s = tally.last_s
        tally.tokens += kept
        tally.rounds += message.rounds
        tally.drafted += message.drafted
        tally.cached = message.cached
        # Drafts behind the cut were accepted for nobody.
        tally.accepted += min(kept, message.accepted)
        if message.rounds == 1:
            size = min(len(ids), BUCKETS)
            tally.histogram += [0] * (size - len(tally.histogram))
            tally.histogram[size - 1] += 1
        return deltas

    def _ended(self, message: m.LeaseEnded) -> None:
        tally = self.tally
        tally.cached = message.cached_tokens
        tally.rounds, tally.drafted = message.rounds, message.drafted
        tally.accepted = min(message.accepted, tally.tokens)
        if message.histogram:
            tally.histogram = list(message.histogram)
        tally.queue_s, tally.node = message.queue_s, message.node
        if message.finish in ("failed", "cancelled"):
            raise GenerationFailedError(message.reason or message.finish, message.message)

    def _last(self, finish: Finish, deltas: list[Delta] | None = None) -> Step:
        deltas = [*(deltas or []), *self._reply.finish()]
        if finish == "stop" and self._reply.calls:
            finish = "tool_calls"
        return Step(self.index, deltas, self._release(), finish, self._reply.stop)

    def _release(self) -> list[Token]:
        found = self._tokens[self._shown : self._reply.released]
        self._shown = self._reply.released
        return found


def tokens_of(message: m.Rounds, ids: list[int]) -> list[Token]:
    """The first of a message's tokens, with their logprobs where it has any."""
    if not message.logprobs:
        return [Token(each) for each in ids]
    logprobs = m.f32(message.logprobs).tolist()
    total = len(message.tokens) // 4
    wide = len(message.top_ids) // 4 // total
    top_ids, top = m.u32(message.top_ids).tolist(), m.f32(message.top_logprobs).tolist()
    return [
        Token(each, logprobs[at], tuple(zip(top_ids[at * wide : (at + 1) * wide],
                                            top[at * wide : (at + 1) * wide], strict=True)))
        for at, each in enumerate(ids)
    ]  # fmt: skip
