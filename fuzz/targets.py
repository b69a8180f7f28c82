"""What strangers can send, in the hands of an engine that looks for crashes: a target takes bytes and raises for none.

    frames     bytes in any pieces to frames, under any caps
    messages   payloads of any kind to records; what is a record comes back the same
    mux        a TCP stream's chunks
    router     the router's end of a link: raw bytes and made-up messages, streams, resets, time
    node       the node's end
    shell      the whole router with a node and a client that say anything, some of it sensible

A target raises AssertionError, or whatever our code raised, where something is wrong. Run them with `fuzz/run.py`.
"""

from contextlib import suppress

from mainspring.wire import messages as m
from mainspring.wire.errors import Close, LimitError, WireError
from mainspring.wire.frames import HEADER, FrameDecoder, encode_frame
from mainspring.wire.link import Closed, Joined, Knock, Link, LinkEvent, Received, Rules
from mainspring.wire.mux import CHUNK_BYTES, Data, Mux
from mainspring.wire.transport import Identity, Lost
from rig import Cell
from script import Script
from talk import message, spoiled

RULES = Rules(streams=8, frame_bytes=1 << 16, buffered_bytes=1 << 14, early_passes=4)


def frames(data: bytes) -> None:
    s = Script(data)
    caps = {s.byte(): s.number() for _ in range(s.below(5))}
    decoder = FrameDecoder(caps)
    largest = max(caps.values(), default=0)
    try:
        while s.more:
            piece = encode_frame(1 + s.below(255), s.blob(64)) if s.byte() & 1 else s.blob(64)
            for kind, payload in decoder.feed(piece):
                assert len(payload) <= caps[kind]
            assert decoder.buffered <= HEADER.size + min(largest, len(data) * 2 + 1024)
    except WireError:
        followed = False
        with suppress(WireError):
            decoder.feed(b"\0" * 8)
            followed = True
        assert not followed, "nothing can follow a broken frame"


def messages(data: bytes) -> None:
    s = Script(data)
    if s.byte() & 1:
        sent = message(s)
        frame = spoiled(s, m.encode(sent))
        if len(frame) < HEADER.size:
            return
        kind, payload = frame[4], frame[HEADER.size :]
    else:
        kind, payload = s.byte(), s.blob(4096)
    try:
        got = m.decode(kind, payload)
    except WireError:
        return
    again = m.encode(got)
    back = m.decode(again[4], again[HEADER.size :])
    assert repr(back) == repr(got), "NaN is not equal to itself, but reads the same"


def mux(data: bytes) -> None:
    s = Script(data)
    dialer = bool(s.byte() & 1)
    near, far = Mux(dialer=dialer), Mux(dialer=not dialer)
    sent: dict[int, bytes] = {}
    closed = False
    try:
        while s.more and not closed:
            if s.byte() & 3:
                stream, piece = 4 * s.below(4) + (0 if dialer else 1), s.blob(300)
                near.write(stream, piece)
                sent[stream] = sent.get(stream, b"") + piece
                raw = near.take(1 + s.below(CHUNK_BYTES))
            else:
                raw = spoiled(s, s.blob(60))
                sent.clear()
            for event in far.receive(raw):
                assert not closed, "a close is the last event"
                closed = isinstance(event, Lost)
                if isinstance(event, Data):
                    assert len(event.data) <= CHUNK_BYTES
            assert len(far._head) <= 1024
    except WireError:
        assert far.receive(b"\0" * 16) == []


def router(data: bytes) -> None:
    s = Script(data)
    role: m.Role = "node" if s.byte() & 1 else "client"
    link = Link.answer(Identity("fleet", role, "ant"), 0.0, RULES)
    hello = m.Hello(role=role, name="ant", instance=1)
    _live(s, link, m.encode(hello), peer_opens=4, our_first=1)


def node(data: bytes) -> None:
    s = Script(data)
    role: m.Role = "node" if s.byte() & 1 else "client"
    link = Link.dial(m.Hello(role=role, name="ant", instance=1), 0.0, RULES)
    _live(s, link, m.encode(m.Welcome(version=1, epoch=3, router=9)), peer_opens=1, our_first=4)


def _live(s: Script, link: Link, greeting: bytes, *, peer_opens: int, our_first: int) -> None:
    now_s, fed, over = 0.0, 0, False
    opened: list[int] = []

    def hear(events: list[LinkEvent]) -> None:
        nonlocal over
        for event in events:
            assert not over, "nothing comes after the end"
            over = isinstance(event, Closed)
            if isinstance(event, Knock):
                link.welcome(3, 9, now_s)
            elif isinstance(event, Received) and event.last:
                opened[:] = [stream for stream in opened if stream != event.stream]
            assert isinstance(event, Knock | Joined | Received | Closed)

    if s.byte() & 7:
        hear(link.receive(0, greeting, False, now_s))
        hear(link.receive(0, m.encode(m.Pong(nonce=0)), False, now_s))
    while s.more and not over:
        what, now_s = s.byte() % 12, now_s + s.one((0.0, 0.0, 0.001, 0.2, 3.0))
        stream = s.one((0, 0, peer_opens, peer_opens + 4, peer_opens + 8, our_first, our_first + 4, 2, 400))
        if what < 7:
            raw = spoiled(s, m.encode(message(s)))
            cut = s.below(len(raw) + 1) if s.byte() > 200 else len(raw)
            fed += len(raw)
            hear(link.receive(stream, raw[:cut], False, now_s))
            hear(link.receive(stream, raw[cut:], s.byte() > 220, now_s))
        elif what == 7:
            raw = s.blob(200)
            fed += len(raw)
            hear(link.receive(stream, raw, bool(s.byte() & 1), now_s))
        elif what == 8:
            with suppress(ValueError, LimitError):  # misuse by a shell, and the peer's limit
                opened.append(link.open(message(s), now_s))
        elif what == 9 and opened:
            with suppress(ValueError):
                link.send(s.one(opened), message(s), now_s)
        elif what == 10 and s.byte() > 200:
            hear(link.reset(stream, now_s) if s.byte() & 1 else link.lost(Close.LOST, "cut", False, now_s))
        outputs, events = link.poll(now_s)
        hear(events)
        assert len(outputs) <= 64 + fed
        assert link.buffered_bytes <= min(fed, RULES.buffered_bytes + RULES.frame_bytes)
        assert link.open_streams <= 2 * RULES.streams + len(opened)
        assert len(link._early) <= RULES.early_passes
    if over:
        assert link.receive(0, greeting, False, now_s) == []
        assert link.next_deadline() is None


def shell(data: bytes) -> None:
    s = Script(data)
    cell = Cell()
    while s.more:
        cell.step(s)
    cell.finish()


TARGETS = {each.__name__: each for each in (frames, messages, mux, router, node, shell)}
