"""`FleetClient`: what gateways and tests use. One link kept alive, many requests on it.

    async with FleetClient.of(Path("pki/client-gate"), "router.example", 7300) as fleet:
        result = await fleet.score(submit)                 # Result, or the typed error of its refusal
        async for message in fleet.generate(submit): ...   # Rounds, then LeaseEnded
        data = await fleet.bundle(hash)                    # packed bytes, checked
        status = await fleet.status()

Cancelling the task cancels the request. A lost link fails what was open with `LinkLostError` (nothing is sent twice by
itself) and is dialled again with backoff; what is asked meanwhile waits `connect_s` for it.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from mainspring.errors import MainspringError
from mainspring.faultlog import log_fault
from mainspring.fleet import clock
from mainspring.fleet.bundles import BundleCache, Fetching, Packed
from mainspring.fleet.client_link import Asked, ClientLink
from mainspring.fleet.errors import RETRY_S, BundleError, FleetTimeoutError, LinkLostError, RequestRefusedError
from mainspring.wire import messages as m
from mainspring.wire.dial import Choice, Dialer
from mainspring.wire.errors import HOPELESS, Close, LimitError
from mainspring.wire.keyring import Keyring
from mainspring.wire.transport import Accept, Connection

log = logging.getLogger("mainspring.fleet")

FIRST_S, LONGEST_S, STEADY_S = 0.2, 30.0, 60.0
CONNECT_S = 5.0
STATUS_S, BUNDLE_S, ANSWER_S = 10.0, 180.0, 3600.0
"""What is waited for an answer of a router that lives: one that is gone is noticed within its idle timeout."""
LINGER_S = 2.0
"""A closed connection's last words get so long."""


class Dials(Protocol):
    """A transport, or a choice of them (`wire.dial.Dialer`)."""

    async def dial(self, host: str, port: int, accept: Accept) -> Connection: ...


