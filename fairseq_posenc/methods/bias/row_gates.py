"""Forget gates of tokens. The gates are computed separately for each query."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.constants import Constants
from ...ops.kernels.angle_rotation import rotate_by
from ...ops.kernels.gate_sums import GateSums
from ...ops.precision import at_least_float32
from .alibi import slopes

#: standard deviation of the initial projections
_DEVIATION = 0.02


@dataclass(frozen=True)
class RowGateOptions(MethodOptions):
    """Options of row_gates and grape_ap."""

    sum: Literal["after_key", "from_key"] = option(
        "after_key",
        "tokens whose gates weight a key: after the key up to the query, or from the key to the token before the query",
    )


def projected(x: Tensor, weight: Tensor) -> Tensor:
    """Project and split into heads, in float32 or wider: x [B, N, C], weight [H, C, width] -> [B, H, N, width]."""
    heads, _, width = weight.shape
    columns = at_least_float32(weight).movedim(0, 1).flatten(1)  # [C, H width]
    return at_least_float32(at_least_float32(x) @ columns).unflatten(-1, (heads, width)).transpose(1, 2)


class RowGateBias(PositionMethod):
    """Base class of row_gates and grape_ap: sums of the logarithms of gates from key to query. Each query has its own gates."""

    Options: type[RowGateOptions] = RowGateOptions
    per_layer = content_dependent = True

    def edges(self, ctx: AttentionContext) -> Tensor:
        """Return the inputs of the sigmoid, for the gate of each pair of query and token: [B, H, T, S], in float32 or wider."""
        raise NotImplementedError

    def summed(self, edges: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the sums of ln sigmoid(edges) from each key to the query: [B, H, T, S] -> [B, H, T, S]."""
        queries, keys = ctx.queries.ids.unsqueeze(-1), ctx.keys.ids.unsqueeze(-2)
        from_key = self.options.sum == "from_key"
        counted = (keys < queries if from_key else keys <= queries).unsqueeze(1)  # [B or 1, 1, T, S]
        if ctx.key_padding is not None:
            counted = counted & ~ctx.key_padding[:, None, None]
        return GateSums.apply(edges, counted, from_key)

    @staticmethod
    def all_keys(name: str, new: Tensor, ctx: AttentionContext) -> Tensor:
        """Append the vectors of the new keys to the stored vectors, and return all vectors: [B, H, N, D] -> [B, H, S, D]."""
        if ctx.state is None:
            return new
        known = ctx.state.get(name)
        return ctx.state.store_per_row(name, new if known is None else torch.cat([known, new], 2))


