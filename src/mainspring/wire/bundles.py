"""Bundles by hash: one stream a fetch, opened by whoever wants one. The bytes are `text.bundle.Bundle.pack`'s."""

from typing import Annotated

from msgspec import Meta

from mainspring.wire.records import KIB, MIB, Hash, Record, Row, Text


class FetchBundle(Record, frozen=True, kw_only=True):
    """Router -> node, or client -> router: the packed bundle with this hash."""

    bundle: Hash


class BundleData(Row, frozen=True, kw_only=True):
    """The next piece, at most 256 KiB."""

    cap = 256 * KIB + 64
    data: Annotated[bytes, Meta(min_length=1, max_length=256 * KIB)]


class BundleEnd(Record, frozen=True, kw_only=True):
    """`found` False: nobody here has it, or it can't be given now, as `message` then says. Else the whole was `size`
    bytes with this SHA-256; a reader checks both."""

    found: bool
    size: Annotated[int, Meta(ge=0, le=64 * MIB)] = 0
    sha256: Hash = ""
    message: Text = ""
