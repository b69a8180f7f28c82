"""The router's loop without decisions: link events -> core events -> `Router.handle` -> actions -> messages.

`Shell.on(event, now_s)` and `Shell.timer(now_s)`: no sockets, no clock, so tests drive it with memory links and virtual
time, as the simulator drives the core. Holds attempts and fences, pass id -> link and stream, request -> client and
stream. Each request is answered once: `Answer`, `Refuse`, or the client is gone. A node's logits of the wrong length or
not finite are a failure of those parts. A fault while handling one event is logged and fails that request only.
"""
