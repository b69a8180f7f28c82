"""One link's life on the node's side, as a `transport.Receiver` around a `wire.link.Link`.

Dial, hello, welcome, `Offer`, `NodeReport` (fresh first, then what changed); `Work` and `OpenLease` go to the runner,
its answers come back on their own streams; `FetchBundle` is answered from memory in pieces while the backlog is low.
When the link is lost, passes not begun are forgotten, the running one ends unheard and what it kept stays in the store.
asyncio, but no decisions: the order of work is `core.agenda`'s.
"""
