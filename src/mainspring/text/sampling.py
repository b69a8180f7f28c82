"""What a checkpoint wants its tokens chosen by, where nobody says otherwise: from generation_config.json.

Of that file's many fields those are read that every engine of the field takes over. `do_sample` is not one of them:
files leave it out or false beside a temperature that is meant. The format has no frequency or presence penalty.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from mainspring.errors import ModelError


class SamplingDefaults(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """None: the checkpoint does not say. `temperature` 0 takes the likeliest token; `top_k` 0 and -1 leave all in."""

    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1 << 31)] | None = None
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100.0)] | None = None

    def said(self) -> dict[str, float]:
        """Field to value, of those that are set."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}


def read_sampling(config: dict[str, Any], path: Path) -> SamplingDefaults:
    """Of the decoded file at `path`. ModelError names it, the field and the limit."""
    found = {name: config.get(name) for name in SamplingDefaults.__struct_fields__}
    try:
        return msgspec.convert(found, SamplingDefaults)
    except msgspec.ValidationError as error:
        raise ModelError(f"{path}: {error}") from None
