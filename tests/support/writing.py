"""A scripted fleet that writes: a small bundle with the family's template, replies token by token as a test says."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mainspring.core.nouns import Limits
from mainspring.text.bundle import Bundle
from mainspring.text.sampling import SamplingDefaults
from mainspring.wire import messages as m
from support.chat_templates import QWEN_STYLE
from support.gateway import ScriptedFleet, model_status
from support.tiny_tokenizer import write_tiny_tokenizer

CONTEXT = 4096
NOTHING_SAID = SamplingDefaults()
Script = Callable[[m.Submit], Sequence[int]]


@cache
def bundle(template: str = QWEN_STYLE, sampling: SamplingDefaults = NOTHING_SAID) -> Bundle:
    with TemporaryDirectory() as folder:
        return Bundle.load(write_tiny_tokenizer(Path(folder), chat_template=template, generation=sampling.said()))


def ids_of(text: str, made: Bundle | None = None) -> list[int]:
    """A reply's tokens: tags and control tokens as such, the rest as text."""
    made = made or bundle()
    found: list[int] = []
    for piece in made.chat.finder.split(text):
        found += made.chat.encode([piece]).tolist()
    return found


def prompt_of(submit: m.Submit, made: Bundle | None = None) -> str:
    return (made or bundle()).tokenizer.decode(m.u32(submit.view_tokens))


def limited(limit: int) -> Limits:
    return Limits(view_tokens=limit, context_tokens=limit)


@dataclass
class WritingFleet(ScriptedFleet):
    """`reply`: the text that is written to each request, or a function of it. `block` tokens come a round, `gate` holds
    rounds back until it is set, from `gate_after` on; `breaks_after` so many rounds the lease fails. `ended`: leases
    that got to their end, `taken_back` those that did not."""

    reply: str | Script = "Yes<|im_end|>"
    template: str = QWEN_STYLE
    sampling: SamplingDefaults = NOTHING_SAID
    block: int = 3
    cached: int = 0
    gate: asyncio.Event | None = None
    gate_after: int = 0
    before_accept: asyncio.Event | None = None
    breaks_after: int | None = None
    refuse: Callable[[m.Submit], Exception | None] = lambda _submit: None
    ended: int = 0
    taken_back: int = 0
    sent: int = 0
    models: tuple[m.ModelStatus, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        made = bundle(self.template, self.sampling)
        if not self.models:
            status = model_status(aliases=("writer",), bundle=made.hash, limits=limited(CONTEXT))
            self.models = (status,)

    async def bundle(self, name: str) -> bytes:
        self.fetched.append(name)
        return bundle(self.template, self.sampling).pack()

    async def generate(
        self,
        submit: m.Submit,
        accepted: Callable[[float], None] | None = None,
        *,
        within_s: float = 60.0,  # noqa: ARG002
    ) -> AsyncIterator[m.Rounds | m.LeaseEnded]:
        submit.check()
        self.submits.append(submit)
        if self.before_accept is not None:
            await self.before_accept.wait()
        error = self.refuse(submit) or self.error
        try:
            if error is not None:
                raise error
        finally:
            del error  # as the real one, this leaves no ring
        if accepted is not None:
            accepted(self.predicted_s)
        over = False
        try:
            async for message in self._write(submit):
                over = over or isinstance(message, m.LeaseEnded)
                yield message
        finally:
            if over:
                self.ended += 1
            else:
                self.taken_back += 1

    async def _write(self, submit: m.Submit) -> AsyncIterator[m.Rounds | m.LeaseEnded]:
        """As a node does: it ends at a stop id, which is the last token, or at the most tokens."""
        tokens, finish = self._tokens(submit)
        rounds = 0
        for at in range(0, len(tokens), self.block):
            if self.breaks_after is not None and rounds >= self.breaks_after:
                yield m.LeaseEnded(tokens=at, finish="failed", reason="not_finite")
                return
            if self.gate is not None and rounds >= self.gate_after:
                await self.gate.wait()
            rounds += 1
            block = tokens[at : at + self.block]
            self.sent += len(block)
            yield rounds_of(block, submit, self.cached, self.block)
        yield m.LeaseEnded(
            tokens=len(tokens), finish=finish, cached_tokens=self.cached, rounds=rounds, drafted=rounds * self.block,
            accepted=len(tokens) - rounds, node="ant", queue_s=0.001,
        )  # type: ignore[arg-type]  # fmt: skip

    def _tokens(self, submit: m.Submit) -> tuple[list[int], str]:
        tokens = ids_of(self.reply, bundle(self.template)) if isinstance(self.reply, str) else [*self.reply(submit)]
        assert submit.sampling is not None
        for at, token in enumerate(tokens[: submit.max_tokens]):
            if token in submit.sampling.stop_ids and at >= submit.sampling.min_tokens:
                return tokens[: at + 1], "stop"
        return tokens[: submit.max_tokens], "length"


def writer(reply: str | Script = "Yes<|im_end|>", **fields: Any) -> WritingFleet:
    return WritingFleet(reply=reply, **fields)


def rounds_of(block: list[int], submit: m.Submit, cached: int, drafted: int) -> m.Rounds:
    """Logprobs that tell their token: -token/1000, and beside it the next ids."""
    sampling = submit.sampling
    fields: dict[str, Any] = {}
    if sampling is not None and sampling.top_logprobs >= 0:
        wide = sampling.top_logprobs
        fields["logprobs"] = np.array([-token / 1000 for token in block], "<f4").tobytes()
        fields["top_ids"] = np.array([token + n for token in block for n in range(wide)], "<u4").tobytes()
        fields["top_logprobs"] = np.array([-(token + n) / 1000 for token in block for n in range(wide)],
                                          "<f4").tobytes()  # fmt: skip
    return m.Rounds(
        tokens=np.array(block, "<u4").tobytes(), drafted=drafted, accepted=len(block) - 1, cached=cached, **fields
    )


def events_of(body: bytes) -> list[tuple[str, Any]]:
    """(name, decoded data) of each event; comments are left out."""
    found = []
    for block in body.decode().split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith(":")]
        if not lines:
            continue
        fields = dict(line.split(": ", 1) for line in lines)
        data = fields["data"]
        found.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found


def unchunked(body: bytes) -> bytes:
    """HTTP's chunks joined."""
    found = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        found, body = found + rest[:length], rest[length + 2 :]
        if not length:
            break
    return found
