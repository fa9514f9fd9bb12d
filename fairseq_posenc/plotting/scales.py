"""Which colours numbers have: blue below 0, white at 0, red above."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

#: a spread that is nothing beside the numbers themselves but their rounding
_ROUNDING = 1e-5


@dataclass(frozen=True)
class Scale:
    """The numbers at both ends, and the part of the map from blue (0) by white (0.5) to red (1) that lies between them."""

    low: float
    high: float
    first: float
    last: float


def scale_of(values: Tensor) -> Scale:
    """Symmetric around 0 where numbers have both signs; else from white, at the number that is nearest to 0, to one colour."""
    low, high = _ends(values)
    if low < 0 < high:
        return Scale(-max(-low, high), max(-low, high), 0.0, 1.0)
    if is_constant(values):  # half a colour, as it says little
        low, high = min(2 * low, 0.0), max(2 * high, 0.0)
    if low == high:
        return Scale(0.0, 1.0, 0.5, 1.0)
    return Scale(low, high, 0.5, 1.0) if low >= 0 else Scale(low, high, 0.0, 0.5)


def is_constant(values: Tensor) -> bool:
    """Return whether all numbers are the same but for rounding."""
    low, high = _ends(values)
    return high - low <= _ROUNDING * max(abs(low), abs(high))


def _ends(values: Tensor) -> tuple[float, float]:
    seen = values[~values.isnan()]
    return (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 0.0)
