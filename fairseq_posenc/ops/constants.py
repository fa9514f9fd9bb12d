"""Fixed numbers of a method, kept on the device of the model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Constants(nn.Module):
    """Numbers in float32 that move with the model and that no other number format rounds.

    A tensor made from numbers in a forward pass would be copied from the host, which makes the host wait for an accelerator.
    """

    def __init__(self, values: Sequence[float]):
        super().__init__()
        self.register_buffer("bits", torch.tensor(values, dtype=torch.float32).view(torch.int32), persistent=False)

    @property
    def values(self) -> Tensor:
        return self.bits.view(torch.float32)
