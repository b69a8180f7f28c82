"""Who takes part in which launch: rounds asked for, rounds launched ahead, and what comes back of them.

Asked for a round, it first queues what is not under way yet, then the round after that, and only then waits: the device
never waits for the host, and of what it computed ahead nothing is lost that is asked for next. Streams with penalties,
bias, masks, drafts of the host's or log probabilities are not launched ahead: their next round needs the host.
"""

import time
from collections.abc import Callable, Sequence

import torch

from mainspring.backend.cuda_slots.arrays import Arrays
from mainspring.backend.cuda_slots.flights import Flight, Flights, Landed, Lane
from mainspring.backend.cuda_slots.rounds import Choice, Shape
from mainspring.backend.cuda_slots.runner import Runner
from mainspring.backend.cuda_slots.slot import Slot, host_words
from mainspring.backend.generation import NO_TOKEN, RoundResult, SlotLimits, SlotResult, SlotRound, TopTokens
from mainspring.ops import rounds
from mainspring.ops.acceptance.reference import log_probabilities
from mainspring.ops.attention.triton_decode import splits_of
from mainspring.ops.rounds import ANCHOR, INDEX, LEFT, LENGTH, OUTCOME, REQUEST, WAITING

Asked = tuple[Slot, SlotRound]
_FAULTS = {rounds.NOT_FINITE: "logits are not finite", rounds.NONE_ALLOWED: "no token is allowed here"}


