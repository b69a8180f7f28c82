"""Frames around a clause such as "the reply contains a URL": many ways to write the same definition.

`TEST_FRAMES` and each behavior's `test` clauses are never seen in training.
"""

from dataclasses import dataclass, field

FRAMES = (
    "{c}",
    "{C}.",
    "{C}.",
    "Behavior: {c}",
    "In this conversation, {c}.",
    "Is it true that {c}?",
    "Check whether {c}.",
    "Behavior: {c}\nPresent when: this can be seen in the conversation\nAbsent when: it can't be seen",
    "Present when {c}, absent otherwise.",
    "{C}, going by the text alone.",
)
TEST_FRAMES = ("It is the case that {c}.", "{C} (yes or no).", "We look for this: {c}.")


@dataclass(frozen=True)
class Behavior:
    """`train` and `test` are clauses, or definitions as they stand where `whole` says so; `base` groups the behaviors
    that one name stands for in the marks."""

    key: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    needs: tuple[str, ...] = field(default=())  # what a span must show for the behavior to be told: see `facts`
    whole: bool = False

    @property
    def base(self) -> str:
        return self.key.partition(":")[0]


def worded(key: str, clauses: str, test: str, *needs: str) -> Behavior:
    """A behavior whose clauses stand between bars, all of them beside its code."""
    return Behavior(key, tuple(part.strip() for part in clauses.split("|")), (test,), needs)


def framed(clause: str, frames: tuple[str, ...]) -> list[str]:
    return [frame.format(c=clause, C=clause[:1].upper() + clause[1:]) for frame in frames]


def definitions(behavior: Behavior, *, test: bool) -> list[str]:
    """Every wording: seen clauses in seen frames, or unseen clauses in unseen frames; whole ones as they are."""
    clauses, frames = (behavior.test, TEST_FRAMES) if test else (behavior.train, FRAMES)
    if behavior.whole:
        return list(clauses)
    return [text for clause in clauses for text in dict.fromkeys(framed(clause, frames))]
