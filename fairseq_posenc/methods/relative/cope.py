"""Positions that depend on the content of words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...core import AttentionContext, MethodCard, Options, PositionMethod, Positions, option
from ...ops.distances import distances
from ...ops.precision import at_least_float32

#: gates of one block of queries, so few that they fit a core's cache
_GATES_ON_CPU = 2**18


class ContextualPositions(PositionMethod):
    """Add products of queries with learned vectors of contextual positions: sums of gates that every query computes for all keys.

    Equation: A_ts = a_ts + q_t . e[p_ts], p_ts = sum_(j=s..t) sigmoid(a_tj), a_ts = q_t . k_s / sqrt(d_h), e between two whole
        positions by linear interpolation; Golovneva et al. (2024). scale=code divides q_t . e[p_ts] by sqrt(d_h), too.
    Shapes: rescale [B, H, T, S] -> same.
    Source: Golovneva, Wang, Weston and Sukhbaatar (2024), appendix; x-transformers; facebookresearch/RAM (scale=code).
    Deviations: q_t . e is added unscaled, as in the paper's appendix and x-transformers, where the authors' repository scales it
        by default (scale=code; its --cope-nodiv is scale=paper); 64 positions and tables of every layer are unverified; the
        encoder (a table for each side) and cross-attention (gates from the key to the last source word) are our extension and
        experimental.
    Cost: L largest d_h parameters a stack where heads share; logits of all positions for every query, two gathers, in blocks of
        queries that the backward pass computes again, so that nothing but the scores is stored.
    """

    @dataclass(frozen=True)
    class Options(Options):
        largest: int = option(64, "number of positions; further ones use the last", minimum=2, maximum=65536)
        scale: Literal["paper", "code"] = option(
            "paper", "add q . e unscaled, as the paper's appendix, or scaled as q . k, as the authors' repository"
        )
        share: Literal["heads", "none", "layers", "all"] = option("heads", "share one table across heads, layers or both")

    card = MethodCard(
        name="cope",
        title="Contextual position encoding (CoPE)",
        citations=("golovneva-etal-2024-contextual",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="peer",
        sites=("decoder",),
        extended_sites=("encoder", "cross"),
        parameters="tables * largest * d_h * (1 if causal or cross else 2)",
    )

    rescale_reads = "content"

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.table = self.parameter_table(options.largest, dims.head_dim, share=options.share)  # starts at 0, as the authors'
        twice = not (dims.causal or dims.cross)
        self.right_table = self.parameter_table(options.largest, dims.head_dim, share=options.share) if twice else None

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        factor = ctx.scale if self.options.scale == "code" else 1.0
        tables = [table for table in (self.table, self.right_table) if table is not None]
        logits = [at_least_float32((q * factor) @ self.of_layer(table, ctx).to(q.dtype).mT) for table in tables]
        # without hidden states and losses, which the graph of the backward pass must not hold
        at = AttentionContext(ctx.queries, ctx.keys, causal=ctx.causal, cross=ctx.cross, key_padding=ctx.key_padding)
        return _Interpolated.apply(at_least_float32(scores), at, *logits)


class _Interpolated(torch.autograd.Function):
    """Scores [B, H, T, S] plus the logits of positions, [B, H, T, largest] for each side, read where gates add up to.

    Forwards and backwards in blocks of queries, whose gates and positions are not stored.
    """

    @staticmethod
    def forward(ctx, scores: Tensor, at: AttentionContext, *logits: Tensor) -> Tensor:
        ctx.at = at
        ctx.save_for_backward(scores, *logits)
        out = scores.clone()
        for rows, seen in _blocks(scores, at):
            out[:, :, rows, :seen] += _added(scores[:, :, rows, :seen], [x[:, :, rows] for x in logits], rows, at)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        scores, *logits = ctx.saved_tensors
        grad_scores, grad_logits = grad.clone(), [torch.empty_like(x) for x in logits]
        for rows, seen in _blocks(scores, ctx.at):
            given = [x.detach().requires_grad_() for x in (scores[:, :, rows, :seen], *(x[:, :, rows] for x in logits))]
            with torch.enable_grad():
                added = _added(given[0], given[1:], rows, ctx.at)
            found = torch.autograd.grad(added, given, grad[:, :, rows, :seen])
            grad_scores[:, :, rows, :seen] += found[0]
            for whole, part in zip(grad_logits, found[1:]):
                whole[:, :, rows] = part
        return grad_scores, None, *grad_logits


def _blocks(scores: Tensor, at: AttentionContext) -> Iterator[tuple[slice, int]]:
    """Blocks of queries, and the number of keys up to the last one that these may see."""
    queries, keys = scores.shape[2:]
    size = max(1, (_GATES_ON_CPU if scores.device.type == "cpu" else 2**26) * queries // max(1, scores.numel()))
    for start in range(0, queries, size):
        stop = min(start + size, queries)
        yield slice(start, stop), stop if at.causal and queries == keys else keys


def _added(scores: Tensor, logits: Sequence[Tensor], rows: slice, at: AttentionContext) -> Tensor:
    """What positions add to the scores of some queries and the first keys."""
    seen = scores.size(3)
    delta = distances(Positions(at.queries.ids[:, rows]), Positions(at.keys.ids[:, :seen])).unsqueeze(1)  # [B or 1, 1, T, S]
    gates = scores.sigmoid()
    if at.key_padding is not None:
        gates = gates.masked_fill(at.key_padding[:, None, None, :seen], 0.0)
    left = torch.ones_like(delta, dtype=torch.bool) if at.cross else delta <= 0
    found = _read(logits[0], _to_the_end(gates * left))
    return found if len(logits) == 1 else torch.where(left, found, _read(logits[1], (gates * (delta >= 0)).cumsum(-1)))


def _read(logits: Tensor, positions: Tensor) -> Tensor:
    """Logits [B, H, T, largest] at fractional positions [B, H, T, S]; those beyond the last one read the last one."""
    positions = positions.clamp(max=logits.size(3) - 1)
    low = positions.detach().floor()
    below, above = logits.gather(-1, low.long()), logits.gather(-1, positions.detach().ceil().long())
    return torch.lerp(below, above, positions - low)


def _to_the_end(x: Tensor) -> Tensor:
    """Sums from every column to the last one."""
    return x.flip(-1).cumsum(-1).flip(-1)
