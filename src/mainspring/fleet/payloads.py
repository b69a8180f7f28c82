"""Token arrays of requests from submit to answer, counted against one byte cap and each client's share of it; a
request beyond either is contention.

Cuts the wire `Part` of a core `Part` from them: the view's tokens that are to be scanned, branches and labels of a
range, `parent` of a part that shares a view, `more` while chunks follow. Slices of bytes, no copies but the frame's.
Open requests with one view key hold one view; another view under a key in use is refused, since nodes would mix them.
"""

from array import array
from itertools import accumulate

import numpy as np
from msgspec.structs import replace

from mainspring.core.nouns import Lease, Part, Pass
from mainspring.core.refusals import BadShapeError
from mainspring.fleet.errors import ClientFullError, PayloadsFullError
from mainspring.wire import messages as m

DEFAULT_CAP_BYTES = 512 << 20
OVERHEAD_BYTES = 2048
KEY_BYTES = 256
"""Of one prefix key and its length, as objects."""
"""Of an open request beside its arrays: so the cap bounds their number too."""


class Payload:
    """One request's arrays. `branches` and `labels` are offsets [B + 1] of each branch; `sends` counts each shard's."""

    __slots__ = ("branches", "labels", "model", "nbytes", "owner", "sends", "submit", "view")

    def __init__(self, submit: m.Submit, model: str, view: bytes, owner: str) -> None:
        self.submit = replace(submit, view_tokens=b"")  # a shared view is kept once
        self.model = model
        self.owner = owner
        self.view = view
        self.branches = offsets(submit.branch_lengths)
        self.labels = offsets(submit.label_counts)
        self.sends: dict[int, int] = {}
        arrays = (submit.branch_lengths, submit.branch_tokens, submit.label_counts, submit.label_ids)
        self.nbytes = sum(map(len, arrays)) + OVERHEAD_BYTES
        self.nbytes += self.branches.itemsize * (len(self.branches) + len(self.labels))
        self.nbytes += KEY_BYTES * len(submit.prefix_keys)
        if submit.sampling is not None:
            self.nbytes += len(submit.sampling.grammar) + KEY_BYTES * len(submit.sampling.logit_bias)

    def labels_of(self, part: Part) -> int:
        """Logits that the part answers with."""
        return self.labels[part.branch_to] - self.labels[part.branch_from]

    def cut(self, part: Part, parent: int = -1) -> m.Part:
        """The view ends under its key where this part scans it to its end; a shared or kept one has it already. A
        prompt went with its lease."""
        submit, lo, hi = self.submit, part.branch_from, part.branch_to
        if submit.max_tokens:
            return m.Part(
                request=part.request_id, shard=part.shard, view_from=part.view_from, prefix=part.prefix, more=part.more,
                lease=part.opens_lease, chunk=part.scan,
            )  # fmt: skip
        ends = part.scan > 0 and 4 * part.view_to == len(self.view)
        return m.Part(
            request=part.request_id,
            shard=part.shard,
            view_from=part.view_from,
            view_tokens=self.view[4 * part.view_from : 4 * part.view_to],
            branch_lengths=submit.branch_lengths[4 * lo : 4 * hi],
            branch_tokens=submit.branch_tokens[4 * self.branches[lo] : 4 * self.branches[hi]],
            label_counts=submit.label_counts[4 * lo : 4 * hi],
            label_ids=submit.label_ids[4 * self.labels[lo] : 4 * self.labels[hi]],
            view_key=part.view_key if ends else "",
            prefix=part.prefix,
            parent=parent,
            more=part.more,
            lease=part.opens_lease,
        )


