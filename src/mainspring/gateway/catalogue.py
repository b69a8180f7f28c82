"""Names to models, and an assembler for each bundle.

Learnt from the router's status. A model that was known and is gone has no node now (503), one never heard of is unknown
(404). Bundles are fetched by hash once, whoever asks meanwhile shares the fetch.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from mainspring.core.refusals import UnknownModelError
from mainspring.fleet.errors import BundleError
from mainspring.gateway.assemble import Assembler
from mainspring.gateway.errors import NoRouterError
from mainspring.gateway.pool import Pool
from mainspring.wire import messages as m

MAX_ASSEMBLERS = 8
MAX_KNOWN = 1024
RETRY_S = 5.0
"""A node measures itself for about so long before it joins."""


class Catalogue:
    def __init__(self, fetch: Callable[[str], Awaitable[bytes]], pool: Pool, default_model: str) -> None:
        self._fetch, self._pool, self._default = fetch, pool, default_model
        self._names: dict[str, m.ModelStatus] = {}
        self._known: OrderedDict[str, None] = OrderedDict()
        self._assemblers: OrderedDict[str, asyncio.Task[Assembler]] = OrderedDict()
        self.models: tuple[m.ModelStatus, ...] = ()

    def learn(self, models: tuple[m.ModelStatus, ...]) -> None:
        """Later offers of an alias win, as they do in the router."""
        self.models = models
        self._names = {alias: each for each in models for alias in each.aliases} | {each.model: each for each in models}
        for name in self._names:
            self._known[name] = None
            self._known.move_to_end(name)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def knew(self, name: str) -> bool:
        return name in self._known

    def find(self, name: str) -> m.ModelStatus:
        """UnknownModelError; NoRouterError while nothing is known, or its nodes are gone."""
        wanted = name or self._default
        if not wanted and len(self.models) == 1:
            return self.models[0]
        found = self._names.get(wanted)
        if found is not None:
            return found
        if not self._names or wanted in self._known:
            raise NoRouterError("no node serves a model yet" if not wanted else "no node serves this model now",
                                param="model", retry_after_s=RETRY_S)  # fmt: skip
        message = "no node here offers it" if wanted else "several models are served, one has to be named"
        raise UnknownModelError(message, param="model")

    def label(self, model: m.ModelStatus) -> str:
        """For people."""
        return model.aliases[0] if model.aliases else model.model[:12]

    def kept_bytes(self) -> int:
        """Of turns that came before, all models."""
        done = (task for task in self._assemblers.values() if task.done() and not task.cancelled())
        return sum(task.result().segments.bytes for task in done if task.exception() is None)

    async def assembler(self, bundle: str) -> Assembler:
        """BundleError, ModelError, LinkLostError: the next request tries again."""
        task = self._assemblers.get(bundle)
        if task is None:
            task = self._assemblers[bundle] = asyncio.create_task(self._open(bundle))
            task.add_done_callback(lambda done: self._failed(bundle, done))
            while len(self._assemblers) > MAX_ASSEMBLERS:
                self._assemblers.popitem(last=False)
        self._assemblers.move_to_end(bundle)
        return await asyncio.shield(task)

    async def _open(self, bundle: str) -> Assembler:
        data = await self._fetch(bundle)
        assembler = await self._pool.run(lambda: Assembler.unpack(data))
        if assembler.bundle.hash != bundle:
            raise BundleError("what was fetched is another bundle than was offered")
        return assembler

    def _failed(self, bundle: str, task: "asyncio.Task[Assembler]") -> None:
        if (task.cancelled() or task.exception() is not None) and self._assemblers.get(bundle) is task:
            del self._assemblers[bundle]

    def close(self) -> None:
        for task in self._assemblers.values():
            task.cancel()
