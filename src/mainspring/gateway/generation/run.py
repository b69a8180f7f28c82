"""A request for text, from prompt to tally: every choice a lease of its own, taken or refused before anything is said.

    begun = await begin(gateway, call)          # MainspringError: refused, nothing is held
    async with aclosing(begun):
        async for step in begun.steps(): ...    # of all choices, as they come

Closing takes back what is still being written.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

import msgspec
import numpy as np

from mainspring.core.refusals import DeadlineError
from mainspring.gateway.calls import Stages, Terms
from mainspring.gateway.errors import ValidationError
from mainspring.gateway.generation.asking import GenerateCall
from mainspring.gateway.generation.choice import ChoiceRun, Step, Tally
from mainspring.gateway.generation.defaults import with_defaults
from mainspring.gateway.generation.lease import Lease, open_lease
from mainspring.gateway.generation.prompts import Ready, ends_of, make_ready
from mainspring.gateway.service import Gateway
from mainspring.wire import messages as m

SMALL_BYTES = 4096
"""Rendered and tokenised on the loop; larger ones on the pool."""
MOST_DEADLINE_S = 86_400.0
T = TypeVar("T")


class Begun:
    """`model` as the caller knows it. `runs`: one a choice, prompt by prompt."""

    def __init__(
        self, gateway: Gateway, call: GenerateCall, model: m.ModelStatus, ready: list[Ready], stages: Stages
    ) -> None:
        self._gateway, self.call, self.ready, self.stages = gateway, call, ready, stages
        self.model = call.model or gateway.catalogue.label(model)
        self.fingerprint = f"fp_{gateway.version}_{model.model[:12]}"
        self.created = int(gateway.wall_s())
        self.runs: list[ChoiceRun] = []
        self._told = False

    @property
    def prompt_tokens(self) -> int:
        return sum(len(each.tokens) for each in self.ready)

    def tally(self) -> list[Tally]:
        return [run.tally for run in self.runs]

    def prompt_of(self, index: int) -> Ready:
        """Of choice `index`."""
        return self.ready[index // self.call.writing.choices]

    async def steps(self) -> AsyncGenerator[Step, None]:
        """Of all choices as they come. MainspringError where one breaks: all are taken back."""
        try:
            async with aclosing(merged([run.steps() for run in self.runs])) as steps:
                async for step in steps:
                    yield step
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Leases that are open are taken back; what was written is counted, once."""
        for run in self.runs:
            await run.aclose()
        if self._told:
            return
        self._told = True
        gateway, key = self._gateway, self._gateway.keys.named(self.call.terms.tenant)
        gateway.counts.streams -= len(self.runs)
        for index, tally in enumerate(self.tally()):
            prompt = len(self.prompt_of(index).tokens)
            gateway.ledger.spend(key, tally.tokens, gateway.wall_s())
            gateway.counts.wrote(prompt, tally.cached, tally.tokens, tally.rounds, tally.drafted, tally.accepted)
            for length, number in enumerate(tally.histogram, 1):
                gateway.counts.lengths[length] += number
            if tally.first_s is not None:
                gateway.metrics.wrote(self.call.terms.slo, tally.first_s - tally.began_s, tally.token_s)
        first = [tally.first_s - tally.began_s for tally in self.tally() if tally.first_s is not None]
        self.stages.fleet_s = max(first, default=0.0)
        self.stages.queue_s = max((tally.queue_s for tally in self.tally()), default=0.0)
        self.stages.cached_tokens = sum(tally.cached for tally in self.tally())


