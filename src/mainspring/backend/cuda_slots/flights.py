"""Rounds under way, and those that came back before anybody asked for them.

While the device runs a round the next one is already queued behind it, from words that stay on the device. Whoever asks
next gets it, if it is what they ask for: the same last token, as many tokens left, nothing but the device's own drafts.
Lanes are independent, so each slot's part is taken or thrown away by itself; a part thrown away leaves the slot as it
was, since no row of it stands (`ops.gated_delta.triton_step`).
"""

import time
from dataclasses import dataclass, field

from mainspring.backend.cuda_slots.runner import Launched
from mainspring.backend.cuda_slots.slot import Slot


@dataclass(eq=False)
class Lane:
    """`most_rows`: what may stand after it. `draft`: what the device's head was asked for."""

    slot: Slot
    place: int
    most_rows: int
    draft: int
    forwarded: bool = True


@dataclass(eq=False)
class Flight:
    """`rows` a lane of the launch; `total` of all its lanes."""

    launched: Launched
    lanes: list[Lane]
    rows: int
    total: int
    began: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, eq=False)
class Landed:
    """One lane's outcome, words on the host."""

    flight: Flight
    lane: Lane
    words: list[int]


class Flights:
    def __init__(self) -> None:
        self._under_way: list[Flight] = []
        self._landed: dict[int, Landed] = {}  # by slot number, not asked for yet

    def add(self, flight: Flight) -> None:
        self._under_way.append(flight)

    def lane(self, slot: Slot) -> Lane | None:
        """The slot's lane in the oldest round that nobody has asked for."""
        landed = self._landed.get(slot.number)
        if landed is not None:
            return landed.lane
        return next((lane for flight in self._under_way for lane in flight.lanes if lane.slot is slot), None)

    def rounds(self, slot: Slot) -> int:
        """How many of its rounds nobody has asked for."""
        under_way = sum(lane.slot is slot for flight in self._under_way for lane in flight.lanes)
        return under_way + (slot.number in self._landed)

    def holding(self, slot: Slot) -> Flight | None:
        return next((f for f in self._under_way if any(lane.slot is slot for lane in f.lanes)), None)

    def forget(self, slot: Slot) -> None:
        """Nobody will ask for what is under way for it."""
        self._landed.pop(slot.number, None)
        for flight in self._under_way:
            flight.lanes = [lane for lane in flight.lanes if lane.slot is not slot]
        self._under_way = [flight for flight in self._under_way if flight.lanes]

    def take(self, slot: Slot) -> Landed:
        """The slot's outcome, waited for where it is still under way; the rest of its round lands beside it."""
        if slot.number not in self._landed:
            flight = self.holding(slot)
            if flight is None:
                raise ValueError(f"slot {slot.number} has no round under way")
            outcome = flight.launched.wait().tolist()
            self._under_way.remove(flight)
            for lane in flight.lanes:
                self._landed[lane.slot.number] = Landed(flight, lane, outcome[lane.place])
        return self._landed.pop(slot.number)
