"""Messages that a script makes up: of every kind, sound in form, with contents on and over every edge."""

from collections.abc import Callable

from mainspring.core.cost import Cost, RoundCost
from mainspring.core.nouns import Limits
from mainspring.wire import messages as m
from script import Script

NAMES = ("a", "b", "v", "standard", "batch", "tiny", "key", "", "x" * 128)
SECONDS = (0.0, 1e-9, 0.01, 1.0, 60.0, 86_400.0)
REASONS: tuple[m.FailReason, ...] = (
    "late", "view_missing", "out_of_memory", "not_finite", "bad_work", "cancelled", "draining", "engine",
)  # fmt: skip


def words(s: Script, most: int = 12) -> bytes:
    return b"".join(s.number().to_bytes(8, "little")[:4] for _ in range(s.below(most + 1)))


def branches(s: Script) -> dict[str, bytes]:
    lengths = [1 + s.below(3) for _ in range(s.below(4))]
    counts = [1 + s.below(3) for _ in lengths]
    flat = {"branch_tokens": sum(lengths), "label_ids": sum(counts)}
    made = {name: b"".join(s.below(300).to_bytes(4, "little") for _ in range(n)) for name, n in flat.items()}
    made["branch_lengths"] = b"".join(n.to_bytes(4, "little") for n in lengths)
    made["label_counts"] = b"".join(n.to_bytes(4, "little") for n in counts)
    return made


def fence(s: Script) -> m.Fence:
    return m.Fence(pass_id=s.number(), attempt=s.below(3), epoch=s.below(8))


def keys(s: Script) -> tuple[tuple[str, int], ...]:
    return tuple((s.one(NAMES), s.number()) for _ in range(s.below(4)))


def names(s: Script) -> tuple[str, ...]:
    return tuple(s.one(NAMES) for _ in range(s.below(3)))


def cost(s: Script) -> Cost:
    return Cost(*(s.one((0.0, 1e-6, 1e-3, 1.0, -1.0, 1e30)) for _ in range(4)))


def limits(s: Script) -> Limits:
    return Limits(*(s.one((0, 1, 300, 65_536, 1 << 40)) for _ in range(5)))


def part(s: Script) -> m.Part:
    return m.Part(
        request=s.one(NAMES[:-2]) or "r", shard=s.below(3), view_from=s.below(20), view_tokens=words(s),
        view_key=s.one(NAMES), prefix=s.one(NAMES), parent=s.below(4) - 1, more=bool(s.byte() & 1),
        lease=s.byte() > 250, **branches(s),
    )  # fmt: skip


def sampling(s: Script) -> m.Sampling | None:
    return m.Sampling() if s.byte() & 1 else None


