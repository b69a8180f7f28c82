"""The resolved configuration: one frozen tree, read once from a TOML file and flags, validated whole, printed at start.

    [router]    listen, transports, drain_s, state          [[class]]        name, priority, weight, target_s, token_s
    [tls]       folder, revoked, authority                  [[node]]         name, model, args, tls
    [limits]    links, streams, payload_mib, ...            [models.ALIAS]   model, numerics

Errors name file, section and key. Relative paths are the file's. Nothing reads the environment later.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from mainspring.core.nouns import DEFAULT_CLASSES, SloClass
from mainspring.errors import MainspringError
from mainspring.fleet.admission import ModelRule
from mainspring.fleet.errors import ConfigError
from mainspring.fleet.settings import Settings
from mainspring.wire import messages as m
from mainspring.wire.link import Rules
from mainspring.wire.records import Name, Numerics

DEFAULT_PORT = 7300
Seconds = Annotated[float, Meta(ge=0.0, le=86_400.0)]
Plain = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")]


class RouterSection(Struct, frozen=True, forbid_unknown_fields=True):
    """`listen` HOST:PORT, one port for both transports. `state`: bundles and logs of local nodes are kept there."""

    listen: str = f"127.0.0.1:{DEFAULT_PORT}"
    transports: Annotated[tuple[Literal["quic", "tcp"], ...], Meta(min_length=1, max_length=2)] = ("quic", "tcp")
    drain_s: Seconds = 30.0
    state: str = "state"


class TlsSection(Struct, frozen=True, forbid_unknown_fields=True):
    """`folder`: the router's own, as `mainspring pki issue router NAME` writes it. `revoked`: another revocation list
    than the folder's. `authority`: the CA's folder, where local nodes without a certificate of their own get one."""

    folder: str = "pki/router"
    revoked: str = ""
    authority: str = ""


class LimitsSection(Struct, frozen=True, forbid_unknown_fields=True):
    """Links at once; open streams and unfinished bytes a link, unfinished and unread bytes of all; tokens of open
    requests in all and of one client (0: half of all); bundles kept; liveness."""

    links: Annotated[int, Meta(ge=1, le=65_536)] = 1024
    streams: Annotated[int, Meta(ge=1, le=65_536)] = 1024
    unfinished_mib: Annotated[int, Meta(ge=17, le=1024)] = 48
    payload_mib: Annotated[int, Meta(ge=1, le=1 << 20)] = 512
    client_mib: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    unfinished_total_mib: Annotated[int, Meta(ge=17, le=1 << 20)] = 1024
    backlog_total_mib: Annotated[int, Meta(ge=64, le=1 << 20)] = 1024
    bundle_mib: Annotated[int, Meta(ge=64, le=1 << 20)] = 512
    idle_s: Annotated[float, Meta(ge=0.3, le=300.0)] = 6.0
    hello_s: Annotated[float, Meta(ge=0.1, le=60.0)] = 5.0


class ClassSection(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
    weight: float = 1.0
    target_s: Annotated[float, Meta(le=1e9)] | None = None
    token_s: Annotated[float, Meta(le=86_400.0)] | None = None


class NodeSection(Struct, frozen=True, forbid_unknown_fields=True):
    """A local node to supervise: `mainspring node` with `args`, joined over loopback. `tls`: its certificate's folder;
    without one it gets one from `tls.authority`."""

    name: Plain
    model: str
    args: tuple[str, ...] = ()
    tls: str = ""


class ModelSection(Struct, frozen=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(max_length=128)] = ""
    numerics: Annotated[tuple[Numerics, ...], Meta(max_length=4)] = ()


class FleetConfig(Struct, frozen=True, forbid_unknown_fields=True, rename={"classes": "class", "nodes": "node"}):
    router: RouterSection = RouterSection()
    tls: TlsSection = TlsSection()
    limits: LimitsSection = LimitsSection()
    classes: Annotated[tuple[ClassSection, ...], Meta(max_length=64)] = field(
        default_factory=lambda: tuple(ClassSection(*msgspec.structs.astuple(slo)) for slo in DEFAULT_CLASSES)
    )
    nodes: Annotated[tuple[NodeSection, ...], Meta(max_length=64)] = ()
    models: Annotated[dict[Name, ModelSection], Meta(max_length=64)] = {}

    @property
    def address(self) -> tuple[str, int]:
        return address_of(self.router.listen, "router.listen")

    def settings(self) -> Settings:
        """What the shell is made with."""
        limits = self.limits
        return Settings(
            classes=tuple(SloClass(*msgspec.structs.astuple(each)) for each in self.classes),
            models={alias: ModelRule(rule.model, rule.numerics) for alias, rule in self.models.items()},
            rules=Rules(
                streams=limits.streams,
                buffered_bytes=limits.unfinished_mib << 20,
                timing=m.Timing(idle_s=limits.idle_s, hello_s=limits.hello_s),
            ),
            max_links=limits.links,
            payload_bytes=limits.payload_mib << 20,
            client_bytes=limits.client_mib << 20 if limits.client_mib else limits.payload_mib << 19,
            unfinished_total_bytes=limits.unfinished_total_mib << 20,
            backlog_total_bytes=limits.backlog_total_mib << 20,
        )

    def resolved(self) -> str:
        """For people and logs: JSON of the whole tree. There are no secrets in it."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()


