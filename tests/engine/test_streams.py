"""Streams over slots: text is the plain loop's, alone and in company; ends, cancels and refusals."""

from dataclasses import replace

import numpy as np
import pytest

from mainspring.engine.sampling import Sampling
from mainspring.engine.stream_records import SlotsFullError, StreamSpec
from mainspring.engine.streams import Streams
from mainspring.errors import InputError, TooLargeError
from support.slots import plain, prompt, tiny_slots
from support.streams import Told, run, tiny_streams, written

PROMPT = prompt(1, 150)
PLAIN = plain(PROMPT, 60)
SPEC = StreamSpec(id="a", tokens=PROMPT, max_tokens=40)
LOOP = np.tile(prompt(8, 20), 8)  # what the n-gram drafter lives on


@pytest.mark.parametrize("deterministic", [True, False])
def test_text_is_the_plain_loops_with_any_drafter(deterministic: bool) -> None:
    streams = tiny_streams(tiny_slots(deterministic=deterministic, mtp=True))
    for drafter in ("none", "ngram", "mtp"):
        for drafts in (None, 0, 1, 5, 7):
            spec = replace(SPEC, drafter=drafter, draft_tokens=drafts)
            assert written(streams, spec) == PLAIN[:40], (drafter, drafts)


def specs_of_a_burst() -> list[StreamSpec]:
    burst = []
    for i in range(12):
        sampling = Sampling() if i % 2 else Sampling(1.0, top_k=50, top_p=0.95, seed=i, frequency_penalty=0.3)
        burst.append(
            StreamSpec(id=f"s{i}", tokens=prompt(30 + i % 5, 30 + 17 * i), max_tokens=5 + 3 * i, sampling=sampling,
                       drafter=("none", "ngram", "mtp")[i % 3], logprobs=2 if i % 4 == 0 else -1)
        )  # fmt: skip
    return burst


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_burst_of_greedy_and_sampled_is_each_alone(deterministic: bool) -> None:
    burst = specs_of_a_burst()
    alone = {}
    for spec in burst:
        alone[spec.id] = written(tiny_streams(tiny_slots(deterministic=deterministic, mtp=True)), spec)
        assert alone[spec.id] == plain(spec.tokens, spec.max_tokens, spec.sampling)
    streams, told, waiting = tiny_streams(tiny_slots(deterministic=deterministic, mtp=True)), Told(), list(burst)
    while waiting or streams.live:
        while waiting and streams.free_slots:
            streams.open(waiting.pop(0))
        told.hear(streams.step(64))
    assert dict(told.tokens) == alone
    assert {end.finish for end in told.ended.values()} == {"length"}
    assert streams.stats.emitted == sum(map(len, alone.values()))


def test_seeds_differ_and_repeat() -> None:
    streams, texts = tiny_streams(), []
    for seed in (0, 1, 2, 3, 2**63, 2**64 - 1):
        spec = replace(SPEC, sampling=Sampling(1.0, seed=seed))
        texts.append(written(streams, spec))
        assert written(streams, spec) == texts[-1]
    assert len({tuple(text) for text in texts}) == len(texts)


def test_drafts_that_repeat_are_accepted_and_counted() -> None:
    streams = tiny_streams()
    bias = tuple((int(token), 50.0) for token in set(LOOP[:3].tolist()))  # it can only write these: it repeats itself
    spec = StreamSpec(id="a", tokens=LOOP, max_tokens=60, sampling=Sampling(logit_bias=bias), draft_tokens=7,
                      drafter="ngram")  # fmt: skip
    told = run(streams, spec)
    assert told.tokens["a"] == plain(LOOP, 60, spec.sampling)
    ended = told.ended["a"]
    assert ended.accepted > 20
    assert ended.rounds < 40
    assert ended.tokens == 60 == sum(n * count for n, count in enumerate(ended.histogram))
    assert ended.rounds == sum(ended.histogram) == len(told.log["a"])
    assert ended.tokens == ended.rounds + ended.accepted
    after = [drafted for tokens, drafted, _ in told.log["a"] if len(tokens) > 4]
    assert after, "no round kept several drafts"
    many = [i for i, (tokens, _, _) in enumerate(told.log["a"][:-2]) if len(tokens) > 4]
    assert all(told.log["a"][i + 1][1] > 0 for i in many)  # drafts go on after many were accepted


@pytest.mark.parametrize("drafter", ["none", "ngram", "mtp"])
def test_the_length_is_exact(drafter: str) -> None:
    for most in (1, 2, 3, 8, 9):
        told = run(tiny_streams(tiny_slots(mtp=True)), replace(SPEC, max_tokens=most, drafter=drafter, draft_tokens=7))
        assert told.tokens["a"] == PLAIN[:most]
        assert told.ended["a"].finish == "length"


