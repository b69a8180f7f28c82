"""One lease as the gateway sees it: taken or refused before anything is said to the client, then its messages."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import cast

from mainspring.fleet.errors import LinkLostError, RequestRefusedError
from mainspring.gateway.service import Gateway
from mainspring.wire import messages as m

Message = m.Rounds | m.LeaseEnded
FIELDS = {"grammar": "response_format.json_schema.schema", "stop_ids": "stop_token_ids"}
"""What nodes call a field -> what it is in a request."""


class Lease:
    """Made by `open_lease`. Iterate to the end or `aclose`, which takes it back. `predicted_s`: to its first token, as
    the router promised."""

    def __init__(self, gateway: Gateway, messages: AsyncGenerator[Message, None]) -> None:
        self._gateway, self._messages = gateway, messages
        self._first: asyncio.Task[Message] | None = None
        self.predicted_s = 0.0
        self.accepted = asyncio.Event()

    async def taken(self) -> None:
        """Until the router took it or its first message is there. MainspringError: it was refused."""
        first = asyncio.ensure_future(self._next())
        waiting = asyncio.ensure_future(self.accepted.wait())
        self._first = first
        try:
            await asyncio.wait((first, waiting), return_when=asyncio.FIRST_COMPLETED)
            if first.done() and first.exception() is not None:
                self._first = None
                first.result()
        finally:
            waiting.cancel()
            del first  # a refusal's traceback holds this frame: with its task in it that would be a ring

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        """MainspringError where it broke."""
        if self._first is not None:
            first, self._first = self._first, None
            try:
                return await first
            except asyncio.CancelledError:
                await _end(first)
                raise
        return await self._next()

    async def _next(self) -> Message:
        try:
            return await anext(self._messages)
        except StopAsyncIteration:
            raise LinkLostError("the stream ended without an end") from None
        except RequestRefusedError as error:
            raise self._gateway.told(named(error)) from None
        except LinkLostError as error:
            raise self._gateway.told(error) from None

    async def aclose(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            await _end(first)
        await self._messages.aclose()


def named(error: RequestRefusedError) -> RequestRefusedError:
    """The field as callers know it, where a node named its own."""
    if error.param is None:
        return error
    field = error.param.removeprefix("sampling.")
    return RequestRefusedError(
        error.code, error.message, status=error.status, retry_after_s=error.retry_after_s,
        param=FIELDS.get(field, field),
    )  # fmt: skip


async def open_lease(gateway: Gateway, submit: m.Submit) -> Lease:
    """MainspringError where it is refused."""

    def accepted(predicted_s: float) -> None:
        lease.predicted_s = predicted_s
        lease.accepted.set()

    messages = gateway.fleet.generate(submit, accepted, within_s=gateway.config.limits.request_s)
    lease = Lease(gateway, cast(AsyncGenerator[Message, None], messages))
    try:
        await lease.taken()
    except BaseException:
        await lease.aclose()
        raise
    return lease


async def _end(task: "asyncio.Task[Message]") -> None:
    """Without a word of what it died of."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()
