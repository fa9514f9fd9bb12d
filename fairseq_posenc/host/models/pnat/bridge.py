"""The bridge: compute the decoder inputs, one per target token, from the vectors of the source tokens."""

from __future__ import annotations

import torch
from torch import Tensor

#: constants in the softmax of `interpolate` and of `soft_copy`, as in the authors' code
_VARIANCE, _TEMPERATURE = 0.3, 0.3


def copy(source: Tensor, source_lengths: Tensor, target_lengths: Tensor, length: int) -> Tensor:
    """Copy source vectors: d_t = e_s with s = round(t (S-1) / (T-1)), T at least 2. [B, S, C] -> [B, length, C]."""
    steps = (source_lengths.float() - 1) / (target_lengths.float() - 1)  # [B]
    at = torch.arange(length, device=source.device)
    index = (steps.unsqueeze(1) * at).round().long()  # [B, T]
    index = index.clamp(max=source.size(1) - 1)  # only target positions of padding have a larger index
    return source.gather(1, index.unsqueeze(-1).expand(-1, -1, source.size(-1)))


def interpolate(source: Tensor, source_lengths: Tensor, target_lengths: Tensor, length: int) -> Tensor:
    """Interpolate source vectors: d_t = sum_s softmax_s(-(s - t S/T)^2 / 0.3) e_s. [B, S, C] -> [B, length, C]."""
    centre = torch.arange(length, device=source.device) * (source_lengths.float() / target_lengths.float()).unsqueeze(1)
    return _mixed(source, source_lengths, lambda s: -((s - centre.unsqueeze(-1)) ** 2) / _VARIANCE)


def soft_copy(source: Tensor, source_lengths: Tensor, target_lengths: Tensor, length: int) -> Tensor:
    """Mix source vectors near t: d_t = sum_s softmax_s(-|t - s| / 0.3) e_s. [B, S, C] -> [B, length, C]."""
    at = torch.arange(length, device=source.device).view(1, -1, 1)
    return _mixed(source, source_lengths, lambda s: -(at - s).abs() / _TEMPERATURE)


def _mixed(source: Tensor, source_lengths: Tensor, logits_of) -> Tensor:
    """Return weighted means of the source vectors: [B, S, C] -> [B, T, C].

    The weights are the softmax over source positions s of the logits [B or 1, T, S]. Padding has no weight.
    """
    s = torch.arange(source.size(1), device=source.device)
    logits = logits_of(s.view(1, 1, -1)).expand(source.size(0), -1, -1)
    logits = logits.masked_fill((s >= source_lengths.unsqueeze(1)).unsqueeze(1), float("-inf"))
    return logits.float().softmax(-1).to(source.dtype) @ source  # [B, T, S], [B, S, C] -> [B, T, C]


#: value of --bridge -> function
BRIDGES = {"copy": copy, "interpolate": interpolate, "soft_copy": soft_copy}
