"""The snapshot of `/status`: plain JSON from what gateway and router know. No text of a conversation is in it."""

from typing import Any

import msgspec

from mainspring.gateway.service import Gateway

ROUTER_FIELDS = ("up_s", "version", "draining", "counters", "payload_bytes", "clients")


def snapshot(gateway: Gateway) -> dict[str, Any]:
    """`router` is None until it was heard; `router_age_s` says how old the rest is."""
    counts, router = gateway.counts, gateway.router
    ready, reason = gateway.ready()
    by_route: dict[str, dict[str, int]] = {}
    for (route, status), number in counts.finished.items():
        by_route.setdefault(route, {})[str(status)] = number
    found: dict[str, Any] = {
        "gateway": {
            "version": gateway.version,
            "uptime_s": counts.up_s(gateway.now_s()),
            "draining": gateway.closing.is_set(),
            "ready": ready,
            "reason": reason,
            "requests": {"open": counts.open, "begun": counts.begun, "finished": by_route, "refused": counts.refused},
            "tokens": {"input": counts.input_tokens, "cached": counts.cached_tokens},
            "assembling": gateway.pool.outstanding,
        },
        "router": None,
        "router_age_s": None,
        "nodes": [],
        "classes": [],
        "models": [],
        "passes": [],
    }
    if router is not None:
        told = msgspec.to_builtins(router)
        found["router_age_s"] = gateway.router_age_s()
        for name in ("nodes", "classes", "models"):
            found[name] = told.get(name, [])
        found["passes"] = [msgspec.structs.asdict(each) for each in router.passes]
        found["router"] = {name: getattr(router, name) for name in ROUTER_FIELDS}
    return found
