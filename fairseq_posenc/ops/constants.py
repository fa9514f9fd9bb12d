"""Constants of a method on the device of the model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Constants(nn.Module):
    """Store float32 numbers that move to the device of the model, and that a change of precision does not round.

    A tensor that is created from numbers in a forward pass would be copied from the host, which then waits for the accelerator.
    """

    def __init__(self, values: Sequence[float] | Tensor):
        super().__init__()
        self.register_buffer("bits", torch.as_tensor(values, dtype=torch.float32).view(torch.int32), persistent=False)

    @property
    def values(self) -> Tensor:
        """Return the numbers in float32, on the device of the model."""
        return self.bits.view(torch.float32)
