"""Checkpoints on disk: a hit is a miss after a restart too; a quota; names that tell nothing; broken files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mainspring.backend.torch_slots.network import Network
from mainspring.engine.prefix_disk import PrefixDisk
from mainspring.engine.stream_records import StreamSpec
from mainspring.engine.streams import Streams
from mainspring.errors import InputError
from support.models import tiny_model
from support.slots import plain, prompt, tiny_slots
from support.streams import run, tiny_streams

PROMPT = prompt(1, 400)
SPEC = StreamSpec(id="a", tokens=PROMPT, max_tokens=30, draft_tokens=3)
QUOTA = 1 << 30


@contextmanager
def life(folder: Path, quota: int = QUOTA, identity: str = "tiny", **more: Any) -> Iterator[Streams]:
    """From a start to an orderly end."""
    streams = tiny_streams(tiny_slots(mtp=True), **more)
    streams.spill_to(PrefixDisk(folder, quota, identity))
    try:
        yield streams
    finally:
        streams.close()


class Parcel:
    """So many zeros on their way; `can`: they can begin."""

    def __init__(self, nbytes: int, can: bool = True) -> None:
        self.nbytes, self.begun, self._can = nbytes, False, can

    def begin(self) -> bool:
        self.begun = self._can
        return self._can

    def arrays(self) -> dict[str, Any]:
        assert self.begun
        return {"x": np.zeros(self.nbytes, np.uint8)}


def disk_of(streams: Streams) -> PrefixDisk:
    assert streams.prefixes.spill is not None
    return streams.prefixes.spill.disk


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


@pytest.mark.parametrize("drafter", ["none", "ngram", "mtp"])
def test_a_hit_after_a_restart_is_a_miss_bit_for_bit(
    drafter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated without a forward, and gone on with from the grid: round by round as without a cache."""
    spec = replace(SPEC, drafter=drafter)
    with life(tmp_path) as streams:
        first = run(streams, spec)
    scanned: list[int] = []
    real = Network.piece

    def piece(self: Network, tokens: Any, *rest: Any) -> Any:
        scanned.append(len(tokens))
        return real(self, tokens, *rest)

    monkeypatch.setattr(Network, "piece", piece)
    with life(tmp_path) as streams:
        again = run(streams, spec)
        assert scanned == []
        assert again.log == first.log
        assert again.ended["a"].cached_tokens == len(PROMPT)
    longer = replace(spec, tokens=np.concatenate([PROMPT, prompt(2, 70)]))
    with life(tmp_path) as streams:
        told = run(streams, longer)
        assert told.ended["a"].cached_tokens == 384
        assert sum(scanned) == len(longer.tokens) - 384
    assert told.log == run(tiny_streams(tiny_slots(mtp=True), cache_bytes=0), longer).log


def test_what_is_evicted_is_found_on_disk(tmp_path: Path) -> None:
    one = tiny_streams(tiny_slots(mtp=True))
    run(one, SPEC)
    room = one.prefixes.used_bytes * 3 // 2
    with life(tmp_path, cache_bytes=room) as streams:
        specs = [replace(SPEC, id=str(i), tokens=prompt(10 + i, 400)) for i in range(4)]
        first = [run(streams, spec).log for spec in specs]
        disk_of(streams)._thread.submit(lambda: None).result()  # all is written
        assert streams.prefixes.used_bytes <= room
        again = [run(streams, spec) for spec in specs]
        assert [each.ended[spec.id].cached_tokens for each, spec in zip(again, specs, strict=True)] == [400] * 4
        assert [each.log for each in again] == first
        assert disk_of(streams).hits >= 3


def test_the_quota_holds_and_what_was_used_last_stays(tmp_path: Path) -> None:
    with life(tmp_path) as streams:
        run(streams, SPEC)
    size = sum(each.stat().st_size for each in files(tmp_path))
    for path in files(tmp_path):
        path.unlink()
    quota = 5 * size // 2
    specs = [replace(SPEC, tokens=prompt(10 + i, 400)) for i in range(4)]
    for spec in specs[:2]:
        with life(tmp_path, quota) as streams:
            run(streams, spec)
    with life(tmp_path, quota) as streams:  # the older one is used again: now it is the younger
        assert run(streams, specs[0]).ended["a"].cached_tokens == 400
    for spec in specs[2:]:
        with life(tmp_path, quota) as streams:
            run(streams, spec)
            assert disk_of(streams).used_bytes <= quota
        assert sum(each.stat().st_size for each in files(tmp_path)) <= quota
    with life(tmp_path, quota) as streams:
        cached = [streams.open(replace(spec, id=str(i))) for i, spec in enumerate(specs)]
    assert cached[1] == 0
    assert cached[3] == 400


def test_a_checkpoint_above_the_quota_is_not_written(tmp_path: Path) -> None:
    with life(tmp_path, 1000) as streams:
        run(streams, SPEC)
        disk = disk_of(streams)
    assert (disk.written, files(tmp_path)) == (0, [])
    assert disk.skipped


