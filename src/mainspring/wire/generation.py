"""A lease: one stream, opened by the router; tokens come back as they are accepted.

The prompt comes whole with the lease, since whoever writes looks at all of it (its own checkpoints, penalties, what it
may repeat); the passes that scan it only say how far.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, field

from mainspring.wire.errors import MessageError
from mainspring.wire.records import F32, KIB, MIB, U32, Age, Count, HeldKeys, Key, Name, Record, Row, Seconds, Text
from mainspring.wire.work import FailReason


class Sampling(Record, frozen=True, kw_only=True):
    """How tokens are chosen; as the OpenAI API names them. `grammar` is a JSON schema or regular expression, by
    kind."""

    cap = 256 * KIB
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 1.0
    top_p: Annotated[float, Meta(ge=0.0, le=1.0)] = 1.0
    top_k: Count = 0
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    seed: int | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    presence_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100.0)] = 1.0
    logit_bias: Annotated[dict[int, float], Meta(max_length=1024)] = field(default_factory=dict)
    stop_ids: Annotated[tuple[Count, ...], Meta(max_length=1024)] = ()
    min_tokens: Count = 0
    ignore_eos: bool = False
    top_logprobs: Annotated[int, Meta(ge=-1, le=20)] = -1
    drafter: Key = ""
    grammar_kind: Literal["", "json_schema", "regex", "lark"] = ""
    grammar: Annotated[str, Meta(max_length=128 * KIB)] = ""


HISTOGRAM = 64
Histogram = Annotated[tuple[Count, ...], Meta(max_length=HISTOGRAM)]
"""[i]: how many rounds gave i + 1 tokens, the bonus token included; the last one also those that gave more."""


class OpenLease(Record, frozen=True, kw_only=True):
    """A slot for `request`; its prompt is scanned in the passes that follow, rounds begin after the one with `lease`
    set. `order` counts together with `Work.order`: a lease comes before its passes.

    `prompt` u32 [prompt_tokens]. `marks` are salted keys of its beginnings, by length, shortest first: checkpoints that
    the node may keep there, and will report under these names. What others left under another `salt` is not used.
    `token_s` is the longest mean gap between tokens, None where no rate was promised. `attempt`: see `core.Lease`."""

    cap = 16 * MIB
    request: Name
    epoch: Count
    prompt_tokens: Count
    max_tokens: Annotated[int, Meta(ge=1, le=1 << 24)]
    token_s: Seconds | None = None
    sampling: Sampling = Sampling()
    trace: Key = ""
    prompt: U32 = b""
    marks: HeldKeys = ()
    salt: Key = ""
    attempt: Count = 0
    order: Count = 0

    def check(self) -> None:
        if len(self.prompt) != 4 * self.prompt_tokens:
            raise MessageError("as many u32 as there are prompt tokens", param="prompt")
        if any(not 1 <= tokens <= self.prompt_tokens for _, tokens in self.marks):
            raise MessageError("within the prompt", param="marks")


class Rounds(Row, frozen=True, kw_only=True):
    """Tokens accepted in one or more rounds: u32 [n]. `logprobs` f32 [n] where asked; `top` for each token its u32 ids
    and f32 logprobs, interleaved by token. The first one is the first token of the stream. `cached` of the prompt's
    tokens were not scanned; in every message, since a client that stops early hears no `LeaseEnded`."""

    cap = 1 * MIB
    tokens: U32
    rounds: Count = 1
    drafted: Count = 0
    logprobs: F32 = b""
    top_ids: U32 = b""
    top_logprobs: F32 = b""
    accepted: Count = 0
    cached: Count = 0

    @property
    def nbytes(self) -> int:
        """On the wire, within a few bytes above."""
        return len(self.tokens) + len(self.logprobs) + len(self.top_ids) + len(self.top_logprobs) + 64

    def check(self) -> None:
        if any(len(data) % 4 for data in (self.tokens, self.logprobs, self.top_ids, self.top_logprobs)):
            raise MessageError("tokens and logprobs come in whole words of four bytes", param="tokens")
        if not self.tokens:
            raise MessageError("at least one token", param="tokens")
        if self.logprobs and len(self.logprobs) != len(self.tokens):
            raise MessageError("one a token", param="logprobs")
        if len(self.top_ids) != len(self.top_logprobs) or len(self.top_ids) % len(self.tokens):
            raise MessageError("equally many ids and logprobs a token", param="top_ids")


def joined_rounds(rounds: Sequence[Rounds]) -> Rounds:
    """What comes after another of one stream, as one."""
    return Rounds(
        tokens=b"".join(each.tokens for each in rounds), rounds=sum(each.rounds for each in rounds),
        drafted=sum(each.drafted for each in rounds), logprobs=b"".join(each.logprobs for each in rounds),
        top_ids=b"".join(each.top_ids for each in rounds), top_logprobs=b"".join(each.top_logprobs for each in rounds),
        accepted=sum(each.accepted for each in rounds), cached=rounds[0].cached,
    )  # fmt: skip


class LeaseEnded(Record, frozen=True, kw_only=True):
    """`tokens` is how many were sent in all, in `rounds` of which `histogram` tells; `drafted` tokens were proposed and
    `accepted` of them kept. A failed lease names its reason and can be opened again elsewhere only before its first
    token. The router adds, for the client: `queue_s` from arrival to the first pass's begin, `first_s` to the first
    token, `total_s` to the end, the `node`, and how many leases came before (`retries`)."""

    tokens: Count
    finish: Literal["stop", "length", "cancelled", "failed"]
    reason: FailReason | None = None
    cached_tokens: Count = 0
    rounds: Count = 0
    drafted: Count = 0
    accepted: Count = 0
    stop_id: int | None = None
    gained: HeldKeys = ()
    message: Text = ""
    cap = 256 * KIB
    histogram: Histogram = ()
    queue_s: Age = 0.0
    first_s: Age = 0.0
    total_s: Age = 0.0
    node: Key = ""
    retries: Count = 0


class Written(Record, frozen=True, kw_only=True):
    """What a node has generated since it started. `prefilled` prompt tokens were scanned, `cached` ones were not;
    `round_s` is the device time of `rounds` rounds that yielded `tokens` to `streams` streams in all (`slot_rounds`:
    rounds summed over the slots in them)."""

    streams: Count = 0
    rounds: Count = 0
    slot_rounds: Count = 0
    tokens: Count = 0
    drafted: Count = 0
    accepted: Count = 0
    prefilled: Count = 0
    cached: Count = 0
    round_s: Age = 0.0
    failed: Count = 0
    histogram: Histogram = ()
