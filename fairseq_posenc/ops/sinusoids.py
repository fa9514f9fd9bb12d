"""Sinusoids of positions, computed in float64 and rounded to float32."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..core import Positions


def frequencies(count: int, width: int, grid: str, base: float | Tensor = 10000.0, device: torch.device | None = None) -> Tensor:
    """Return the first `count` angular frequencies for `width` channels in float64. Bases [...] return [..., count].

    grid: "paper" is base^(-2k/width), Vaswani et al. (2017). "fairseq" is base^(-k/(width//2 - 1)), whose last frequency is
    1/base.
    """
    given = isinstance(base, Tensor)
    k = torch.arange(count, dtype=torch.float64, device=base.device if given else device)
    exponent = 2 * k / width if grid == "paper" else k / max(width // 2 - 1, 1)
    return torch.exp(-(base.double().log().unsqueeze(-1) if given else math.log(base)) * exponent)


def sinusoid(positions: Tensor, width: int, layout: str, grid: str, base: float | Tensor = 10000.0) -> Tensor:
    """Return sines and cosines of positions, [...] -> [..., width] in float32. If the width is odd, the last channel is zero.

    base: one base for all positions, or bases [...] that are broadcast to the positions.
    layout: "interleaved" places each sine before its cosine. "halves" places all sines before all cosines.
    """
    half = width // 2
    angles = positions.double().unsqueeze(-1) * frequencies(half, width, grid, base, positions.device)
    pair = (angles.sin(), angles.cos())
    waves = torch.stack(pair, -1).flatten(-2) if layout == "interleaved" else torch.cat(pair, -1)
    return torch.nn.functional.pad(waves, (0, width - 2 * half)).float()


class SinusoidTable(nn.Module):
    """Sinusoids of positions. The first `rows` positions are stored, and other positions are computed.

    The table is stored as integers with the same bits, so that `.half()` does not round it. `origin` is added to all positions.
    The sums are
    multiplied by `step`.
    """

    def __init__(self, rows: int, width: int, layout: str, grid: str, base: float = 10000.0, origin: int = 0, step: float = 1.0):
        super().__init__()
        self.form = (width, layout, grid, base)
        self.origin, self.step = origin, step
        table = self._waves(torch.arange(rows))
        self.register_buffer("bits", table.view(torch.int32), persistent=False)

    def forward(self, at: Positions) -> Tensor:
        """Return sinusoids of positions, [B or 1, T] -> [B or 1, T, width] in float32."""
        if at.start is None or at.start + at.ids.size(1) > self.bits.size(0):
            return self._waves(at.ids)
        return self.rows[at.start : at.start + at.ids.size(1)].unsqueeze(0)

    def of_words(self, numbers: Tensor) -> Tensor:
        """Return sinusoids of numbers [B, S] in float32: [B, S, width]. The numbers, such as depths, are at most S."""
        if numbers.size(1) > self.bits.size(0):
            return self._waves(numbers)
        return self.rows[numbers]

    def _waves(self, ids: Tensor) -> Tensor:
        return sinusoid((ids + self.origin).double() * self.step, *self.form)

    @property
    def rows(self) -> Tensor:
        """[rows, width] in float32."""
        return self.bits.view(torch.float32)
