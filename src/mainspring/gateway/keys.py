"""API keys: a TOML file of names and hashes, read again when it changes.

    secret = "64 hex digits"            # the fleet's: salts what caches are keyed by; the same for all its gateways

    [[key]]
    name = "alice"
    sha256 = "..."                      # of the key itself, which nobody stores
    ceiling = "standard"                # no class above this one; "" for any
    default = "standard"                # the class of requests that name none; "" for the gateway's
    rate = 20.0                         # requests a second, burst twice that unless given; 0 for any
    burst = 0.0
    concurrent = 0                      # requests at once, 0 for the gateway's limit
    daily_tokens = 0                    # input tokens a UTC day, 0 for any

Keys are 256 random bits, so one SHA-256 is enough. Nobody but its owner may read the file.
"""

import hashlib
import logging
import secrets
import stat
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from mainspring.fleet.errors import ConfigError
from mainspring.gateway.errors import KeyMissingError

log = logging.getLogger("mainspring.gateway")

PREFIX = "ms-"
FILE_BYTES = 4 << 20
REFRESH_S = 5.0
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Amount = Annotated[float, Meta(ge=0.0, le=1e9)]
Whole = Annotated[int, Meta(ge=0, le=1 << 53)]
Mark = tuple[int, int, int, int]


class Key(Struct, frozen=True, forbid_unknown_fields=True):
    """`ceiling`, `default`: names of classes, "" for none. Zeros mean no limit."""

    name: Annotated[str, Meta(max_length=128)]
    sha256: Digest = "0" * 64
    ceiling: Annotated[str, Meta(max_length=128)] = ""
    default: Annotated[str, Meta(max_length=128)] = ""
    rate: Amount = 0.0
    burst: Amount = 0.0
    concurrent: Whole = 0
    daily_tokens: Whole = 0


class KeyFile(Struct, frozen=True, forbid_unknown_fields=True, rename={"keys": "key"}):
    secret: Digest
    keys: Annotated[tuple[Key, ...], Meta(max_length=65_536)] = ()


ANONYMOUS = Key("")
"""Whoever asks a gateway without keys."""


class Keys:
    """`required` False: everybody is `ANONYMOUS`."""

    def __init__(self, path: Path | None, file: KeyFile, seen: "Mark | None" = None) -> None:
        self._path, self._seen = path, seen
        self._next_s = 0.0
        self._take(file)

    @classmethod
    def none(cls) -> "Keys":
        """The secret lives as long as the process."""
        return cls(None, KeyFile(secrets.token_hex(32)))

    @classmethod
    def read(cls, path: Path) -> "Keys":
        """ConfigError."""
        seen = _mark(path)  # before it is read: what changes meanwhile is read again
        return cls(path, read_keys(path), seen)

    @property
    def required(self) -> bool:
        return self._path is not None

    @property
    def names(self) -> set[str]:
        return set(self._by_name)

    def find(self, authorization: str) -> Key:
        """Of `Authorization: Bearer KEY`. KeyMissingError never says which part was wrong."""
        if not self.required:
            return ANONYMOUS
        scheme, _, given = authorization.partition(" ")
        digest = hashlib.sha256(given.strip().encode()).hexdigest() if scheme.lower() == "bearer" else ""
        key = self._by_digest.get(digest)
        if key is None:
            raise KeyMissingError("a known API key is needed: Authorization: Bearer KEY",
                                  headers={"www-authenticate": "Bearer"})  # fmt: skip
        return key

    def named(self, tenant: str) -> Key:
        """Of a request that is under way; its key may have been taken out of the file meanwhile."""
        return self._by_name.get(tenant, ANONYMOUS)

    def salt(self, tenant: str) -> bytes:
        """32 bytes: what this tenant's cache keys are made with."""
        return hashlib.blake2b(tenant.encode(), digest_size=32, key=bytes.fromhex(self._file.secret)).digest()

    def refresh(self, now_s: float) -> bool:
        """Whether the file was read again; one that can't be used leaves the last good one in force."""
        if self._path is None or now_s < self._next_s:
            return False
        self._next_s = now_s + REFRESH_S
        mark = _mark(self._path)
        if mark == self._seen:
            return False
        self._seen = mark
        try:
            self._take(read_keys(self._path))
        except ConfigError as error:
            log.error("the key file can't be used, the last good one stays: %s", error)
            return False
        log.info("the key file was read again: %d keys", len(self._by_name))
        return True

    def _take(self, file: KeyFile) -> None:
        self._file = file
        self._by_digest = {key.sha256: key for key in file.keys}
        self._by_name = {key.name: key for key in file.keys}


def read_keys(path: Path) -> KeyFile:
    """ConfigError names file and field, never a hash."""
    try:
        found = path.stat()
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise ConfigError("others can read it; chmod 600", param=str(path))
        if found.st_size > FILE_BYTES:
            raise ConfigError(f"{found.st_size:,} bytes, at most {FILE_BYTES:,}", param=str(path))
        file = msgspec.convert(tomllib.loads(path.read_text("utf-8")), KeyFile)
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror or error}", param=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise ConfigError("is not TOML", param=str(path)) from None
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise ConfigError(message, param=f"{path}{place.strip('`')}") from None
    if any(not key.name for key in file.keys):
        raise ConfigError("a key needs a name", param=f"{path}.key.name")
    for field in ("name", "sha256"):
        values = [getattr(key, field) for key in file.keys]
        if len(set(values)) < len(values):
            raise ConfigError(f"every {field} at most once", param=f"{path}.key")
    return file


def write_keys(path: Path, file: KeyFile) -> None:
    """Whole or not at all, mode 0600."""
    from mainspring.wire.pki_files import write_private

    lines = [f'secret = "{file.secret}"', ""]
    for key in file.keys:
        lines.append("[[key]]")
        shown: dict[str, Any] = msgspec.structs.asdict(key)
        lines += [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in shown.items()]
        lines.append("")
    write_private(path, "\n".join(lines).encode())


def new_key() -> tuple[str, str]:
    """(the key, its hash): the key is shown once."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, hashlib.sha256(key.encode()).hexdigest()


def _mark(path: Path) -> Mark | None:
    """The time of its attributes too: a file that was refused for its mode is taken up when that is put right."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