class RowGates(RowGateBias):
    r"""Weight each key by the product of forget gates from the key to the query, with separate gates for each query.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} + \sum_{l=s+1}^{t} \ln \operatorname{sigmoid}(p_t \cdot r_l / \sqrt{d'})$, $p =
        W_p x$ and $r = W_r x$, with $d'$ channels per head and hidden states $x$. `sum=from_key`: $l = s$ to $t - 1$.
    Shapes: bias -> [B, H, T, S].
    Source: PerRowDataDependentAlibi of x-transformers, which has sum=from_key. There is no paper.
    Deviations:
        * By default, the sum contains the gates of the tokens after the key, as in the Forgetting Transformer.
        * Initial projections are normal with standard deviation 0.02. x-transformers has the initial values of nn.Linear.
    Cost: 2 L d h d' parameters per stack. In addition to the scores, each layer computes a matrix [B, H, T, S] of dot products
        over d' channels. Each layer also computes a cumulative sum along the keys in float32. Decoding caches r,
        which has d' numbers per token and head.
    """

    @dataclass(frozen=True)
    class Options(RowGateOptions):
        width: int = option(8, "number d' of channels of the projections per head", minimum=1, maximum=4096)

    card = MethodCard(
        name="row_gates",
        title="Forget gates for each query",
        citations=("wang-2020-x-transformers",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="peer",
        sites=("decoder",),
        parameters="2 * L * d * h * width",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.query_weight, self.key_weight = (self.parameter_table(dims.embed_dim, options.width, share="none") for _ in range(2))
        for weight in (self.query_weight, self.key_weight):
            nn.init.normal_(weight, std=_DEVIATION)

    def bias(self, ctx: AttentionContext) -> Tensor:
        return self.summed(self.edges(ctx), ctx)

    def edges(self, ctx: AttentionContext) -> Tensor:
        assert ctx.inputs is not None
        of_query = self._projected(self.query_weight, ctx.inputs[0], ctx) * self.options.width**-0.5
        of_word = self.all_keys("words", self._projected(self.key_weight, ctx.inputs[1], ctx), ctx)
        return at_least_float32(of_query @ of_word.mT)

    def _projected(self, weight: Tensor, x: Tensor, ctx: AttentionContext) -> Tensor:
        return projected(x, self.of_layer(weight, ctx))


class GrapeAP(RowGateBias):
    r"""Weight each key by the product of forget gates from the key to the query, with gates that also depend on the position.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} + m_h \sum_{l=s+1}^{t} \ln \operatorname{sigmoid}(p_t \cdot R(l) p'_l / d')$,
        with $m_h$ the slopes of `alibi`. $p = W x$ with $d'$ channels per head, $p' = p / \operatorname{rms}(p)$, and $R(l)$
        rotates every pair of channels by $l$ radians. Zhang et al. (2026).
    Shapes: bias -> [B, H, T, S].
    Source: Zhang et al. (2026). Code: model-architectures/GRAPE, model llama-mha-grape-ap-v1, whose
        configurations have d' = 8 (p_head_dim).
    Deviations:
        * The gates read the position l itself, so the method is not relative. If a constant is added to all positions, the
          scores change.
        * The rotation has the direction of rope in this project. The authors' code has the opposite direction (direction=code).
        * Only the key side of the gates is normalised, as in the authors' code. In the paper, both sides are.
        * The projection p has separate weights. The authors' code can also tie p to queries, keys or values.
        * Queries and keys have no normalisation. The authors pass them through a learned RMSNorm first.
    Cost: L d h d' parameters per stack. In addition to the scores, each layer computes a matrix [B, H, T, S] of dot products
        over d' channels. Each layer also computes a cumulative sum along the keys in float32. Decoding caches
        d' numbers per token and head.
    Raises: PositionError for an odd width.
    """

    @dataclass(frozen=True)
    class Options(RowGateOptions):
        width: int = option(8, "even number d' of channels of the projection per head", minimum=2, maximum=4096)
        direction: Literal["rope", "code"] = option("rope", "direction of the rotation: as in rope, or as in the authors' code")

    card = replace(
        RowGates.card,
        name="grape_ap",
        title="Additive GRAPE along the path (GRAPE-AP)",
        citations=("zhang-etal-2026-group",),
        reference="both",
        evidence="paper",
        parameters="L * d * h * width",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if options.width % 2:
            raise PositionError(f"grape_ap: width={options.width} is odd. Expected an even number. Use {options.width + 1}.")
        self.slopes = Constants(slopes(dims.num_heads))
        self.weight = self.parameter_table(dims.embed_dim, options.width, share="none")
        nn.init.normal_(self.weight, std=0.5 * dims.embed_dim**-0.5)  # as in the authors' init_utils.py

    def bias(self, ctx: AttentionContext) -> Tensor:
        return self.slopes.values[:, None, None] * self.summed(self.edges(ctx), ctx)

    def edges(self, ctx: AttentionContext) -> Tensor:
        assert ctx.inputs is not None
        of_query, new = (self._projected(x, ctx) for x in ctx.inputs)
        at = ctx.keys.ids[:, ctx.keys.ids.size(1) - new.size(2) :]  # positions of the new tokens
        sign = 1 if self.options.direction == "rope" else -1
        angles = sign * at_least_float32(at.to(new.dtype))[:, None, :, None].expand(-1, 1, -1, self.options.width // 2)
        of_word = self.all_keys("words", rotate_by(F.rms_norm(new, new.shape[-1:]), angles, "halves"), ctx)
        return at_least_float32(of_query @ of_word.mT) / self.options.width

    def _projected(self, x: Tensor, ctx: AttentionContext) -> Tensor:
        return projected(x, self.of_layer(self.weight, ctx))