def read_config(path: Path | None, **flags: Any) -> FleetConfig:
    """`flags`: "section__key" to a value, over the file's; None leaves the file's. ConfigError.

    Without a file everything has its default."""
    where = str(path) if path is not None else "flags"
    tree: dict[str, Any] = {}
    if path is not None:
        try:
            tree = tomllib.loads(path.read_text())
        except OSError as error:
            raise ConfigError(f"can't be read: {error.strerror or error}", param=where) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"is not TOML: {error}", param=where) from None
    tree.pop("gateway", None)  # the same file's other reader
    base = Path() if path is None else path.parent
    for name, value in flags.items():
        if value is not None:
            section, _, key = name.partition("__")
            if not isinstance(tree.setdefault(section, {}), dict):
                raise ConfigError("is a table", param=f"{where}: {section}")
            tree[section][key] = value
    try:
        config = msgspec.convert(tree, FleetConfig)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        key = place.strip(".`").replace("...", "") or "the file"
        raise ConfigError(f"{message[:1].lower()}{message[1:]}", param=f"{where}: {key}") from None
    config = _under(config, base, {name.partition("__")[2] for name, value in flags.items() if value is not None})
    _check(config, where)
    return config


def _under(config: FleetConfig, base: Path, flagged: set[str]) -> FleetConfig:
    """Paths of the file are the file's; those given as flags are the caller's."""

    def at(key: str, value: str) -> str:
        return value if not value or key in flagged else str(base / value)

    def model_at(value: str) -> str:
        """A folder beside the file, else a name: of a hub, or of what comes with us."""
        return str(base / value) if value and (base / value).exists() else value

    replace = msgspec.structs.replace
    tls = {key: at(key, getattr(config.tls, key)) for key in ("folder", "revoked", "authority")}
    nodes = tuple(replace(node, tls=at("", node.tls), model=model_at(node.model)) for node in config.nodes)
    router = replace(config.router, state=at("state", config.router.state))
    return replace(config, router=router, tls=replace(config.tls, **tls), nodes=nodes)


def _check(config: FleetConfig, where: str) -> None:
    """What the types can't say."""
    try:
        config.address  # noqa: B018 - raises
        for index, each in enumerate(config.settings().classes):
            try:
                each.check()
            except MainspringError as error:
                raise ConfigError(error.message, param=f"class[{index}].{error.param}") from None
        for kind, names in (
            ("class", [each.name for each in config.classes]),
            ("node", [each.name for each in config.nodes]),
        ):
            if len(set(names)) < len(names):
                raise ConfigError("every name at most once", param=f"{kind}.name")
        if not config.classes:
            raise ConfigError("at least one is needed", param="class")
        for index, node in enumerate(config.nodes):
            if not node.tls and not config.tls.authority:
                raise ConfigError(
                    "has no certificate, and there is no tls.authority to make one", param=f"node[{index}]"
                )
    except ConfigError as error:
        raise ConfigError(error.message, param=f"{where}: {error.param}") from None


def address_of(text: str, param: str) -> tuple[str, int]:
    """HOST:PORT, [IPv6]:PORT. ConfigError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{text!r} is not HOST:PORT", param=param)
    return host, int(port)
