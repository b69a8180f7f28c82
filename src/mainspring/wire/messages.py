"""Every record that crosses a process, node <-> router and client <-> router.

A frame's kind is a record's tag (`KIND_OF`), so there is one decoder a kind and no union to search. Hot records are
arrays (fields by position), cold ones maps (by name). Either way a later version may only *append* fields with
defaults: an older reader skips what it does not know, a newer one fills in what did not come; anything else needs a new
kind, sent only where `link.version` allows it.

Times are durations in seconds, never timestamps. Token ids, label ids and lengths are `bytes` of little-endian u32,
logits of little-endian f32; `u32` and `f32` read them as arrays. Text of users never crosses: tokens and hashes do.
`check()` says what msgspec's types can't; `decode` calls it, so whoever holds a decoded record may trust its lengths.
"""

import msgspec

from mainspring.wire.bundles import BundleData as BundleData
from mainspring.wire.bundles import BundleEnd as BundleEnd
from mainspring.wire.bundles import FetchBundle as FetchBundle
from mainspring.wire.control import GENERATES as GENERATES
from mainspring.wire.control import OLDEST_VERSION as OLDEST_VERSION
from mainspring.wire.control import VERSION as VERSION
from mainspring.wire.control import Drain as Drain
from mainspring.wire.control import Goodbye as Goodbye
from mainspring.wire.control import Hello as Hello
from mainspring.wire.control import Ping as Ping
from mainspring.wire.control import Pong as Pong
from mainspring.wire.control import Timing as Timing
from mainspring.wire.control import Welcome as Welcome
from mainspring.wire.errors import MessageError
from mainspring.wire.frames import encode_frame
from mainspring.wire.generation import LeaseEnded as LeaseEnded
from mainspring.wire.generation import OpenLease as OpenLease
from mainspring.wire.generation import Rounds as Rounds
from mainspring.wire.generation import Sampling as Sampling
from mainspring.wire.generation import Written as Written
from mainspring.wire.generation import joined_rounds as joined_rounds
from mainspring.wire.offers import Declined as Declined
from mainspring.wire.offers import NodeReport as NodeReport
from mainspring.wire.offers import Offer as Offer
from mainspring.wire.offers import Release as Release
from mainspring.wire.records import Role as Role
from mainspring.wire.records import are_few as are_few
from mainspring.wire.records import f32 as f32
from mainspring.wire.records import ints as ints
from mainspring.wire.records import one_line as one_line
from mainspring.wire.records import u32 as u32
from mainspring.wire.requests import Accepted as Accepted
from mainspring.wire.requests import Refused as Refused
from mainspring.wire.requests import Result as Result
from mainspring.wire.requests import Submit as Submit
from mainspring.wire.status import TEXT_CHARS as TEXT_CHARS
from mainspring.wire.status import AskStatus as AskStatus
from mainspring.wire.status import ClassStatus as ClassStatus
from mainspring.wire.status import ModelStatus as ModelStatus
from mainspring.wire.status import NodeStatus as NodeStatus
from mainspring.wire.status import PassStatus as PassStatus
from mainspring.wire.status import Status as Status
from mainspring.wire.status import Totals as Totals
from mainspring.wire.work import Cancel as Cancel
from mainspring.wire.work import Detail as Detail
from mainspring.wire.work import Done as Done
from mainspring.wire.work import Failed as Failed
from mainspring.wire.work import FailReason as FailReason
from mainspring.wire.work import Fence as Fence
from mainspring.wire.work import Part as Part
from mainspring.wire.work import Started as Started
from mainspring.wire.work import Work as Work
from mainspring.wire.work import check_branches as check_branches

Message = (
    Hello | Welcome | Ping | Pong | Goodbye | Drain | Offer | Declined | NodeReport | Release
    | Work | Started | Done | Failed | Cancel
    | OpenLease | Rounds | LeaseEnded
    | FetchBundle | BundleData | BundleEnd
    | Submit | Accepted | Refused | Result | AskStatus | Status
)  # fmt: skip

KIND_OF: dict[type[Message], int] = {
    Hello: 1, Welcome: 2, Ping: 3, Pong: 4, Goodbye: 5, Drain: 6, Offer: 7, Declined: 8, NodeReport: 9, Release: 10,
    Work: 16, Started: 17, Done: 18, Failed: 19, Cancel: 20,
    OpenLease: 24, Rounds: 25, LeaseEnded: 26,
    FetchBundle: 32, BundleData: 33, BundleEnd: 34,
    Submit: 40, Accepted: 41, Refused: 42, Result: 43, AskStatus: 48, Status: 49,
}  # fmt: skip
"""Numbers are for ever: one is never given to another record."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODERS = {kind: msgspec.msgpack.Decoder(record) for record, kind in KIND_OF.items()}
CAPS = {kind: record.cap for record, kind in KIND_OF.items()}


def encode(message: Message) -> bytes:
    """One frame."""
    return encode_frame(KIND_OF[type(message)], _ENCODER.encode(message))


def decode(kind: int, payload: bytes) -> Message:
    """MessageError for anything but a sound record of that kind, however it was made."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise MessageError(f"no record has kind {kind}")
    try:
        message: Message = decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError) as error:
        # The error's own text may quote a field: only its place goes into logs.
        place = str(error).rpartition("`")[0].rpartition("`")[2]
        raise MessageError(f"not a record of kind {kind}", param=place or None) from None
    message.check()
    return message