class Rounding:
    def __init__(self, runner: Runner, arrays: Arrays, limits: SlotLimits, *, heads: bool, ahead: bool) -> None:
        self._runner, self._arrays, self._limits = runner, arrays, limits
        self._heads, self._ahead = heads, ahead
        self._flights = Flights()
        self._idle_since = 0.0

    def forget(self, slot: Slot) -> None:
        self._flights.forget(slot)

    def round(self, asked: Sequence[Asked], say: Callable[[Slot], None]) -> RoundResult:
        """`say` tells the device where a slot's rows are, when that changed."""
        fresh = [one for one in asked if not self._taken_ahead(*one)]
        first = [one for one in fresh if one[1].anchor == NO_TOKEN]
        going = [one for one in fresh if one[1].anchor != NO_TOKEN]
        if first:
            self._first(first)
        if going:
            self._launch(going, say)
        if self._ahead and not first and asked and all(map(_device_goes_on, asked)):
            self._launch([one for one in asked if self._flights.rounds(one[0]) == 1], say)
        results, seconds, rows, seen = [], 0.0, 0, set[int]()
        for slot, _ in asked:
            landed = self._flights.take(slot)
            results.append(self._delivered(slot, landed))
            if id(landed.flight) not in seen:
                seen.add(id(landed.flight))
                rows += landed.flight.total
                now = time.perf_counter()
                seconds += now - max(landed.flight.began, self._idle_since)
                self._idle_since = now
        return RoundResult(tuple(results), seconds, rows)

    # ---------------------------------------------------------------- launches

    def _taken_ahead(self, slot: Slot, part: SlotRound) -> bool:
        """Whether what is under way is what is asked for. Where it is not it is thrown away."""
        if self._flights.lane(slot) is None:
            return False
        fits = not part.drafts and part.masks is None and part.anchor == slot.words[ANCHOR]
        if fits and part.most == slot.words[LEFT]:
            return True
        self._flights.forget(slot)
        slot.moved([], stopped=False, forwarded=True)
        slot.ceiling, slot.waiting = slot.words[LENGTH], max(slot.words[WAITING], 1)
        self._arrays.words[slot.number].copy_(host_words(slot.words))
        return False

    def _first(self, asked: Sequence[Asked]) -> None:
        request = torch.zeros(len(asked), REQUEST + 1, dtype=torch.int32)
        for lane, (slot, part) in enumerate(asked):
            self._set(slot, part.most, slot.words[ANCHOR])
            request[lane, 0] = slot.number
        masks = {n: part.masks[:1] for n, (_, part) in enumerate(asked) if part.masks is not None}
        launched = self._runner.first(request, self._choice(asked), masks)
        lanes = [Lane(slot, n, 0, 0, forwarded=False) for n, (slot, _) in enumerate(asked)]
        self._flights.add(Flight(launched, lanes, 1, 0))

    def _launch(self, asked: Sequence[Asked], say: Callable[[Slot], None]) -> None:
        if not asked:
            return
        limits, fixed = self._limits, self._limits.deterministic
        counts = [self._drafts(slot, part) for slot, part in asked]
        rows = limits.block_rows if fixed else min(_power(1 + max(max(c) for c in counts)), limits.block_rows)
        request = torch.zeros(limits.slots if fixed else len(asked), REQUEST + rows, dtype=torch.int32)
        request[:, 0] = self._arrays.nobody
        lanes, masks = [], {}
        for n, ((slot, part), (host, device)) in enumerate(zip(asked, counts, strict=True)):
            place = slot.number if fixed else n
            if self._flights.lane(slot) is None:
                self._set(slot, part.most, part.anchor)
            count = 1 + max(host, device)
            if slot.room(slot.ceiling + count, slot.ceiling):
                say(slot)
            slot.ceiling += count
            request[place, 0], request[place, 1], request[place, 2] = slot.number, count - 1, int(device > 0)
            request[place, REQUEST : REQUEST + host] = torch.tensor(part.drafts[:host], dtype=torch.int32)
            if part.masks is not None:
                masks[place] = part.masks
            lanes.append(Lane(slot, place, count, part.draft))
        shape = Shape(
            lanes=len(request) if fixed else min(_power(len(asked)), limits.slots), rows=rows,
            drafts=self._steps(asked, counts), waiting=self._waiting(asked),
            splits=_power(splits_of(max(slot.ceiling for slot, _ in asked))), choice=self._choice(asked),
        )  # fmt: skip
        for slot, lane in zip((slot for slot, _ in asked), lanes, strict=True):
            slot.waiting = lane.most_rows
        self._flights.add(Flight(self._runner.launch(request, shape, masks), lanes, rows, shape.lanes * rows))

    def _set(self, slot: Slot, left: int, anchor: int) -> None:
        """Where the device does not know it already."""
        if (slot.words[LEFT], slot.words[ANCHOR]) != (left, anchor):
            slot.words[LEFT], slot.words[ANCHOR] = left, anchor
            self._arrays.words[slot.number].copy_(host_words(slot.words))

    def _drafts(self, slot: Slot, part: SlotRound) -> tuple[int, int]:
        """(of the host, of the device); what is left bounds them on the device once more."""
        most = max(min(self._limits.block_rows - 1, part.most - 1), 0)
        device = min(part.draft, most) if slot.drafting else 0
        return (0, device) if device else (min(len(part.drafts), most), 0)

    def _steps(self, asked: Sequence[Asked], counts: Sequence[tuple[int, int]]) -> int | None:
        if not self._heads or not any(slot.drafting for slot, _ in asked):
            return None
        return max(device for _, device in counts)

    def _waiting(self, asked: Sequence[Asked]) -> int:
        """Rows a lane that the head reads first."""
        block = self._limits.block_rows
        if self._limits.deterministic:
            return block
        return min(_power(max((slot.waiting for slot, _ in asked if slot.drafting), default=1)), block)

    def _choice(self, asked: Sequence[Asked]) -> Choice:
        rules = [slot.rule for slot, _ in asked]
        masked = any(part.masks is not None for _, part in asked)
        early = any(slot.words[INDEX] < slot.rule.min_tokens for slot, _ in asked)
        adjusted = any(not rule.choice.is_plain for rule in rules)
        warm = [rule.choice for rule in rules if rule.choice.temperature > 0.0]
        ranked = any(rule.top_k > 0 or rule.top_p < 1.0 for rule in warm)
        return Choice(bool(warm) or early or adjusted or masked, ranked, adjusted, masked)

    # ---------------------------------------------------------------- results

    def _delivered(self, slot: Slot, landed: Landed) -> SlotResult:
        words, lane = landed.words, landed.lane
        emitted, accepted, stopped, drafted, fault = words[:5]
        tokens = words[OUTCOME : OUTCOME + emitted]
        slot.moved(tokens, stopped=bool(stopped), forwarded=lane.forwarded)
        after = self._flights.lane(slot)
        slot.ceiling = slot.words[LENGTH] + (0 if after is None else after.most_rows)
        slot.waiting = max(slot.words[WAITING], 1) if after is None else after.most_rows
        if fault:
            return SlotResult(fault=_FAULTS[fault])
        return SlotResult(tuple(tokens), drafted, accepted, bool(stopped), _logged(slot, landed, tokens))


def _device_goes_on(asked: Asked) -> bool:
    """Whether the next round needs nothing of the host."""
    slot, part = asked
    rule = slot.rule
    return rule.choice.is_plain and rule.logprobs < 0 and not part.drafts and part.masks is None


def _logged(slot: Slot, landed: Landed, tokens: Sequence[int]) -> tuple[TopTokens, ...]:
    """Such a stream's rows of logits come to the host: a megabyte a token at 248,320 ids."""
    others, flight = slot.rule.logprobs, landed.flight
    if others < 0:
        return ()
    first = landed.lane.place * flight.rows
    rows = flight.launched.logits[first : first + len(tokens)].cpu().numpy()
    return tuple(TopTokens(*log_probabilities(row, token, others)) for row, token in zip(rows, tokens, strict=True))


def _power(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
