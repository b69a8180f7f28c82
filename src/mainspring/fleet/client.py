"""`FleetClient`: what gateways and tests use. One link kept alive, many requests on it.

    async with FleetClient(transport, host, port) as fleet:
        result = await fleet.score(submit)             # Result, or raises the typed error of its Refused
        async for rounds in fleet.generate(submit): ...
        bundle = await fleet.bundle(hash)              # bytes, checked
        status = await fleet.status()

Cancelling the task cancels the request. A lost link fails what was open with `LinkLostError` (a request is never sent
twice by itself) and is dialled again with backoff.
"""
