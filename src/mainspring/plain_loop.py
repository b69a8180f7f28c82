"""One token at a time, through the network as it is written: what faster generation is compared with.

The whole prompt in pieces, then a row a token, fp32 on the CPU, no cache, no drafts, no company. Tokens are chosen by
the same rule and the same chance, so text is that of the engine but for near-ties that rounding decides.
"""

from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np
import torch

from mainspring.engine.sampling import Sampling
from mainspring.model.hybrid import Hybrid
from mainspring.model.state import State
from mainspring.ops.acceptance.reference import Seen, verify

PIECE_ROWS = 2048


class PlainLoop:
    def __init__(self, model: Hybrid) -> None:
        self.model = model

    def tokens(
        self, prompt: np.ndarray, max_tokens: int, sampling: Sampling, stop_ids: Collection[int] = (),
        vocab: int | None = None,
    ) -> Iterator[int]:  # fmt: skip
        """At most `max_tokens` ids below `vocab`; a stop id is the last."""
        state = self.model.new_state(len(prompt) + max_tokens)
        seen = Seen(frozenset(prompt.tolist()), Counter())
        logits = self.advance(state, prompt)
        for index in range(max_tokens):
            chosen = verify(logits[None, :vocab], (), sampling.rule, seen, index=index, stop_ids=stop_ids)
            token = chosen.tokens[0]
            yield token
            if chosen.stopped or index + 1 == max_tokens:
                return
            seen.reply[token] += 1
            logits = self.advance(state, np.array([token]))

    @torch.inference_mode()
    def advance(self, state: State, tokens: np.ndarray) -> np.ndarray:
        """Logits [vocab] after `tokens`, in pieces so that activations stay bounded."""
        *before, last = torch.from_numpy(tokens).split(PIECE_ROWS)
        for piece in before:
            self.model.extend(piece, [len(piece)], [state], update=True, outputs="none")
        hidden = self.model.extend(last, [len(last)], [state], update=True, outputs="last")
        logits: np.ndarray = self.model.logits(hidden)[0].numpy()
        return logits
