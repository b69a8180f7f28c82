"""What `mainspring node --join HOST:PORT` runs: engine, probe, membership, signals.

Opens the bundle and the engine, has itself probed, then keeps one link alive through `home`. SIGTERM and SIGINT drain:
no new pass is taken, held ones run, `Goodbye`, exit 0; a second signal ends it at once. Owns the process: logging and
exit codes.
"""

import asyncio
import logging
import secrets
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mainspring.errors import InputError
from mainspring.faultlog import set_up
from mainspring.node import clock
from mainspring.node.config import NodeConfig
from mainspring.node.health import Health
from mainspring.node.home import Ended, Home
from mainspring.node.membership import Membership
from mainspring.node.opening import Opened, open_node
from mainspring.node.runner import Runner, ThreadWorker
from mainspring.node.scheduler import Scheduler
from mainspring.node.views import Views
from mainspring.version import __version__
from mainspring.wire import messages as m
from mainspring.wire.dial import Dialer
from mainspring.wire.keyring import Keyring

log = logging.getLogger(__name__)
KEEP_S = 5.0
"""How often it is looked whether the constants are whole by now."""


def run(config: NodeConfig) -> None:
    """Blocks until a signal. ModelError, PkiError, InputError where the node can't start."""
    set_up(sys.stderr)
    asyncio.run(serve(config))


async def serve(config: NodeConfig) -> None:
    """A running loop's whole node."""
    own = Keyring(Path(config.tls)).trust.own
    if own.role != "node":
        raise InputError(f"the certificate in {config.tls} is for a {own.role}, not for a node", param="tls")
    loop = asyncio.get_running_loop()
    device = ThreadPoolExecutor(1, "device")
    try:
        opened = await loop.run_in_executor(device, open_node, config, clock.now_s)
        await _serve(config, own.name, opened, device)
    finally:
        device.shutdown(wait=True, cancel_futures=True)


async def _serve(config: NodeConfig, name: str, opened: Opened, device: ThreadPoolExecutor) -> None:
    loop = asyncio.get_running_loop()
    limits = opened.engine.backend.limits
    writes = opened.generating
    scheduler = Scheduler(
        name, limits, Views(opened.engine.store), opened.probe, Health(clock.now_s()),
        None if writes is None else writes.writing, None if writes is None else writes.fit,
    )  # fmt: skip
    worker = ThreadWorker(
        opened.engine, device, clock.now_s, loop.call_soon_threadsafe, None if writes is None else writes.writer
    )
    call_later = clock.coarse(loop.call_later)
    runner = Runner(scheduler, worker, clock.now_s, call_later)
    hello = m.Hello(role="node", name=name, instance=secrets.randbits(53), build=__version__)

    def member(ended: Ended) -> Membership:
        return Membership(hello, opened.offering, runner, clock.now_s, call_later, ended)

    dialer = Dialer.of(Path(config.tls), config.transport, server_name=config.server_name)
    home = Home(dialer, config.address, member)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, home.leave, config.drain_s, f"told to stop ({number.name})")
    log.info("node %s, model %s, joining %s", name, opened.offering.model[:12], config.join)
    keeper = asyncio.create_task(_keep_constants(opened, config.state_folder))
    try:
        runner.turn()
        await home.run()
    finally:
        keeper.cancel()
        await loop.run_in_executor(device, opened.close)
    log.info("node %s has left", name)


async def _keep_constants(opened: Opened, folder: Path | None) -> None:
    while not opened.kept and folder is not None:
        opened.keep_constants(folder)
        await asyncio.sleep(KEEP_S)
