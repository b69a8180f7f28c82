"""More wordings of the trained behaviors, by table and key: what is written beside their code alone is learned by heart.

Tables of `wordings_*.toml`: `rules`, `edits` (echoes, constraints and marks among them), `kinds`; `parametrised`, with
slots in braces; `phrases` and `frames` of persona traits. Nothing here is about what is held out.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

Table = Mapping[str, tuple[str, ...]]


@cache
def tables() -> Mapping[str, Table]:
    found: dict[str, Table] = {}
    for name in ("rules", "persona", "kinds"):
        read = tomllib.loads((files(__package__) / f"wordings_{name}.toml").read_text("utf-8"))
        found |= {table: {key: tuple(texts) for key, texts in entries.items()} for table, entries in read.items()}
    return found


def more(table: str, key: str, /, **slots: str) -> tuple[str, ...]:
    """Empty where there are none."""
    texts = tables()[table].get(key, ())
    return tuple(text.format(**slots) for text in texts) if slots else texts
