"""Sinusoids of positions, rounded to float32.

On a CPU, `Frequencies` computes angles in float64. On an accelerator, where float64 is slow, `Frequencies` computes angles in
64-bit integers. The function `sinusoid` computes angles in float64 on every device.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core import Positions
from . import devices
from .constants import Constants

#: number of integer steps of a full turn (2 pi)
_TURN = 2.0**64


def frequencies(count: int, width: int, grid: str, base: float | Tensor = 10000.0, device: torch.device | None = None) -> Tensor:
    """Return the first `count` angular frequencies for `width` channels, in float64: [count], or [..., count] for a base [...].

    grid: "paper" is base^(-2k/width), as in Vaswani et al. (2017). "fairseq" is base^(-k/(width//2 - 1)), whose last frequency is
    1/base.
    """
    given = isinstance(base, Tensor)
    k = torch.arange(count, dtype=torch.float64, device=base.device if given else device)
    exponent = 2 * k / width if grid == "paper" else k / max(width // 2 - 1, 1)
    return torch.exp(-(base.double().log().unsqueeze(-1) if given else math.log(base)) * exponent)


class Frequencies(nn.Module):
    """Compute the angles of positions for constant frequencies [n].

    The frequencies are stored as integers with the bits of float64, so that `.half()` does not round them. On an accelerator,
    an angle is an integer number of steps, and a full turn has 2^64 steps. The product of an integer position and a frequency
    overflows. The overflow removes full turns, so that the result is an angle from -pi to pi. The angle is converted to float32
    only after the full turns are removed. For fractional positions, the angle of the fraction is then added in float32.
    """

    def __init__(self, values: Tensor):
        super().__init__()
        turns = values.double() / (2 * math.pi)
        self.register_buffer("bits", values.double().view(torch.int64), persistent=False)
        self.register_buffer("steps", ((turns - (turns + 0.5).floor()) * _TURN).long(), persistent=False)
        self.rounded = Constants(values)

    @property
    def values(self) -> Tensor:
        """Return the frequencies [n] in float64."""
        return self.bits.view(torch.float64)

    def forward(self, positions: Tensor) -> Tensor:
        """Return the angles of positions, [...] -> [..., n], in float64 on a CPU, and in float32 on an accelerator."""
        positions = positions.unsqueeze(-1)
        return positions.double() * self.values if devices.on_cpu(positions) else self.remainders(positions)

    def remainders(self, positions: Tensor) -> Tensor:
        """Return the angles of positions in float32, after full turns are removed: [..., 1] -> [..., n]."""
        whole = positions.floor() if positions.is_floating_point() else positions
        angles = (whole.long() * self.steps).float() * (2 * math.pi / _TURN)
        return angles + (positions - whole).float() * self.rounded.values if positions.is_floating_point() else angles


class Sinusoids(nn.Module):
    """Compute sinusoids of positions that are multiplied by `step`. `sinusoid` describes the other arguments."""

    def __init__(self, width: int, layout: str, grid: str, base: float = 10000.0, step: float = 1.0):
        super().__init__()
        self.width, self.layout = width, layout
        self.frequencies = Frequencies(frequencies(width // 2, width, grid, base) * step)

    def forward(self, positions: Tensor) -> Tensor:
        """Return sinusoids, [...] -> [..., width] in float32."""
        return waves(self.frequencies(positions), self.width, self.layout)


def sinusoid(positions: Tensor, width: int, layout: str, grid: str, base: float | Tensor = 10000.0) -> Tensor:
    """Return sines and cosines of positions, [...] -> [..., width] in float32. If the width is odd, the last channel is zero.

    base: one base for all positions, or one base per position [...].
    layout: "interleaved" puts each sine before its cosine. "halves" puts all sines before all cosines.
    """
    return waves(positions.double().unsqueeze(-1) * frequencies(width // 2, width, grid, base, positions.device), width, layout)


def waves(angles: Tensor, width: int, layout: str) -> Tensor:
    """Return sines and cosines of angles in the layout of `sinusoid`, [..., width // 2] -> [..., width] in float32."""
    pair = (angles.sin(), angles.cos())
    found = torch.stack(pair, -1).flatten(-2) if layout == "interleaved" else torch.cat(pair, -1)
    return (F.pad(found, (0, 1)) if width % 2 else found).float()


class SinusoidTable(Constants):
    """Return sinusoids of positions. The sinusoids of the first `rows` positions are stored in a table, [rows, width].

    The module reads the table under two conditions: positions are counted (see `Positions`), and the table contains all these
    positions. Otherwise, the module computes the sinusoids.
    `origin` is added to all positions, and the sums are multiplied by `step`.
    """

    def __init__(self, rows: int, width: int, layout: str, grid: str, base: float = 10000.0, origin: int = 0, step: float = 1.0):
        waves = Sinusoids(width, layout, grid, base, step)
        super().__init__(waves(torch.arange(rows) + origin))
        self.waves, self.origin = waves, origin

    def forward(self, at: Positions) -> Tensor:
        """Return sinusoids of positions, [B or 1, T] -> [B or 1, T, width] in float32."""
        if at.start is None or at.start + at.ids.size(1) > self.bits.size(0):
            return self.waves(at.ids + self.origin)
        return self.values[at.start : at.start + at.ids.size(1)].unsqueeze(0)

    def of_words(self, numbers: Tensor) -> Tensor:
        """Return sinusoids of one integer per token, such as the depth in a tree: [B, S] -> [B, S, width] in float32.

        If S is not larger than the number of rows of the table, all integers must be row indices of the table.
        """
        if numbers.size(1) > self.bits.size(0):
            return self.waves(numbers + self.origin)
        return self.values[numbers]