MAKERS: dict[type, Callable[[Script], m.Message]] = {
    m.Hello: lambda s: m.Hello(role=s.one(("node", "client", "router")), name=s.one(("ant", "gate", "hill")),
                               instance=s.below(3), oldest=s.below(3), newest=s.number()),
    m.Welcome: lambda s: m.Welcome(version=s.below(4), epoch=s.below(8), router=s.number(), streams=s.number()),
    m.Ping: lambda s: m.Ping(nonce=s.number()),
    m.Pong: lambda s: m.Pong(nonce=s.below(4), held_s=s.one(SECONDS)),
    m.Goodbye: lambda s: m.Goodbye(reason=s.one(NAMES)),
    m.Drain: lambda s: m.Drain(within_s=s.one(SECONDS)),
    m.Offer: lambda s: m.Offer(
        model=s.one(NAMES), alias=s.one(NAMES) or "a", bundle=s.one(NAMES), bundle_bytes=1 + s.below(3000),
        bundle_sha256=s.one(NAMES), numerics=s.one(("fp32", "bf16")), cost=cost(s), limits=limits(s),
        round_cost=RoundCost(s.one((0.001, -1.0)), 0.001) if s.byte() & 1 else None,
        anchors=tuple((s.number(), s.number(), s.number(), s.one(SECONDS)) for _ in range(s.below(3))),
        device_key=s.one(NAMES), idle_neighbour=s.one((1.0, 100.0)),
    ),
    m.Declined: lambda s: m.Declined(code=s.one(NAMES) or "c", message=s.one(NAMES)),
    m.NodeReport: lambda s: m.NodeReport(
        fresh=bool(s.byte() & 1), gained=keys(s), dropped=names(s), cost=cost(s) if s.byte() & 1 else None,
        limits=limits(s) if s.byte() & 1 else None, idle_s=s.one(SECONDS), waiting=s.number(),
        anchors=tuple((s.number(), s.number(), s.number(), s.one(SECONDS)) for _ in range(s.below(3))),
    ),
    m.Release: lambda s: m.Release(request=s.one(NAMES) or "r"),
    m.Work: lambda s: m.Work(fence=fence(s), parts=tuple(part(s) for _ in range(1 + s.below(3))), order=s.below(70),
                             predicted_s=s.one(SECONDS), start_within_s=s.one(SECONDS)),
    m.Started: lambda s: m.Started(fence=fence(s), ago_s=s.one(SECONDS)),
    m.Done: lambda s: m.Done(fence=fence(s), measured_s=s.one(SECONDS), logits=words(s), gained=keys(s),
                             dropped=names(s)),
    m.Failed: lambda s: m.Failed(fence=fence(s), reason=s.one(REASONS), logits=words(s), gained=keys(s),
                                 failed=tuple(s.below(5) for _ in range(s.below(3))), dropped=names(s),
                                 details=tuple(m.Detail(index=s.below(9), code=s.one(NAMES) or "c", message="no")
                                               for _ in range(s.below(3)))),
    m.Cancel: lambda s: m.Cancel(reason=s.one(NAMES)),
    m.OpenLease: lambda s: m.OpenLease(request=s.one(NAMES) or "r", epoch=s.below(8), prompt_tokens=s.number(),
                                       max_tokens=1 + s.below(99), sampling=m.Sampling()),
    m.Rounds: lambda s: m.Rounds(tokens=words(s)),
    m.LeaseEnded: lambda s: m.LeaseEnded(tokens=s.number(), finish=s.one(("stop", "length", "failed", "cancelled"))),
    m.FetchBundle: lambda s: m.FetchBundle(bundle=s.one(NAMES)),
    m.BundleData: lambda s: m.BundleData(data=s.blob(600) or b"x"),
    m.BundleEnd: lambda s: m.BundleEnd(found=bool(s.byte() & 1), size=s.below(3000), sha256=s.one(NAMES)),
    m.Submit: lambda s: m.Submit(
        request=s.one(NAMES) or "r", model=s.one(NAMES), slo=s.one(NAMES) or "s", view_tokens=words(s, 40),
        view_key=s.one(NAMES), deadline_s=s.one((None, *SECONDS)), max_tokens=s.one((0, 0, 0, 1, 50, 1 << 53)),
        prefix_keys=keys(s), sampling=sampling(s), **branches(s),
    ),
    m.Accepted: lambda s: m.Accepted(predicted_s=s.one(SECONDS)),
    m.Refused: lambda s: m.Refused(code=s.one(NAMES) or "c", message=s.one(NAMES)),
    m.Result: lambda s: m.Result(logits=words(s)),
    m.AskStatus: lambda s: m.AskStatus(passes=s.below(1001)),
    m.Status: lambda s: m.Status(router=s.number(), up_s=s.one(SECONDS), version=s.one(NAMES)),
}  # fmt: skip

KINDS = tuple(MAKERS)


def message(s: Script) -> m.Message:
    return MAKERS[s.one(KINDS)](s)


def spoiled(s: Script, frame: bytes) -> bytes:
    """The frame, one time in eight with a byte changed, cut short or something in between."""
    how = s.byte()
    at = s.below(len(frame) + 1)
    if how >= 224:
        return frame[:at]
    if how >= 208:
        return frame[:at] + s.blob(8) + frame[at:]
    if how >= 192:
        return frame[:at] + bytes([s.byte()]) + frame[at + 1 :]
    return frame
