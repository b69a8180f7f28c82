"""Checkpoint folder -> Hybrid. Weights come from safetensors only; every name and shape is checked before use.

Released checkpoints wrap the text model (`model.language_model.layers.*`, vision tensors skipped), text-only saves do
not; the head may be tied; matrices may be int8 rows or int4 groups (`quantised`); Qwen3-Next fuses the GatedDeltaNet
inputs a k-head at a time. All become the layout of `hybrid.py`, where products that share their input are one matrix.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mainspring.errors import CheckpointError
from mainspring.model.config import FULL, HybridConfig, read_config
from mainspring.model.hybrid import Hybrid, Ops
from mainspring.model.mtp import MtpHead
from mainspring.model.quantised import GROUP, OFFSET, SCALE, widen_groups, widen_rows

_PREFIXES = ("model.language_model.", "language_model.model.", "model.", "")
_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)  # narrower ones need scales kept elsewhere
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


def load_hybrid(
    folder: Path, *, dtype: torch.dtype = torch.float32, device: str = "cpu", ops: Ops | None = None
) -> Hybrid:
    """Read config and weights from `folder`, matrices in `dtype`, vectors (norms, gates) in fp32.

    Raises CheckpointError naming the tensor or file at fault.
    """
    config = read_config(folder)
    source = _Tensors(folder)
    with torch.device("meta"):
        model = Hybrid(config, ops)
    prefix = source.prefix()
    loaded = {
        name: tensor.to(device, dtype if tensor.dim() > 1 else torch.float32)
        for name, tensor in _convert(config, source, prefix)
    }
    model.load_state_dict(loaded, strict=True, assign=True)
    if config.tie_word_embeddings:
        model.head.weight = model.embed.weight
    return model.eval().requires_grad_(False)


def load_mtp(folder: Path, *, dtype: torch.dtype = torch.float32, device: str = "cpu") -> MtpHead | None:
    """The head that drafts, of `folder`, types as in `load_hybrid`; None where the checkpoint has none."""
    config, source = read_config(folder), _Tensors(folder)
    if "mtp.fc.weight" not in source.files:
        return None
    with torch.device("meta"):
        head = MtpHead(config)
    d, get = config.hidden_size, source.under("mtp.")
    loaded = {
        "fc.weight": get("fc.weight", (d, 2 * d)),
        "embedding_norm.weight": get("pre_fc_norm_embedding.weight", (d,)),
        "hidden_norm.weight": get("pre_fc_norm_hidden.weight", (d,)),
        "norm.weight": get("norm.weight", (d,)),
    } | {f"blocks.0.{name}": tensor for name, tensor in _block(config, FULL, source.under("mtp.layers.0."))}
    kinds = {name: dtype if tensor.dim() > 1 else torch.float32 for name, tensor in loaded.items()}
    head.load_state_dict({name: t.to(device, kinds[name]) for name, t in loaded.items()}, strict=True, assign=True)
    return head.eval().requires_grad_(False)


def _convert(config: HybridConfig, source: "_Tensors", prefix: str) -> Iterator[tuple[str, Tensor]]:
    """(name in Hybrid, tensor) for every parameter."""
    c = config
    d = c.hidden_size
    embed = source.get(prefix + "embed_tokens.weight", (c.vocab_size, d))
    yield "embed.weight", embed
    yield "norm.weight", source.get(prefix + "norm.weight", (d,))
    if c.tie_word_embeddings:
        yield "head.weight", embed
    else:
        yield "head.weight", source.get(source.head_name(), (c.vocab_size, d))
    for i, kind in enumerate(c.layer_types):
        for name, tensor in _block(c, kind, source.under(f"{prefix}layers.{i}.")):
            yield f"blocks.{i}.{name}", tensor


_Get = Callable[[str, tuple[int, ...]], Tensor]


def _block(c: HybridConfig, kind: str, get: _Get) -> Iterator[tuple[str, Tensor]]:
    d, F = c.hidden_size, c.intermediate_size
    for name, tensor in _attention(c, get) if kind == FULL else _delta(c, get):
        yield f"mixer.{name}", tensor
    yield "mixer_norm.weight", get("input_layernorm.weight", (d,))
    yield "mlp_norm.weight", get("post_attention_layernorm.weight", (d,))
    halves = [get(f"mlp.{half}_proj.weight", (F, d)) for half in ("gate", "up")]
    yield "mlp.gate_up_proj.weight", torch.cat(halves)
    yield "mlp.down_proj.weight", get("mlp.down_proj.weight", (d, F))


def _attention(c: HybridConfig, get: _Get) -> Iterator[tuple[str, Tensor]]:
    d, D, Hq, G = c.hidden_size, c.head_dim, c.num_attention_heads, c.num_key_value_heads
    yield "q_proj.weight", get("self_attn.q_proj.weight", (2 * Hq * D, d))
    yield "kv_proj.weight", torch.cat([get(f"self_attn.{x}_proj.weight", (G * D, d)) for x in "kv"])
    yield "o_proj.weight", get("self_attn.o_proj.weight", (d, Hq * D))
    yield "q_norm.weight", get("self_attn.q_norm.weight", (D,))
    yield "k_norm.weight", get("self_attn.k_norm.weight", (D,))


def _delta(c: HybridConfig, get: _Get) -> Iterator[tuple[str, Tensor]]:
    d, Hv = c.hidden_size, c.linear_num_value_heads
    yield "in_proj.weight", torch.cat(_fused_inputs(c, get) if c.fused_layout else _plain_inputs(c, get))
    conv = get("linear_attn.conv1d.weight", (c.conv_dim, 1, c.linear_conv_kernel_dim))
    yield "conv", conv[:, 0].contiguous()
    yield "A_log", get("linear_attn.A_log", (Hv,))
    yield "dt_bias", get("linear_attn.dt_bias", (Hv,))
    yield "norm", get("linear_attn.norm.weight", (c.linear_value_head_dim,))
    yield "out_proj.weight", get("linear_attn.out_proj.weight", (d, c.value_dim))


def _plain_inputs(c: HybridConfig, get: _Get) -> list[Tensor]:
    rows = {"qkv": c.conv_dim, "z": c.value_dim, "b": c.linear_num_value_heads, "a": c.linear_num_value_heads}
    return [get(f"linear_attn.in_proj_{name}.weight", (n, c.hidden_size)) for name, n in rows.items()]


def _fused_inputs(c: HybridConfig, get: _Get) -> list[Tensor]:
    """Qwen3-Next: rows a k-head at a time, [q dk | k dk | v r dv | z r dv] and [b r | a r] with r = Hv / Hk."""
    Hk, dk, d = c.linear_num_key_heads, c.linear_key_head_dim, c.hidden_size
    ratio = c.linear_num_value_heads // Hk
    wide = ratio * c.linear_value_head_dim
    qkvz = get("linear_attn.in_proj_qkvz.weight", (2 * c.key_dim + 2 * c.value_dim, d)).view(Hk, -1, d)
    ba = get("linear_attn.in_proj_ba.weight", (2 * c.linear_num_value_heads, d)).view(Hk, -1, d)
    parts = [*qkvz.split([dk, dk, wide, wide], dim=1), *ba.split([ratio, ratio], dim=1)]
    return [part.reshape(-1, d) for part in parts]


class _Tensors:
    """Tensors of all safetensors files of a folder by name, checked as they are read."""

    def __init__(self, folder: Path) -> None:
        files = _weight_files(folder)
        self.files: dict[str, Path] = {}
        for path in files:
            try:
                with safe_open(path, framework="pt") as handle:
                    self.files.update(dict.fromkeys(handle.keys(), path))
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{path.name} is no readable safetensors file: {error}") from None

    def prefix(self) -> str:
        for prefix in _PREFIXES:
            if prefix + "embed_tokens.weight" in self.files:
                return prefix
        raise CheckpointError("tensor 'model.embed_tokens.weight' is missing (looked under every known prefix)")

    def head_name(self) -> str:
        for name in ("lm_head.weight", "language_model.lm_head.weight"):
            if name in self.files:
                return name
        raise CheckpointError("tensor 'lm_head.weight' is missing and config.json does not tie the embeddings")

    def under(self, prefix: str) -> _Get:
        return lambda name, shape: self.get(prefix + name, shape)

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self.files:
            raise CheckpointError(f"tensor {name!r} is missing")
        tensor = self._read(name)
        if tensor.dtype == torch.uint8 and name + OFFSET in self.files:
            tensor = self._ungrouped(name, tensor)
        if tuple(tensor.shape) != shape:
            raise CheckpointError(f"tensor {name!r} has shape {list(tensor.shape)}, config.json wants {list(shape)}")
        if tensor.dtype == torch.int8 and name + SCALE in self.files:
            tensor = self._widened(name, tensor)
        if tensor.dtype not in _DTYPES:
            raise CheckpointError(f"tensor {name!r} holds {tensor.dtype}; known: {', '.join(map(str, _DTYPES))}")
        if not torch.isfinite(tensor).all():
            raise CheckpointError(f"tensor {name!r} holds NaN or infinity")
        return tensor

    def _read(self, name: str) -> Tensor:
        with safe_open(self.files[name], framework="pt") as handle:
            tensor: Tensor = handle.get_tensor(name)
        return tensor

    def _ungrouped(self, name: str, packed: Tensor) -> Tensor:
        if name + SCALE not in self.files:
            raise CheckpointError(f"tensor {name + SCALE!r} is missing")
        scale, offset = self._read(name + SCALE), self._read(name + OFFSET)
        shape = (len(packed), packed.shape[-1] * 2 // GROUP) if packed.dim() == 2 else ()
        for what, found in ((SCALE, scale), (OFFSET, offset)):
            if tuple(found.shape) != shape or packed.shape[-1] * 2 % GROUP or not found.is_floating_point():
                raise CheckpointError(f"tensor {name + what!r} is no value a group of {GROUP} columns of {name!r}")
        return widen_groups(packed, scale, offset)

    def _widened(self, name: str, rows: Tensor) -> Tensor:
        scale = self._read(name + SCALE)
        if rows.dim() != 2 or tuple(scale.shape) != rows.shape[:1] or not scale.is_floating_point():
            raise CheckpointError(f"tensor {name + SCALE!r} is no scale a row of {name!r}")
        return widen_rows(rows, scale)


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError, OSError, RecursionError):
            raise CheckpointError(f"{index.name} is no index of weight files") from None
        if any(not isinstance(name, str) or Path(name).name != name for name in names):
            raise CheckpointError(f"{index.name} names a file outside the folder")
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise CheckpointError(f"weight file {missing[0]!r} is missing ({len(missing)} of {len(names)})")
        return [folder / name for name in names]
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise CheckpointError(
            f"weights are read from safetensors only; the folder holds {pickles[0]}, and a pickle can run code"
        )
    raise CheckpointError(f"{folder} holds no *.safetensors file")