class FleetClient:
    """`name` is the certificate's; `instance` tells this process from its successors. Use within one event loop."""

    def __init__(
        self, dialer: Dials, host: str, port: int, *, name: str, instance: int | None = None,
        bundles: BundleCache | None = None, connect_s: float = CONNECT_S,
        now_s: Callable[[], float] = clock.now_s, chance: Callable[[], float] = random.random,
    ) -> None:  # fmt: skip
        self._dialer, self._host, self._port = dialer, host, port
        self._hello = m.Hello(
            role="client", name=name, instance=random.getrandbits(52) if instance is None else instance
        )
        self._bundles = bundles or BundleCache()
        self._connect_s, self._now_s, self._chance = connect_s, now_s, chance
        self._link: ClientLink | None = None
        self._up = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._fetches: dict[str, asyncio.Task[bytes]] = {}
        self._why = "it was never connected"

    @classmethod
    def of(
        cls, folder: Path, host: str, port: int, *, transport: Choice = "auto", bundles: BundleCache | None = None,
        connect_s: float = CONNECT_S,
    ) -> "FleetClient":  # fmt: skip
        """With the certificate in `folder`, as `mainspring pki issue client NAME` writes it. PkiError."""
        name = Keyring(folder).trust.own.name
        return cls(Dialer.of(folder, transport), host, port, name=name, bundles=bundles, connect_s=connect_s)

    @property
    def connected(self) -> bool:
        return self._up.is_set()

    @property
    def draining(self) -> bool:
        """The router said that it is shutting down."""
        return self._link is not None and self._link.draining

    async def __aenter__(self) -> "FleetClient":
        self._keeper = asyncio.create_task(self._keep(), name="fleet client")
        return self

    async def __aexit__(self, *_error: object) -> None:
        """What is open fails with LinkLostError."""
        link, keeper = self._link, self._keeper
        for fetch in self._fetches.values():
            fetch.cancel()
        if keeper is not None:
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper
        if link is not None:
            link.close(Close.GOODBYE, "the client is done")
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await link.gone.wait()
        self._keeper = self._link = None
        self._up.clear()

    # -------------------------------------------------------------- asking

    async def score(
        self, submit: m.Submit, accepted: Callable[[float], None] | None = None, *, within_s: float = ANSWER_S
    ) -> m.Result:
        """`accepted(predicted_s)` is called when the router took it. RequestRefusedError, LinkLostError,
        FleetTimeoutError; what `accepted` raises."""
        async with _limit(within_s, "a score"), await self._ask(submit, accepted or _ignored) as asked:
            async for message in asked:
                if isinstance(message, m.Result):
                    return message
                if isinstance(message, m.Refused):
                    raise refusal(message)
        raise LinkLostError("the stream ended without an answer")

    async def generate(
        self, submit: m.Submit, accepted: Callable[[float], None] | None = None, *, within_s: float = ANSWER_S
    ) -> AsyncIterator[m.Rounds | m.LeaseEnded]:
        """Tokens as they are accepted, then how it ended. RequestRefusedError, LinkLostError, FleetTimeoutError (after
        `within_s` without a message): at any time. Leaving the loop early cancels; close the iterator
        (`contextlib.aclosing`) where it may be left by an exception."""
        async with await self._ask(submit) as asked:
            while (message := await _next(asked, within_s)) is not None:
                if isinstance(message, m.Rounds | m.LeaseEnded):
                    yield message
                elif isinstance(message, m.Refused):
                    raise refusal(message)
                elif isinstance(message, m.Accepted) and accepted is not None:
                    accepted(message.predicted_s)

    async def status(self, passes: int = 0, *, within_s: float = STATUS_S) -> m.Status:
        """Everything a dashboard shows, as the router knows it now. LinkLostError, FleetTimeoutError;
        RequestRefusedError where the router could not tell."""
        async with _limit(within_s, "a status"), await self._ask(m.AskStatus(passes=passes)) as asked:
            async for message in asked:
                if isinstance(message, m.Status) and message.fault:
                    raise RequestRefusedError("internal", f"no status: {message.fault}", status=500)
                if isinstance(message, m.Status):
                    return message
        raise LinkLostError("the stream ended without an answer")

    async def bundle(self, name: str, *, within_s: float = BUNDLE_S) -> bytes:
        """The packed bundle with this hash, from the cache or the router. BundleError, LinkLostError,
        FleetTimeoutError.

        Nothing is kept or given out but bytes that unpack to that hash: after a BundleError the next call asks again.
        Whoever asks meanwhile shares the fetch, and waits for as long as he said himself."""
        packed = self._bundles.peek(name)
        if packed is not None:
            return packed.data
        fetch = self._fetches.get(name)
        if fetch is None:
            fetch = self._fetches[name] = asyncio.create_task(self._fetch(name, max(within_s, BUNDLE_S)))
            fetch.add_done_callback(lambda task: self._fetched(name, task))
        try:
            async with _limit(within_s, "a bundle"):
                return await asyncio.shield(fetch)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not fetch.cancelled() or (task is not None and task.cancelling()):
                raise
            raise LinkLostError("the client was closed before the bundle had come") from None

    def forget_bundle(self, name: str) -> None:
        """What was kept under this hash is of no use after all: the next call fetches it."""
        self._bundles.forget(name)

    def _fetched(self, name: str, task: "asyncio.Task[bytes]") -> None:
        del self._fetches[name]
        if not task.cancelled():
            task.exception()  # looked at, though nobody may wait for it any more

    async def _fetch(self, name: str, within_s: float) -> bytes:
        packed = await asyncio.to_thread(self._bundles.load, name)
        if packed is None:
            async with _limit(within_s, "a bundle"):
                packed = await self._receive(name)
        self._bundles.keep(name, packed)
        return packed.data

    async def _receive(self, name: str) -> Packed:
        fetching = Fetching(name)
        async with await self._ask(m.FetchBundle(bundle=name)) as asked:
            async for message in asked:
                if isinstance(message, m.BundleData):
                    fetching.take(message)
                elif isinstance(message, m.BundleEnd):
                    data, size, sha256 = fetching.finish(message), message.size, message.sha256
                    try:
                        return await asyncio.to_thread(self._bundles.admit, name, data, size=size, sha256=sha256)
                    except OSError as error:
                        raise BundleError(f"the bundle can't be checked here now: {error}") from error
        raise BundleError("the stream ended before the bundle did")

    async def _ask(
        self, message: m.Submit | m.AskStatus | m.FetchBundle, accepted: Callable[[float], None] | None = None
    ) -> Asked:
        if self._keeper is None:
            raise LinkLostError("the client is not open")
        if not self._up.is_set():
            await self._wait()
        assert self._link is not None  # noqa: S101 - `_up` says so
        try:
            return self._link.ask(message, accepted)
        except LimitError as error:
            raise RequestRefusedError("too_many_open", error.message, status=429, retry_after_s=RETRY_S) from None

    async def _wait(self) -> None:
        """For a link that is dialled again."""
        try:
            async with asyncio.timeout(self._connect_s):
                await self._up.wait()
        except TimeoutError:
            raise LinkLostError(
                f"no link to {self._host}:{self._port} within {self._connect_s:g} s: {self._why}"
            ) from None

    # -------------------------------------------------------------- the link

    async def _keep(self) -> None:
        """Dial, live, wait, dial again: full jitter, doubled per failure, from the start after a minute that lasted."""
        bound_s = FIRST_S
        while True:
            began_s = self._now_s()
            close = await self._live()
            if self._now_s() - began_s > STEADY_S:
                bound_s = FIRST_S
            if close in HOPELESS:
                bound_s = LONGEST_S
            delay_s = bound_s * self._chance()
            log.info("router %s:%d: %s; dialling again in %.1f s", self._host, self._port, self._why, delay_s)
            await asyncio.sleep(delay_s)
            bound_s = min(LONGEST_S, 2.0 * bound_s)

    async def _live(self) -> Close | None:
        """One link from dialling to its end; how it ended."""

        def joined() -> None:
            self._link = link
            self._up.set()

        link = ClientLink(self._hello, self._now_s, joined)
        try:
            await self._dialer.dial(self._host, self._port, link.accept)
        except (ConnectionError, MainspringError) as error:
            self._why = str(error)
            return getattr(error, "close", None)
        except Exception as error:
            log_fault(log, error, "dialling %s:%d went wrong", self._host, self._port)
            self._why = type(error).__name__
            return None
        try:
            closed = await link.closed
        finally:
            self._up.clear()
        self._why = f"{closed.close.name.lower()} {closed.message}".strip()
        return closed.close


def _ignored(_predicted_s: float) -> None:
    """Who does not want to know."""


def refusal(message: m.Refused) -> RequestRefusedError:
    return RequestRefusedError(
        message.code, message.message, status=message.status, retry_after_s=message.retry_after_s, param=message.param
    )


@asynccontextmanager
async def _limit(within_s: float, what: str) -> AsyncIterator[None]:
    """FleetTimeoutError after `within_s`; what was asked is cancelled by leaving it."""
    try:
        async with asyncio.timeout(within_s) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise FleetTimeoutError(f"the router did not answer {what} within {within_s:g} s") from None


async def _next(asked: Asked, within_s: float) -> m.Message | None:
    """None after the last."""
    async with _limit(within_s, "a generation"):
        return await anext(asked, None)