class Payloads:
    """By the core's request id. `share_bytes` is what requests of one owner may hold; a view that several of them share
    counts once."""

    def __init__(self, cap_bytes: int = DEFAULT_CAP_BYTES, share_bytes: int | None = None) -> None:
        self.cap_bytes = cap_bytes
        self.share_bytes = cap_bytes if share_bytes is None else min(share_bytes, cap_bytes)
        self.held_bytes = 0
        self._owned: dict[str, int] = {}
        self._seen: dict[tuple[str, str, str], int] = {}
        self._of: dict[str, Payload] = {}
        self._views: dict[tuple[str, str], tuple[bytes, int]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, request_id: str) -> Payload:
        return self._of[request_id]

    def get(self, request_id: str) -> Payload | None:
        return self._of.get(request_id)

    def add(self, request_id: str, submit: m.Submit, model: str, owner: str = "") -> Payload:
        """Raises PayloadsFullError at the cap, ClientFullError at the owner's share, BadShapeError for another view
        under a key in use."""
        view, users = self._views.get((model, submit.view_key), (submit.view_tokens, 0))
        if users and view != submit.view_tokens:
            raise BadShapeError("an open request has another view under this key", param="view_key")
        payload = Payload(submit, model, view, owner)
        more = payload.nbytes + (0 if users else len(view))
        if self.held_bytes + more > self.cap_bytes:
            raise PayloadsFullError(limit=self.cap_bytes, held=self.held_bytes, more=more)
        self._charge(payload)
        if submit.view_key:
            self._views[model, submit.view_key] = view, users + 1
        self.held_bytes += more
        self._of[request_id] = payload
        return payload

    def release(self, request_id: str) -> None:
        """Nothing the second time."""
        payload = self._of.pop(request_id, None)
        if payload is None:
            return
        self.held_bytes -= payload.nbytes
        self._discharge(payload)
        slot = (payload.model, payload.submit.view_key)
        view, users = self._views.get(slot, (payload.view, 1))
        if users > 1:
            self._views[slot] = view, users - 1
        else:
            self._views.pop(slot, None)
            self.held_bytes -= len(view)

    def owned_bytes(self, owner: str) -> int:
        return self._owned.get(owner, 0)

    def _charge(self, payload: Payload) -> None:
        held, slot = self.owned_bytes(payload.owner), (payload.owner, payload.model, payload.submit.view_key)
        users = self._seen.get(slot, 0) if payload.submit.view_key else 0
        more = payload.nbytes + (0 if users else len(payload.view))
        if held + more > self.share_bytes:
            raise ClientFullError(limit=self.share_bytes, held=held, more=more)
        self._owned[payload.owner] = held + more
        if payload.submit.view_key:
            self._seen[slot] = users + 1

    def _discharge(self, payload: Payload) -> None:
        slot = (payload.owner, payload.model, payload.submit.view_key)
        users = self._seen.pop(slot, 1)
        if users > 1:
            self._seen[slot] = users - 1
        left = self._owned.pop(payload.owner) - payload.nbytes - (0 if users > 1 else len(payload.view))
        if left:
            self._owned[payload.owner] = left

    def lease(self, lease: Lease, epoch: int, trace: str) -> m.OpenLease:
        """As it is sent; its prompt's end is a checkpoint too where it has a key."""
        payload = self._of[lease.request_id]
        submit = payload.submit
        marks = dict(submit.prefix_keys)
        if submit.view_key:
            marks[submit.view_key] = lease.prompt_tokens
        return m.OpenLease(
            request=lease.request_id, epoch=epoch, prompt_tokens=lease.prompt_tokens, max_tokens=lease.max_tokens,
            token_s=lease.token_s, sampling=submit.sampling or m.Sampling(), trace=trace, prompt=payload.view,
            marks=tuple(sorted(marks.items(), key=lambda mark: mark[1])), salt=submit.salt, attempt=lease.attempt,
        )  # fmt: skip

    def parts(self, work: Pass) -> tuple[tuple[m.Part, ...], int]:
        """The pass as it is sent, and its attempt: the sendings that any of its shards has seen, from 0."""
        shares = set(work.shares)
        scans: dict[str, int] = {}
        parts: list[m.Part] = []
        attempt = 0
        for index, part in enumerate(work.parts):
            payload = self._of[part.request_id]
            parent = -1
            if index in shares and not payload.submit.max_tokens:
                parent = scans[part.view_key]
            if index not in shares and part.view_key and 4 * part.view_to == len(payload.view):
                scans.setdefault(part.view_key, index)
            sends = payload.sends.get(part.shard, 0)
            payload.sends[part.shard] = sends + 1
            attempt = max(attempt, sends)
            parts.append(payload.cut(part, parent))
        return tuple(parts), attempt


def offsets(lengths: bytes) -> "array[int]":
    """[n + 1] of what lies end to end, `lengths` [n] as they are sent."""
    if m.are_few(lengths):
        return array("q", accumulate(m.ints(lengths), initial=0))
    sums = array("q", (0,))
    sums.frombytes(np.cumsum(m.u32(lengths), dtype=np.int64).tobytes())
    return sums
