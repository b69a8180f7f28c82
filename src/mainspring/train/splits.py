"""Who is held out: texts by a hash of their id, behaviors by the lists in `content/`, made-up traits by their keys.

A row of a held-out behavior is a test row only where its text is too; no view that shows a held-out behavior, and no
statement of a held-out family, is ever trained on.
"""

from mainspring.train.content import persona as p
from mainspring.train.content.examples import PRESENT, Example, Row, rng_for

TRAIN, CALIBRATION, TEST = 0, 1, 2
SPLITS = ("train", "calibration", "test")
TEST_SHARE, CALIBRATION_SHARE = 0.08, 0.05
TRAIT_CALIBRATION, TRAIT_TEST = "trait-calibration", "trait-test"  # of made-up traits
HELD_GROUPS = {"edits_unseen": TEST, "edits_calibration": CALIBRATION}
# Rows of a (group, behavior, label) that a held-out split keeps.
CAP = {
    "persona_unseen": 50,
    "persona_forms": 12,
    "persona_other": 6,
    "natural": 150,
    "edits_unseen": 60,
    "attitudes_unseen": 24,
    "made_up_unseen": 40,
}
# Rows of these are counted, and marked, by the base of a behavior.
BY_BASE = ("rules", "attitudes_unseen")
DEFAULT_CAP = 36


def text_split(text_id: str) -> int:
    """Statements of made-up traits go with their trait; tasks put together are for training alone."""
    if text_id.startswith(("trait/", "task/")):
        return TRAIN
    chance = rng_for("split", text_id).random()
    return TEST if chance < TEST_SHARE else CALIBRATION if chance < TEST_SHARE + CALIBRATION_SHARE else TRAIN


def family_split(behavior_key: str) -> int:
    """TRAIN for what may be trained on."""
    if (made_up := behavior_key.partition("/")[0]) in (TRAIT_CALIBRATION, TRAIT_TEST):
        return TEST if made_up == TRAIT_TEST else CALIBRATION
    kind, _, trait = behavior_key.partition(":")
    family = p.FAMILY_OF.get(trait) if kind in ("persona", "user_persona") else None
    return TEST if family in p.TEST_FAMILIES else CALIBRATION if family in p.CALIBRATION_FAMILIES else TRAIN


def example_split(example: Example) -> int | None:
    """The split of a whole example; None: it shows something held out and belongs to no split."""
    found = text_split(example.text_id)
    held = {family_split(row.behavior.key) for row in example.rows} - {TRAIN}
    if held:  # statements of held-out families need no held-out texts: none of theirs is trained on
        return held.pop()
    shown = {HELD_GROUPS[row.group] for row in example.rows if row.group in HELD_GROUPS and row.label == PRESENT}
    if shown and found not in shown:
        return None
    return found


def row_split(row: Row, split: int) -> bool:
    """Whether the row may stay in its example's split."""
    held = HELD_GROUPS.get(row.group, family_split(row.behavior.key))
    if row.group.startswith("persona") and held == TRAIN and split != TRAIN:
        return True
    return held in (TRAIN, split)


def marked_as(row: Row) -> str:
    """The name that its marks are averaged under."""
    return row.behavior.base if row.group in BY_BASE else row.behavior.key


def report_group(row: Row, split: int) -> str:
    """The group that marks are reported under."""
    if row.group in ("persona", "persona_other"):
        held = family_split(row.behavior.key) != TRAIN
        return "persona_unseen" if held else "persona_seen" if row.group == "persona" else row.group
    if row.group.startswith("persona"):
        return "persona_forms"
    return "edits_unseen" if row.group == "edits_calibration" and split == CALIBRATION else row.group
