"""What the scheduler keeps of a pass, and what it says."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from mainspring.engine import Segment
from mainspring.node.dependants import with_dependants
from mainspring.node.probe import Shape
from mainspring.node.tasks import Chunk, Task
from mainspring.node.views import Claim
from mainspring.wire import messages as m


@dataclass(frozen=True)
class Say:
    """`message` is to go out on `stream` of the link with that serial number, if it is still there."""

    link: int
    stream: int
    message: m.Message


@dataclass
class PassJob:
    """A pass from receipt to its answer.

    `taken`: indices of the work's parts that `claim` and `segments` are about; the others build on what was not here.
    `left`: those of `taken`, by their place in it, that are run: what they build on may go while they wait. `missing`:
    keys to name in the answer. `prompts`: indices of parts of leases' prompts, with their `chunks` from the begin on;
    `spoilt`: those that came to nothing, and why (None: their lease is gone).
    """

    link: int
    stream: int
    work: m.Work
    claim: Claim
    segments: list[Segment]
    arrived_s: float
    nbytes: int
    taken: list[int]
    missing: tuple[str, ...] = ()
    left: list[int] = field(default_factory=list)
    began_s: float = 0.0
    prompts: list[int] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    spoilt: dict[int, BaseException | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = list(range(len(self.taken)))

    @property
    def task(self) -> Task:
        return Task(self.segments, tuple(self.chunks))

    def find_chunks(self, chunk_of: Callable[[m.Part], Chunk | None]) -> None:
        """At the begin: prompts whose lease is gone meanwhile are not scanned."""
        found = {index: chunk_of(self.work.parts[index]) for index in self.prompts}
        self.spoilt = {index: None for index, chunk in found.items() if chunk is None}
        self.prompts = [index for index in self.prompts if index not in self.spoilt]
        self.chunks = [chunk for chunk in found.values() if chunk is not None]

    def lose(self, lost: Collection[int], keys: tuple[str, ...]) -> None:
        """These of `taken` can't be run, nor what shares their views."""
        gone = with_dependants([segment.parent for segment in self.segments], lost)
        self.left = [place for place in self.left if place not in gone]
        self.segments = subset(self.segments, self.left)
        self.missing = tuple(dict.fromkeys((*self.missing, *keys)))

    def failed(self, places: Collection[int]) -> tuple[int, ...]:
        """Indices of the work's parts without an answer, where of those that were run the ones at `places` failed."""
        sound = {self.taken[self.left[place]] for place in range(len(self.left)) if place not in places}
        sound.update(index for index in self.prompts if index not in self.spoilt)
        return tuple(index for index in range(len(self.work.parts)) if index not in sound)


@dataclass(frozen=True)
class ProbeJob:
    """A measurement in idle time; `canary`: only to see that the device still answers."""

    shape: Shape
    segments: list[Segment]
    canary: bool = False

    @property
    def task(self) -> Task:
        return Task(self.segments)


@dataclass(frozen=True)
class RoundJob:
    """A round of these streams. `forwarded`: those that have a token already, with `context` tokens together; the
    others' first token comes of the prompt's last row, at no cost."""

    names: tuple[str, ...]
    context: int
    forwarded: frozenset[str] = frozenset()

    @property
    def task(self) -> Task:
        return Task(round=self.names)


@dataclass(frozen=True)
class SweepJob:
    """Nothing but to let go of streams."""

    task = Task()


Job = PassJob | ProbeJob | RoundJob | SweepJob


@dataclass
class Turn:
    """`cancels`: streams that the device lets go of before it does the job."""

    says: list[Say] = field(default_factory=list)
    job: Job | None = None
    cancels: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        assert self.job is not None  # noqa: S101 - asked where there is one
        return replace(self.job.task, cancels=self.cancels)


def subset(segments: Sequence[Segment], left: Sequence[int]) -> list[Segment]:
    """Only these, each pointing at where its parent is now."""
    place = {index: at for at, index in enumerate(left)}
    return [replace(segments[index], parent=place.get(segments[index].parent, -1)) for index in left]
