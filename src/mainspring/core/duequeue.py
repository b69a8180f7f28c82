"""Shards of one model and priority in order of (due, sequence), with the work ahead of any place in it.

A list of buckets of at most `CAP` shards, each with sums of its work. Insert and remove are two bisections; `ahead`
adds bucket sums at C speed and takes a share by rank of one bucket, so it is exact at bucket bounds, monotone between.
`slack` remembers, per bucket, how much the least patient member could be delayed when it was admitted: whoever wants to
jump ahead must fit into it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from mainspring.core.jobs import FOREVER, Shard
from mainspring.core.nouns import NO_WORK, Work

CAP = 512
Key = tuple[float, int]


def plus(a: Work, b: Work) -> Work:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


class DueQueue:
    __slots__ = ("_items", "_pairs", "_rows", "_slack", "_tops", "_views", "total")

    def __init__(self) -> None:
        self._items: list[list[tuple[Key, int, Shard]]] = []
        self._tops: list[Key] = []
        self._views: list[int] = []
        self._rows: list[int] = []
        self._pairs: list[int] = []
        self._slack: list[float] = []
        self.total: Work = NO_WORK

    def __len__(self) -> int:
        return self.total[0]

    def add(self, shard: Shard) -> None:
        entry = (shard.key, shard.index, shard)
        if not self._items:
            self._open(0, [entry])
        else:
            at = min(bisect_left(self._tops, shard.key), len(self._tops) - 1)
            insort(self._items[at], entry)
            self._tops[at] = self._items[at][-1][0]
            self._count(at, shard, 1)
            self._slack[at] = min(self._slack[at], shard.slack_s)
            if len(self._items[at]) > CAP:
                self._split(at)
        self.total = plus(self.total, shard.work)
        shard.queued = True

    def remove(self, shard: Shard) -> None:
        at = bisect_left(self._tops, shard.key)
        entry = (shard.key, shard.index)
        while True:  # equal keys (shards of one job) may straddle two buckets
            bucket = self._items[at]
            place = bisect_left(bucket, entry)
            if place < len(bucket) and bucket[place][2] is shard:
                break
            at += 1
        del bucket[place]
        if bucket:
            self._tops[at] = bucket[-1][0]
            self._count(at, shard, -1)
        else:
            for column in (self._items, self._tops, self._views, self._rows, self._pairs, self._slack):
                del column[at]
        n, v, r, p = shard.work
        total = self.total
        self.total = (total[0] - n, total[1] - v, total[2] - r, total[3] - p)
        shard.queued = False

    def ahead(self, key: Key) -> Work:
        """Work of what is due before `key`; all of it where `key` is the last."""
        if not self._tops or key > self._tops[-1]:
            return self.total
        at = bisect_left(self._tops, key)
        bucket = self._items[at]
        rank = bisect_left(bucket, (key,))
        n = len(bucket)
        return (
            sum(map(len, self._items[:at])) + rank,
            sum(self._views[:at]) + self._views[at] * rank // n,
            sum(self._rows[:at]) + self._rows[at] * rank // n,
            sum(self._pairs[:at]) + self._pairs[at] * rank // n,
        )

    def last(self) -> Key | None:
        return self._tops[-1] if self._tops else None

    def head(self) -> Shard | None:
        return self._items[0][0][2] if self._items else None

    def scan(self, skip: int = 0) -> Iterator[Shard]:
        """In order, after the first `skip`. Whoever removes while scanning must stop scanning."""
        for bucket in self._items:
            if skip >= len(bucket):
                skip -= len(bucket)
                continue
            for at in range(skip, len(bucket)):
                yield bucket[at][2]
            skip = 0

    def slack_after(self, key: Key) -> float:
        """How much everyone due after `key` can be delayed: the least of the buckets concerned."""
        at = bisect_left(self._tops, key)
        return min(self._slack[at:], default=FOREVER)

    def delay_after(self, key: Key, delay_s: float) -> None:
        """Somebody jumps ahead of them."""
        for at in range(bisect_left(self._tops, key), len(self._slack)):
            self._slack[at] -= delay_s

    def _open(self, at: int, entries: list[tuple[Key, int, Shard]]) -> None:
        shards = [entry[2] for entry in entries]
        self._items.insert(at, entries)
        self._tops.insert(at, entries[-1][0])
        self._views.insert(at, sum(shard.work[1] for shard in shards))
        self._rows.insert(at, sum(shard.work[2] for shard in shards))
        self._pairs.insert(at, sum(shard.work[3] for shard in shards))
        self._slack.insert(at, min(shard.slack_s for shard in shards))

    def _split(self, at: int) -> None:
        bucket = self._items[at]
        half = len(bucket) // 2
        slack = self._slack[at]
        for column in (self._items, self._tops, self._views, self._rows, self._pairs, self._slack):
            del column[at]
        self._open(at, bucket[half:])
        self._open(at, bucket[:half])
        self._slack[at] = self._slack[at + 1] = slack

    def _count(self, at: int, shard: Shard, sign: int) -> None:
        self._views[at] += sign * shard.work[1]
        self._rows[at] += sign * shard.work[2]
        self._pairs[at] += sign * shard.work[3]
