"""Slots of a device, taken and let go of. One that the device keeps is retired until it gives it back.

Who is done with a stream has nothing to do about a slot, so letting go never raises; a slot that is neither a stream's
nor free would be lost in silence otherwise.
"""

import logging

from mainspring.backend.generation import GenerationBackend
from mainspring.engine.stream_records import SlotsFullError
from mainspring.errors import DeviceError

log = logging.getLogger(__name__)


class SlotKeeper:
    """`retired`: each of them is tried again before a slot is taken."""

    def __init__(self, backend: GenerationBackend) -> None:
        self.retired: set[int] = set()
        self._backend = backend
        self._taken: set[int] = set()

    @property
    def free(self) -> int:
        return self._backend.limits.slots - len(self._taken) - len(self.retired)

    def take(self, *, drafting: bool, capacity: int) -> int:
        """SlotsFullError; DeviceError where all are retired."""
        slots = self._backend.limits.slots
        for slot in sorted(self.retired):
            self._close(slot)
        if not self.free and not self._taken:
            raise DeviceError(f"the device has let go of none of its {slots} slots")
        if not self.free:
            retired = f", {len(self.retired)} of them retired" if self.retired else ""
            raise SlotsFullError(f"all {slots} slots are taken{retired}")
        slot = self._backend.open_slot(drafting=drafting, capacity=capacity)
        self.retired.discard(slot)  # the device had let go of it after all
        self._taken.add(slot)
        return slot

    def let_go(self, slot: int) -> None:
        self._taken.discard(slot)
        self._close(slot)

    def _close(self, slot: int) -> None:
        try:
            self._backend.close_slot(slot)
        except Exception as error:
            if slot not in self.retired:
                log.error(
                    "slot %d of %d can't be let go of (%s): no stream gets it until it can", slot,
                    self._backend.limits.slots, type(error).__name__,
                )  # fmt: skip
            self.retired.add(slot)
        else:
            self.retired.discard(slot)