def test_what_memory_has_no_room_for_at_all_is_not_read_again_and_again(tmp_path: Path) -> None:
    """A node that has less memory than it had before: the file stays for one that has more."""
    with life(tmp_path) as streams:
        run(streams, SPEC)
    kept = files(tmp_path)
    with life(tmp_path, cache_bytes=min(path.stat().st_size for path in kept) // 2) as streams:
        assert run(streams, SPEC).ended["a"].cached_tokens == 0
        assert disk_of(streams).hits == 0
    assert files(tmp_path) == kept


def cut(contents: list[bytes]) -> list[bytes]:
    return [each[:-100] for each in contents]


def flip(contents: list[bytes]) -> list[bytes]:
    return [each[:-5] + bytes([each[-5] ^ 1]) + each[-4:] for each in contents]


def empty(contents: list[bytes]) -> list[bytes]:
    return [b"" for _ in contents]


def other(contents: list[bytes]) -> list[bytes]:
    """Sound, but another prompt's."""
    return contents[1:] + contents[:1]


@pytest.mark.parametrize("harm", [cut, flip, empty, other])
def test_a_broken_file_is_a_miss_and_is_removed(harm: Callable[[list[bytes]], list[bytes]], tmp_path: Path) -> None:
    with life(tmp_path) as streams:
        first = run(streams, SPEC)
    before = files(tmp_path)
    assert len(before) > 1
    for path, data in zip(before, harm([path.read_bytes() for path in before]), strict=True):
        path.write_bytes(data)
    with life(tmp_path) as streams:
        told = run(streams, SPEC)
        assert told.ended["a"].cached_tokens == 0
        assert told.log == first.log
        assert disk_of(streams).broken == len(before)
        assert not disk_of(streams).used_bytes
        streams.prefixes.clear()
    assert files(tmp_path) == []


@pytest.mark.parametrize("what", ["identity", "model", "secret", "salt"])
def test_nothing_is_found_by_who_is_somebody_else(what: str, tmp_path: Path) -> None:
    with life(tmp_path) as streams:
        run(streams, SPEC)
    if what == "secret":
        (tmp_path / "key").write_bytes(bytes(32))
    slots = tiny_slots(mtp=True, model=tiny_model(5) if what == "model" else None)
    streams = tiny_streams(slots)
    streams.spill_to(PrefixDisk(tmp_path, QUOTA, what if what in ("identity", "model") else "tiny"))
    assert streams.open(replace(SPEC, salt=b"other" if what == "salt" else b"")) == 0
    streams.close()


def test_arrays_of_another_shape_are_a_miss(tmp_path: Path) -> None:
    """Sound and of this name, but of no use: a file that another version wrote."""
    with life(tmp_path) as streams:
        run(streams, SPEC)
    streams = tiny_streams(tiny_slots(mtp=True))
    disk = PrefixDisk(tmp_path, QUOTA, "tiny")
    streams.spill_to(disk)
    real = disk.get
    disk.get = lambda key: None if (found := real(key)) is None else found | {"conv": found["conv"][:1]}  # type: ignore[method-assign]
    assert streams.open(SPEC) == 0
    assert disk.broken > 0
    streams.close()


def test_names_and_files_tell_no_tokens_and_are_the_owners(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with life(folder) as streams:
        run(streams, SPEC)
        keys = [key.hex() for key in streams.prefixes._kept]
    assert folder.stat().st_mode & 0o077 == 0
    names = {path.name for path in folder.iterdir()}
    assert len(files(folder)) == len(keys) > 1
    assert not any(key in name for key in keys for name in names)
    for path in [*files(folder), folder / "key"]:
        assert path.stat().st_mode & 0o077 == 0
        for kind in ("<i8", "<i4", "<u4"):
            assert PROMPT[:8].astype(kind).tobytes() not in path.read_bytes()


def test_what_a_death_left_half_written_is_cleared_and_the_rest_kept(tmp_path: Path) -> None:
    with life(tmp_path) as streams:
        run(streams, SPEC)
    name = files(tmp_path)[0].name
    (tmp_path / f"{name}.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    with life(tmp_path) as streams:
        assert streams.open(SPEC) == len(PROMPT)
    assert not list(tmp_path.glob("*.tmp"))
    assert (tmp_path / "notes.txt").exists()


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    disk = PrefixDisk(tmp_path, QUOTA, "tiny")
    with pytest.raises(InputError, match="in use by another node"):
        PrefixDisk(tmp_path, QUOTA, "tiny")
    disk.close()
    PrefixDisk(tmp_path, QUOTA, "tiny").close()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't be used"):
        PrefixDisk(tmp_path / "file", QUOTA, "tiny")


def test_a_disk_that_takes_nothing_costs_nobody_a_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with life(tmp_path) as streams:
        disk = disk_of(streams)
        monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        assert run(streams, SPEC).tokens["a"] == plain(PROMPT, 30)
    assert (disk.written, files(tmp_path), list(tmp_path.glob("*.tmp"))) == (0, [], [])
    assert caplog.text.count("No space left") == 1


def test_what_waits_to_be_written_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = PrefixDisk(tmp_path, QUOTA, "tiny")
    monkeypatch.setattr("mainspring.engine.prefix_disk.WAITING_BYTES", 1000)
    monkeypatch.setattr(disk, "_write", lambda *_: None)  # it takes for ever
    first, second = Parcel(600), Parcel(600)
    assert disk.put(b"a", first)
    assert not disk.put(b"b", second)
    assert (disk.skipped, first.begun, second.begun) == (1, True, False)  # nothing is copied for nothing
    disk.close()


def test_what_a_device_has_no_memory_to_copy_is_not_kept_and_takes_no_room(tmp_path: Path) -> None:
    disk = PrefixDisk(tmp_path, QUOTA, "tiny")
    assert not disk.put(b"a", Parcel(600, can=False))
    assert (disk.skipped, disk._waiting_bytes) == (1, 0)
    assert disk.put(b"a", Parcel(600))
    disk.close()
    assert (disk.written, disk._waiting_bytes) == (1, 0)


def test_a_device_that_keeps_its_checkpoints_says_so(tmp_path: Path) -> None:
    streams = tiny_streams(tiny_slots())
    streams.backend.__class__ = type("Closed", (), {"limits": streams.backend.limits})  # type: ignore[assignment]
    disk = PrefixDisk(tmp_path, QUOTA, "tiny")
    with pytest.raises(InputError, match="prefix_disk"):
        streams.spill_to(disk)
    disk.close()
