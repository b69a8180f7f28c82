"""One file a family of routes; each has `routes(gateway) -> list[Route]`."""
