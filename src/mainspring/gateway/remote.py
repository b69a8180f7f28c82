"""`mainspring gateway`: one more gateway process in front of a router elsewhere."""

from collections.abc import Callable
from pathlib import Path

from mainspring.fleet.bundles import BundleCache
from mainspring.fleet.client import FleetClient
from mainspring.fleet.config import address_of
from mainspring.fleet.errors import ConfigError
from mainspring.gateway.config import GatewayConfig
from mainspring.gateway.keys import Keys
from mainspring.gateway.server import HttpServer
from mainspring.gateway.service import Gateway


async def serve(config: GatewayConfig, listening: Callable[[str, int], None]) -> None:
    """Until stopped. It listens at once and is ready when the router has a node. ConfigError, PkiError."""
    if not config.tls:
        raise ConfigError("a client's certificate is needed: `mainspring pki issue client NAME`", param="gateway.tls")
    host, port = address_of(config.router, "gateway.router")
    keys = Keys.read(Path(config.keys)) if config.keys else Keys.none()
    bundles = BundleCache()
    client = FleetClient.of(Path(config.tls), host, port, transport=config.transport, bundles=bundles)
    try:
        async with client, Gateway(config, client, keys) as gateway:
            await HttpServer(gateway, listening).run()
    finally:
        bundles.stop()  # a thread that waits for a bundle's check would keep the process
