"""Map numbers to colours: blue for negative numbers, red for positive numbers.

White is 0 if the numbers have both signs or are all equal. Otherwise, white is the number closest to 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

#: maximum relative spread that is explained by rounding
_ROUNDING = 1e-5


@dataclass(frozen=True)
class Scale:
    """The two ends of a scale, and their places in the colour map from blue (0) to white (0.5) to red (1)."""

    low: float
    high: float
    first: float
    last: float


def scale_of(values: Tensor) -> Scale:
    """Return a scale that is symmetric around 0 if the numbers have both signs. Otherwise white is the number closest to 0.

    If all numbers are equal, white is 0.
    """
    low, high = _ends(values)
    if low < 0 < high:
        return Scale(-max(-low, high), max(-low, high), 0.0, 1.0)
    if is_constant(values):  # a pale colour, because a constant has little meaning
        low, high = min(2 * low, 0.0), max(2 * high, 0.0)
    if low == high:
        return Scale(0.0, 1.0, 0.5, 1.0)
    return Scale(low, high, 0.5, 1.0) if low >= 0 else Scale(low, high, 0.0, 0.5)


def is_constant(values: Tensor) -> bool:
    """Return whether all numbers are equal except for rounding."""
    low, high = _ends(values)
    return high - low <= _ROUNDING * max(abs(low), abs(high))


def _ends(values: Tensor) -> tuple[float, float]:
    seen = values[~values.isnan()]
    return (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 0.0)
