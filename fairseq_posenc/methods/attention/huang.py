"""Learned scalars and vectors of distances that multiply the scores or join them: the four methods of Huang et al."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Optional

import torch
from torch import Tensor, nn

from ...contract import AttentionContext, Dims, MethodCard, Options, PositionMethod, option
from ...ops.distances import by_distance, from_table, table_row, whole
from ...ops.precision import widen
from ...ops.relative import clipped, key_products, query_products

_CITATION = """@inproceedings{huang-etal-2020-improve,
  title = {Improve Transformer Models with Better Relative Position Embeddings},
  author = {Huang, Zhiheng and Liang, Davis and Xu, Peng and Xiang, Bing},
  booktitle = {Findings of EMNLP}, year = {2020}}"""
_DEVIATIONS = ("distances beyond the table use its ends", "decoder and cross-attention are our extension")
_START = "factors start at 1, which the paper leaves open; a start near 0 makes attention uniform"


@dataclass(frozen=True)
class _Options(Options):
    max_distance: Optional[int] = option(None, "distance at which the table ends (none: max_positions - 1)", minimum=1)
    share: Literal["none", "heads", "layers", "all"] = option("none", "who has the table in common")

    def reach(self, dims: Dims) -> int:
        return self.max_distance or dims.max_distance


class Huang1(PositionMethod):
    """Scores multiplied by a learned scalar of the absolute distance.

    Equation: A_ts = (q_t . k_s) r[|s-t|] / sqrt(d_h); Huang et al. (2020), method 1.
    Shapes: rescale [B, H, T, S] -> same.
    Source: Huang, Liang, Xu and Xiang (2020); survey, equation 18.
    Deviations: factors start at 1; distances beyond the table use its end; decoder and cross-attention are ours.
    Cost: L h n parameters a stack; one product of the size of the scores a layer.
    """

    Options = _Options
    card = MethodCard(
        name="huang1",
        title="Huang et al., method 1 (multiplicative, blind to direction)",
        citation=_CITATION,
        equation="A_ts = (q_t . k_s) r[|s-t|] / sqrt(d_h)",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="paper",
        sites=("encoder",),
        our_sites=("decoder", "cross"),
        parameters="L h n",
        count=lambda options, dims, site: PositionMethod.table_count(options.share, dims, options.reach(dims) + 1),
        survey_parameters="d L h (2n-1)",
        deviations=(
            "blind to direction",
            _START,
            *_DEVIATIONS,
            "the survey's formula is that of methods 3 and 4; this method has one scalar a distance",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.reach = options.reach(dims)
        self.factor = self.parameter_table(self.reach + 1, share=options.share)
        nn.init.ones_(self.factor)

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        factor = widen(self.of_layer(self.factor, ctx))  # [H or 1, reach + 1]

        def values(delta: Tensor) -> Tensor:
            return factor[:, whole(delta).abs().clamp(max=self.reach)]

        return scores * by_distance(ctx.queries, ctx.keys, values)


class Huang2(PositionMethod):
    """Scores multiplied by a learned scalar of the signed distance.

    Equation: A_ts = (q_t . k_s) r[s-t] / sqrt(d_h); Huang et al. (2020), method 2.
    Shapes: rescale [B, H, T, S] -> same.
    Source: Huang, Liang, Xu and Xiang (2020); survey, section 4.1.2.
    Deviations: as huang1.
    Cost: L h (2n - 1) parameters a stack; one product of the size of the scores a layer.
    """

    Options = _Options
    card = MethodCard(
        name="huang2",
        title="Huang et al., method 2 (multiplicative)",
        citation=_CITATION,
        equation="A_ts = (q_t . k_s) r[s-t] / sqrt(d_h)",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="paper",
        sites=("encoder",),
        our_sites=("decoder", "cross"),
        parameters="L h (2n-1)",
        count=lambda options, dims, site: PositionMethod.table_count(options.share, dims, 2 * options.reach(dims) + 1),
        survey_parameters="d L h (2n-1)",
        deviations=(
            _START,
            *_DEVIATIONS,
            "the survey's formula is that of methods 3 and 4; this method has one scalar where they have a vector",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.reach = options.reach(dims)
        self.factor = self.parameter_table(2 * self.reach + 1, share=options.share)
        nn.init.ones_(self.factor)

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        return scores * from_table(widen(self.of_layer(self.factor, ctx)), ctx.queries, ctx.keys)


class Huang3(PositionMethod):
    """Every channel of the product of queries and keys multiplied by a learned number of the distance.

    Equation: A_ts = sum_i q_ti k_si r[s-t]_i / sqrt(d_h); Huang et al. (2020), method 3.
    Shapes: rescale [B, H, T, S] -> same.
    Source: Huang, Liang, Xu and Xiang (2020); survey, equation 19.
    Deviations: vectors start at 1, so that training starts as without positions; otherwise as huang1.
    Cost: L (2n - 1) d parameters a stack; B H T S D products a layer, in memory O(B H T S): blocks of queries, and a backward
        pass that makes them again.
    """

    Options = _Options
    card = MethodCard(
        name="huang3",
        title="Huang et al., method 3 (a factor for every channel)",
        citation=_CITATION,
        equation="A_ts = sum_i q_ti k_si r[s-t]_i / sqrt(d_h)",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="paper",
        sites=("encoder",),
        our_sites=("decoder", "cross"),
        parameters="L (2n-1) d",
        count=lambda options, dims, site: _vectors_count(options, dims),
        survey_parameters="d L h (2n-1)",
        deviations=(_START, *_DEVIATIONS, "the survey counts h times too many"),
    )

    rescales = "content"

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.reach = options.reach(dims)
        self.gate = self.parameter_table(2 * self.reach + 1, dims.head_dim, share=options.share)
        nn.init.ones_(self.gate)

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        gate = self.of_layer(self.gate, ctx).to(q.dtype)  # [H or 1, 2 * reach + 1, D]
        causal = ctx.causal and q.size(2) == k.size(2)
        return GatedProduct.apply(q * self.dims.head_dim**-0.5, k, gate, clipped(ctx.queries, ctx.keys, self.reach), causal)


class GatedProduct(torch.autograd.Function):
    """sum_i q_ti k_si gate[rows_ts]_i: q [B, H, T, D], k [B, H, S, D], gate [H or 1, W, D], rows [B or 1, T, S] -> [B, H, T, S].

    Forwards and backwards in blocks of queries, whose products are not kept and share one memory. With `causal`, keys after a
    block are left out.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, gate: Tensor, rows: Tensor, causal: bool) -> Tensor:
        ctx.causal = causal
        ctx.save_for_backward(q, k, gate, rows)
        out = q.new_zeros(*q.shape[:3], k.size(2))
        for some, seen, product in _blocks(q, k, causal):
            torch.mul(q[:, :, some].unsqueeze(3), _of(gate, rows[:, some, seen]), out=product)  # [B, H, c, S, D]
            out[:, :, some, seen] = product.mul_(k[:, :, seen].unsqueeze(2)).sum(-1)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):
        q, k, gate, rows = ctx.saved_tensors
        of_q, of_k, of_gate = torch.empty_like(q), torch.zeros_like(widen(k)), torch.zeros_like(widen(gate))
        for some, seen, product in _blocks(q, k, ctx.causal):
            g, here, at = grad[:, :, some, seen].unsqueeze(-1), q[:, :, some].unsqueeze(3), rows[:, some, seen]
            keys = k[:, :, seen].unsqueeze(2)
            torch.mul(g, _of(gate, at), out=product)
            for own, query in zip(product.unbind(2), here.unbind(2)):
                of_k[:, :, seen].addcmul_(own, query)
            of_q[:, :, some] = product.mul_(keys).sum(-2)
            torch.mul(g, keys, out=product)
            summed = product.mul_(here).sum_to_size(at.size(0), gate.size(0), *product.shape[2:])
            of_gate.index_add_(1, at.flatten(), widen(summed.transpose(0, 1).flatten(1, 3)))
        return of_q, of_k.to(k.dtype), of_gate.to(gate.dtype), None, None


