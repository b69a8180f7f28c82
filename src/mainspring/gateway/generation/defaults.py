"""Where a request says nothing of how tokens are chosen, the checkpoint's own word comes before the API's default.

Each field by itself: who sends a temperature and no top_p has the checkpoint's top_p beside it.
"""

import msgspec

from mainspring.gateway.generation.asking import Writing
from mainspring.text.sampling import SamplingDefaults


def with_defaults(writing: Writing, defaults: SamplingDefaults) -> Writing:
    """`writing` with what `defaults` say of its `unsaid` fields."""
    own = {name: value for name, value in defaults.said().items() if name in writing.unsaid}
    if own.get("top_k", 0) < 0:
        own["top_k"] = 0
    if not own:
        return writing
    return msgspec.structs.replace(writing, sampling=msgspec.structs.replace(writing.sampling, **own))


def unsaid(asked: object) -> frozenset[str]:
    """Of a decoded body: the fields that a checkpoint may have a word on and the caller left out, or sent as null."""
    return frozenset(name for name in SamplingDefaults.__struct_fields__ if getattr(asked, name, None) is None)
