"""Sinusoids of positions, rounded to float32.

A CPU computes angles in float64. An accelerator, where float64 is slow, computes turns in 64-bit integers (`Frequencies`).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core import Positions
from . import devices
from .constants import Constants

#: steps of one turn
_TURN = 2.0**64


def frequencies(count: int, width: int, grid: str, base: float | Tensor = 10000.0, device: torch.device | None = None) -> Tensor:
    """Return the first `count` angular frequencies for `width` channels in float64: [count].

    If `base` is a tensor [...], the result is [..., count].

    grid: "paper" is base^(-2k/width), Vaswani et al. (2017). "fairseq" is base^(-k/(width//2 - 1)), whose last frequency is
    1/base.
    """
    given = isinstance(base, Tensor)
    k = torch.arange(count, dtype=torch.float64, device=base.device if given else device)
    exponent = 2 * k / width if grid == "paper" else k / max(width // 2 - 1, 1)
    return torch.exp(-(base.double().log().unsqueeze(-1) if given else math.log(base)) * exponent)


class Frequencies(nn.Module):
    """Compute the angles of positions at constant frequencies [n].

    The frequencies are stored as integers with the bits of float64, so that `.half()` does not round them. An accelerator counts
    a turn in 2^64 steps. The product of a position and the steps of a frequency overflows by whole turns. The remainder is then
    an angle from -pi to pi, which is rounded to float32 only once.
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
        """Return the angles of positions without whole turns, in float32, [..., 1] -> [..., n]."""
        whole = positions.floor() if positions.is_floating_point() else positions
        angles = (whole.long() * self.steps).float() * (2 * math.pi / _TURN)
        return angles + (positions - whole).float() * self.rounded.values if positions.is_floating_point() else angles


class Sinusoids(nn.Module):
    """Compute sines and cosines of positions. `sinusoid` describes the arguments."""

    def __init__(self, width: int, layout: str, grid: str, base: float = 10000.0, step: float = 1.0):
        super().__init__()
        self.width, self.layout = width, layout
        self.frequencies = Frequencies(frequencies(width // 2, width, grid, base) * step)

    def forward(self, positions: Tensor) -> Tensor:
        """Return sinusoids, [...] -> [..., width] in float32."""
        return waves(self.frequencies(positions), self.width, self.layout)


def sinusoid(positions: Tensor, width: int, layout: str, grid: str, base: float | Tensor = 10000.0) -> Tensor:
    """Return sines and cosines of positions, [...] -> [..., width] in float32. If the width is odd, the last channel is zero.

    base: one base for all positions, or bases [...] that are broadcast to the positions.
    layout: "interleaved" places each sine before its cosine. "halves" places all sines before all cosines.
    """
    return waves(positions.double().unsqueeze(-1) * frequencies(width // 2, width, grid, base, positions.device), width, layout)


def waves(angles: Tensor, width: int, layout: str) -> Tensor:
    """Return sines and cosines of angles, [..., width // 2] -> [..., width] in float32, as `sinusoid`."""
    pair = (angles.sin(), angles.cos())
    found = torch.stack(pair, -1).flatten(-2) if layout == "interleaved" else torch.cat(pair, -1)
    return (F.pad(found, (0, 1)) if width % 2 else found).float()


class SinusoidTable(nn.Module):
    """Sinusoids of positions. The first `rows` positions are stored, and other positions are computed.

    The table is stored as integers with the same bits, so that `.half()` does not round it. `origin` is added to all positions.
    The sums are multiplied by `step`.
    """

    def __init__(self, rows: int, width: int, layout: str, grid: str, base: float = 10000.0, origin: int = 0, step: float = 1.0):
        super().__init__()
        self.waves, self.origin = Sinusoids(width, layout, grid, base, step), origin
        table = self.waves(torch.arange(rows) + origin)
        self.register_buffer("bits", table.view(torch.int32), persistent=False)

    def forward(self, at: Positions) -> Tensor:
        """Return sinusoids of positions, [B or 1, T] -> [B or 1, T, width] in float32."""
        if at.start is None or at.start + at.ids.size(1) > self.bits.size(0):
            return self.waves(at.ids + self.origin)
        return self.rows[at.start : at.start + at.ids.size(1)].unsqueeze(0)

    def of_words(self, numbers: Tensor) -> Tensor:
        """Return sinusoids of numbers [B, S] in float32: [B, S, width]. The numbers, such as depths, are at most S."""
        if numbers.size(1) > self.bits.size(0):
            return self.waves(numbers + self.origin)
        return self.rows[numbers]

    @property
    def rows(self) -> Tensor:
        """Return the first rows of the table, [rows, width] in float32."""
        return self.bits.view(torch.float32)
