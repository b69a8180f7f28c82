"""The student's first weights, from the teacher's.

The student's stream is the teacher's in fewer directions: x -> P^T x with P [teacher d, d] the principal directions of
normed states and embeddings. So what reads the stream starts as W P and what writes to it as P^T W. Norm weights move
into the matrices that follow, with a factor for the rms that the projection changes. Of the heads whole groups are
taken, of the MLP units those that read and write most, both by the norms of their weights.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mainspring.model.hybrid import Block, GatedAttention, GatedDeltaNet
from mainspring.train.distill.student import Student
from mainspring.train.distill.teacher import Teacher, TeacherLayer
from mainspring.train.distill.vocabulary import Vocabulary
from mainspring.train.network import text_states
from mainspring.train.smollm2 import CONTROL


def source_layers(teacher: int, student: int) -> list[int]:
    """The teacher's layer that each of the student's starts from."""
    return [int((i + 0.5) * teacher / student) for i in range(student)]


def tapped_layers(teacher: int, student: int) -> list[int]:
    """The teacher's layer after which its state is what the student's should be after each of its own."""
    return [max(0, (i + 1) * teacher // student - 1) for i in range(student)]


@torch.no_grad()
def principal(
    teacher: Teacher, tokens: Tensor, lengths: Tensor, width: int, taps: Sequence[int]
) -> tuple[Tensor, float]:
    """(P fp32 [teacher d, width], the share of the sum of squares it keeps), from texts [B, T] padded on the right."""
    _, states = teacher(tokens, sorted(set(taps)))
    real = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
    real[:, 0] = False  # the first token's state is huge in a few directions and means nothing
    size = teacher.shape.hidden_size
    moment = torch.zeros(size, size, dtype=torch.float64, device=tokens.device)
    for rows in [teacher.embed, *(state[real] for state in states)]:
        x = rows.double()
        x /= x.square().mean(1, keepdim=True).sqrt().clamp(min=1e-6)
        moment += x.T @ x / len(x)
    values, vectors = torch.linalg.eigh(moment.cpu())
    basis = vectors.flip(1)[:, :width]
    basis = basis * basis.gather(0, basis.abs().argmax(0, keepdim=True)).sign()  # they come with either sign
    return basis.float(), float(values.flip(0)[:width].sum() / values.sum())


@torch.no_grad()
def start_from(
    student: Student, teacher: Teacher, vocabulary: Vocabulary, basis: Tensor, kept: float, *, layers: bool = True
) -> None:
    """Fill the student's weights, in place; embeddings alone without `layers`. `teacher` and `basis` lie on the CPU in
    fp32."""
    model, mtp, shape = student.model, student.mtp, teacher.shape
    ratio = (kept * shape.hidden_size / basis.shape[1]) ** 0.5
    if layers:
        sources = source_layers(shape.layers, len(model.blocks))
        for block, number in zip(model.blocks, sources, strict=True):
            _fill(block, teacher.layers[number], basis, ratio)  # type: ignore[arg-type]
        _fill(mtp.blocks[0], teacher.layers[shape.layers - 1], basis, ratio)  # type: ignore[arg-type]
    model.embed.weight.copy_(_rows(teacher, vocabulary) @ basis)
    size = model.config.hidden_size
    for norm in (model.norm, mtp.norm):
        norm.weight.fill_(ratio * float(teacher.norm.mean()) - 1)
    _put(mtp.fc, torch.cat([torch.eye(size), torch.eye(size)], 1))


@torch.no_grad()
def settle(student: Student, tokens: Tensor, lengths: Tensor) -> None:
    """Scale the last norms so that logits have a spread of 1 on texts [B, T]: layers taken out of a deep network say
    little together as yet, and should not say it loudly (divergence 30 rather than 8 otherwise, and a hundred steps to
    unlearn it)."""
    model = student.model
    rows = model.norm(text_states(model, model.embed.weight, tokens, lengths)[-1])
    inside = torch.arange(tokens.shape[1]) < lengths[:, None]
    spread = float((rows[inside] @ model.embed.weight.T).std())
    for norm in (model.norm, student.mtp.norm):
        norm.weight.copy_((1 + norm.weight) / max(spread, 1e-6) - 1)


def _rows(teacher: Teacher, vocabulary: Vocabulary) -> Tensor:
    """The teacher's row of every student token; control tokens take the row of a word that is like them."""
    rows = torch.zeros(vocabulary.size, teacher.shape.hidden_size)
    for number, run in enumerate(vocabulary.pieces):
        if len(run) == 1:
            rows[run[0]] = teacher.embed[number]
    for name, word in CONTROL.items():
        if (like := vocabulary.words.get(word)) is not None:
            rows[vocabulary.control[name]] = rows[like]
    rows[vocabulary.end] = teacher.embed[vocabulary.close[0]]
    return rows


