"""Where a text is tokenised: on the loop where that takes less than the way to a thread and back costs. Pure.

A thread costs some ten switches between two threads that want one interpreter, each of which may take its switch
interval (5 ms): at 150 requests a second that was 60 of the 100 ms of the slowest requests, for half a millisecond of
work. How long a character takes is measured, since tokenizers differ by a factor of twenty.
"""

ON_LOOP_S = 0.001
"""What the loop may be held for a text."""
FIRST_S = 2e-7
"""A character's time before any was measured: a slow tokenizer's."""
STEP = 0.1
"""Of the running mean, a measurement."""
LEAST_CHARS = 4096
"""Less is always done at once, and is too little to measure by."""


class TextSpeed:
    """`a_char_s`: the running mean of CPU seconds a character."""

    def __init__(self) -> None:
        self.a_char_s = FIRST_S

    def is_quick(self, chars: int) -> bool:
        return chars <= LEAST_CHARS or chars * self.a_char_s <= ON_LOOP_S

    def note(self, chars: int, cpu_s: float) -> None:
        """`cpu_s`: of the thread that did it, so that waiting for a core or for the interpreter is not in it."""
        if chars > LEAST_CHARS and cpu_s > 0.0:
            self.a_char_s += STEP * (cpu_s / chars - self.a_char_s)
