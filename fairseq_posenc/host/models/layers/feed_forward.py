"""The two layers of a feed-forward network: linear layers, or convolutions over positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ....core import AttentionContext


class Convolution(nn.Conv1d):
    """A convolution over positions, which replaces a linear layer: [B, T, C] -> [B, T, C'].

    Equation: y_t = sum_j W_j x_(t+j) + b, with j from -(K-1)/2 to (K-1)/2. In a causal layer, j is from -(K-1) to 0. Inputs
        before the first and after the last token are zero.
    Source: Liu et al. (2021b), order-reduced Transformer. The kernel width of the authors is not known.
    Cost: K times the parameters and operations of the linear layer. Decoding stores the last K - 1 inputs.
    """

    def __init__(self, in_features: int, out_features: int, kernel: int, causal: bool):
        super().__init__(in_features, out_features, kernel)
        self.causal = causal

    def forward(self, x: Tensor, ctx: AttentionContext, name: str) -> Tensor:
        if ctx.key_padding is not None and not self.causal:
            x = x.masked_fill(ctx.key_padding.unsqueeze(-1), 0.0)  # padding must not influence its neighbours
        width = self.kernel_size[0] - 1
        if not self.causal:
            x = F.pad(x, (0, 0, width // 2, width // 2))
        else:
            earlier = None if ctx.state is None else ctx.state.get(name)
            x = F.pad(x, (0, 0, width, 0)) if earlier is None else torch.cat([earlier, x], 1)
            if ctx.state is not None and width:
                ctx.state.store_per_row(name, x[:, -width:])
        return super().forward(x.transpose(1, 2)).transpose(1, 2)  # [B, T, C] -> [B, C, T] -> [B, T, C']


class Linear(nn.Linear):
    """A linear layer that is called with the same arguments as `Convolution`."""

    def forward(self, x: Tensor, ctx: AttentionContext, name: str) -> Tensor:
        return super().forward(x)


def linear_or_convolution(in_features: int, out_features: int, kernel: int, causal: bool) -> nn.Module:
    """Return a linear layer for kernel width 1, and a convolution for other kernel widths."""
    if kernel == 1:
        return Linear(in_features, out_features)
    return Convolution(in_features, out_features, kernel, causal)
