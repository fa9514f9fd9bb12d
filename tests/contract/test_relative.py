"""Columns of clipped distances spread over keys, and keys collected into them: counted positions go by blocks, others at once."""

import pytest
import torch

from fairseq_posenc.contract import Positions
from fairseq_posenc.ops import relative
from tests.contract.models import close

COUNTED = [(0, 9, 0, 9), (0, 9, 0, 13), (6, 3, 0, 9), (8, 1, 0, 9), (0, 4, 20, 5), (20, 5, 0, 4)]


@pytest.mark.parametrize("limit", [0, 1, 3, 30])
@pytest.mark.parametrize("rows", [1, 4, 64])
@pytest.mark.parametrize("at", COUNTED, ids=str)
def test_counted_positions_give_what_others_give(monkeypatch, at, rows, limit):
    monkeypatch.setattr(relative, "_ROWS", rows)
    torch.manual_seed(83)
    counted = Positions.counted(*at[:2]), Positions.counted(*at[2:])
    (T, S), given = (len(p.ids[0]) for p in counted), [Positions(p.ids) for p in counted]
    delta = (counted[1].ids[0] - counted[0].ids[0].unsqueeze(1)).clamp(-limit, limit)
    columns = delta.unsqueeze(-1) == torch.arange(-limit, limit + 1)  # [T, S, W]
    probs, logits = torch.randn(2, 3, T, S, dtype=torch.float64), torch.randn(2, 3, T, 2 * limit + 1, dtype=torch.float64)
    for positions in (counted, given):
        close(relative.collect_clipped(probs, *positions, limit), torch.einsum("bhts,tsw->bhtw", probs, columns.double()), 1e-12)
        close(relative.spread_clipped(logits, *positions, limit), torch.einsum("bhtw,tsw->bhts", logits, columns.double()), 0)


def test_gradients(monkeypatch):
    monkeypatch.setattr(relative, "_ROWS", 3)
    at = Positions.counted(2, 5), Positions.counted(0, 7), 1
    logits, probs = (torch.randn(1, 2, 5, n, dtype=torch.float64, requires_grad=True) for n in (3, 7))
    torch.autograd.gradcheck(lambda x: relative.spread_clipped(x, *at), logits)
    torch.autograd.gradcheck(lambda x: relative.collect_clipped(x, *at), probs)


def test_sums_of_half_precision_are_not_rounded_on_the_way():
    probs = torch.full((1, 1, 1, 3000), 0.001, dtype=torch.bfloat16)
    found = relative.collect_clipped(probs, Positions.counted(2999, 1), Positions.counted(0, 3000), 2)
    close(found[0, 0, 0, 0].float(), probs.float()[0, 0, 0, :2998].sum(), 4e-3)
