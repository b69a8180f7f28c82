"""What a stream is refused for before anything runs: errors name the field and the limit."""

from collections.abc import Sequence

import numpy as np

from mainspring.backend.generation import GenerationBackend
from mainspring.engine.stream_records import MOST_TOP, StreamSpec
from mainspring.engine.work import Tokens
from mainspring.errors import InputError, TooLargeError

MOST_STOP_IDS = 1024


def check_spec(
    spec: StreamSpec, backend: GenerationBackend, drafter: str, drafters: Sequence[str], before: int
) -> None:
    """`before`: tokens that a checkpoint brings in front of the prompt."""
    fed = len(spec.tokens)
    prompt = before + (fed if spec.prompt_tokens is None else spec.prompt_tokens)
    _range("prompt_tokens", prompt, before + max(fed, 1), 1 << 40)
    _range("max_tokens", spec.max_tokens, 1, 1 << 40)
    if prompt + spec.max_tokens > backend.context_tokens:
        raise TooLargeError(
            f"{prompt} prompt tokens and max_tokens {spec.max_tokens} exceed the model's context of "
            f"{backend.context_tokens} tokens",
            limit=backend.context_tokens,
            actual=prompt + spec.max_tokens,
            param="max_tokens",
        )
    if drafter not in drafters:
        raise InputError(f"no drafter {drafter!r} here; there are {', '.join(drafters)}", param="drafter")
    _range("draft_tokens", spec.draft_tokens or 0, 0, backend.limits.block_rows - 1)
    _range("logprobs", spec.logprobs, -1, MOST_TOP)
    _range("min_tokens", spec.min_tokens, 0, spec.max_tokens)
    if len(spec.stop_ids) > MOST_STOP_IDS:
        raise InputError(f"at most {MOST_STOP_IDS} stop ids, not {len(spec.stop_ids)}", param="stop_ids")
    if any(not 0 < position <= prompt for position, _ in spec.marks):
        raise InputError(f"marks lie from 1 to the prompt's end, {prompt}", param="marks")
    vocab = backend.vocab_size
    check_vocabulary(spec.tokens, vocab, "tokens")
    check_vocabulary(np.array(spec.stop_ids, np.int64), vocab, "stop_ids")
    check_vocabulary(np.array([token for token, _ in spec.sampling.logit_bias], np.int64), vocab, "logit_bias")


def check_vocabulary(tokens: Tokens, vocab: int, param: str) -> None:
    if len(tokens) and not (int(tokens.min()) >= 0 and int(tokens.max()) < vocab):
        bad = int(tokens.min()) if int(tokens.min()) < 0 else int(tokens.max())
        raise InputError(f"token id {bad} is outside the model's vocabulary of {vocab}", param=param)


def _range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InputError(f"{name} is from {low} to {high}, not {value}", param=name)