def _blocks(q: Tensor, k: Tensor, causal: bool) -> Iterator[tuple[slice, slice, Tensor]]:
    """Queries, keys that they see, and room for their products with all channels: on a CPU as little as fits a core's cache."""
    held = 2**18 if k.device.type == "cpu" else 2**26
    size = min(max(1, held // k.numel()), q.size(2))
    room = q.new_empty(q.size(0) * q.size(1) * size * k.size(2) * k.size(3))
    for start in range(0, q.size(2), size):
        stop = min(start + size, q.size(2))
        seen = stop if causal else k.size(2)
        shape = (*q.shape[:2], stop - start, seen, k.size(3))
        yield slice(start, stop), slice(0, seen), room[: math.prod(shape)].view(shape)


def _of(gate: Tensor, rows: Tensor) -> Tensor:
    return gate[:, rows].transpose(0, 1)  # [H or 1, B or 1, c, S, D] -> [B or 1, H or 1, c, S, D]


class Huang4(PositionMethod):
    """A learned vector of the distance, multiplied with queries and with keys.

    Equation: A_ts = (q_t . k_s + q_t . r[s-t] + k_s . r[s-t]) / sqrt(d_h); Huang et al. (2020), method 4, equations 16 and 17.
    Shapes: content_scores -> [B, H, T, S].
    Source: Huang, Liang, Xu and Xiang (2020); survey, equation 20; Hugging Face's relative_key_query, which indexes t - s.
    Deviations: heads have tables of their own, as in the paper's counts; Hugging Face shares them (share=heads).
    Cost: L (2n - 1) d parameters a stack; memory O(B H T (T + S)).
    """

    Options = _Options
    card = MethodCard(
        name="huang4",
        title="Huang et al., method 4",
        citation=_CITATION,
        equation="A_ts = (q_t . k_s + q_t . r[s-t] + k_s . r[s-t]) / sqrt(d_h)",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="peer",
        sites=("encoder",),
        our_sites=("decoder", "cross"),
        parameters="L (2n-1) d",
        count=lambda options, dims, site: _vectors_count(options, dims),
        survey_parameters="d L h (2n-1)",
        deviations=(
            *_DEVIATIONS,
            "heads do not share the table, as in the paper's counts; Hugging Face shares it (share=heads)",
            "the survey counts h times too many",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.reach = options.reach(dims)
        self.table = self.parameter_table(2 * self.reach + 1, dims.head_dim, share=options.share)
        nn.init.normal_(self.table, std=0.02)

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        table, scale = self.of_layer(self.table, ctx), self.dims.head_dim**-0.5  # [H or 1, 2 * reach + 1, D]

        def vectors(delta: Tensor) -> Tensor:
            return table[:, table_row(delta, self.reach)]

        return query_products(q * scale, ctx, vectors, self.reach) + key_products(k * scale, ctx, vectors, self.reach)


def _vectors_count(options: _Options, dims: Dims) -> int:
    return PositionMethod.table_count(options.share, dims, (2 * options.reach(dims) + 1) * dims.head_dim)