def test_a_stop_inside_an_accepted_block_ends_there() -> None:
    """Tokens drafted and accepted after the stop are not emitted, and not counted."""
    bias = ((5, 60.0), (6, 59.0), (9, 58.5))
    sampling = Sampling(logit_bias=bias, presence_penalty=2.0, frequency_penalty=0.5)
    text = plain(LOOP, 40, sampling)
    stop = text[12]
    first = text.index(stop)
    tokens = np.array([*LOOP.tolist(), *text])  # the drafter has read the whole reply already
    text = plain(tokens, 40, sampling)
    assert stop in text
    first = text.index(stop)
    streams = tiny_streams()
    for seen in range(2):
        told = run(streams, StreamSpec(id="a", tokens=tokens, max_tokens=40, sampling=sampling, stop_ids=(stop,),
                                       drafter="ngram", draft_tokens=7))  # fmt: skip
        assert told.tokens["a"] == text[: first + 1], seen
        assert (told.ended["a"].finish, told.ended["a"].stop_id) == ("stop", stop)
        assert told.ended["a"].tokens == first + 1


def test_min_tokens_puts_the_stop_off() -> None:
    stop = PLAIN[3]
    assert written(tiny_streams(), replace(SPEC, stop_ids=(stop,))) == PLAIN[:4]
    later = written(tiny_streams(), replace(SPEC, stop_ids=(stop,), min_tokens=20))
    assert len(later) > 20
    assert stop not in later[:20]


def test_logprobs_are_a_token_each() -> None:
    told = run(tiny_streams(), replace(SPEC, logprobs=3, drafter="ngram", max_tokens=12))
    for event in told.events:
        assert len(event.logprobs) == len(event.top) == len(event.tokens)
        for token, mine, top in zip(event.tokens, event.logprobs, event.top, strict=True):
            assert top[0] == (token, mine)  # greedy
            assert len(top) == 3
            assert top[0][1] >= top[1][1] >= top[2][1]
    chosen = run(tiny_streams(), replace(SPEC, logprobs=0, max_tokens=3)).events
    assert all(len(event.logprobs) == 1 and event.top == () for event in chosen)


def test_tokens_beyond_the_tokenizer_are_never_chosen() -> None:
    streams = tiny_streams(tiny_slots(vocab_size=100))
    tokens = PROMPT % 100
    text = written(streams, replace(SPEC, tokens=tokens))
    assert max(text) < 100
    assert text != written(tiny_streams(), replace(SPEC, tokens=tokens))


def test_what_others_ask_for_changes_nothing_for_who_writes() -> None:
    """Slots change hands under a live stream, each time with other settings."""
    streams, told = tiny_streams(tiny_slots(2, mtp=True)), Told()
    streams.open(replace(SPEC, drafter="mtp"))
    settings = [
        {"sampling": Sampling(2.0, top_k=3, seed=1), "logprobs": 5},
        {"sampling": Sampling(repetition_penalty=5.0, logit_bias=((7, 90.0),)), "drafter": "none"},
        {"stop_ids": tuple(range(0, 300, 2)), "draft_tokens": 7},
        {"sampling": Sampling(1.0, presence_penalty=2.0, min_p=0.5, seed=9), "drafter": "mtp"},
        {"drafter": "ngram"},
    ]
    for number, change in enumerate(settings):
        mine = replace(SPEC, id=f"b{number}", max_tokens=6, **change)
        streams.open(mine)
        while mine.id in streams.live:
            told.hear(streams.step())
        assert told.tokens[mine.id] == plain(PROMPT, 6, mine.sampling, mine.stop_ids), number
    assert "a" in streams.live
    while streams.live:
        told.hear(streams.step())
    assert told.tokens["a"] == PLAIN[:40]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tokens": np.zeros(0, np.int64)}, "prompt_tokens"),
        ({"tokens": np.array([300])}, "tokens"),
        ({"tokens": np.array([-1])}, "tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 40_000}, "max_tokens"),
        ({"stop_ids": (300,)}, "stop_ids"),
        ({"drafter": "oracle"}, "drafter"),
        ({"draft_tokens": 8}, "draft_tokens"),
        ({"logprobs": 21}, "logprobs"),
        ({"min_tokens": 41}, "min_tokens"),
        ({"marks": ((151, b"k"),)}, "marks"),
        ({"sampling": Sampling(logit_bias=((300, 1.0),))}, "logit_bias"),
    ],
)
def test_bad_input_is_named_and_takes_no_slot(change: dict[str, object], param: str) -> None:
    streams = tiny_streams()
    with pytest.raises(InputError) as caught:
        streams.open(replace(SPEC, **change))
    assert caught.value.param == param
    assert streams.free_slots == 4
    assert written(streams, SPEC) == PLAIN[:40]


