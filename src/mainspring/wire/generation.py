"""A lease: one stream, opened by the router; tokens come back as they are accepted."""

from typing import Annotated, Literal

from msgspec import Meta, field

from mainspring.wire.errors import MessageError
from mainspring.wire.records import F32, KIB, MIB, U32, Count, HeldKeys, Key, Name, Record, Row, Seconds, Text
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


class OpenLease(Record, frozen=True, kw_only=True):
    """A slot for `request`, whose prompt comes in passes; rounds begin after the one with `lease` set.

    `token_s` is the longest gap between rounds, None where no rate was promised."""

    cap = 256 * KIB
    request: Name
    epoch: Count
    prompt_tokens: Count
    max_tokens: Annotated[int, Meta(ge=1, le=1 << 24)]
    token_s: Seconds | None = None
    sampling: Sampling = Sampling()
    trace: Key = ""


class Rounds(Row, frozen=True, kw_only=True):
    """Tokens accepted in one or more rounds: u32 [n]. `logprobs` f32 [n] where asked; `top` for each token its u32 ids
    and f32 logprobs, interleaved by token. The first one is the first token of the stream."""

    cap = 1 * MIB
    tokens: U32
    rounds: Count = 1
    drafted: Count = 0
    logprobs: F32 = b""
    top_ids: U32 = b""
    top_logprobs: F32 = b""

    def check(self) -> None:
        if any(len(data) % 4 for data in (self.tokens, self.logprobs, self.top_ids, self.top_logprobs)):
            raise MessageError("tokens and logprobs come in whole words of four bytes", param="tokens")
        if not self.tokens:
            raise MessageError("at least one token", param="tokens")
        if self.logprobs and len(self.logprobs) != len(self.tokens):
            raise MessageError("one a token", param="logprobs")
        if len(self.top_ids) != len(self.top_logprobs) or len(self.top_ids) % len(self.tokens):
            raise MessageError("equally many ids and logprobs a token", param="top_ids")


class LeaseEnded(Record, frozen=True, kw_only=True):
    """`tokens` is how many were sent in all; a failed lease names its reason and can be opened again elsewhere only
    before its first token."""

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
