"""How much one key may: requests a second, requests at once, tokens a day. Pure; time is an argument.

Each gateway counts for itself; `share` is its part of a key's rate and quota where several serve one router.
"""

from msgspec import Struct

from mainspring.gateway.errors import BusyError, QuotaError, RateError
from mainspring.gateway.keys import Key

DAY_S = 86_400.0
MAX_OPEN = 1 << 31
"""Of the one tenant where there are no keys: the gateway's own limit holds."""


class Bucket:
    """Tokens that fill up at `rate` a second to at most `burst`."""

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        self.rate, self.burst = rate, burst
        self._level, self._at_s = burst, now_s

    def take(self, now_s: float) -> float:
        """0.0 where one was there, else the seconds after which it is."""
        self._level = min(self.burst, self._level + max(0.0, now_s - self._at_s) * self.rate)
        self._at_s = now_s
        if self._level >= 1.0:
            self._level -= 1.0
            return 0.0
        return (1.0 - self._level) / self.rate


class Day(Struct):
    """Tokens charged on the UTC day `number`."""

    number: int
    tokens: int = 0


class Ledger:
    """Of all tenants of one gateway."""

    def __init__(self, concurrent: int, share: float) -> None:
        self._concurrent, self._share = concurrent, share
        self._open: dict[str, int] = {}
        self._buckets: dict[str, Bucket] = {}
        self._days: dict[str, Day] = {}

    def enter(self, key: Key, now_s: float, *, counted: bool = True) -> None:
        """A request begins; `leave` must follow where nothing was raised. RateError, BusyError."""
        most = key.concurrent or (self._concurrent if key.name else MAX_OPEN)
        held = self._open.get(key.name, 0)
        if held >= most:
            raise BusyError(f"{held} requests of this key are open, at most {most} may be",
                            retry_after_s=1.0, limit=most, actual=held + 1)  # fmt: skip
        if key.rate and counted:
            wait_s = self._bucket(key, now_s).take(now_s)
            if wait_s > 0.0:
                raise RateError(f"this key has {key.rate:g} requests a second", retry_after_s=wait_s, limit=key.rate)
        self._open[key.name] = held + 1

    def leave(self, key: Key) -> None:
        held = self._open.get(key.name, 1) - 1
        if held > 0:
            self._open[key.name] = held
        else:
            self._open.pop(key.name, None)

    def charge(self, key: Key, tokens: int, wall_s: float) -> None:
        """QuotaError when the day's tokens would be exceeded; the next day begins at midnight UTC."""
        if not key.daily_tokens:
            return
        day = self._day(key, wall_s)
        most = int(key.daily_tokens * self._share)
        if day.tokens + tokens > most:
            raise QuotaError(
                f"{tokens:,} tokens on top of {day.tokens:,} exceed the {most:,} of this key's day",
                retry_after_s=DAY_S - wall_s % DAY_S, limit=most, actual=day.tokens + tokens,
            )  # fmt: skip
        day.tokens += tokens

    def spend(self, key: Key, tokens: int, wall_s: float) -> None:
        """What was written: it can't be refused any more, and the next request may be for it."""
        if key.daily_tokens:
            self._day(key, wall_s).tokens += tokens

    def give_back(self, key: Key, tokens: int, wall_s: float) -> None:
        """What was charged and not answered."""
        day = self._days.get(key.name)
        if day is not None and day.number == int(wall_s // DAY_S):
            day.tokens = max(0, day.tokens - tokens)

    def used(self, key: Key, wall_s: float) -> int:
        """Tokens of this day so far."""
        day = self._days.get(key.name)
        return day.tokens if day is not None and day.number == int(wall_s // DAY_S) else 0

    def forget(self, names: set[str]) -> None:
        """Keys that are no longer in the file."""
        for table in (self._buckets, self._days):
            for name in [name for name in table if name not in names]:
                del table[name]

    def _day(self, key: Key, wall_s: float) -> Day:
        number = int(wall_s // DAY_S)
        day = self._days.get(key.name)
        if day is None or day.number != number:
            day = self._days[key.name] = Day(number)
        return day

    def _bucket(self, key: Key, now_s: float) -> Bucket:
        rate, burst = key.rate * self._share, max(1.0, (key.burst or 2.0 * key.rate) * self._share)
        bucket = self._buckets.get(key.name)
        if bucket is None or (bucket.rate, bucket.burst) != (rate, burst):
            bucket = self._buckets[key.name] = Bucket(rate, burst, now_s)
        return bucket
