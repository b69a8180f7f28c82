"""One accepted link on the router's side as a `transport.Receiver`, and the book of links by role and name.

Answers `Knock`: epoch from one counter for the router's life, `REPLACED` for an old link of the same instance, `BUSY`
while another instance of that name is still heard. `Closed` becomes `NodeLeft` (a crash unless orderly) or cancels the
open requests of a client.
"""
