"""`Gateway`: the one object behind every route. Owns catalogue, pool, limits and counters; knows no HTTP.

    async with Gateway(config, fleet, keys, now_s) as gateway:
        scored = await gateway.score(call)

Cancelling the task that awaits takes the request back from the router.
"""

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from mainspring.core.nouns import Limits
from mainspring.core.refusals import DeadlineError
from mainspring.errors import MainspringError, TooLargeError
from mainspring.faultlog import log_fault
from mainspring.fleet import clock
from mainspring.fleet.errors import LinkLostError, RequestRefusedError
from mainspring.gateway.assemble import SUBMIT_BYTES, Assembled, Assembler, Prepared, too_many_bytes
from mainspring.gateway.beat import Beat
from mainspring.gateway.calls import Answered, Asking, Fleet, ScoreCall, Scored, Stages, Terms
from mainspring.gateway.catalogue import RETRY_S, Catalogue
from mainspring.gateway.config import GatewayConfig
from mainspring.gateway.counts import Counts
from mainspring.gateway.errors import NoRouterError, TimedOutError
from mainspring.gateway.idempotency import Shared, is_kept
from mainspring.gateway.keys import Keys
from mainspring.gateway.limits import Ledger
from mainspring.gateway.metrics import Metrics
from mainspring.gateway.pool import Pool
from mainspring.gateway.pressure import Pressure
from mainspring.gateway.speed import TextSpeed
from mainspring.gateway.turnstile import Turnstile
from mainspring.version import __version__
from mainspring.wire import messages as m

log = logging.getLogger("mainspring.gateway")

POLL_S = 1.0
POLL_TIMEOUT_S = 5.0
PASSES = 200
STALE_S = 10.0
FETCH_S = 0.01
"""A bundle that took longer was not at hand."""
SMALL_BYTES = 256 << 10
F32 = npt.NDArray[np.float32]
T = TypeVar("T")


