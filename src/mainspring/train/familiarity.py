"""Bags of tokens of the behaviors that were trained on, for `text.familiarity`."""

from collections import Counter

import numpy as np

from mainspring.text.familiarity import Familiarity
from mainspring.train.arrays import TrainingData
from mainspring.train.splits import TRAIN


def familiarity_of(data: TrainingData) -> Familiarity:
    """Behaviors that carry a parameter (a tool's name) count as one a name; those made of quotes or by composition
    (a "/" in their base) do not count."""
    bags: dict[str, Counter[int]] = {}
    for number in np.unique(data.rows.behavior[data.rows.split == TRAIN]):
        name = str(data.behaviors[number])
        full = name.startswith(("persona:", "user_persona:"))
        if "/" in (name if full else name.partition(":")[0]):
            continue
        bag = bags.setdefault(name if full else name.partition(":")[0], Counter())
        for wording in data.wordings[number]:
            bag.update(set(data.definitions[wording].tolist()))
    return Familiarity.of(list(bags.values()), int(data.definitions.values.max()) + 1)
