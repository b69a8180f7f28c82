"""Sentences put into a real reply, by the *kind* of behavior they show. The kinds themselves are in `kinds_*.toml`.

A kind has clauses that name it (`clauses` for training, `test` for held-out texts), sentences with slots in braces, a
pattern for what untouched replies may show of it (`natural`, regardless of case) and the kinds that one of its sentences
could also count as (`near`, taken both ways). Kinds marked `made_up` count only where the input does not hold the
inserted value. TEST_KINDS and CALIBRATION_KINDS are never inserted or asked about in training.
"""

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files

from mainspring.train.content.wordings import more

TEST_KINDS = (
    "fake_email", "discount_code", "threat", "promise_refund", "legal_note", "spanish", "empathy", "conspiracy",
    "asks_rating", "travel_tip", "slang", "self_correction", "asks_password", "poem",
)  # fmt: skip
CALIBRATION_KINDS = ("fake_quote", "gossip", "german", "sales_pressure", "claims_memory", "weather")


@dataclass(frozen=True)
class Kind:
    key: str
    clauses: tuple[str, ...]
    test: str
    sentences: tuple[str, ...]
    natural: re.Pattern[str] | None = None
    near: frozenset[str] = frozenset()
    made_up: bool = False


def _read() -> tuple[Kind, ...]:
    found: list[Kind] = []
    folder = files(__package__)
    for entry in sorted((e for e in folder.iterdir() if e.name.startswith("kinds_")), key=lambda e: e.name):
        for kind in tomllib.loads(entry.read_text("utf-8"))["kind"]:
            natural = re.compile(kind["natural"], re.IGNORECASE) if kind.get("natural") else None
            clauses = (*kind["clauses"], *more("kinds", kind["key"]))
            lists = (clauses, kind["test"], tuple(kind["sentences"]))
            near = frozenset(kind.get("near", ()))
            found.append(Kind(kind["key"], *lists, natural, near, kind.get("made_up", False)))
    if len({kind.key for kind in found}) != len(found):
        raise ValueError("two kinds have the same key")
    return tuple(found)


KINDS = _read()
BY_KEY = {kind.key: kind for kind in KINDS}
TRAIN_KINDS = tuple(kind for kind in KINDS if kind.key not in (*TEST_KINDS, *CALIBRATION_KINDS))


def close(one: Kind, other: Kind) -> bool:
    return one.key in other.near or other.key in one.near


NAMES = ("Miller", "Okafor", "Lindgren", "Tanaka", "Alvarez", "Novak", "Dubois", "Haddad", "Kowalski", "Rossi", "Singh",
         "Carter", "Weber", "Moreau", "Olsen", "Silva", "Keller", "Murphy", "Ivanov", "Chen")  # fmt: skip
CITIES = ("Lisbon", "Denver", "Osaka", "Krakow", "Nairobi", "Toronto", "Leeds", "Porto", "Austin", "Bergen", "Quito",
          "Naples", "Perth", "Lyon", "Graz", "Boston", "Turku", "Dublin")  # fmt: skip
COMPANIES = ("Acmetron", "Bluefield", "Norvik", "Solara", "Zentrix", "Quandel", "Hollberg", "Pinewood", "Lumina")
PRODUCTS = ("phone", "vacuum cleaner", "shampoo", "coffee maker", "laptop", "running shoe", "mattress", "toothpaste")
TOPICS = ("Memory", "Nutrition", "Climate", "Language", "Markets", "Sleep", "Education", "Robotics", "Music", "Soils")
WORDS = ("amber", "river", "falcon", "meadow", "signal", "lantern", "harbor", "cedar", "comet", "marble", "saffron")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November")
TLDS = ("com", "org", "net", "io", "info", "edu")