def _fill(block: Block, layer: TeacherLayer, basis: Tensor, ratio: float) -> None:
    mixer, s = block.mixer, layer.shape
    D, many = s.head_dim, s.heads // s.kv_heads  # noqa: N806
    reads = layer.qkv * layer.mixer_norm @ basis * ratio
    q, k, v = (part.unflatten(0, (-1, D)) for part in reads.split([s.heads * D, s.kv_heads * D, s.kv_heads * D]))
    writes = (basis.T @ layer.out).unflatten(1, (s.heads, D))
    order = (writes.square().sum((0, 2)).view(-1, many).sum(1) * v.square().sum((1, 2))).argsort(descending=True)
    if isinstance(mixer, GatedAttention):
        c = mixer.config
        each = c.num_attention_heads // c.num_key_value_heads
        groups = [int(order[g % len(order)]) for g in range(c.num_key_value_heads)]
        heads = [g * many + r % many for g in groups for r in range(each)]
        _put(mixer.q_proj, torch.cat([q[heads], torch.zeros_like(q[heads])], 1).flatten(0, 1))
        _put(mixer.kv_proj, torch.cat([k[groups].flatten(0, 1), v[groups].flatten(0, 1)]))
        _put(mixer.o_proj, 2 * writes[:, heads].flatten(1))  # the gate is a half
        for norm, rows in ((mixer.q_norm, q[heads]), (mixer.k_norm, k[groups])):
            norm.weight.fill_(float(rows.square().sum(-1).mean().sqrt()) - 1)
    elif isinstance(mixer, GatedDeltaNet):
        H = mixer.config.linear_num_key_heads  # noqa: N806
        heads = [int(order[h // many % len(order)]) * many + h % many for h in range(H)]
        groups = [head // many for head in heads]
        weight = mixer.in_proj.weight.clone()  # z, b and a stay random
        weight[: 3 * H * D] = torch.cat([x.flatten(0, 1) for x in (q[heads], k[groups], v[groups])])
        _put(mixer.in_proj, weight)
        _put(mixer.out_proj, writes[:, heads].flatten(1))
        mixer.conv.zero_()
        mixer.conv[:, -1] = 1.0
    _fill_mlp(block, layer, basis, ratio)


def _fill_mlp(block: Block, layer: TeacherLayer, basis: Tensor, ratio: float) -> None:
    gate, up = (layer.gate_up * layer.mlp_norm @ basis * ratio).chunk(2)
    down = basis.T @ layer.down
    size = block.mlp.down_proj.weight.shape[1]
    best = (up.norm(dim=1) * down.norm(dim=0)).argsort(descending=True)[:size].sort().values
    if size > len(best):
        raise ValueError(f"intermediate_size {size} is more than the teacher's {len(best)}")
    _put(block.mlp.gate_up_proj, torch.cat([gate[best], up[best]]))
    _put(block.mlp.down_proj, down[:, best])


def _put(module: torch.nn.Module, weight: Tensor) -> None:
    """Into the weight itself, behind its parametrisation."""
    module.parametrizations.weight.original.copy_(weight)  # type: ignore[union-attr, operator]
