"""A progress bar on stderr, where that is a terminal: spans done, spans a second, the part of the input read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
from rich.text import Text

from mainspring.cli._terminal import Screen


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        spans = task.fields["spans"]
        return Text(f"{spans:,} spans  {spans / max(task.elapsed or 0.0, 1e-3):.1f}/s")


class SpanProgress:
    """Gone when it ends. `total` in bytes; None, and the bar only shows that something goes on."""

    def __init__(self, screen: Screen, total: int | None) -> None:
        self._bar = Progress(
            BarColumn(),
            _Speed(),
            TimeElapsedColumn(),
            console=screen.console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._shown = screen.is_terminal
        self._spans = 0
        self._task = self._bar.add_task("spans", total=total, spans=0)

    def __enter__(self) -> Self:
        if self._shown:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._bar.stop()

    def advance(self, read_bytes: int) -> None:
        self._spans += 1
        self._bar.update(self._task, completed=read_bytes, spans=self._spans)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While something else prints, perhaps to the same terminal."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()
