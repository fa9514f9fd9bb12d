"""Products of queries and keys in which every channel decays by the forget gates between key and query."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod
from ...ops.distances import distances
from ...ops.kernels.decayed_products import DecayedProducts, Halves
from ...ops.precision import at_least_float32
from ...ops.running import at_queries

#: initial bias of the gates, and standard deviation of their initial weights
_OPEN, _DEVIATION = 8.0, 0.02


class Wall(PositionMethod):
    r"""Multiply every channel of the product of query and key by forget gates. Each token has one gate per channel. A product
    is multiplied by the gates of all tokens after the key, up to the query.

    Equation: $A_{ts} = \sum_i q_{t,i} k_{s,i} \exp(P_{t,i} - P_{s,i}) / \sqrt{d_h}$, $P_t = \sum_{j \le t} \ln
        \operatorname{sigmoid}(W x_j + b)$, with a gate for each channel of each head. Averbuch and Pai (2026).
    Shapes: rescale [B, H, T, S] -> same.
    Source: fla-org/flash-linear-attention, layers/wall_attn.py and ops/wall_attn/naive.py, contributed by Averbuch and Pai
        (Tilde Research). No paper was read.
    Deviations:
        * The authors' code has an additional scalar gate of each head. The logarithms of this gate are added to the scores
          without the factor $1/\sqrt{d_h}$. The spec wall+forgetting adds this gate. Its initial bias is 5, and 8 in the
          authors' code.
        * The initial W is normal with standard deviation 0.02, and b starts at 8, as in the code. Training therefore starts
          almost as plain attention.
        * In this project, no exponent is positive. The exponentials therefore do not overflow. The authors' kernels subtract
          reference values from P. The reference values are the values of P at every 64th key.
    Cost: L (d^2 + d) parameters per stack. Each layer computes B T d log2(T) exponentials, and stores them for the
        backward pass. Decoding caches the sums P, which are as large as the keys.
    """

    card = MethodCard(
        name="wall",
        title="Wall attention",
        citations=("averbuch-pai-2026-wall",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        parameters="L * (d**2 + d)",
    )

    rescale_reads = "vectors"

    def __init__(self, options: MethodOptions, dims: Dims):
        super().__init__(options, dims)
        layers, width = dims.num_layers, dims.embed_dim
        self.weight = nn.Parameter(torch.empty(layers, width, width).normal_(std=_DEVIATION))
        self.offset = nn.Parameter(torch.full((layers, width), _OPEN))

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            q, sums, queries = q * ctx.scale, self._sums(ctx), q.size(2)
            if ctx.first_query is None or ctx.first_query + queries != k.size(2):  # the queries are not the last keys
                later = distances(ctx.queries, ctx.keys).unsqueeze(1) > 0
                return _of_each(q, k, at_queries(sums, ctx), sums).masked_fill(later, 0.0)
            if queries == 1:  # fewer kernels
                return _of_each(q, k, sums[:, :, -1:], sums)
            halves = ctx.once(("halves", queries), lambda: Halves.of(queries, q.device))
            return DecayedProducts.apply(q, k, sums, halves)

    def _sums(self, ctx: AttentionContext) -> Tensor:
        """Return the sums P_s of the class's equation for all keys: [B, H, S, D]."""
        assert ctx.inputs is not None
        weight, offset = (self.of_layer(parameter, ctx, float32=True) for parameter in (self.weight, self.offset))
        steps = F.logsigmoid(at_least_float32(ctx.inputs[1]) @ weight + offset)  # [B, N, C], also at padding
        if ctx.key_padding is not None:
            steps = steps.masked_fill(ctx.key_padding[:, -steps.size(1) :, None], 0.0)
        steps = steps.unflatten(-1, (self.dims.num_heads, -1)).transpose(1, 2)  # [B, N, C] -> [B, H, N, D]
        if ctx.state is None:
            return steps.cumsum(2)
        known, sums = ctx.state.get("sum"), steps.cumsum(2)
        if known is not None:
            sums = torch.cat([known, known[:, :, -1:] + sums], 2)
        return ctx.state.store_per_row("sum", sums)


def _of_each(q: Tensor, k: Tensor, own: Tensor, sums: Tensor) -> Tensor:
    """Return the scores of queries at arbitrary positions: [B, H, T, D] and [B, H, S, D] -> [B, H, T, S].

    `own` contains the sums P_t at the queries. `sums` contains the sums P_s at the keys.
    """
    decays = ((p - sums).clamp(max=0).exp() for p in own.split(1, 2))
    return torch.stack([(x * k * decay).sum(-1) for x, decay in zip(q.split(1, 2), decays)], 2)
