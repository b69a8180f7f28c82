"""A temperature and a bias a label, by negative log likelihood on held-out logits (Guo et al. 2017)."""

import math

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812

from mainspring.text.probability import Calibration

WIDEST = math.log(20.0)  # a temperature between 1/20 and 20: rows told apart without a fault would have none
Array = npt.NDArray[np.float64]


def fit(logits: Array, labels: npt.NDArray[np.int64], weights: Array | None = None) -> Calibration:
    """softmax((logits + bias) / temperature), as `text.probability` applies it; the last bias is 0."""
    rows, truth = torch.from_numpy(logits).double(), torch.from_numpy(labels)
    weight = torch.ones(len(rows), dtype=torch.double) if weights is None else torch.from_numpy(weights)
    heat = torch.zeros((), dtype=torch.double, requires_grad=True)
    bias = torch.zeros(rows.shape[1] - 1, dtype=torch.double, requires_grad=True)
    optimiser = torch.optim.LBFGS([heat, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        log_temperature = WIDEST * torch.tanh(heat / WIDEST)
        scaled = (rows + F.pad(bias, (0, 1))) / log_temperature.exp()
        value = (F.cross_entropy(scaled, truth, reduction="none") * weight).sum() / weight.sum()
        value = value + 1e-4 * (bias.square().sum() + log_temperature.square())  # few rows: stay near 1 and 0
        value.backward()
        return value

    optimiser.step(loss)
    found = F.pad(bias.detach(), (0, 1)).tolist()
    temperature = math.exp(WIDEST * math.tanh(float(heat.detach()) / WIDEST))
    return Calibration(temperature, tuple(round(value, 6) for value in found))
