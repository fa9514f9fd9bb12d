"""The terms that are added to the scores of an attention, and the keys that each query may attend to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from ..ops import devices
from ..ops.bias_channels import Channels, channels
from ..ops.kernels.blocked_bias import merged

#: alignment of the rows of a mask, in elements. torch's memory-efficient kernel requires it
_ALIGNMENT = 8


@dataclass(frozen=True)
class AttentionMask:
    """Store a bias and a boolean mask, separately and combined. Layers with the same bias and mask share one object.

    Fully masked queries attend to all keys, so that the softmax stays finite. Their output is then set to zero. `logits` is the
    bias with -inf where `allowed` is False. Without a bias, `logits` is `allowed`. Without a bias and a mask, `logits` is None.
    Exception: with a bias on an accelerator, `logits` is None, because `numbers` merges the bias and the mask in the
    precision of the queries.
    """

    bias: Tensor | None = None  # [B or 1, H or 1, T, S]
    allowed: Tensor | None = None  # bool [B or 1, H or 1, T or 1, S]
    fully_masked: Tensor | None = None  # bool [B or 1, H or 1, T, 1], True for queries without allowed keys
    logits: Tensor | None = None
    causal: bool = False  # whether the causal mask is the only mask, and there is no bias matrix
    factors: tuple[Tensor, Tensor] | None = None  # a bias without a matrix: the result of the hook `bias_factors`
    _numbers: dict = field(default_factory=dict, compare=False, repr=False)  # dtype -> result of `numbers`
    _channels: dict = field(default_factory=dict, init=False, compare=False, repr=False)  # (dtype, scale) -> result of `channels`

    @classmethod
    def of(cls, bias: Tensor | None, allowed: Tensor | None, may_mask_fully: bool) -> AttentionMask:
        """Return the mask of a bias [B or 1, H or 1, T, S] and of allowed keys, bool [B or 1, H or 1, T or 1, S].

        may_mask_fully: whether some queries may have no allowed keys.
        """
        fully_masked = None
        if may_mask_fully and allowed is not None:
            fully_masked = ~allowed.any(-1, keepdim=True)
            allowed = allowed | fully_masked
        if bias is None or not devices.on_cpu(bias):  # on an accelerator, `numbers` merges the bias and the mask
            return cls(bias, allowed, fully_masked, allowed if bias is None else None)
        return cls(bias, allowed, fully_masked, merged(bias, allowed))

    def numbers(self, dtype: torch.dtype | None) -> Tensor | None:
        """Return the bias with -inf where `allowed` is False.

        Without a bias, return a tensor that contains 0 for allowed keys, and -inf for other keys. Without a bias and without
        `allowed`, return None. With dtype None, the result has the dtype of the bias, or float32 without a bias.

        If the bias has no gradient, or if there is no bias, the result is computed once for all layers that share this mask.
        The rows of such a result are aligned for torch's memory-efficient kernel.
        """
        bias, allowed = self.bias, self.allowed
        if bias is not None and bias.requires_grad:
            # convert the bias before the merge, because the merged result can have one matrix per sentence. Make the bias
            # contiguous, because the memory-efficient kernel does not support gaps between columns
            return merged(bias if dtype is None else bias.to(dtype, memory_format=torch.contiguous_format), allowed)
        if bias is None and allowed is None:
            return None
        if dtype is None:
            dtype = torch.float32 if bias is None else bias.dtype
        if dtype not in self._numbers:
            self._numbers[dtype] = _merged_rows(bias, allowed, dtype)
        return self._numbers[dtype]

    def channels(self, dtype: torch.dtype, scale: float) -> Channels:
        """Return the factors as channels of queries and keys. Without a gradient, they are computed once for all layers."""
        if self.factors is None:
            raise ValueError("expected a mask with factors of the bias, got a mask without factors")
        if (dtype, scale) in self._channels:
            return self._channels[dtype, scale]
        found = channels(*self.factors, dtype, scale)
        if not any(x.requires_grad for x in self.factors):
            self._channels[dtype, scale] = found
        return found

    def split(self, size: int, queries: int) -> list[AttentionMask]:
        """Return one mask per block of `size` queries. The masks have no `logits`."""

        def pieces(x: Tensor | None) -> Sequence[Tensor | None]:
            blocks = -(-queries // size)
            return x.split(size, 2) if x is not None and x.size(2) > 1 else [x] * blocks

        return [
            AttentionMask(bias, allowed, fully_masked, causal=self.causal)
            for bias, allowed, fully_masked in zip(*map(pieces, (self.bias, self.allowed, self.fully_masked)), strict=True)
        ]

    def up_to(self, keys: int) -> AttentionMask:
        """Return the mask of the first `keys` keys. It has no `logits`."""
        bias, allowed = (None if x is None else x[..., :keys] for x in (self.bias, self.allowed))
        return AttentionMask(bias, allowed, self.fully_masked, causal=self.causal)

    def merged_with(self, mask: Tensor) -> AttentionMask:
        """Return this mask combined with another mask [T, S].

        The other mask is boolean and True for forbidden keys, or contains numbers that are added to the scores.
        """
        mask = mask[None, None]
        bias, allowed = self.bias, torch.ones_like(mask, dtype=torch.bool).tril() if self.causal else self.allowed
        if self.fully_masked is not None and allowed is not None:
            allowed = allowed & ~self.fully_masked
        further = ~mask if mask.dtype == torch.bool else mask > float("-inf")
        if mask.dtype != torch.bool:
            finite = mask.masked_fill(~further, 0.0)
            bias = finite if bias is None else bias + finite
        return AttentionMask.of(bias, further if allowed is None else allowed & further, may_mask_fully=True)


def aligned(numbers: Tensor) -> Tensor:
    """Return the same numbers, with rows that begin at multiples of 8 elements. If `numbers` has such rows, return `numbers`.

    torch's memory-efficient kernel reads only such masks. torch checks the distance between rows, but not where a view begins.
    torch.compile cannot see where a view begins, and always copies.
    """
    if not torch.compiler.is_compiling():
        steps = numbers.storage_offset(), *numbers.stride()[:-1]
        if numbers.stride(-1) == 1 and not any(step % _ALIGNMENT for step in steps):
            return numbers
    columns = numbers.size(-1)
    if columns % _ALIGNMENT == 0:
        return numbers.clone(memory_format=torch.contiguous_format)
    return F.pad(numbers, (0, -columns % _ALIGNMENT))[..., :columns]


def _merged_rows(bias: Tensor | None, allowed: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the bias with -inf where `allowed` is False, with aligned rows. Without a bias, the other numbers are 0."""
    if bias is not None:
        return aligned(merged(bias, allowed).to(dtype))
    if allowed is None:
        raise ValueError("expected a bias or a mask, got neither")
    columns = allowed.size(-1)
    rows = allowed.new_full((*allowed.shape[:-1], columns + -columns % _ALIGNMENT), float("-inf"), dtype=dtype)
    return rows[..., :columns].masked_fill_(allowed, 0.0)
