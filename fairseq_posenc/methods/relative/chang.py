"""Lightweight, dynamic and depthwise convolutions in the form of attention."""

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.distances import distances, from_table, table_row
from ...ops.relative import key_products, query_products


class CompositeAttention(PositionMethod):
    r"""Add a learned scalar per clipped distance to the scores (a fixed convolution). Also add the product of the query with a
    learned vector of this distance (a dynamic convolution).

    Equation: $A_{ts} = (q_t \cdot k_s + q_t \cdot w[\operatorname{clip}(s-t)]) / \sqrt{d_h} + \beta[\operatorname{clip}(s-t)]$.
        Chang et al. (2021). `key_term` adds $k_s \cdot c[\operatorname{clip}(t-s)] / \sqrt{d_h}$. `depthwise` adds $\sum_{|s-t|
        \le k} K[s-t] \odot v_s + b$ to each head's output.
    Shapes: content_scores -> [B, H, T, S], bias -> [1, H, T, S], content_values -> [B, H, T, D].
    Source: Chang, Xu, Xu and Tu (2021). Code: mlpc-ucsd/BERT_Convolutions.
    Deviations:
        * The kernel width of 17 (max_distance=8) is unverified. In the authors' code, the kernel width is an argument.
        * The authors' code can multiply the output of the depthwise convolution by a learned factor of each head. This factor is
          left out.
        * The depthwise convolution leaves out masked keys: padding, later keys in causal attention, and keys that another method
          or attn_mask hides.
        * Decoder and cross-attention are extensions of this project. Cross-attention has no depthwise convolution.
    Cost: (2k + 1) (h + d_h) parameters per layer. With key_term=true, (2k + 1) d_h more, and with depthwise=true, (2k + 1) d + d
        more. Memory O(B H T (T + S)).
    Raises: PositionError for depthwise=true in cross-attention, and for non-integer positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        max_distance: int = option(
            8, "largest distance k with a separate entry, in tokens (the kernel has width 2k + 1)", minimum=0, maximum=65536
        )
        key_term: bool = option(False, "products of keys with learned vectors of the distance")
        depthwise: bool = option(
            False, "depthwise convolution of the values, added to the output of every head (not in cross-attention)"
        )

    card = MethodCard(
        name="chang",
        title="Composite attention (convolutions in self-attention)",
        citations=("chang-etal-2021-convolutions",),
        survey="not in its Table 1",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="paper",
        sites=("encoder",),
        extended_sites=("decoder", "cross"),
        parameters="L * ((2 * max_distance + 1) * ((1 + key_term) * d_h + h + depthwise * d) + depthwise * d)",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if options.depthwise and dims.cross:
            raise PositionError("chang: depthwise=true is not supported at site cross. Remove depthwise.")
        self.per_layer = True
        rows = 2 * options.max_distance + 1
        self.query_table = self.parameter_table(rows, dims.head_dim, share="heads")
        self.bias_table = self.parameter_table(rows, share="none")
        self.key_table = self.parameter_table(rows, dims.head_dim, share="heads") if options.key_term else None
        for table in (self.query_table, self.key_table):
            if table is not None:
                nn.init.uniform_(table, -(dims.head_dim**-0.5), dims.head_dim**-0.5)
        self.kernel = self.parameter_table(rows, dims.head_dim, share="none") if options.depthwise else None
        self.kernel_bias = self.parameter_table(dims.head_dim, share="none") if options.depthwise else None
        if self.kernel is not None:
            nn.init.uniform_(self.kernel, -(rows**-0.5), rows**-0.5)

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - (set() if self.options.depthwise else {"content_values"})

    def _rows(self, delta: Tensor) -> Tensor:
        return table_row(delta, self.options.max_distance)

    def bias(self, ctx: AttentionContext) -> Tensor:
        return from_table(self.of_layer(self.bias_table, ctx, float32=True), ctx.queries, ctx.keys)

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        limit, scale = self.options.max_distance, ctx.scale
        table = self.of_layer(self.query_table, ctx).to(q.dtype)  # [1, 2k + 1, D]
        scores = query_products(q * scale, ctx, lambda delta: table[:, self._rows(delta)], limit)
        if self.key_table is not None:
            keys = self.of_layer(self.key_table, ctx).to(q.dtype)
            scores = scores + key_products(k * scale, ctx, lambda delta: keys[:, self._rows(-delta)], limit)
        return scores

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        reach, kernel = self.options.max_distance, self.of_layer(self.kernel, ctx).to(v.dtype)  # [H, 2k + 1, D]
        bias = self.of_layer(self.kernel_bias, ctx).to(v.dtype).unsqueeze(1)  # [H, 1, D]
        if ctx.queries.start is None or ctx.keys.start is None:
            return self._scattered(v, kernel, ctx) + bias
        # neighbours of every query, with zeros beyond both ends: [B, H, S + 2k, D] -> [B, H, T, D, 2k + 1]
        first = ctx.queries.start - ctx.keys.start
        width = reach + 1 + (0 if ctx.causal else reach)
        columns = slice(first, first + ctx.queries.ids.size(1) + width - 1)
        kernel = kernel[:, :width].mT.unsqueeze(1)  # [H, 1, D, 2k + 1]
        if ctx.allowed is not None and ctx.allowed.size(2) == 1:  # all queries have the same masked keys
            v = v.masked_fill(~ctx.allowed.mT, 0.0)
        elif ctx.allowed is not None:  # [B or 1, H or 1, T, S] -> [B or 1, H or 1, T, 1, 2k + 1]
            near = F.pad(ctx.allowed, (reach, reach))[..., columns].unfold(-1, width, 1).diagonal(dim1=2, dim2=3)
            kernel = kernel * near.mT.unsqueeze(3)
        around = F.pad(v, (0, 0, reach, reach))[:, :, columns].unfold(2, width, 1)
        return (around * kernel).sum(-1) + bias

    def _scattered(self, v: Tensor, kernel: Tensor, ctx: AttentionContext) -> Tensor:
        """Compute the depthwise convolution for arbitrary positions. The function computes one matrix product per distance."""
        delta = distances(ctx.queries, ctx.keys).unsqueeze(1)  # [B or 1, 1, T, S]
        if ctx.allowed is not None:
            delta = delta.masked_fill(~ctx.allowed, self.options.max_distance + 1)
        reach = range(-self.options.max_distance, self.options.max_distance + 1)
        terms = (((delta == distance).to(v.dtype) @ v) * kernel[:, row].unsqueeze(1) for row, distance in enumerate(reach))
        return functools.reduce(torch.add, terms)  # [B, H, T, D]
