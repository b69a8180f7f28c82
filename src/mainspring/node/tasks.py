"""What the device does in one go: streams let go of, segments of views, chunks of prompts, then a round."""

from collections.abc import Sequence
from dataclasses import dataclass

from mainspring.engine import Segment
from mainspring.engine.stream_records import StreamSpec
from mainspring.errors import MainspringError


class PromptGoneError(MainspringError):
    """The checkpoint that the router counted on is not here: nothing of the stream is kept."""

    code = "prompt_gone"

    def __init__(self, start: int, have: int) -> None:
        super().__init__(f"{start} tokens of the prompt were to be here, {have} are")


@dataclass(frozen=True)
class Chunk:
    """Scan a stream's prompt up to `to`, opening the stream where it is not; the router believes it to stand at
    `start`. `grammar` is (kind, text), kind "" for none."""

    spec: StreamSpec
    start: int
    to: int
    grammar: tuple[str, str] = ("", "")

    @property
    def ends(self) -> bool:
        return self.to == len(self.spec.tokens)


@dataclass(frozen=True)
class Task:
    """`round`: streams whose prompts are in. `cancels`: streams that nobody waits for; unknown ones are no fault."""

    segments: Sequence[Segment] = ()
    chunks: tuple[Chunk, ...] = ()
    round: tuple[str, ...] = ()
    cancels: tuple[str, ...] = ()
