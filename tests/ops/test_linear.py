import pytest
import torch
import torch.nn.functional as F

from mainspring.ops.linear import onednn

needs_onednn = pytest.mark.skipif(not onednn.available(), reason="this torch build has no oneDNN linear")


@needs_onednn
@pytest.mark.parametrize(("rows", "inner", "out"), [(1, 48, 96), (3, 512, 2064), (200, 96, 48), (0, 48, 96)])
def test_packed_products(rows: int, inner: int, out: int) -> None:
    g = torch.Generator().manual_seed(rows)
    x, weight = torch.randn(rows, inner, generator=g), torch.randn(out, inner, generator=g)
    packed, plain = onednn.pack(weight), F.linear(x, weight)
    assert torch.allclose(onednn.linear(x, packed), plain, atol=1e-3, rtol=1e-5)
    assert torch.allclose(onednn.linear(x, packed, "swish"), F.silu(plain), atol=1e-3, rtol=1e-5)
    assert torch.allclose(onednn.linear_times(x, packed, plain), plain * plain, atol=2e-2, rtol=1e-4)


@pytest.mark.parametrize("error", [AttributeError, NotImplementedError, RuntimeError])
def test_a_build_without_the_operators_is_told(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def missing(*_: object) -> None:
        raise error("no such operator")

    monkeypatch.setattr(onednn, "pack", missing)
    assert not onednn.available()


@needs_onednn
def test_a_wrong_product_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "linear_times", lambda x, packed, other: onednn.linear(x, packed) + other)
    assert not onednn.available()
