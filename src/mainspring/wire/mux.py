"""Streams over one ordered byte stream (TCP), without sockets: what QUIC gives for nothing.

`Mux.write(stream, data, end)`, `Mux.receive(bytes) -> [(stream, data, end)]`, `Mux.take(limit) -> bytes to send`. A
chunk is u32 stream, u24 length, u8 flags (end, reset, close with code and message), then at most 16 KiB, so that a ping
waits behind one chunk of each stream and no more: writers take turns, the control stream goes first. Ids by the rules
of `transport`. Refuses ids of the wrong side and chunks beyond the cap; buffers nothing on the way in.
"""
