"""Early launches: every kernel waits for the one before it touches anything, and asks for it only where devices can."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import triton

import mainspring.ops
from mainspring.ops import launching

FILES = sorted(
    path for path in Path(mainspring.ops.__path__[0]).rglob("*.py") if "triton.language" in path.read_text("utf-8")
)
BEFORE = {"program_id", "num_programs", "arange", "cdiv", "zeros", "minimum", "to", "bring_near", "constexpr"}
"""What a kernel may call before it follows: numbers of its own, and weights brought near."""


def kernels(source: str) -> list[ast.FunctionDef]:
    return [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(d, ast.Call) and getattr(d.func, "id", "") == "kernel" for d in node.decorator_list)
    ]


def faults(source: str) -> list[str]:
    """What is wrong with the kernels of a file."""
    found = []
    for function in kernels(source):
        if function.args.args[-1].arg != "EARLY":
            found.append(f"{function.name}: EARLY is not its last argument")
        before = []
        for statement in function.body:
            if ast.unparse(statement) == "follow(EARLY)":
                break
            before.append(statement)
        else:
            found.append(f"{function.name}: does not follow")
        called = {
            getattr(node.func, "attr", getattr(node.func, "id", "?"))
            for statement in before
            for node in ast.walk(statement)
            if isinstance(node, ast.Call)
        }
        found += [f"{function.name}: calls {name} before it follows" for name in sorted(called - BEFORE)]
    names = {function.name for function in kernels(source)}
    tree = ast.parse(source)
    plain = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)} - names
    found += [f"{name}: launched, and no kernel" for name in sorted(plain) if re.search(rf"(?<![\w`]){name}\[", source)]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_kernel_follows_before_it_touches_what_others_write(path: Path) -> None:
    assert faults(path.read_text("utf-8")) == []


def test_there_are_kernels_to_look_at() -> None:
    assert sum(len(kernels(path.read_text("utf-8"))) for path in FILES) >= 20


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("@kernel()\ndef _k(x, EARLY):\n    tl.load(x)\n    follow(EARLY)\n", ["_k: calls load before it follows"]),
        (
            "@kernel()\ndef _k(x, EARLY):\n    tl.store(x, 1)\n",
            ["_k: does not follow", "_k: calls store before it follows"],
        ),
        ("@kernel()\ndef _k(EARLY, x):\n    follow(EARLY)\n", ["_k: EARLY is not its last argument"]),
        ("@triton.jit\ndef _k(x):\n    tl.load(x)\ndef run(x):\n    _k[(1,)](x)\n", ["_k: launched, and no kernel"]),
    ],
)
def test_a_kernel_that_does_otherwise_is_seen(source: str, told: list[str]) -> None:
    assert faults(source) == told


class Recorded(triton.JITFunction):  # type: ignore[type-arg]
    """Stands for a compiled function and keeps what it is launched with."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments, **named: self.launches.append((grid, arguments, named))


@pytest.mark.parametrize("able", [True, False])
def test_a_launch_is_early_exactly_where_the_device_can(able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching.torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(launching, "can_be_early", lambda device: able and device == 3)
    jit = Recorded()
    launching.Kernel(jit)[(2, 1)](7, SIZE=4)
    assert jit.launches == [((2, 1), (7,), {"SIZE": 4, "EARLY": able, "launch_pdl": able})]


@pytest.mark.parametrize(
    ("capability", "cuda", "able"), [((9, 0), "13.0", True), ((8, 9), "13.0", False), ((9, 4), None, False)]
)
def test_devices_that_can(
    capability: tuple[int, int], cuda: str | None, able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching.torch.version, "cuda", cuda)
    monkeypatch.setattr(launching.torch.cuda, "get_device_capability", lambda _: capability)
    launching.can_be_early.cache_clear()
    try:
        assert launching.can_be_early(0) is able
    finally:
        launching.can_be_early.cache_clear()
