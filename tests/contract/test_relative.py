"""Functions for tables with one column per clipped distance.

`SpreadClipped` copies each column to the keys at the distance of this column.
`CollectClipped` adds the numbers of all keys at one distance. The sum is the column of this distance.

`Positions.counted` returns positions that are consecutive integers. For such positions, the functions compute in blocks of
rows. For other positions, the functions compute all rows at once.
"""

import pytest
import torch

from fairseq_posenc.core import AttentionContext, Positions
from fairseq_posenc.ops import devices, relative
from fairseq_posenc.ops.kernels import clipped_distances, distance_products
from fairseq_posenc.ops.kernels.clipped_distances import CollectClipped, SpreadClipped
from fairseq_posenc.testing.models import close

COUNTED = [(0, 9, 0, 9), (0, 9, 0, 13), (6, 3, 0, 9), (8, 1, 0, 9), (0, 4, 20, 5), (20, 5, 0, 4)]


@pytest.mark.parametrize("limit", [0, 1, 3, 30])
@pytest.mark.parametrize("rows", [1, 4, 64])
@pytest.mark.parametrize("at", COUNTED, ids=str)
def test_counted_positions_give_what_others_give(monkeypatch, at, rows, limit):
    monkeypatch.setattr(clipped_distances, "_ROWS", rows)
    torch.manual_seed(83)
    counted = Positions.counted(*at[:2]), Positions.counted(*at[2:])
    (T, S), given = (len(p.ids[0]) for p in counted), [Positions(p.ids) for p in counted]
    delta = (counted[1].ids[0] - counted[0].ids[0].unsqueeze(1)).clamp(-limit, limit)
    columns = delta.unsqueeze(-1) == torch.arange(-limit, limit + 1)  # [T, S, W]
    probs, logits = torch.randn(2, 3, T, S, dtype=torch.float64), torch.randn(2, 3, T, 2 * limit + 1, dtype=torch.float64)
    for positions in (counted, given):
        close(CollectClipped.apply(probs, *positions, limit), torch.einsum("bhts,tsw->bhtw", probs, columns.double()), 1e-12)
        close(SpreadClipped.apply(logits, *positions, limit), torch.einsum("bhtw,tsw->bhts", logits, columns.double()), 0)


def test_gradients(monkeypatch):
    monkeypatch.setattr(clipped_distances, "_ROWS", 3)
    at = Positions.counted(2, 5), Positions.counted(0, 7), 1
    logits, probs = (torch.randn(1, 2, 5, n, dtype=torch.float64, requires_grad=True) for n in (3, 7))
    torch.autograd.gradcheck(lambda x: SpreadClipped.apply(x, *at), logits)
    torch.autograd.gradcheck(lambda x: CollectClipped.apply(x, *at), probs)


def test_sums_of_half_precision_are_not_rounded_on_the_way():
    probs = torch.full((1, 1, 1, 3000), 0.001, dtype=torch.bfloat16)
    found = CollectClipped.apply(probs, Positions.counted(2999, 1), Positions.counted(0, 3000), 2)
    close(found[0, 0, 0, 0].float(), probs.float()[0, 0, 0, :2998].sum(), 4e-3)


@pytest.mark.parametrize("limit", [None, 2, 30])
@pytest.mark.parametrize("tables", [1, 3], ids=["shared", "per head"])
@pytest.mark.parametrize("blocks", [(1, 1), (3, 2), (8, 8), "pairs", "accelerator"], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("at", COUNTED, ids=str)
def test_products_with_vectors_of_distances(monkeypatch, at, causal, blocks, tables, limit):
    """Compare values and gradients with a computation that uses one vector per query and key, in a tensor [T, S, D].

    In a causal context, compare only the entries that the causal mask allows.
    """
    if blocks == "accelerator":
        monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    elif blocks == "pairs":  # computed with a tensor [T, S, D], as for many short sentences
        monkeypatch.setattr(relative, "_is_short", lambda shape, table: True)
    else:
        monkeypatch.setattr(relative, "_SHORT", 0)
        monkeypatch.setattr(distance_products, "_BLOCKS", blocks[0])
        monkeypatch.setattr(distance_products, "_FEWEST_ROWS", blocks[1])
    torch.manual_seed(84)
    queries, keys = Positions.counted(*at[:2]), Positions.counted(*at[2:])
    T, S, reach = len(queries.ids[0]), len(keys.ids[0]), 30 if limit is None else limit
    q, k = (torch.randn(2, n, 3, 5, dtype=torch.float64, requires_grad=True) for n in (T, S))
    probs, table = (torch.randn(*n, dtype=torch.float64, requires_grad=True) for n in ((2, 3, T, S), (tables, 2 * reach + 1, 5)))
    delta = keys.ids[0] - queries.ids[0].unsqueeze(1)
    pairs = table[:, delta.clamp(-reach, reach) + reach].expand(3, -1, -1, -1)  # [H, T, S, D]
    allowed = delta <= 0 if causal and at[:2] == at[2:] else torch.ones_like(delta, dtype=torch.bool)
    ctx = AttentionContext(queries, keys, causal=causal)

    def vectors(distance):
        return table[:, distance.clamp(-reach, reach) + reach]

    def compare(found, expected, *inputs):
        close(found, expected, 1e-12)
        grad = torch.randn_like(expected)
        close(*(torch.autograd.grad(out, inputs, grad, retain_graph=True) for out in (found, expected)), 1e-12)

    asked = torch.where(allowed, torch.einsum("bthd,htsd->bhts", q, pairs), 0)
    compare(relative.query_products(q.transpose(1, 2), ctx, vectors, limit).masked_fill(~allowed, 0), asked, q, table)
    seen = torch.where(allowed, torch.einsum("bshd,htsd->bhts", k, pairs), 0)
    compare(relative.key_products(k.transpose(1, 2), ctx, vectors, limit).masked_fill(~allowed, 0), seen, k, table)
    both = relative.sum_products(q.transpose(1, 2), k.transpose(1, 2), ctx, vectors, limit).masked_fill(~allowed, 0)
    compare(both, asked + seen, q, k, table)
    if limit is not None:
        weights = probs * allowed
        given = torch.einsum("bhts,htsd->bhtd", weights, pairs)
        compare(relative.value_products(weights, ctx, vectors, limit), given, probs, table)


def test_no_vector_is_asked_for_that_does_not_occur(monkeypatch):
    """If a table is wider than the sentence, only the vectors of distances that occur in the sentence are read.

    In a causal context, the products are computed in blocks of two rows. A block contains one later key for its first row.
    Therefore, the vector of the distance 1 is also read.
    """
    monkeypatch.setattr(relative, "_SHORT", 0)
    monkeypatch.setattr(distance_products, "_FEWEST_ROWS", 2)
    at, asked = Positions.counted(0, 9), []

    def vectors(distance):
        asked.append((int(distance.min()), int(distance.max())))
        return torch.zeros(1, len(distance), 4)

    for causal in (False, True):
        ctx = AttentionContext(at, at, causal=causal)
        relative.query_products(torch.zeros(1, 2, 9, 4), ctx, vectors, 500)
        relative.key_products(torch.zeros(1, 2, 9, 4), ctx, vectors, 500)
        relative.value_products(torch.zeros(1, 2, 9, 9), ctx, vectors, 500)
    assert asked == [(-8, 8)] * 3 + [(-8, 1)] * 3
