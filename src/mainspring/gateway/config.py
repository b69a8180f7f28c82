"""The `[gateway]` table and its flags: one frozen record, validated once, printed at start.

Errors name file, table and key; relative paths are the file's. The rest of such a file is the router's
(`fleet/config.py`), which leaves this table alone. Nothing reads the environment later.
"""

import ipaddress
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from mainspring.fleet.errors import ConfigError
from mainspring.wire.dial import Choice
from mainspring.wire.records import Name

DEFAULT_PORT = 8000
Seconds = Annotated[float, Meta(ge=0.0, le=86_400.0)]
Positive = Annotated[int, Meta(ge=1, le=1 << 31)]


class GatewayLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Each is named in the refusal that it causes. Sizes in MiB and KiB, times in seconds."""

    body_mib: Annotated[int, Meta(ge=1, le=1024)] = 20
    header_kib: Annotated[int, Meta(ge=1, le=1024)] = 32
    headers: Annotated[int, Meta(ge=8, le=1000)] = 100
    header_s: Annotated[float, Meta(gt=0.0, le=600.0)] = 10.0
    body_s: Annotated[float, Meta(gt=0.0, le=3600.0)] = 30.0
    request_s: Annotated[float, Meta(gt=0.0, le=86_400.0)] = 600.0
    keep_alive_s: Annotated[int, Meta(ge=1, le=3600)] = 75
    connections: Positive = 2048
    concurrent: Positive = 1024
    tenant_concurrent: Positive = 512
    buffered_mib: Annotated[int, Meta(ge=1, le=1 << 20)] = 512
    assembling: Positive = 256
    threads: Annotated[int, Meta(ge=1, le=64)] = 2
    late_s: Annotated[float, Meta(gt=0.0, le=60.0)] = 0.05
    line_s: Annotated[float, Meta(gt=0.0, le=600.0)] = 0.25
    behaviors: Positive = 16_384
    items: Positive = 2048
    choices: Annotated[int, Meta(ge=1, le=128)] = 16
    reply_tokens: Positive = 4096
    listeners: Annotated[int, Meta(ge=0, le=10_000)] = 32
    idempotent: Annotated[int, Meta(ge=0, le=1 << 20)] = 1024
    idempotent_s: Annotated[float, Meta(gt=0.0, le=86_400.0)] = 600.0


class GatewayConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`keys`: the key file, "" for none. `hosts`: what `Host` may say beside the bind address and loopback names, "*"
    for anything. `cors`: allowed origins. `default_class`, `default_model` ("" where the router knows but one): for
    requests that name none. `checkpoint_sampling`: where a request does not say how tokens are chosen, a checkpoint's
    own word comes before the API's defaults. `router` HOST:PORT and `tls`, the folder of a client's certificate: where
    `mainspring gateway` dials; `transport` how. `share`: of every key's rate and quota, where several gateways serve
    one router."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = DEFAULT_PORT
    router: str = "127.0.0.1:7300"
    tls: str = ""
    transport: Choice = "auto"
    keys: str = ""
    hosts: tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...] = ()
    cors: tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...] = ()
    default_class: Name = "standard"
    default_model: Annotated[str, Meta(max_length=128)] = ""
    checkpoint_sampling: bool = True
    drain_s: Seconds = 30.0
    ready_s: Annotated[float, Meta(gt=0.0, le=3600.0)] = 60.0
    share: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    limits: GatewayLimits = GatewayLimits()

    def resolved(self) -> str:
        """For people and logs: JSON of the whole table. There are no secrets in it."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def read_gateway_config(path: Path | None, **flags: Any) -> GatewayConfig:
    """`flags`: key to a value, over the file's; None leaves the file's. ConfigError."""
    where = str(path) if path is not None else "flags"
    table: Any = {}
    if path is not None:
        try:
            table = tomllib.loads(path.read_text("utf-8")).get("gateway", {})
        except OSError as error:
            raise ConfigError(f"can't be read: {error.strerror or error}", param=where) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"is not TOML: {error}", param=where) from None
        for key in ("keys", "tls") if isinstance(table, dict) else ():
            if isinstance(table.get(key), str) and table[key]:
                table[key] = str(path.parent / table[key])
    if not isinstance(table, dict):
        raise ConfigError("is a table", param=f"{where}: gateway")
    table |= {key: value for key, value in flags.items() if value is not None}
    try:
        config = msgspec.convert(table, GatewayConfig)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise ConfigError(
            f"{message[:1].lower()}{message[1:]}", param=f"{where}: gateway{place.strip('`').replace('...', '')}"
        ) from None
    if not config.keys and not config.is_loopback:
        raise ConfigError(
            "anybody could use it: an address that is not loopback needs a key file (`mainspring keys add`)",
            param="gateway.host",
        )
    return config
