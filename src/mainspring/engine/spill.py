"""Between the prefix store and a disk: checkpoints out of a device, and into it again."""

from typing import Protocol

from mainspring.backend.generation import CheckpointSize
from mainspring.engine.prefix_disk import Leaving, PrefixDisk
from mainspring.engine.tensor_file import Arrays
from mainspring.errors import DeviceMemoryError


class Spilling(Protocol):
    """A device whose checkpoints can leave it, bit for bit."""

    def dump(self, checkpoint: int) -> Leaving:
        """All that it is; not begun."""
        ...

    def load(self, arrays: Arrays, length: int) -> int:
        """What `dump` gave again, of so many tokens. ValueError where the arrays are of something else,
        DeviceMemoryError where they find no room."""
        ...

    def checkpoint_size(self, checkpoint: int) -> CheckpointSize: ...


class Spill:
    def __init__(self, disk: PrefixDisk, device: Spilling) -> None:
        self.disk, self._device = disk, device

    def keep(self, key: bytes, checkpoint: int) -> None:
        if key not in self.disk:
            self.disk.put(key, self._device.dump(checkpoint))

    def load(self, key: bytes, length: int, room: int) -> tuple[int, CheckpointSize] | None:
        """(checkpoint, size), the caller's now. What is above `room` bytes is not read: it would be again each time its
        prompt comes, and streams wait meanwhile."""
        if self.disk.bytes_of(key) > room:
            return None
        arrays = self.disk.get(key)
        if arrays is None:
            return None
        try:
            checkpoint = self._device.load(arrays, length)
        except ValueError:
            self.disk.remove(key)
            return None
        except DeviceMemoryError:  # the slot has its room already: the prompt is scanned there
            return None
        return checkpoint, self._device.checkpoint_size(checkpoint)