def test_context_overflow_says_both_figures() -> None:
    streams = tiny_streams()
    streams.open(replace(SPEC, max_tokens=32768 - 150))
    streams.cancel("a")
    with pytest.raises(TooLargeError) as caught:
        streams.open(replace(SPEC, max_tokens=32768 - 149))
    assert (caught.value.limit, caught.value.actual) == (32768, 32769)


def test_full_slots_are_said_and_lose_nobody() -> None:
    streams = tiny_streams(tiny_slots(2))
    streams.open(SPEC)
    streams.open(replace(SPEC, id="b"))
    with pytest.raises(SlotsFullError, match="2 slots"):
        streams.open(replace(SPEC, id="c"))
    with pytest.raises(InputError, match="live"):
        streams.open(SPEC)
    told = Told()
    while streams.live:
        told.hear(streams.step())
    assert told.tokens["a"] == told.tokens["b"] == PLAIN[:40]


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0}, {"top_p": 1.5}, {"top_k": -1}, {"seed": -1},
        {"seed": 2**64}, {"min_p": 1.5}, {"frequency_penalty": 2.5}, {"presence_penalty": -2.5},
        {"repetition_penalty": 0.0}, {"logit_bias": ((1, 101.0),)}, {"logit_bias": ((1, 1.0), (1, 2.0))},
        {"logit_bias": tuple((i, 1.0) for i in range(1025))},
    ],
)  # fmt: skip
def test_bad_sampling_is_named(values: dict[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        Sampling(**values)  # type: ignore[arg-type]
    assert caught.value.param == next(iter(values))


# ---------------------------------------------------------------- cancel


def test_cancel_in_the_prompt_and_in_the_reply_frees_the_slot() -> None:
    streams = tiny_streams(tiny_slots(2))
    streams.open(replace(SPEC, id="long", tokens=prompt(9, 500)))
    streams.open(SPEC)
    assert streams.prefill("long", 64) == 436
    assert streams.cancel("long").finish == "cancelled"
    assert streams.free_slots == 1
    told = Told()
    while len(told.tokens["a"]) < 10:
        told.hear(streams.step())
    ended = streams.cancel("a")
    assert (ended.finish, ended.tokens) == ("cancelled", len(told.tokens["a"]))
    assert streams.free_slots == 2
    assert streams.round() == streams.step() == []
    with pytest.raises(KeyError):
        streams.cancel("a")
    assert written(streams, SPEC) == PLAIN[:40]


# ---------------------------------------------------------------- prompts that come in parts


def test_a_prompt_may_come_in_parts() -> None:
    streams = tiny_streams()
    streams.open(replace(SPEC, tokens=PROMPT[:70], prompt_tokens=150))
    assert streams.prefill("a") == 150 - 64  # the rest of what was fed waits for the grid
    assert streams.prefill("a") == 150 - 64
    assert streams.round() == []
    streams.feed("a", PROMPT[70:100])
    assert streams.prefill("a") == 150 - 64
    streams.feed("a", PROMPT[100:])
    with pytest.raises(InputError, match="150 prompt tokens"):
        streams.feed("a", PROMPT[:1])
    assert streams.prefill("a", 64) == 150 - 128
    assert streams.prefill("a", 64) == 0
    told = Told()
    while streams.live:
        told.hear(streams.round())
    assert told.tokens["a"] == PLAIN[:40]


def test_pieces_of_any_size_give_the_same_text() -> None:
    for piece in (1, 64, 100, 128, 4096):
        assert run(tiny_streams(), SPEC, piece=piece).tokens["a"] == PLAIN[:40]


def test_live_streams_go_on_between_pieces() -> None:
    streams = tiny_streams()
    streams.open(SPEC)
    streams.step()
    streams.open(replace(SPEC, id="long", tokens=prompt(9, 640)))
    for _ in range(9):
        assert [event.id for event in streams.step(64)] == ["a"]


def test_all_is_free_after_close() -> None:
    backend = tiny_slots()
    streams = Streams(backend)
    streams.open(SPEC)
    streams.step()
    streams.close()
    assert len(backend._slots) == len(backend._checkpoints) == 0
    assert streams.prefixes.used_bytes == 0
