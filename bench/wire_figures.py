"""What `wire.py` counts of each arm."""

from dataclasses import dataclass, field


@dataclass
class Figures:
    """Of one arm: CPU seconds of both sides over `passes`, and single round trips in seconds."""

    passes: int = 0
    router_s: float = 0.0
    node_s: float = 0.0
    trips_s: list[float] = field(default_factory=list)