async def begin(gateway: Gateway, call: GenerateCall) -> Begun:
    """MainspringError: the caller's, the router's or the gateway's own."""
    most = gateway.config.limits.choices
    wanted = call.writing.choices * len(call.prompts)
    if wanted > most:
        raise ValidationError(f"limits.choices: at most {most} replies a request", param="n", limit=most, actual=wanted)
    model = await gateway.find(call.model)
    bundle = (await gateway.catalogue.assembler(model.bundle)).bundle
    if gateway.config.checkpoint_sampling:
        call = msgspec.structs.replace(call, writing=with_defaults(call.writing, bundle.files.sampling))
    writing = call.writing
    stages, salt = Stages(), gateway.keys.salt(call.terms.tenant)
    held = min(model.limits.context_tokens, model.limits.stream_tokens)
    context = min(held, bundle.files.context_tokens or held)

    def made() -> list[Ready]:
        return make_ready(bundle, call, context, gateway.config.limits.reply_tokens, salt)

    ready = await gateway.timed(made, stages, on_loop=0 < call.size <= SMALL_BYTES)
    if call.terms.ready is not None:
        call.terms.ready()  # it stood in line since its body was there, and writes for minutes from here on
    begun = Begun(gateway, call, model, ready, stages)
    key = gateway.keys.named(call.terms.tenant)
    charged = begun.prompt_tokens * writing.choices
    gateway.ledger.charge(key, charged, gateway.wall_s())
    try:
        began_s = gateway.now_s()
        leases = await _opened(gateway, begun, model.model, salt, began_s)
    except BaseException:
        gateway.ledger.give_back(key, charged, gateway.wall_s())
        raise
    stages.predicted_s = max(lease.predicted_s for lease in leases)
    begun.runs = [
        ChoiceRun(index, lease, begun.prompt_of(index).reply(writing), gateway.now_s, began_s)
        for index, lease in enumerate(leases)
    ]
    gateway.counts.streams += len(begun.runs)
    return begun


async def _opened(gateway: Gateway, begun: Begun, model: str, salt: bytes, now_s: float) -> list[Lease]:
    """All or none."""
    call = begun.call
    name = f"{call.terms.request_id[:100]}.{secrets.token_hex(4)}"
    submits = [
        submit_of(call, begun.prompt_of(index), model, index % call.writing.choices, f"{name}.{index}", salt, now_s)
        for index in range(call.writing.choices * len(begun.ready))
    ]
    if len(submits) == 1:
        return [await open_lease(gateway, submits[0])]
    tasks = [asyncio.create_task(open_lease(gateway, submit)) for submit in submits]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        await _taken_back(tasks)
        raise
    finally:
        tasks.clear()  # a refusal's traceback holds this frame: with the task in it that would be a ring


async def _taken_back(tasks: "Sequence[asyncio.Task[Lease]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)  # without raising what they raised, which would add this frame to it
    for task in tasks:
        if not task.cancelled() and task.exception() is None:
            await task.result().aclose()


def submit_of(
    call: GenerateCall, ready: Ready, model: str, number: int, name: str, salt: bytes, now_s: float
) -> m.Submit:
    """Choice `number` of one prompt. DeadlineError."""
    writing, left_s = call.writing, _left(call.terms, now_s)
    sampling = msgspec.structs.replace(
        writing.sampling, seed=seed_of(writing.sampling.seed or 0, number),
        stop_ids=tuple(dict.fromkeys((*ends_of(ready.bundle, writing), *writing.stop_ids))),
    )  # fmt: skip
    return m.Submit(
        request=name, model=model, slo=call.terms.slo, view_tokens=np.ascontiguousarray(ready.tokens, "<u4").tobytes(),
        max_tokens=ready.max_tokens, prefix_keys=ready.keys, sampling=sampling, trace=call.terms.trace,
        salt=hashlib.blake2b(b"prompts", digest_size=16, key=salt).hexdigest(), deadline_s=left_s,
    )  # fmt: skip


def seed_of(seed: int, number: int) -> int:
    """The first choice has the caller's own, each other one that has nothing to do with its neighbours'."""
    if not number:
        return seed
    digest = hashlib.blake2b(f"{seed} {number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 11


def _left(terms: Terms, now_s: float) -> float | None:
    if terms.due_s is None:
        return None
    if terms.due_s <= now_s:
        raise DeadlineError("the deadline passed while the request was read", retry_after_s=None)
    return min(terms.due_s - now_s, MOST_DEADLINE_S)


async def merged(sources: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """What comes from any of them, one item of each looked for at a time: a slow reader holds all of them back. They
    are closed at the end."""
    tasks = {asyncio.ensure_future(_next(source)): source for source in sources}
    done: set[asyncio.Task[tuple[T, ...]]] = set()
    task: asyncio.Task[tuple[T, ...]] | None = None
    try:
        while tasks:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                source = tasks.pop(task)
                found = task.result()
                if found:
                    yield found[0]
                    tasks[asyncio.ensure_future(_next(source))] = source
    finally:
        for other in tasks:
            other.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for source in sources:
            await source.aclose()
        tasks.clear()
        done.clear()
        task = None  # a fault's traceback holds this frame


async def _next(source: AsyncGenerator[T, None]) -> tuple[T, ...]:
    """Empty after the last."""
    try:
        return (await anext(source),)
    except StopAsyncIteration:
        return ()
