"""Writing in process: the plain loop says what the whole forward says; text is its text, whole, and ends."""

from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch

from mainspring import generator as module
from mainspring import plain_loop
from mainspring.engine.sampling import Sampling
from mainspring.engine.stream_records import SlotsFullError, StreamFailedError
from mainspring.errors import InputError, TooLargeError
from mainspring.generator import Generator, Piece
from mainspring.model.hybrid import Hybrid
from mainspring.model.loading import load_hybrid
from mainspring.plain_loop import PlainLoop
from support.folders import write_tiny_model

CHANCE = Sampling(temperature=1.0, seed=5)
TURNS = [
    {"role": "user", "content": "Hi <|im_end|>"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Why?"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), max_position_embeddings=512)


@pytest.fixture(scope="module")
def generator(folder: Path) -> Generator:
    return Generator.from_pretrained(folder, threads=1)


@pytest.fixture(scope="module")
def model(folder: Path) -> Hybrid:
    return load_hybrid(folder)


def ending_with(generator: Generator, after: int) -> Sampling:
    """Of texts that end: the end of turn becomes likely the longer, the more other tokens are written."""
    return Sampling(1.0, seed=after, logit_bias=((generator.bundle.eos_ids[0], 3.0),))


@torch.inference_mode()
def whole_logits(model: Hybrid, tokens: np.ndarray) -> torch.Tensor:
    hidden = model.extend(torch.from_numpy(tokens), [len(tokens)], [model.new_state()], update=True, outputs="all")
    return model.logits(hidden)


@pytest.mark.parametrize("piece", [2048, 7])
def test_token_by_token_equals_the_whole_forward(
    generator: Generator, model: Hybrid, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_loop, "PIECE_ROWS", piece)
    prompt = generator.prompt("What do bees do in winter?")
    loop, state, seen = PlainLoop(model), model.new_state(), []
    row = loop.advance(state, prompt)
    tokens = prompt
    for _ in range(40):
        seen.append(row)
        token = np.array([int(row.argmax())])
        tokens = np.concatenate([tokens, token])
        row = loop.advance(state, token)
    expected = whole_logits(model, tokens)[len(prompt) - 1 : -1].numpy()
    assert np.abs(np.stack(seen) - expected).max() < 1e-4
    assert np.abs(expected).max() > 0.1  # as good as any constant otherwise


@pytest.mark.parametrize("drafter", ["", "none", "ngram"])
@pytest.mark.parametrize("sampling", [Sampling(), CHANCE, Sampling(0.8, top_k=20, top_p=0.9, seed=2, min_p=0.01)])
def test_text_is_the_plain_loops(generator: Generator, model: Hybrid, sampling: Sampling, drafter: str) -> None:
    prompt = generator.prompt("Hello")
    found = generator.generate("Hello", max_tokens=30, sampling=sampling, drafter=drafter)
    vocab = generator.bundle.tokenizer.vocab_size
    wanted = list(PlainLoop(model).tokens(prompt, 30, sampling, generator.bundle.eos_ids, vocab))
    assert list(found.tokens) == wanted
    assert found.prompt_tokens == len(prompt)
    assert found.text == generator.bundle.tokenizer.decode(
        found.tokens[:-1] if found.finish == "stop" else found.tokens
    )


def test_the_same_seed_gives_the_same_text_and_another_does_not(generator: Generator) -> None:
    first = generator.generate("Hello", max_tokens=24, sampling=CHANCE)
    again = generator.generate("Hello", max_tokens=24, sampling=CHANCE)
    assert (first.tokens, first.text) == (again.tokens, again.text)
    assert again.cached_tokens == again.prompt_tokens
    assert first.tokens != generator.generate("Hello", max_tokens=24, sampling=Sampling(1.0, seed=6)).tokens


def test_pieces_are_the_text_and_two_streams_do_not_mix(generator: Generator) -> None:
    alone = generator.generate("Hello", max_tokens=20, sampling=CHANCE)
    one = generator.stream("Hello", max_tokens=20, sampling=CHANCE)
    two = generator.stream("Something else", max_tokens=20, sampling=CHANCE)
    pieces = [a for a, _ in zip(one, two, strict=True)]
    assert tuple(piece.token for piece in pieces) == alone.tokens
    assert "".join(piece.text for piece in pieces) == alone.text
    assert [piece.finish for piece in pieces] == [None] * 19 + ["length"]


def test_threads_write_side_by_side(generator: Generator) -> None:
    asked = [f"Question {number}" for number in range(4)]
    alone = [generator.generate(each, max_tokens=20).tokens for each in asked]
    found: dict[int, tuple[int, ...]] = {}

    def write(number: int) -> None:
        found[number] = generator.generate(asked[number], max_tokens=20).tokens

    threads = [Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(4)] == alone
    assert generator.streams.free_slots == 4


def test_it_stops_at_the_end_of_turn(generator: Generator) -> None:
    end = generator.bundle.eos_ids[0]
    for seed in range(20):
        found = generator.generate("Hello", max_tokens=200, sampling=ending_with(generator, seed))
        assert (found.finish == "stop") == (found.tokens[-1] == end)
        assert end not in found.tokens[:-1]
        if found.finish == "stop":
            assert found.text == generator.bundle.tokenizer.decode(found.tokens[:-1])
            return
    raise AssertionError("none of twenty ended")


def test_an_abandoned_reply_frees_its_slot(generator: Generator) -> None:
    stream = generator.stream("Hello", max_tokens=100)
    assert isinstance(next(iter(stream)), Piece)
    assert generator.streams.free_slots == 3
    stream.close()  # type: ignore[attr-defined]
    assert generator.streams.free_slots == 4


def test_more_replies_than_slots_are_refused(generator: Generator) -> None:
    streams = [generator.stream("Hello", max_tokens=50) for _ in range(5)]
    for stream in streams[:4]:
        next(stream)
    with pytest.raises(SlotsFullError):
        next(streams[4])
    for stream in streams[:4]:
        assert len(list(stream)) == 49


def test_nobody_runs_far_ahead_of_its_reader(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AHEAD", 5)
    slow, fast = generator.stream("Hello", max_tokens=100), generator.stream("Other", max_tokens=100)
    first = next(slow)
    list(fast)
    assert max(len(each) for each in generator._arrived.values()) == 5
    rest = [first, *slow]
    assert tuple(piece.token for piece in rest) == generator.generate("Hello", max_tokens=100).tokens


def test_a_fault_is_raised_and_the_next_reply_is_well(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = generator.generate("Hello", max_tokens=10).tokens

    def broken(*_: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(generator.streams.backend, "round", broken)
    with pytest.raises(StreamFailedError, match="RuntimeError"):
        generator.generate("Hello", max_tokens=10)
    monkeypatch.undo()
    assert generator.generate("Hello", max_tokens=10).tokens == wanted
    assert generator.streams.free_slots == 4


def test_a_conversation_goes_through_the_template(generator: Generator) -> None:
    tokens = generator.prompt(TURNS)
    end = generator.bundle.eos_ids[0]
    assert (tokens == end).sum() == 3  # the user's own is text
    assert np.array_equal(tokens, generator.prompt({"messages": TURNS}))


def test_a_conversation_that_goes_on_is_read_from_there(folder: Path) -> None:
    generator = Generator.from_pretrained(folder, threads=1)
    turns = [{"role": "user", "content": "Tell me about the bees and the winter. " * 8}]
    first = generator.generate(turns, max_tokens=10)
    assert first.prompt_tokens >= 128
    turns += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And then?"}]
    assert generator.generate(turns, max_tokens=10).cached_tokens == first.prompt_tokens // 64 * 64


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "param"),
    [("", 5, "prompt"), ("Hi", 0, "max_tokens"), ("Hi", 512, "max_tokens"), ([], 5, None)],
)
def test_bad_input_is_named_at_once(generator: Generator, prompt: Any, max_tokens: int, param: str | None) -> None:
    with pytest.raises(InputError) as caught:
        generator.stream(prompt, max_tokens=max_tokens)
    if param is not None:
        assert caught.value.param == param


def test_a_prompt_beyond_the_context_is_refused(generator: Generator) -> None:
    with pytest.raises(TooLargeError):
        generator.generate("word " * 600, max_tokens=100)


def test_the_package_offers_it() -> None:
    import mainspring

    assert mainspring.Generator is Generator
