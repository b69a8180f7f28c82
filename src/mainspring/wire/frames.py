"""Frames on a stream: 8 bytes of header, then the payload.

    u32 payload length | u8 kind | u8 flags | u16 zero        little-endian

The header alone decides whether a frame may come: `caps` gives the longest payload of each kind allowed *now*, so a
peer that has not said hello can make us hold one small frame and no more, and an oversized one is refused before its
payload is buffered. Flags and the last field are zero and reserved.

No compression: zlib (level 1) took 0.95 ms for 36 KB of token ids, the size of a typical pass, while sending it takes
0.13 ms (TLS) to 0.43 ms (QUIC) of CPU; zstd would be one more dependency on Python 3.11. A flag is left for it.
"""

from collections.abc import Mapping
from struct import Struct

from mainspring.wire.errors import FrameError, FrameTooLargeError

HEADER = Struct("<IBBH")
KINDS = range(1, 256)
LONGEST = 0xFFFF_FFFF

Frame = tuple[int, bytes]
"""Kind and payload."""


def encode_frame(kind: int, payload: bytes) -> bytes:
    """Raises ValueError for what no decoder would take: that is a fault of ours, not of a peer's."""
    if kind not in KINDS or len(payload) > LONGEST:
        raise ValueError(f"no frame of kind {kind} and {len(payload)} bytes")
    return HEADER.pack(len(payload), kind, 0, 0) + payload


class FrameDecoder:
    """Bytes of one stream in any pieces -> whole frames. After an error it takes nothing more.

    Buffers at most one header and the longest allowed payload beyond what was fed at once.
    """

    __slots__ = ("_broken", "_buffer", "_came", "caps")

    def __init__(self, caps: Mapping[int, int]) -> None:
        self.caps = caps
        self._buffer = bytearray()
        self._came = b""
        self._broken = False

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._buffer) + len(self._came)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes. FrameError, FrameTooLargeError; the caller then ends the link.

        All frames of one call are judged by the caps of that moment; where the answer to one changes what the next
        may be, use `push` and `next` instead.
        """
        self.push(data)
        frames = []
        while (frame := self.next()) is not None:
            frames.append(frame)
        return frames

    def push(self, data: bytes) -> None:
        if self._broken:
            raise FrameError("nothing can follow a broken frame")
        if self._buffer or self._came:
            self._buffer += self._came
            self._came = b""
            self._buffer += data
        else:  # mostly one whole frame, which `next` then copies once
            self._came = data

    def next(self) -> Frame | None:
        """The next whole frame, None where it is not whole yet."""
        held = self._came or self._buffer
        if len(held) < HEADER.size:
            return None
        size, kind, flags, zero = HEADER.unpack_from(held)
        try:
            self._judge(size, kind, flags, zero)
        except FrameError:
            self._broken = True
            self._buffer.clear()
            self._came = b""
            raise
        end = HEADER.size + size
        if len(held) < end:
            return None
        if held is self._came:
            came, self._came = self._came, b""
            self._buffer += came[end:]
            return kind, came[HEADER.size : end]
        with memoryview(self._buffer) as view:
            payload = bytes(view[HEADER.size : end])
        del self._buffer[:end]
        return kind, payload

    def finish(self) -> None:
        """The stream ended. FrameError if that cut a frame."""
        if self.buffered:
            raise FrameError("the stream ended within a frame")

    def _judge(self, size: int, kind: int, flags: int, zero: int) -> None:
        if flags or zero:
            raise FrameError("reserved bits are set")
        cap = self.caps.get(kind)
        if cap is None:
            raise FrameError(f"a frame of kind {kind} may not come now")
        if size > cap:
            raise FrameTooLargeError(f"{size:,} bytes, a frame of kind {kind} has at most {cap:,}")
