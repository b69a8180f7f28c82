"""Why a link or a stream ends: one set of codes on every transport."""

from enum import IntEnum
from typing import ClassVar

from mainspring.errors import MainspringError


class Close(IntEnum):
    """Application close codes: QUIC's CONNECTION_CLOSE carries them as they are, so does the last mux frame on TCP.

    Only `GOODBYE` and `DRAINED` are orderly. After `IDENTITY`, `VERSION` and `CERTIFICATE` dialling again at once is
    pointless: the dialer waits its longest backoff and says so in its log.
    """

    GOODBYE = 0
    DRAINED = 1
    PROTOCOL = 2
    """Malformed bytes, or a message where none of its kind may be."""
    LIMIT = 3
    IDLE = 4
    """Nothing was heard for `Timing.idle_s`."""
    IDENTITY = 5
    """The certificate does not allow that name or role."""
    VERSION = 6
    FENCE = 7
    """A report about work the node does not hold."""
    REPLACED = 8
    """A later link of the same name was accepted."""
    CERTIFICATE = 9
    """Revoked or expired while connected."""
    BUSY = 10
    """The name is in use by another live process, or the router takes no more links now."""
    INTERNAL = 11
    LOST = 12
    """Never sent: the transport ended without a close frame."""


ORDERLY = frozenset({Close.GOODBYE, Close.DRAINED})
HOPELESS = frozenset({Close.IDENTITY, Close.VERSION, Close.CERTIFICATE})


class WireError(MainspringError):
    """The peer broke the protocol; `close` is the code to end the link with."""

    code = "wire"
    close: ClassVar[Close] = Close.PROTOCOL


class FrameError(WireError):
    """Bytes that are no frame, or a frame that may not come now."""

    code = "bad_frame"


class FrameTooLargeError(FrameError):
    """Beyond the cap of its kind: known from the header, before its payload is buffered."""

    code = "frame_too_large"
    close = Close.LIMIT


class MessageError(WireError):
    """A payload that is not the record its kind says."""

    code = "bad_message"


class SequenceError(WireError):
    """A sound message out of turn: before the welcome, on the wrong stream, after the last one."""

    code = "out_of_turn"


class FenceError(WireError):
    """Pass id, attempt or epoch of a report are not those of the work."""

    code = "fenced"
    close = Close.FENCE


class LimitError(WireError):
    """More streams or more unread bytes than were agreed."""

    code = "limit"
    close = Close.LIMIT


class IdentityError(WireError):
    """A name or role that the verified certificate does not carry."""

    code = "identity"
    close = Close.IDENTITY


class VersionError(WireError):
    """No common protocol version."""

    code = "version"
    close = Close.VERSION


class BusyError(WireError):
    """No more links are taken now, or the name is in use."""

    code = "busy"
    close = Close.BUSY


class SelfCheckError(MainspringError):
    """A handshake with ourselves came out wrong: no port is opened, whatever the library's version."""

    code = "self_check"


class CertificateError(IdentityError):
    """The peer's certificate was refused; `alert` is the TLS alert to say so with."""

    code = "certificate"
    close = Close.CERTIFICATE

    def __init__(self, message: str, *, alert: int = 42) -> None:
        super().__init__(message)
        self.alert = alert
