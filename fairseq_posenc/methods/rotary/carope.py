"""Rotations whose angles depend on the tokens."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import (
    AttentionContext,
    Dims,
    MethodCard,
    MethodOptions,
    PositionError,
    PositionMethod,
    Positions,
    Projection,
    option,
)
from ...ops.kernels.angle_rotation import rotate_by, sine_cosine
from ...ops.precision import at_least_float32
from ...ops.running import at_queries

_BASE = 10000.0
#: standard deviation of the initial projection with start=paper
_DEVIATION = 0.02


class ContentRotation(PositionMethod):
    """Base class of carope and selective_rope.

    Each token adds angles. Queries and keys are rotated by the running sums of these angles.
    """

    content_dependent = True

    def __init__(self, options: MethodOptions, dims: Dims):
        super().__init__(options, dims)
        if dims.head_dim % 2:
            raise PositionError(
                f"{self.card.name}: heads have {dims.head_dim} channels. Expected an even number. Change the number of heads."
            )

    def steps(self, ctx: AttentionContext) -> Tensor:
        """Return the angles that the new keys add: [B, H, N, pairs]. The caller sets the angles at padding to 0.

        Each decoding step calls this function once per layer.
        """
        raise NotImplementedError

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        if which == "query":  # `rotate` is called for queries before keys
            given = self._with_waves(self.angles(ctx))
            for part, tensor in enumerate(given):
                ctx.hand_over((self, part), tensor)
            if ctx.state is None:
                given = [at_queries(tensor, ctx) for tensor in given]
        else:
            handed = [ctx.take((self, part)) for part in range(3)]
            given = [tensor for tensor in handed if tensor is not None] or self._with_waves(self.angles(ctx))
        angles, *waves = given
        return rotate_by(x, angles, "halves", (waves[0], waves[1]))

    @staticmethod
    def _with_waves(angles: Tensor) -> list[Tensor]:
        return [angles, *sine_cosine(angles)]

    def angles(self, ctx: AttentionContext) -> Tensor:
        """Return the angles of all keys: [B, H, N, pairs]. In incremental decoding, return only the angles of the new keys."""
        steps = self.steps(ctx)
        if ctx.key_padding is not None:
            steps = steps.masked_fill(ctx.key_padding[:, None, -steps.size(2) :, None], 0.0)
        if ctx.state is None:
            return steps.cumsum(-2)
        known = ctx.state.get("angle")
        angles = steps.cumsum(-2) if known is None else known.unsqueeze(-2) + steps.cumsum(-2)
        ctx.state.store_per_row("angle", angles[:, :, -1])
        return angles


class ContextRope(ContentRotation):
    r"""Rotate queries and keys by the running sum of angles that are computed from each token.

    Equation: $A_{ts} = (R(\Phi_t) q_t) \cdot (R(\Phi_s) k_s) / \sqrt{d_h}$, $\Phi_{t,i} = \sum_{j \le t} f_j^i$ for pair $i$, $i
        = 0, \ldots, d_h/2 - 1$, $f_j = 1 / (\operatorname{softplus}(x_j W + b) + 1)$ of each head. Veisi, Fartoot and Amirzadeh
        (2025).
    Shapes: rotate [B, H, T, D] -> same.
    Source: Veisi, Fartoot and Amirzadeh (2025). No code was found.
    Deviations:
        * W starts at 0. With the initial b, f^i is the frequency of pair i in `rope`. Training therefore starts as `rope`
          (start=rope).
        * According to the paper, training starts as rope. The paper has no b. Without b, training cannot start as rope, because
          W = 0 gives f = 0.59.
        * x is the input of the attention, and each layer has its own W. The paper calls x the embedding of a token, and does not
          state whether layers share W.
        * start=paper has no b. The paper gives no initial W. Here, W is normal with standard deviation 0.02, as in GPT-2. The
          paper trains with the settings of GPT-2.
        * Padding adds no angle.
        * The encoder is an extension of this project: sums run from the left. The angle between two tokens is the sum of the
          angles of the later token and of all tokens between both tokens. If the key is the later token, the angle is negative.
    Cost: L (d h + h) parameters per stack. Each layer computes angles [B, H, T, D/2], which queries and keys share.
    Raises: PositionError for heads of odd width.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        start: Literal["rope", "paper"] = option(
            "rope", "initial angles: those of rope, with a bias b, or from a random W without a bias"
        )

    card = MethodCard(
        name="carope",
        title="Context-aware rotary embedding (CARoPE)",
        citations=("veisi-etal-2025-carope",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        extended_sites=("encoder",),
        parameters="L * h * (d + (start == 'rope'))",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.weight = self.parameter_table(dims.embed_dim, share="none")
        self.offset: nn.Parameter | None = None
        if options.start == "rope":
            self.offset = self.parameter_table(share="none")
            softplus = _BASE ** (2 / dims.head_dim) - 1
            nn.init.constant_(self.offset, softplus + math.log1p(-math.exp(-softplus)))  # the inverse of the softplus
        else:
            nn.init.normal_(self.weight, std=_DEVIATION)

    def steps(self, ctx: AttentionContext) -> Tensor:
        assert ctx.inputs is not None
        weight = self.of_layer(self.weight, ctx, float32=True)  # [H, C]
        raw = (at_least_float32(ctx.inputs[1]) @ weight.mT).mT.contiguous()  # [B, N, C] -> [B, H, N]
        if self.offset is not None:
            raw = raw + self.of_layer(self.offset, ctx, float32=True).unsqueeze(-1)
        powers = torch.arange(self.dims.head_dim // 2, device=raw.device)
        return (-torch.log1p(F.softplus(raw)).unsqueeze(-1) * powers).exp()  # f^i: [B, H, N, pairs]
