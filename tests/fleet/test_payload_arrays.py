"""Arrays of a request are looked at by Python where they are short and by numpy where not: nobody sees which."""

from itertools import accumulate

import pytest
from msgspec.structs import replace

from mainspring.errors import TooLargeError
from mainspring.fleet.admission import MAX_LABELS, Models, request_of
from mainspring.fleet.payloads import offsets
from mainspring.wire.records import FEW_BYTES
from support.fleet import submit, words

FEW = FEW_BYTES // 4
COUNTS = [1, FEW - 1, FEW, FEW + 1, 40 * FEW]


class AnyModel(Models):
    def key(self, name: str) -> str:
        return name


@pytest.mark.parametrize("count", [0, *COUNTS])
def test_offsets_are_sums_of_what_came_before(count: int) -> None:
    lengths = [1 + index % 7 for index in range(count)]
    lengths[-1:] = [0xFFFF_FFFF] * min(1, count)  # beyond what 32 bits hold
    assert offsets(words(*lengths)).tolist() == list(accumulate(lengths, initial=0))


@pytest.mark.parametrize("at", [0, -1])
@pytest.mark.parametrize("count", COUNTS)
def test_the_branch_with_too_many_labels_is_found(count: int, at: int) -> None:
    counts = [1] * count
    counts[at] = MAX_LABELS
    models = AnyModel({})
    asked = submit(branches=count, rows=1)
    kept = request_of(replace(asked, label_counts=words(*counts)), "r", models, 0.0)
    assert kept.branches == (1,) * count
    counts[at] += 1
    with pytest.raises(TooLargeError) as refused:
        request_of(replace(asked, label_counts=words(*counts)), "r", models, 0.0)
    assert (refused.value.param, refused.value.limit, refused.value.actual) == (
        "label_counts", MAX_LABELS, MAX_LABELS + 1,
    )  # fmt: skip
