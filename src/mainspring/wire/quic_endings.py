"""What the end of a QUIC connection means for a link."""

from mainspring.wire.errors import Close, IdentityError
from mainspring.wire.records import one_line
from mainspring.wire.transport import Lost

_CRYPTO_ERROR = 0x100
_ABOUT_CERTIFICATES = frozenset({42, 43, 44, 45, 46, 48, 49, 51, 116})


def lost_of(ending: tuple[int, int | None, str], fault: Exception | None) -> Lost:
    """From code, frame type (None: the application's close) and reason; `fault`: why we refused the peer, if we did."""
    code, frame, text = ending
    reason = one_line(text[:200])
    if isinstance(fault, IdentityError):
        return Lost(fault.close, fault.message)
    if fault is not None:
        return Lost(Close.PROTOCOL, reason or "no sound handshake")
    if frame is None and code in Close._value2member_map_:
        return Lost(Close(code), reason, remote=True)
    if code - _CRYPTO_ERROR in _ABOUT_CERTIFICATES:
        return Lost(Close.CERTIFICATE, f"the peer refused our certificate: {reason}", remote=True)
    return Lost(Close.LOST, f"QUIC error {code:#x}: {reason}")
