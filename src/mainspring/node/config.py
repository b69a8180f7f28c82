"""The resolved configuration of one node: a frozen record from the `[node]` section of a TOML file and from flags.

Flags win. Read and validated once, printed at start; nothing reads the environment later. Errors name file and key.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from mainspring.errors import InputError
from mainspring.node.probe import BUDGET_S, LONGEST_S
from mainspring.wire.dial import Choice
from mainspring.wire.records import Key, Name

CONFIG_BYTES = 1 << 20


class NodeConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tls` is a folder with cert.pem, key.pem and ca.pem; the node's name stands in the certificate.

    `probe_s` bounds the measuring before the node joins, `probe_pass_s` each pass of it that runs in idle time later.
    `slots`: streams at once, 0 for none, None: four where the device generates. `stream_tokens`: prompt and reply of
    each, at most. `block_rows`: the last token and drafts of one round. `drafter`: for requests that name none, empty:
    the checkpoint's own, else n-gram. `cache_mib`: for kept views, `prefix_mib`: for checkpoints of prompts, None: as
    the device has room (`backend.Limits.kept_bytes`). Checkpoints that there is no room for go to the folder
    `prefix_disk` (empty: nowhere), at most `prefix_disk_gb` of them. `throttle`: so many times slower than the device
    is, for tests and demonstrations. `null_cost`: seconds a pass, a view token, a branch row of the `null`
    device, `null_round` a round, each slot in it, each token of its context, `null_acceptance` the share of its drafts
    that are right. `state` is where measured constants are kept, empty: nowhere.
    """

    join: str
    model: str
    tls: str
    device: Literal["cpu", "cuda", "null"] = "cpu"
    threads: Annotated[int, Meta(ge=1, le=4096)] | None = None
    alias: Name | None = None
    transport: Choice = "auto"
    server_name: str | None = None
    cache_mib: Annotated[int, Meta(ge=0, le=1 << 24)] | None = None
    throttle: Annotated[float, Meta(ge=1.0, le=1000.0)] = 1.0
    probe_s: Annotated[float, Meta(ge=0.0, le=600.0)] = BUDGET_S
    probe_pass_s: Annotated[float, Meta(ge=0.0, le=600.0)] = LONGEST_S
    drain_s: Annotated[float, Meta(ge=0.0, le=3600.0)] = 30.0
    state: str = "~/.cache/mainspring"
    null_cost: tuple[float, float, float] = (2e-3, 2e-6, 1e-5)
    null_round: tuple[float, float, float] = (2e-3, 2e-4, 0.0)
    null_acceptance: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    slots: Annotated[int, Meta(ge=0, le=1024)] | None = None
    stream_tokens: Annotated[int, Meta(ge=32, le=1 << 24)] | None = None
    block_rows: Annotated[int, Meta(ge=1, le=64)] = 8
    drafter: Literal["", "mtp", "ngram", "none"] = ""
    deterministic: bool = False
    prefix_mib: Annotated[int, Meta(ge=0, le=1 << 24)] | None = None
    prefix_disk: str = ""
    prefix_disk_gb: Annotated[float, Meta(gt=0.0, le=1e6)] = 8.0
    labels: Annotated[dict[Key, Key], Meta(max_length=32)] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.join.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)

    @property
    def state_folder(self) -> Path | None:
        return Path(self.state).expanduser() if self.state else None

    def lines(self) -> list[str]:
        """As TOML, for the log; nothing in here is secret."""
        values = msgspec.to_builtins(self)
        return ["[node]", *(f"{key} = {_toml(value)}" for key, value in values.items() if value is not None)]


def resolve(path: Path | None, flags: Mapping[str, Any]) -> NodeConfig:
    """`flags` that are None were not given. InputError names the key at fault; paths in a file are beside it."""
    section: dict[str, Any] = {}
    where = "flags"
    if path is not None:
        section, where = _read(path), str(path)
        for key in ("model", "tls", "state", "prefix_disk"):
            value = section.get(key)
            if isinstance(value, str) and value and (path.parent / value).exists():
                section[key] = str(path.parent / value)
    section |= {key: value for key, value in flags.items() if value is not None}
    for key in ("join", "model", "tls"):
        if key not in section:
            raise InputError(f"is needed: --{key} or {key} in the [node] section of --config", param=key)
    try:
        config = msgspec.convert(section, NodeConfig)
    except msgspec.ValidationError as error:
        raise InputError(str(error), param=f"{where} [node]") from None
    _check(config)
    return config


def _check(config: NodeConfig) -> None:
    host, _, port = config.join.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise InputError("is HOST:PORT", param="join")
    for name in ("null_cost", "null_round"):
        times = getattr(config, name)
        if not all(0.0 <= term <= 60.0 for term in times) or not any(times):
            raise InputError("three times from 0 to 60 seconds, not all 0", param=name)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES + 1)
        if len(data) > CONFIG_BYTES:
            raise InputError(f"{path}: more than {CONFIG_BYTES:,} bytes")
        section = tomllib.loads(data.decode()).get("node", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(section, dict):
        raise InputError(f"{path}: [node] is one table here; [[node]] are the local nodes of a router's file")
    return section


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    return msgspec.json.encode(value).decode()
