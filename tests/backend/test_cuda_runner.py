"""A round is waited for once, and its outcome stays what it was when its place goes to another round."""

import torch

from mainspring.backend.cuda_slots.runner import Launched


class Event:
    def __init__(self) -> None:
        self.waits = 0

    def synchronize(self) -> None:
        self.waits += 1


def test_a_round_that_was_taken_is_not_waited_for_again_when_its_place_is_needed() -> None:
    event, place = Event(), torch.arange(3)
    launched = Launched(place, torch.zeros(0), event)
    assert launched.wait().tolist() == [0, 1, 2]
    launched.wait()
    launched.move_aside()
    assert event.waits == 1
    place.zero_()
    assert launched.wait().tolist() == [0, 1, 2]


def test_a_round_that_nobody_took_is_waited_for_before_its_place_is_another_s() -> None:
    event = Event()
    Launched(torch.arange(3), torch.zeros(0), event).move_aside()
    assert event.waits == 1
