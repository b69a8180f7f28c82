"""The plain loop: one token at a time says what the whole forward says; text is reproducible, whole and ends."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mainspring import generator as module
from mainspring.engine.sampling import Sampling
from mainspring.errors import InputError, ModelError, TooLargeError
from mainspring.generator import Generator
from support.folders import write_tiny_model

CHANCE = Sampling(temperature=1.0, seed=5)


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    return Generator.from_pretrained(
        write_tiny_model(tmp_path_factory.mktemp("tiny"), max_position_embeddings=512), threads=1
    )


def ending(monkeypatch: pytest.MonkeyPatch, generator: Generator, *, after: int, token: int) -> None:
    """The model is sure of `token` once it has been asked `after` times."""
    asked, plain = [0], generator.model.logits

    def logits(hidden: torch.Tensor, token_ids: Any = None) -> torch.Tensor:
        asked[0] += 1
        found = plain(hidden, token_ids)
        found[:, token] = 1e4 if asked[0] > after else -1e4
        return found

    monkeypatch.setattr(generator.model, "logits", logits)


@torch.inference_mode()
def whole_logits(generator: Generator, tokens: np.ndarray) -> torch.Tensor:
    hidden = generator.model.extend(
        torch.from_numpy(tokens), [len(tokens)], [generator.model.new_state()], update=True, outputs="all"
    )
    return generator.model.logits(hidden)


@pytest.mark.parametrize("piece", [2048, 7])
def test_token_by_token_equals_the_whole_forward(
    generator: Generator, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_ROWS", piece)
    prompt = generator.prompt("What do bees do in winter?")
    state, seen = generator.model.new_state(), []
    row = generator._advance(state, prompt)
    tokens = prompt
    for _ in range(40):
        seen.append(row)
        token = np.array([int(row.argmax())])
        tokens = np.concatenate([tokens, token])
        row = generator._advance(state, token)
    expected = whole_logits(generator, tokens)[len(prompt) - 1 : -1].numpy()
    assert np.abs(np.stack(seen) - expected).max() < 1e-4
    assert np.abs(expected).max() > 0.1  # as good as any constant otherwise


def test_greedy_is_the_likeliest_token_of_the_whole_forward(generator: Generator) -> None:
    prompt = generator.prompt("Hello")
    found = generator.generate("Hello", max_tokens=12)
    tokens = np.concatenate([prompt, found.tokens])
    likeliest = whole_logits(generator, tokens)[len(prompt) - 1 : -1].argmax(-1)
    assert likeliest.tolist() == list(found.tokens)
    assert found == generator.generate("Hello", max_tokens=12)
    assert found.prompt_tokens == len(prompt)


def test_the_same_seed_gives_the_same_text_and_another_does_not(generator: Generator) -> None:
    first = generator.generate("Hello", max_tokens=24, sampling=CHANCE)
    assert first == generator.generate("Hello", max_tokens=24, sampling=CHANCE)
    assert first.tokens != generator.generate("Hello", max_tokens=24, sampling=Sampling(1.0, seed=6)).tokens


def test_pieces_are_the_text_and_two_streams_do_not_mix(generator: Generator) -> None:
    alone = generator.generate("Hello", max_tokens=20, sampling=CHANCE)
    one = generator.stream("Hello", max_tokens=20, sampling=CHANCE)
    two = generator.stream("Something else", max_tokens=20, sampling=CHANCE)
    pieces = [a for a, _ in zip(one, two, strict=True)]
    assert tuple(piece.token for piece in pieces) == alone.tokens
    assert "".join(piece.text for piece in pieces) == alone.text
    assert [piece.finish for piece in pieces] == [None] * 19 + ["length"]


def test_it_stops_at_the_end_of_turn(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    end = generator.bundle.eos_ids[0]
    ending(monkeypatch, generator, after=3, token=end)
    found = generator.generate("Hello", max_tokens=20)
    assert found.finish == "stop"
    assert len(found.tokens) == 4
    assert found.tokens[-1] == end
    assert found.text == generator.bundle.tokenizer.decode(found.tokens[:-1])


def test_a_conversation_goes_through_the_template(generator: Generator) -> None:
    turns = [
        {"role": "user", "content": "Hi <|im_end|>"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Why?"},
    ]
    tokens = generator.prompt(turns)
    end = generator.bundle.eos_ids[0]
    assert (tokens == end).sum() == 3  # the user's own is text
    assert np.array_equal(tokens, generator.prompt({"messages": turns}))


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


@pytest.mark.parametrize(
    ("values", "param"),
    [({"temperature": -1}, "temperature"), ({"top_p": 0}, "top_p"), ({"top_k": -1}, "top_k"), ({"seed": -1}, "seed")],
)
def test_bad_sampling_is_named(values: dict[str, Any], param: str) -> None:
    with pytest.raises(InputError) as caught:
        Sampling(**values)
    assert caught.value.param == param


def test_without_weights_the_embedded_one_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EMBEDDED_WRITER", tmp_path)
    with pytest.raises(ModelError, match="mainspring train distill"):
        Generator.embedded()


def test_the_package_offers_it() -> None:
    import mainspring

    assert mainspring.Generator is Generator
