"""Rotations by angles that are computed from tokens with a projection and a short convolution."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, option
from ...ops.constants import Constants
from ...ops.kernels.unit_length import UnitLength
from ...ops.precision import at_least_float32
from ...ops.running import causal_convolution, without_padding
from ...ops.sinusoids import frequencies
from .carope import ContentRotation

#: standard deviation of the initial weights
_DEVIATION = 0.02


class SelectiveRope(ContentRotation):
    r"""Rotate queries and keys by the running sum of angles. Each angle is computed from a token and the tokens before it.

    Equation: $A_{ts} = (R(\Phi_t) q_t) \cdot (R(\Phi_s) k_s) / \sqrt{d_h}$, $\Phi_{t,j} = \mathrm{base}^{-2j/d_h} \sum_{m \le t}
        g_m (u_{m,j} + \exp(b_j))$, $u = \operatorname{conv}(W_2 W_1 x')$, $g_m = \operatorname{sigmoid}(v \cdot x'_m + c)$ with
        `gate=true`, else 1. $x'$ is $x$, in which the channels of each head are divided by the Euclidean norm of these
        channels. Movahedi et al. (2026).
    Shapes: rotate [B, H, T, D] -> same.
    Source: Movahedi et al. (2026). Code: timurcarstensen/selective-rope, modules/rotary.py.
    Deviations:
        * The bias exp(b) is on by default. In the authors' code, it is off by default. exp(b) starts at 1. If u is
          0 and gates are off, the initial angle between a query and a key equals the angle of `rope` with the same base.
        * Without the bias (bias=false), the angles of tokens have no constant part.
        * The projection reads the input of the attention, as in the code. The paper's listing projects normalised queries.
        * The paper and one class of the code normalise the weights of the projection. The configurations of the code do not.
        * In the paper, angles always have a gate. In its table for softmax attention, the gate without the bias is best.
        * The rank is 32, as in all configurations of the code. The default rank of the class in the code is 16.
        * The authors' code can also project with a full matrix for each head. This project does not include this projection.
        * Initial weights are normal with standard deviation 0.02, and the offset c of the gates starts at 0, as in the authors'
          models. Outside of these models, the authors' class has PyTorch's initial values.
        * To compute x', this project divides by the Euclidean norm. If the norm is at most 1e-12, x' is 0. The authors'
          code adds 1e-6 to the square of the norm.
        * Padding adds no angle, and the convolution reads 0 there.
        * The encoder is an extension of this project: sums and convolutions run from the left.
    Cost: L (rank d + rank d/2 + conv d/2 + d/2) parameters per stack. With gates, L (d + 1) h more parameters. Each layer
        computes angles [B, H, T, D/2], which queries and keys share. Decoding caches the last angle and conv - 1 vectors of d/2
        numbers.
    Raises: PositionError for heads of odd width.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        rank: int = option(32, "rank of the projection", minimum=1, maximum=65536)
        conv: int = option(4, "number of tokens that the convolution reads", minimum=1, maximum=64)
        bias: bool = option(True, "learned angle added to the angle of every token")
        gate: bool = option(False, "angles multiplied by a gate per token and head")
        base: float = option(500000.0, "base of the wavelengths", minimum=1.0)

    card = MethodCard(
        name="selective_rope",
        title="Selective rotary embedding (Selective RoPE)",
        citations=("movahedi-etal-2026-selective",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        extended_sites=("encoder",),
        parameters="L * (rank * d + (rank + conv + bias) * (d // 2) + gate * (d + 1) * h)",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        layers, width, half = dims.num_layers, dims.embed_dim, dims.embed_dim // 2

        def table(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(layers, *shape).normal_(std=_DEVIATION))

        self.down = table(width, options.rank)
        self.up = table(options.rank, half)
        self.taps = table(half, options.conv)
        self.offset = nn.Parameter(torch.zeros(layers, half)) if options.bias else None
        self.gate_weight = table(dims.num_heads, width) if options.gate else None
        self.gate_offset = nn.Parameter(torch.zeros(layers, dims.num_heads)) if options.gate else None
        self.rates = Constants(self._frequencies().tolist())

    def steps(self, ctx: AttentionContext) -> Tensor:
        def own(parameter: Tensor) -> Tensor:
            return self.of_layer(parameter, ctx, float32=True)

        assert ctx.inputs is not None
        x = UnitLength.apply(ctx.inputs[1].unflatten(-1, (self.dims.num_heads, -1))).flatten(-2)  # [B, N, C]
        angles = without_padding(at_least_float32(x @ own(self.down) @ own(self.up)), ctx)  # [B, N, C/2]
        before = None if ctx.state is None else ctx.state.get("words")
        angles, last = causal_convolution(angles, own(self.taps), before)
        if ctx.state is not None:
            ctx.state.store_per_row("words", last)
        if self.offset is not None:
            angles = angles + own(self.offset).exp()
        angles = at_least_float32(angles).unflatten(-1, (self.dims.num_heads, -1)).transpose(1, 2)  # [B, H, N, pairs]
        if self.gate_weight is not None and self.gate_offset is not None:
            gates = at_least_float32(x @ own(self.gate_weight).mT + own(self.gate_offset)).sigmoid()
            angles = angles * gates.mT.unsqueeze(-1)  # [B, N, H] -> [B, H, N, 1]
        return angles * self._rates(angles, ctx)

    def _rates(self, angles: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the angular frequencies of the pairs."""
        if angles.dtype == torch.float32:
            return self.rates.values
        return ctx.once((self, angles.dtype), lambda: self._frequencies(angles.device).to(angles.dtype))

    def _frequencies(self, device: torch.device | None = None) -> Tensor:
        """Return the frequencies [pairs] in float64."""
        return frequencies(self.dims.head_dim // 2, self.dims.head_dim, "paper", self.options.base, device)
