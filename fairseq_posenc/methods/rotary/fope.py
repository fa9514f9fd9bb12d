"""Rotary positions whose sines and cosines are mixtures over frequencies."""

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
from ...ops.precision import at_least_float32
from ...ops.rotation import Waves, every_channel, rotate
from ...ops.sinusoids import SinusoidTable, frequencies


class FourierRope(PositionMethod):
    r"""Multiply pairs of channels of queries and keys by mixtures of the sines and cosines of several frequencies.

    Equation: Pair $j = (a, b)$ of a query or key at position $t$ becomes $(a C_{t,j} - b S_{t,j}, b C_{t,j} + a S_{t,j})$, with
        $S_t = \sin(t \theta) C^s$, $C_t = \cos(t \theta) C^c$, $\theta$ the $D$ frequencies of `rope` that are at least $2 \pi /
        \mathrm{cutoff}$, and matrices $C^s$, $C^c$ in $\mathbb{R}^{D \times D'}$ of each head, $D' = \min(D, d_h/4)$. Hua et al.
        (2024). Only the first $D'$ pairs are multiplied by mixtures. All other pairs have no position.
    Shapes: rotate [B, H, T, d_h] -> same.
    Source: Hua et al. (2024). Code: TsinghuaC3I/Fourier-Position-Embedding, olmo/model.py.
    Deviations:
        * The map is not a rotation, so scores depend on absolute positions. If a constant is added to all
          positions, the scores change.
        * Pairs without a position have sine 0. In the authors' code, and with zero=code, these pairs have sine 1. Sine 1
          doubles the contribution of these pairs to the score.
        * All layers share the matrices. In the authors' code, each layer has its own. In both, they are random and not trained,
          as in all configurations of the code. The code can also train them, with an option that this project does not have.
        * The random part has Xavier's normal distribution with the gain, as in the authors' code. The paper calls the gain a
          standard deviation.
        * The paper also has mixtures of further frequencies, which are drawn at random, and divides the matrices by the sums of
          their columns. The configurations of the code have neither.
        * Encoder and cross-attention are extensions of this project.
    Cost: no trained parameters, but 2 h D D' numbers in the state dict. Two products [T, D] x [D, D'] per head and forward pass.
    Raises: PositionError for heads of odd width, and for heads of fewer than 4 channels.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        cutoff: float = option(
            512.0,
            "longest wavelength in positions, such as the maximum training length (slower pairs do not rotate)",
            minimum=6.3,
        )
        gain: float = option(
            0.3, "gain of the random part of the matrices (Xavier initialisation): 0.3, 0.4 or 0.6 in the paper", minimum=0.0
        )
        zero: Literal["paper", "code"] = option("paper", "sine of pairs without a position: 0, or 1 as in the authors' code")
        base: float = option(10000.0, "base of the wavelengths", minimum=1.0)

    card = MethodCard(
        name="fope",
        title="Fourier position embedding (FoPE)",
        citations=("hua-etal-2024-fourier",),
        survey="not in the survey",
        reference="both",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        extended_sites=("encoder", "cross"),
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if dims.head_dim % 2:
            raise PositionError(
                f"fope: heads have {dims.head_dim} channels. Expected an even number. Change the number of heads."
            )
        slowest = 2 * math.pi / options.cutoff
        kept = int((frequencies(dims.head_dim // 2, dims.head_dim, "paper", options.base) >= slowest).sum())
        self.pairs = min(kept, dims.head_dim // 4)
        if self.pairs == 0:
            raise PositionError(
                f"fope: heads of {dims.head_dim} channels are too narrow. Expected 4 channels or more. Use fewer heads."
            )
        self.table = SinusoidTable(dims.max_distance + 1, dims.head_dim, "halves", "paper", options.base)
        for name in ("sines", "cosines"):  # in the state dict, because the random matrices cannot be computed again
            self.register_parameter(name, nn.Parameter(self._start(kept), requires_grad=False))

    def _start(self, kept: int) -> Tensor:
        """Return one matrix per head: random noise, plus a matrix that selects every n-th frequency: [H, D, D'].

        D is the argument `kept`, D' is the number of pairs that are multiplied by mixtures, and n is D/D', rounded up.
        """
        heads = self.dims.num_heads
        matrices = torch.randn(heads, kept, self.pairs) * self.options.gain * (2 / (self.pairs * (kept + heads))) ** 0.5
        step = -(-kept // self.pairs)
        for column in range(self.pairs):
            if column * step < kept:
                matrices[:, column * step, column] += 1
        return matrices

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        waves = ctx.once((self, at), lambda: self._waves(at, x.size(-1)))
        return rotate(x, waves, x.size(-1) // 2, "halves")

    def _waves(self, at: Positions, width: int) -> Waves:
        """Return the mixtures of cosines and the mixtures of sines as `Waves`: two tensors [B or 1, H, T, d_h].

        The second tensor contains -sin at the first channel of a pair, and sin at the second channel.
        """
        sin, cos = (self._mixed(name, table) for name, table in zip(("sines", "cosines"), self.table(at).chunk(2, -1)))
        rest = (0, width // 2 - self.pairs)
        sin = F.pad(sin, rest, value=1.0 if self.options.zero == "code" else 0.0)
        return every_channel(sin, F.pad(cos, rest, value=1.0), "halves", width)

    def _mixed(self, name: str, waves: Tensor) -> Tensor:
        """Mix the sines or the cosines of the frequencies that `cutoff` keeps: [B or 1, T, d_h/2] -> [B or 1, H, T, D']."""
        matrices = at_least_float32(self.get_parameter(name))  # [H, kept, D']
        return waves[..., : matrices.size(1)].unsqueeze(1).to(matrices.dtype) @ matrices
