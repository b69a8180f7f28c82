"""What this process did since it began: for `/status` and `/metrics`. Counted once, where it happens."""

from collections import Counter

ROUTES_MOST = 64
CODES_MOST = 64


class Counts:
    """`finished` by (route, status); `refused` by code; every request that began is open or finished. `streams` are
    replies being written; `lengths[n]` rounds emitted n tokens, the bonus token included."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.begun = 0
        self.open = 0
        self.finished: Counter[tuple[str, int]] = Counter()
        self.refused: Counter[str] = Counter()
        self.input_tokens = 0
        self.cached_tokens = 0
        self.scored_requests = 0
        self.streams = 0
        self.replies = 0
        self.prompt_tokens = 0
        self.prompt_cached_tokens = 0
        self.output_tokens = 0
        self.rounds = 0
        self.drafted_tokens = 0
        self.accepted_tokens = 0
        self.lengths: Counter[int] = Counter()
        self.listeners = 0
        self.buffered_bytes = 0

    def up_s(self, now_s: float) -> float:
        return now_s - self.began_s

    def begin(self) -> None:
        self.begun += 1
        self.open += 1

    def end(self, route: str, status: int, code: str) -> None:
        """`code` empty for what was answered."""
        self.open -= 1
        self.finished[(route, status)] += 1
        if code:
            self.refused[code if code in self.refused or len(self.refused) < CODES_MOST else "other"] += 1

    def wrote(self, prompt: int, cached: int, tokens: int, rounds: int, drafted: int, accepted: int) -> None:
        """One reply ended, or was taken back after its first tokens."""
        self.replies += 1
        self.prompt_tokens += prompt
        self.prompt_cached_tokens += cached
        self.output_tokens += tokens
        self.rounds += rounds
        self.drafted_tokens += drafted
        self.accepted_tokens += accepted

    def scored(self, tokens: int, cached: int) -> None:
        self.scored_requests += 1
        self.input_tokens += tokens
        self.cached_tokens += cached
