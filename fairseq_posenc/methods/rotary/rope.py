"""Rotation of queries and keys by their position."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import (
    AttentionContext,
    Dims,
    HeadOptions,
    MethodCard,
    MethodOptions,
    PositionError,
    PositionMethod,
    Positions,
    Projection,
    heads_of,
    option,
)
from ...ops.constants import Constants
from ...ops.kernels.angle_rotation import rotate_by
from ...ops.rotation import Waves, every_channel, rotate
from ...ops.sinusoids import Frequencies, Sinusoids, frequencies

#: a learned frequency is the fixed frequency times exp(p / 16). A step of x in p therefore changes ln(frequency) by x / 16
_STEPS = 16


@dataclass(frozen=True)
class RotaryOptions(MethodOptions):
    """Options of rope and rope_scaled."""

    layout: Literal["halves", "interleaved"] = option(
        "halves", "channels of a pair: (i, i + d_r/2) as in GPT-NeoX, or (2i, 2i + 1) as in RoFormer"
    )
    fraction: float = option(1.0, "fraction of the channels of a head that is rotated", minimum=0.0, maximum=1.0)
    base: float = option(10000.0, "base of the wavelengths", minimum=1.0)
    keep: float = option(
        1.0,
        "fraction of the pairs that rotate, beginning with the fastest pair (p-RoPE; other pairs have no position)",
        minimum=0.0,
        maximum=1.0,
    )
    cutoff: int | None = option(
        None, "longest wavelength in positions, such as the maximum training length (slower pairs do not rotate)", minimum=7
    )


class Rope(PositionMethod):
    r"""Rotate pairs of channels of queries and keys by angles that grow with the position.

    Equation: $A_{ts} = (R_t q_t) \cdot (R_s k_s) / \sqrt{d_h}$, $R_t$ rotates pair $i$ by $t \cdot \mathrm{base}^{-2i/d_r}$. Su
        et al. (2021), equation 15. $d_r$ is the number of rotated channels of a head. `keep=p`: the frequency is 0 for $i \ge
        \lfloor p d_r/2 \rfloor$. `cutoff=L`: the frequency is 0 for pairs with a wavelength above $L$. `frequencies=learned`:
        the frequency is $\mathrm{base}^{-2i/d_r} \exp(p_i/16)$, with a parameter $p_i$. The initial value of $p_i$ is 0, so the
        initial frequencies are the fixed frequencies.
    Shapes: rotate [B, H, T, D] -> same.
    Source: Su et al. (2021). keep: Barbero et al. (2025), p-RoPE, section 6.1 and the code in appendix D. cutoff: the lower bound
        of the frequencies in Hua et al. (2024). frequencies=learned: Zhang et al. (2026) and the authors' code. The authors call
        this method multiplicative GRAPE.
    Deviations:
        * The default layout is the layout of GPT-NeoX. It differs from the authors' layout by a fixed permutation of channels.
        * Cross-attention is an extension of this project: target positions rotate queries, source positions rotate keys.
        * Heads and layers share learned frequencies by default.
        * The authors' parameter is 16 times the logarithm of the learned frequency. Here, p is 16 times the logarithm of the
          learned frequency divided by the fixed frequency. Weight decay moves learned frequencies towards fixed frequencies.
    Cost: no parameters, or d_r/2 per table of learned frequencies. Keys are rotated once, also in incremental decoding.
    Raises: PositionError if no pair of channels is rotated. PositionError for learned frequencies with keep or cutoff, and for
        share without learned frequencies. PositionError for heads= with share=none or share=layers, and for a head in heads=
        that does not exist.
    """

    @dataclass(frozen=True)
    class Options(RotaryOptions, HeadOptions):
        frequencies: Literal["fixed", "learned"] = option(
            "fixed", "fixed frequencies, or learned frequencies with these initial values"
        )
        share: Literal["all", "none", "heads", "layers"] = option(
            "all", "sharing of learned frequencies: across heads, across layers, both (all), or none"
        )

        def __post_init__(self) -> None:
            if self.frequencies == "fixed" and self.share != type(self).share:
                raise PositionError("share has no effect with fixed frequencies. Expected frequencies=learned. Remove share.")
            if self.heads is not None and self.share in ("none", "layers"):
                raise PositionError(f"share={self.share} gives each head its own frequencies. Expected all heads. Remove heads.")
            if self.frequencies == "learned" and (self.keep != type(self).keep or self.cutoff is not None):
                raise PositionError(
                    "frequencies=learned cannot be combined with keep or cutoff. Expected neither. Remove keep and cutoff."
                )

    card = MethodCard(
        name="rope",
        title="Rotary position embedding",
        citations=("su-etal-2021-roformer", "barbero-etal-2025-round", "hua-etal-2024-fourier", "zhang-etal-2026-group"),
        survey="4.2",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="peer",
        sites=("encoder", "decoder"),
        extended_sites=("cross",),
        parameters="tables * (fraction * d_h // 2) if frequencies == 'learned' else 0",
        survey_parameters="0",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.used = heads_of(options, dims)
        self.width = rotated_width(options, dims)
        self.turning = turning_pairs(options, self.width)
        self.log_factor: nn.Parameter | None = None
        self.waves: Sinusoids | None = None
        if options.frequencies == "learned":
            self.log_factor = self.parameter_table(self.width // 2, share=options.share)
            self.fixed = Frequencies(frequencies(self.width // 2, self.width, "paper", options.base))
        else:
            self.waves = Sinusoids(self.width, "halves", "paper", options.base)
            rows = torch.arange(dims.max_distance + 1)
            self.table = Constants(torch.stack(self._every_channel(self.waves, rows)))  # [2, rows, D]

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        if self.options.heads is None:
            return self._rotated(x, at, ctx)
        heads = torch.tensor(self.used, device=x.device)
        return x.index_copy(1, heads, self._rotated(x.index_select(1, heads), at, ctx))

    def _rotated(self, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        waves = self.waves
        if waves is None:
            return rotate_by(x, self._angles(at, ctx), self.options.layout)
        return rotate(x, ctx.once((self, at), lambda: self._waves(waves, at)), self.width // 2, self.options.layout)

    def _angles(self, at: Positions, ctx: AttentionContext) -> Tensor:
        """Return the angles [B or 1, H or 1, T, pairs], in float32 or wider."""
        factor = (self.of_layer(self.get_parameter("log_factor"), ctx, float32=True) / _STEPS).exp()  # [H or 1, pairs]
        frequency = factor * (self.fixed.values if factor.dtype == torch.float64 else self.fixed.rounded.values)
        ids = at.ids.to(frequency.dtype)[:, None, :, None]  # [B or 1, T] -> [B or 1, 1, T, 1]
        return ids * frequency.unsqueeze(-2)

    def _waves(self, waves: Sinusoids, at: Positions) -> Waves:
        """Return cosines and signed sines (see `Waves`), [T, D] each for counted positions, and [B or 1, 1, T, D] for others.

        Counted positions are rows of a table, if the table is long enough.
        """
        end = None if at.start is None else at.start + at.ids.size(1)
        table = self.table.values
        if end is None or end > table.size(1):
            return self._every_channel(waves, at.ids.unsqueeze(1))
        cos, sin = table[:, at.start : end].unbind(0)
        return cos, sin

    def _every_channel(self, waves: Sinusoids, ids: Tensor) -> Waves:
        """Return cosines and signed sines of positions: [...] -> [..., D] each.

        Pairs that do not rotate have cosine 1 and sine 0.
        """
        sin, cos = waves(ids).chunk(2, -1)  # [..., pairs] each
        if self.turning < self.width // 2:
            still = (0, self.width // 2 - self.turning)
            sin, cos = F.pad(sin[..., : self.turning], still), F.pad(cos[..., : self.turning], still, value=1.0)
        return every_channel(sin, cos, self.options.layout, self.dims.head_dim)


def rotated_width(options: RotaryOptions, dims: Dims) -> int:
    """Return d_r: the number of channels that `fraction` selects, rounded down to an even number.

    Raise PositionError if d_r is 0.
    """
    width = int(options.fraction * dims.head_dim) // 2 * 2
    if width == 0:
        raise PositionError(
            f"fraction={options.fraction} of {dims.head_dim} channels selects no pair of channels. Expected at least one pair. "
            "Increase fraction, or use fewer heads."
        )
    return width


def turning_pairs(options: RotaryOptions, width: int) -> int:
    """Return the number of pairs that rotate.

    The rotated pairs are the pairs with the highest frequencies. Raise PositionError if no pair rotates.
    """
    longest = math.inf if options.cutoff is None else options.cutoff
    within = int((frequencies(width // 2, width, "paper", options.base) * longest >= 2 * math.pi).sum())
    turning = min(within, math.floor(options.keep * (width // 2)))
    if turning == 0:
        raise PositionError(
            f"keep={options.keep}, cutoff={options.cutoff}: none of {width // 2} pairs of channels is rotated. "
            "Expected at least one pair. Increase keep or cutoff."
        )
    return turning