class Gateway:
    """Use within one event loop. `closing` is set when a drain begins, `router` what the router last said of itself."""

    def __init__(
        self, config: GatewayConfig, fleet: Fleet, keys: Keys | None = None, now_s: Callable[[], float] = clock.now_s,
        wall_s: Callable[[], float] = time.time, cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:  # fmt: skip
        self.config, self.fleet, self.now_s, self.wall_s, self.cpu_s = config, fleet, now_s, wall_s, cpu_s
        self.keys = keys or Keys.none()
        limits = config.limits
        self.pool = Pool(limits.threads, limits.assembling)
        self.catalogue = Catalogue(fleet.bundle, self.pool, config.default_model)
        self.shared: Shared[tuple[bytes, Stages]] = Shared(limits.idempotent, limits.idempotent_s, now_s, kept=is_kept)
        self.ledger = Ledger(limits.tenant_concurrent, config.share)
        self.pressure = Pressure(limits.late_s, limits.line_s)
        self.turnstile = Turnstile()
        self.speed = TextSpeed()
        self.beat = Beat(self.pressure, now_s)
        self.counts = Counts(now_s())
        self.metrics = Metrics(self.counts, self._told_of_nodes, self.pressure, self.catalogue.kept_bytes)
        self.closing = asyncio.Event()
        self.router: m.Status | None = None
        self.version = __version__
        self._heard_s = float("-inf")
        self._poller: asyncio.Task[None] | None = None
        self._polled = asyncio.Event()

    async def __aenter__(self) -> "Gateway":
        self._poller = asyncio.create_task(self._poll(), name="router status")
        self.beat.start()
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._poller is not None:
            self._poller.cancel()
            with suppress(asyncio.CancelledError):
                await self._poller
        self.beat.stop()
        self.catalogue.close()
        self.pool.close()

    # -------------------------------------------------------------- what is known

    def router_age_s(self) -> float:
        """Since the router last told of itself; infinite when it never did."""
        return self.now_s() - self._heard_s

    def ready(self) -> tuple[bool, str]:
        """Whether a pass or canary ended well lately on a usable node; else why not."""
        if self.closing.is_set():
            return False, "draining"
        if self.router is None or self.router_age_s() > STALE_S:
            return False, "no_router"
        if self.router.draining:
            return False, "router_draining"
        usable = [node for node in self.router.nodes if node.state in ("ready", "busy")]
        if not usable:
            return False, "no_node"
        if min(node.idle_s for node in usable) + self.router_age_s() > self.config.ready_s:
            return False, "no_recent_pass"
        return True, "ready"

    def _told_of_nodes(self) -> tuple[bool, Counter[str]]:
        nodes = () if self.router is None else self.router.nodes
        return self.ready()[0], Counter(str(node.state) for node in nodes)

    def class_names(self) -> tuple[str, ...]:
        """Highest priority first; empty before the router was heard."""
        classes = () if self.router is None else self.router.classes
        return tuple(each.name for each in sorted(classes, key=lambda each: -each.priority))

    # -------------------------------------------------------------- asking

    async def score(self, call: ScoreCall) -> Scored:
        """MainspringError: the caller's, the router's or the gateway's own."""
        model = await self.find(call.model)
        assembler = await self._assembler(model.bundle)
        stages = Stages()
        made = await self._assembled(assembler, call, model.limits, stages)
        branches = made.branches
        lengths, tokens, label_counts, label_ids = branches.sent
        submit = m.Submit(
            request=call.terms.request_id, model=model.model, slo=call.terms.slo, view_key=made.view_key,
            view_tokens=made.tokens, branch_lengths=lengths, branch_tokens=tokens, label_counts=label_counts,
            label_ids=label_ids, trace=call.terms.trace,
        )  # fmt: skip
        logits = await self._submit(submit, call.terms, stages, made.input_tokens)
        near = await self.pool.run(lambda: assembler.near(branches)) if call.want_familiarity else None
        return Scored(
            model=call.model or self.catalogue.label(model),
            rows=tuple(assembler.rows(call.questions, branches, logits)),
            input_tokens=made.input_tokens,
            view_tokens=len(made.view.tokens),
            notes=made.notes,
            stages=stages,
            format=made.format,
            view=made.view if call.want_view else None,
            familiarity=near,
        )

    async def _assembled(self, assembler: Assembler, call: ScoreCall, limits: Limits, stages: Stages) -> Assembled:
        """Python's part of a small call stays on the loop: on a thread it would hold the interpreter just as long, and
        the loop would wait up to a switch interval (5 ms) after each of its system calls. So does the tokenizer where
        that is quick (`speed`); it lets go of the interpreter, and longer texts go to the pool, as do large calls and
        questions not seen before as a whole."""
        salt = self.keys.salt(call.terms.tenant)
        if not 0 < call.size <= SMALL_BYTES or not assembler.knows(call):
            return await self._on_pool(lambda: assembler.assemble(call, limits, salt), stages)
        begun_s = self.now_s()
        prepared = assembler.prepare(call, salt)
        stages.text_s = self.now_s() - begun_s
        if not self.speed.is_quick(sum(map(len, prepared.missing))):
            await self._on_pool(lambda: self._encode(assembler, prepared), stages)
        begun_s = self.now_s()
        self._encode(assembler, prepared)
        made = assembler.finish(call, prepared, limits)
        stages.text_s += self.now_s() - begun_s
        return made

    def _encode(self, assembler: Assembler, prepared: Prepared) -> None:
        if prepared.missing:
            chars, before_s = sum(map(len, prepared.missing)), self.cpu_s()
            assembler.encode(prepared)
            self.speed.note(chars, self.cpu_s() - before_s)

    async def timed(self, work: Callable[[], T], stages: Stages, *, on_loop: bool) -> T:
        """Work on text, here where it is short, else on the pool. BusyError; what `work` raises."""
        if not on_loop:
            return await self._on_pool(work, stages)
        begun_s = self.now_s()
        try:
            return work()
        finally:
            stages.text_s += self.now_s() - begun_s

    async def _on_pool(self, work: Callable[[], T], stages: Stages) -> T:
        """Waiting and working add up in `stages`."""
        asked_s = self.now_s()

        def timed() -> T:
            begun_s = self.now_s()
            stages.wait_s += begun_s - asked_s
            try:
                return work()
            finally:
                stages.text_s += self.now_s() - begun_s

        return await self.pool.run(timed)

    async def ask(self, asking: Asking) -> Answered:
        """The same below text: logits of label ids. MainspringError."""
        model = await self.find(asking.model)
        view = _bytes(asking.view)
        size = len(view) + 4 * sum(len(each) for each in (*asking.branches, *asking.labels))
        if size > SUBMIT_BYTES:
            raise too_many_bytes(size)
        longest = len(asking.view) + max(len(branch) for branch in asking.branches)
        context = (await self.catalogue.assembler(model.bundle)).context(model.limits)
        if longest > context:
            raise TooLargeError("tokens of query and item exceed the model's context", limit=context, actual=longest)
        stages = Stages()
        counts = [len(each) for each in asking.labels]
        submit = m.Submit(
            request=asking.terms.request_id, model=model.model, slo=asking.terms.slo, view_tokens=view,
            view_key=hashlib.blake2b(view, digest_size=16, key=self.keys.salt(asking.terms.tenant)).hexdigest(),
            branch_lengths=_bytes(np.array([len(each) for each in asking.branches], np.uint32)),
            branch_tokens=b"".join(_bytes(each) for each in asking.branches),
            label_counts=_bytes(np.array(counts, np.uint32)), label_ids=b"".join(_bytes(x) for x in asking.labels),
            trace=asking.terms.trace,
        )  # fmt: skip
        tokens = asking.tokens
        if tokens is None:
            tokens = len(asking.view) + sum(len(branch) for branch in asking.branches)
        logits = await self._submit(submit, asking.terms, stages, tokens)
        rows = tuple(np.split(logits, np.cumsum(counts)[:-1]))
        return Answered(
            model=asking.model or self.catalogue.label(model), logits=rows, input_tokens=tokens, stages=stages
        )

    def give_back(self, terms: Terms, tokens: int) -> None:
        """What was charged for a part of a request that failed as a whole."""
        self.ledger.give_back(self.keys.named(terms.tenant), tokens, self.wall_s())

    async def assembler_of(self, model: str) -> Assembler:
        """For what has to be tokenised before `ask`."""
        return await self._assembler((await self.find(model)).bundle)

    async def _assembler(self, bundle: str) -> Assembler:
        """Taken for work, the first request's fetch would have its followers refused."""
        begun_s = self.now_s()
        assembler = await self.catalogue.assembler(bundle)
        if self.now_s() - begun_s > FETCH_S:
            self.pressure.waited(self.now_s())
        return assembler

    async def heard(self) -> None:
        """A gateway that has just started waits for the router's first word. NoRouterError."""
        if self.router is None:
            try:
                async with asyncio.timeout(POLL_TIMEOUT_S):
                    await self._polled.wait()
            except TimeoutError:
                raise _no_router() from None

    async def find(self, name: str) -> m.ModelStatus:
        await self.heard()
        return self.catalogue.find(name)

    async def _submit(self, submit: m.Submit, terms: Terms, stages: Stages, tokens: int) -> F32:
        """The quota is charged first and given back where nothing was answered."""
        if terms.ready is not None:
            terms.ready()
        begun_s = self.now_s()
        left_s = None if terms.due_s is None else terms.due_s - begun_s
        if left_s is not None and left_s <= 0.0:
            raise DeadlineError("the deadline passed while the request was read", retry_after_s=None)

        def accepted(predicted_s: float) -> None:
            stages.predicted_s = predicted_s
            if terms.accepted is not None:
                terms.accepted(predicted_s)

        key = self.keys.named(terms.tenant)
        self.ledger.charge(key, tokens, self.wall_s())
        answered = False
        try:
            async with asyncio.timeout(self.config.limits.request_s):
                result = await self.fleet.score(_due(submit, left_s), accepted)
            answered = True
        except TimeoutError:
            raise TimedOutError(f"limits.request_s: no answer within {self.config.limits.request_s:g} s",
                                retry_after_s=RETRY_S, limit=self.config.limits.request_s) from None  # fmt: skip
        except (RequestRefusedError, LinkLostError) as error:
            raise self.told(error) from None
        finally:
            if not answered:
                self.ledger.give_back(key, tokens, self.wall_s())
        stages.fleet_s = self.now_s() - begun_s
        stages.queue_s, stages.device_s, stages.late = result.queue_s, result.device_s, result.late
        stages.cached_tokens, stages.nodes = result.cached_tokens, result.nodes
        self.counts.scored(tokens, result.cached_tokens)
        return m.f32(result.logits)

    def told(self, error: MainspringError) -> MainspringError:
        """A model whose nodes have gone is not unknown; a link that is down is no fault of the request."""
        if error.code == "unknown_model":
            return NoRouterError("no node serves this model now", param="model", retry_after_s=RETRY_S)
        if isinstance(error, LinkLostError) and not self.fleet.connected:
            return _no_router()
        return error

    # -------------------------------------------------------------- the router's word

    async def _poll(self) -> None:
        while True:
            try:
                async with asyncio.timeout(POLL_TIMEOUT_S):
                    told = await self.fleet.status(passes=PASSES)
                self.router, self._heard_s = told, self.now_s()
                self.catalogue.learn(told.models)
                self._polled.set()
            except (MainspringError, TimeoutError) as error:
                log.debug("the router's status can't be had: %s", type(error).__name__)
            except Exception as error:
                log_fault(log, error, "a fault while the router's status was read")
            # Beside the loop: a large file takes seconds.
            if self.keys.required and await asyncio.to_thread(self.keys.refresh, self.now_s()):
                self.ledger.forget(self.keys.names)
            await asyncio.sleep(POLL_S)


def _no_router() -> NoRouterError:
    return NoRouterError("the router can't be reached", retry_after_s=RETRY_S)


def _due(submit: m.Submit, deadline_s: float | None) -> m.Submit:
    """What is left of the deadline counts from when the tokens leave."""
    return submit if deadline_s is None else msgspec.structs.replace(submit, deadline_s=min(deadline_s, 86_400.0))


def _bytes(values: npt.NDArray[np.uint32]) -> bytes:
    return np.ascontiguousarray(values, "<u4").tobytes()
