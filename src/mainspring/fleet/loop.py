"""The event loop of a process that serves: router, gateway, both."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import suppress

GC_EVERY = (2_000, 50, 20)
"""New objects, and collections of each generation before the next: of Python's 700, 10, 10. The loop stands still for
each: 11 to 16 ms at 20,000 objects, which nothing else had touched lately, a millisecond at these."""
SETTLED_S = 30.0
"""After the start, what is there by then is there for good."""


def run(main: Callable[[], Coroutine[None, None, None]]) -> None:
    """uvloop's where there is one. A request makes thousands of small objects that are gone with it, hardly any in
    cycles: the collector looks less often, and never again at what is there already."""
    gc.freeze()
    gc.set_threshold(*GC_EVERY)
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):  # not made for Windows
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop().call_later(SETTLED_S, gc.freeze)
        runner.run(main())
