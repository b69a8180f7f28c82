"""What is refused before the core is asked, and how a `Submit` becomes a `core.Request`.

Aliases to model keys, allowed numerics, shapes counted from byte lengths. An alias is the model key that configuration
pins it to, else the one that was offered last under it by a node that is here. `refused` is the one place where errors
become `Refused`.
"""

from collections.abc import Mapping

from msgspec import Struct

from mainspring.core.nouns import Request
from mainspring.core.refusals import BadShapeError, RefusedError, UnknownModelError
from mainspring.errors import MainspringError, TooLargeError
from mainspring.fleet.errors import status_of
from mainspring.wire import messages as m
from mainspring.wire.records import Numerics

MAX_MODELS = 256
MAX_LABELS = 1024
"""Of one branch."""
MAX_TOKENS = 1 << 24
"""Of one generation: what `OpenLease` has room for."""


class ModelRule(Struct, frozen=True):
    """`[models.ALIAS]`: the key it stands for (empty: whoever offers it) and the numerics its requests may run on
    (empty: any)."""

    model: str = ""
    numerics: tuple[Numerics, ...] = ()


class Models:
    """What nodes have offered: aliases in the order of offers, numerics, and the bundle of each model key."""

    def __init__(self, rules: Mapping[str, ModelRule]) -> None:
        self.rules = dict(rules)
        self.offers: dict[str, dict[str, m.Offer]] = {}

    def offered(self, node: str, offer: m.Offer) -> None:
        """Raises BadShapeError beyond `MAX_MODELS` model keys."""
        self.gone(node)
        if offer.model not in self.offers and len(self.offers) >= MAX_MODELS:
            raise BadShapeError(f"the router knows {MAX_MODELS} models, no more are taken", param="model")
        nodes = self.offers.pop(offer.model, {})
        self.offers[offer.model] = {**nodes, node: offer}  # last again

    def gone(self, node: str) -> None:
        for model in [model for model, nodes in self.offers.items() if node in nodes]:
            del self.offers[model][node]
            if not self.offers[model]:
                del self.offers[model]

    def key(self, name: str) -> str:
        """Of an alias or a key. UnknownModelError."""
        rule = self.rules.get(name)
        if rule is not None and rule.model:
            return rule.model
        if name in self.offers:
            return name
        for model in reversed(self.offers):
            if any(offer.alias == name for offer in self.offers[model].values()):
                return model
        raise UnknownModelError("no node here offers it", param="model")

    def numerics(self, name: str, model: str, asked: tuple[Numerics, ...]) -> tuple[Numerics, ...]:
        """What a request may run on: what it asks for, within what its alias allows."""
        rule = self.rules.get(name) or next((rule for rule in self.rules.values() if rule.model == model), None)
        allowed = () if rule is None else rule.numerics
        if not asked or not allowed:
            return asked or allowed
        both = tuple(each for each in asked if each in allowed)
        if not both:
            raise BadShapeError(f"this model runs on {', '.join(allowed)} here", param="numerics")
        return both

    def aliases(self, model: str) -> tuple[str, ...]:
        names = {offer.alias: None for offer in self.offers.get(model, {}).values()}
        names |= {alias: None for alias, rule in self.rules.items() if rule.model == model}
        return tuple(sorted(names))[:64]


def request_of(submit: m.Submit, request_id: str, models: Models, age_s: float) -> Request:
    """`age_s`: how long ago it left the client. Raises UnknownModelError, BadShapeError, TooLargeError."""
    model = models.key(submit.model)
    most = _most(submit.label_counts)
    if most > MAX_LABELS:
        raise TooLargeError("labels", limit=MAX_LABELS, actual=most, param="label_counts")
    if submit.max_tokens > MAX_TOKENS:
        raise TooLargeError("tokens", limit=MAX_TOKENS, actual=submit.max_tokens, param="max_tokens")
    if submit.max_tokens and submit.sampling is None:
        raise BadShapeError("a generation says how it samples", param="sampling")
    deadline = None if submit.deadline_s is None else submit.deadline_s - age_s
    return Request(
        id=request_id,
        model=model,
        slo=submit.slo,
        view_tokens=len(submit.view_tokens) // 4,
        branches=m.ints(submit.branch_lengths),
        view_key=submit.view_key,
        deadline_s=deadline,
        max_tokens=submit.max_tokens,
        prefix_keys=submit.prefix_keys,
        numerics=models.numerics(submit.model, model, submit.numerics),
    )


def _most(counts: bytes) -> int:
    """The largest of them; 0 where there is none."""
    return max(m.ints(counts), default=0) if m.are_few(counts) else int(m.u32(counts).max())


NODES_CODES = frozenset({"bad_grammar", "bad_input", "too_large"})
"""What a request may be refused as by a node's word."""


def bad_work(wrong: m.Detail | None) -> m.Refused:
    """What nodes refuse to do, in their words where they have any."""
    if wrong is None:
        return refused(BadShapeError("token ids, lengths or sampling that make no sense for this model"))
    code = wrong.code if wrong.code in NODES_CODES else BadShapeError.code
    return m.Refused(code=code, message=wrong.message, status=400, param=wrong.param or None)


def refused(error: MainspringError) -> m.Refused:
    retry_s = error.retry_after_s if isinstance(error, RefusedError) else None
    return m.Refused(
        code=error.code,
        message=error.message[:2048],
        status=status_of(error),
        retry_after_s=None if retry_s is None else min(86_400.0, max(0.0, retry_s)),
        param=None if error.param is None else error.param[:128],
    )
