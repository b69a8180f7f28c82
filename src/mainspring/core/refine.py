"""What a node says of itself after it joined: better constants, other limits, checkpoints gained and dropped."""

from msgspec.structs import replace

from mainspring.core.events import NodeRefined
from mainspring.core.nodestate import NodeState
from mainspring.core.state import State


def refine(state: State, node: NodeState, event: NodeRefined) -> None:
    """Raises BadCostError or BadNodeError before anything but the keys has changed."""
    if event.fresh:
        held = {key for key, _ in event.gained}
        for key in [key for key in node.keys if key not in held]:
            state.drop(node, key, pending=False)
    for key, tokens in event.gained:
        state.gain(node, key, tokens, pending=False)
    for key in event.dropped:
        state.drop(node, key, pending=False)
    said = {
        name: value
        for name in ("cost", "round_cost", "anchors", "limits", "network_s")
        if (value := getattr(event, name)) is not None
    }
    if not said:
        return
    spec = replace(node.spec, **said)
    spec.check()
    if event.cost is not None or event.anchors is not None:
        node.fit = node.fit.refined(spec.cost if event.cost is not None else node.fit.cost, event.anchors)
    node.spec = spec
    node.net_s = spec.network_s
    model = state.models[node.model]
    model.refresh()
    node.refresh()
    state.recap(node)
    state.price_pinned(node)
