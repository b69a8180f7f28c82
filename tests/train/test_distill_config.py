"""What a config of a writer may say; the shipped one's size."""

from pathlib import Path

import pytest
import torch

from mainspring.errors import InputError
from mainspring.model.hybrid import Hybrid
from mainspring.model.mtp import MtpHead
from mainspring.model.quantised import in_groups
from mainspring.train.distill.config import read_distill
from mainspring.train.distill.student import writer_config
from mainspring.train.distill.teacher import TeacherShape


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ('teacher = "t"', "config"),
        ('out = "o"', "config"),
        ('out = "o"\nteacher = "t"\nwhat = 1', "what"),
        ('out = "o"\nteacher = "t"\n[writing]\nrows = 0', "writing.rows"),
        ('out = "o"\nteacher = "t"\n[training]\nrounding = 2.0', "training.rounding"),
        ('out = "o"\nteacher = "t"\n[shape]\nhidden_size = "wide"', "shape.hidden_size"),
        ('out = "o"\nteacher = "t"\n[shape]\nhidden_size = 64.5', "shape.hidden_size"),
        ('out = "o"\nteacher = "t"\n[shape]\nattention_every = 0', "shape.attention_every"),
        ('out = "o"\nteacher = "t"\n[shape]\nnum_attention_heads = 5', "shape.num_attention_heads"),
        ('out = "o"\nteacher = "t"\nshape = 5', "shape"),
        ('out = "o"\nteacher = "t"\n[writing]\nsystem = 5', "writing.system"),
        ('out = "o"\nteacher = "t"\n[writing]\ntemperature = nan', "writing.temperature"),
        ('out = "o"\nteacher = "t"\n[writing]\nshare = -0.5', "writing.share"),
        ('out = "o"\nteacher = "t"\n[training]\nlooks = 0', "training.looks"),
        ('out = "o"\nteacher = "t"\n[training]\nwarmup = 0', "training.warmup"),
        ('out = "o"\nteacher = "t"\n[training]\nepochs = 0.0', "training.epochs"),
        ('out = "o"\nteacher = "t"\n[training]\nrate = inf', "training.rate"),
        ('out = "o"\nteacher = "t"\n[training]\nquantise = 1', "training.quantise"),
    ],
)
def test_a_config_at_fault_names_the_key(tmp_path: Path, text: str, param: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_distill(tmp_path / "config.toml")
    assert caught.value.param == param


def test_the_shipped_config_is_read_and_makes_at_most_16_mb() -> None:
    config = read_distill(Path(__file__).parents[2] / "configs" / "writer.toml")
    teacher = TeacherShape(49_152, 576, 1536, 30, 9, 3, 64, 100_000.0, 1e-5)
    with torch.device("meta"):
        shape = writer_config(config.shape, teacher, 22_000, 21_988)
        model, mtp = Hybrid(shape), MtpHead(shape)
    size = 0.0
    for p in [*model.parameters(), *mtp.parameters()]:
        size += p.numel() * (4.5 / 8 if p.dim() == 2 and in_groups(*p.shape) else 4)
    assert 14e6 < size < 15.5e6
