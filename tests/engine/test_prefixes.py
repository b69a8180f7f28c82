"""Prefix checkpoints: a hit is a miss, round by round; only what is new is read; nothing rejected gets in."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mainspring.backend.generation import CheckpointSize
from mainspring.backend.torch_slots.network import Network
from mainspring.engine import prefixes as module
from mainspring.engine.prefixes import Chain, PrefixStore
from mainspring.engine.stream_records import StreamSpec
from mainspring.engine.streams import Streams
from mainspring.engine.work import CheckpointGoneError
from support.slots import plain, prompt, tiny_slots
from support.streams import Told, run, tiny_streams, written

PROMPT = prompt(1, 150)
PLAIN = plain(PROMPT, 40)
SPEC = StreamSpec(id="a", tokens=PROMPT, max_tokens=30, draft_tokens=3)


def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens of every scan from now on."""
    lengths: list[int] = []
    real = Network.piece

    def piece(self: Network, tokens: Any, *rest: Any) -> Any:
        lengths.append(len(tokens))
        return real(self, tokens, *rest)

    monkeypatch.setattr(Network, "piece", piece)
    return lengths


@pytest.mark.parametrize("drafter", ["none", "ngram", "mtp"])
@pytest.mark.parametrize("length", [150, 128, 40])
def test_an_exact_repeat_runs_no_forward(drafter: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = tiny_streams(tiny_slots(mtp=True))
    spec = replace(SPEC, tokens=PROMPT[:length], drafter=drafter)
    first = run(streams, spec)
    lengths = scans(monkeypatch)
    again = run(streams, spec)
    assert lengths == []
    assert again.ended["a"].cached_tokens == length
    assert again.log == first.log  # the drafts of every round too
    assert drafter != "mtp" or first.ended["a"].drafted > 50


@pytest.mark.parametrize("drafter", ["none", "ngram", "mtp"])
def test_follow_up_turns_read_only_what_is_new(drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn after turn, from the grid position before the last prompt's end; text and rounds as without a cache."""
    streams, tokens = tiny_streams(tiny_slots(mtp=True)), PROMPT
    lengths = scans(monkeypatch)
    for turn in range(4):
        spec = replace(SPEC, tokens=tokens, drafter=drafter)
        before = sum(lengths)
        told = run(streams, spec)
        cached = told.ended["a"].cached_tokens
        if turn:
            assert cached == len(previous) // 64 * 64  # noqa: F821 - of the turn before
        assert sum(lengths) - before == len(tokens) - cached
        assert told.log == run(tiny_streams(tiny_slots(mtp=True), cache_bytes=0), spec).log
        previous = tokens  # noqa: F841
        tokens = np.concatenate([tokens, told.tokens["a"], prompt(50 + turn, 20)])


def test_where_two_prompts_part_is_kept_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long common beginning that is nobody's prompt by itself."""
    streams = tiny_streams()
    common = prompt(60, 400)
    asked = [np.concatenate([common, prompt(61 + i, 90)]) for i in range(3)]
    cached = [run(streams, replace(SPEC, tokens=each)).ended["a"].cached_tokens for each in asked]
    assert cached == [0, 0, 384]
    assert [written(streams, replace(SPEC, tokens=each)) for each in asked] == [plain(each, 30) for each in asked]


def test_marks_are_kept_on_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = tiny_streams()
    assert streams.changes() == ([], [])
    tokens = prompt(3, 500)
    run(streams, replace(SPEC, tokens=tokens, marks=((200, b"turn"), (460, b"end"), (30, b"too early"))))
    gained, dropped = streams.changes()
    assert sorted(gained) == [(b"end", 448), (b"turn", 192)]
    assert dropped == []
    other = np.concatenate([tokens[:300], prompt(4, 100)])
    assert run(streams, replace(SPEC, tokens=other)).ended["a"].cached_tokens == 192
    streams.prefixes.clear()
    assert streams.changes() == ([], [b"turn", b"end"])


def test_what_was_kept_for_another_reason_is_named_later() -> None:
    streams = tiny_streams()
    streams.changes()
    run(streams, SPEC)
    assert streams.changes() == ([], [])
    run(streams, replace(SPEC, marks=((130, b"turn"),)))
    assert streams.changes() == ([(b"turn", 128)], [])
    assert run(streams, replace(SPEC, tokens=PROMPT[128:], resume=b"turn")).tokens["a"] == PLAIN[:30]


def test_a_stream_resumes_by_an_outside_key() -> None:
    streams = tiny_streams()
    tokens = prompt(3, 300)
    run(streams, replace(SPEC, tokens=tokens, marks=((256, b"k"),)))
    told = run(streams, replace(SPEC, tokens=tokens[256:], resume=b"k", drafter="ngram"))
    assert told.tokens["a"] == plain(tokens, 30)
    assert told.ended["a"].prompt_tokens == 300
    assert told.ended["a"].cached_tokens == 300  # the whole prompt was here
    with pytest.raises(CheckpointGoneError):
        streams.open(replace(SPEC, resume=b"other"))
    assert streams.free_slots == 4


def test_salts_do_not_share() -> None:
    streams = tiny_streams()
    run(streams, replace(SPEC, salt=b"one"))
    assert run(streams, replace(SPEC, salt=b"two")).ended["a"].cached_tokens == 0
    assert run(streams, replace(SPEC, salt=b"one")).ended["a"].cached_tokens == 150


def test_a_hit_drafts_as_the_first_did() -> None:
    """A prefix without the drafting head's rows is no hit for one that drafts with it: it would draft nothing."""
    streams = tiny_streams(tiny_slots(mtp=True))
    run(streams, replace(SPEC, drafter="none"))
    first = run(streams, replace(SPEC, drafter="mtp"))
    assert first.ended["a"].cached_tokens == 0
    second = run(streams, replace(SPEC, drafter="mtp"))
    assert second.ended["a"].cached_tokens == 150
    assert second.log == first.log
    assert all(drafted for tokens, drafted, _ in second.log["a"][1:-1])


def test_what_was_rejected_never_gets_in() -> None:
    """Replies with many rejected drafts, then prompts that go on from theirs, also while those still write."""
    streams = tiny_streams(tiny_slots(mtp=True))
    spec = replace(SPEC, tokens=np.tile(prompt(8, 20), 10), drafter="mtp", draft_tokens=7)
    streams.open(spec)
    told = Told()
    for number in range(6):
        told.hear(streams.step())
        tokens = np.concatenate([spec.tokens, prompt(70 + number, 30)])
        mine = replace(spec, id=f"b{number}", tokens=tokens, max_tokens=5)
        assert streams.open(mine) == 192
        while mine.id in streams.live:
            told.hear(streams.step())
        assert told.tokens[mine.id] == plain(tokens, 5)
    assert sum(drafted - accepted for _, drafted, accepted in told.log["a"]) > 10
    while streams.live:
        told.hear(streams.step())
    assert told.tokens["a"] == plain(spec.tokens, 30)


@pytest.mark.parametrize("mtp", [True, False])
def test_it_survives_pressure(mtp: bool) -> None:
    """A cap that holds few: texts stay right, bytes stay below, what is counted is what is held."""
    backend = tiny_slots(mtp=mtp)
    cap = 1_200_000
    streams = Streams(backend, cache_bytes=cap)
    prompts = [np.concatenate([prompt(80 + i % 3, 100), prompt(90 + i, 60 + i)]) for i in range(8)]
    specs = [replace(SPEC, tokens=each, max_tokens=12) for each in prompts]
    wanted = [run(tiny_streams(tiny_slots(mtp=mtp), cache_bytes=0), spec).log for spec in specs]
    assert [sum((tokens for tokens, _, _ in log["a"]), ()) for log in wanted] == [tuple(plain(x, 12)) for x in prompts]
    for number in range(24):
        i = number * 5 % 8
        told = run(streams, specs[i])
        assert told.log == wanted[i]  # drafts too: what drafts and what is drafted for are kept and lost together
        assert streams.prefixes.used_bytes <= cap
        held = {kept.buffer.number: kept.buffer.rows.nbytes for kept in backend._checkpoints._items.values()}
        own = sum(kept.own_bytes for kept in backend._checkpoints._items.values())
        tokens = sum(kept.tokens.nbytes for kept in streams.prefixes._kept.values())
        assert streams.prefixes.used_bytes == own + tokens + sum(held.values())
        assert len(streams.prefixes) == len(backend._checkpoints)
    assert streams.prefixes.evictions > 5
    assert streams.stats.cached > 0


def test_clearing_while_streams_live_changes_no_text() -> None:
    streams = tiny_streams()
    run(streams, SPEC)
    streams.open(SPEC)
    streams.open(replace(SPEC, id="b", tokens=prompt(2, 300)))
    told = Told()
    while streams.live:
        told.hear(streams.step(64))
        streams.prefixes.clear()
    assert told.tokens["a"] == PLAIN[:30]
    assert told.tokens["b"] == plain(prompt(2, 300), 30)
    assert len(streams.backend._checkpoints) == len(streams.prefixes) == 0


def test_no_cache_keeps_nothing() -> None:
    streams = tiny_streams(cache_bytes=0)
    for _ in range(2):
        told = run(streams, replace(SPEC, marks=((100, b"m"),)))
        assert told.ended["a"].cached_tokens == 0
        assert told.tokens["a"] == PLAIN[:30]
    assert len(streams.backend._checkpoints) == 0


def test_cached_and_scanned_make_the_prompt() -> None:
    streams = tiny_streams()
    for number in range(6):
        tokens = np.concatenate([prompt(1, 64 * number + 10), prompt(2, 30)])
        before = streams.stats.prefilled
        told = run(streams, replace(SPEC, tokens=tokens, max_tokens=2))
        assert streams.stats.prefilled - before + told.ended["a"].cached_tokens == len(tokens)


# ---------------------------------------------------------------- the store alone


def chain(tokens: np.ndarray, salt: bytes = b"") -> Chain:
    made = Chain(salt)
    made.extend(tokens)
    return made


def test_keys_are_of_salt_and_all_tokens_before() -> None:
    tokens = prompt(1, 200)
    whole, parts = chain(tokens), Chain(b"")
    for first in range(0, 200, 30):
        parts.extend(tokens[first : first + 30])
    assert parts.keys == whole.keys
    assert parts.end() == whole.end()
    changed = tokens.copy()
    changed[70] += 1
    other = chain(changed)
    assert other.keys[0] == whole.keys[0]
    assert not set(other.keys[1:]) & set(whole.keys)
    assert not set(chain(tokens, b"x").keys) & set(whole.keys)
    assert whole.end() not in whole.keys
    assert chain(tokens[:128]).end() != whole.keys[1]  # a prompt that ends on the grid has logits beside
    assert len({chain(tokens[:n]).end() for n in range(200)}) == 200


def store(cap: int) -> tuple[PrefixStore, list[int]]:
    released: list[int] = []
    return PrefixStore(cap, released.append), released


def offer(kept: PrefixStore, name: int, rows: int, own: int, buffer: int | None = None, shared: int = 0) -> bool:
    size = CheckpointSize(own, -name if buffer is None else buffer, shared)
    return kept.offer(bytes([name]), name, np.zeros(rows, np.int64), size, None)


def test_least_work_saved_a_byte_goes_first_and_age_counts() -> None:
    kept, released = store(10_000)
    assert offer(kept, 1, 500, 1000)
    assert offer(kept, 2, 10, 1000)
    assert offer(kept, 3, 200, 1000)
    assert offer(kept, 4, 300, 2000)  # 9,040 bytes with the tokens, four bytes each
    assert offer(kept, 5, 100, 1000)
    assert released == [2]
    assert offer(kept, 6, 100, 1000)
    assert released == [2, 5]
    for name in range(7, 30):  # what is not used any more goes in the end, whatever it once saved
        offer(kept, name, 100, 1000)
        kept.find(bytes([3]))
    assert 1 in released
    assert 3 not in released


def test_a_shared_buffer_counts_once_and_until_its_last() -> None:
    kept, released = store(10_000)
    assert offer(kept, 1, 0, 100, buffer=7, shared=5000)
    assert offer(kept, 2, 0, 100, buffer=7, shared=5000)
    assert kept.used_bytes == 5200
    assert offer(kept, 3, 0, 100, buffer=8, shared=4000)
    assert kept.used_bytes == 9300
    assert offer(kept, 4, 0, 100, buffer=9, shared=4000)
    assert kept.used_bytes == sum(100 for name in (1, 2, 3, 4) if name not in released) + sum(
        size for names, size in (((1, 2), 5000), ((3,), 4000), ((4,), 4000)) if not set(names) <= set(released)
    )
    kept.clear()
    assert kept.used_bytes == 0
    assert sorted(released) == [1, 2, 3, 4]


def test_what_exceeds_the_cap_is_refused_and_evicts_nobody() -> None:
    kept, released = store(10_000)
    offer(kept, 1, 10, 1000)
    assert not offer(kept, 2, 10, 2000, shared=9000)
    assert released == [2]
    assert bytes([1]) in kept


def test_points_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_POINTS", 10)
    kept, _ = store(0)
    tokens = prompt(1, 640)
    assert kept.parting(chain(tokens)) == 0
    assert kept.parting(chain(tokens[:320])) == 320
    kept.parting(chain(prompt(2, 640)))
    assert kept.parting(chain(tokens)) == 0
    assert len(kept._points) == 10
