"""Constants that a method needs on the device of the model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Constants(nn.Module):
    """Float32 constants that move with the model to its device, and that `.half()` does not round.

    The constants are not created in the forward pass. If a forward pass creates a tensor from Python numbers, the CPU waits until
    the tensor is copied to the accelerator.
    """

    def __init__(self, values: Sequence[float] | Tensor):
        super().__init__()
        self.register_buffer("bits", torch.as_tensor(values, dtype=torch.float32).view(torch.int32), persistent=False)

    @property
    def values(self) -> Tensor:
        """Return the constants in float32, on the device of the model."""
        return self.bits.view(torch.float32)
