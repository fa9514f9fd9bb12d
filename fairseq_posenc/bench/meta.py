"""Use the meta device of PyTorch instead of an accelerator. The meta device computes no numbers, and every operator can be
counted.

This package tests only for `device.type == "cpu"`. A model on the meta device therefore runs the code for accelerators. PyTorch
itself also chooses its code by device. `accelerator_branches` selects PyTorch's code for CUDA. `Values` stores the integers of a
batch (tokens, lengths, indices), so that a model reads the same values in every run.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from .gru import gru

META, CPU = torch.device("meta"), torch.device("cpu")
#: maximum number of elements of a result whose values are computed
_LARGEST = 2**26
#: maximum number of elements of a table that a model creates on the CPU
LARGEST_TABLE = 2**26
#: alignment of a mask for memory-efficient attention in PyTorch, in elements
_ALIGNMENT = 8
_HALF = (torch.float16, torch.bfloat16)


def tensors(values: Any) -> list[Tensor]:
    """Return the tensors among the arguments or results of an operator."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, (list, tuple)):
        return []
    return [x for value in values for x in tensors(value)]


def storage_key(x: Tensor) -> int:
    return x.untyped_storage()._cdata


class Memory:
    """The size in bytes of all tensors that exist at the same time: now, and at most."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}  # storage -> size
        self.now = self.peak = 0

    def begin(self, x: Tensor) -> None:
        """Add the storage of a tensor, and subtract it when the storage is freed. A storage counts once."""
        key, size = storage_key(x), x.untyped_storage().nbytes()
        if key not in self._sizes:
            self._sizes[key] = size
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(x.untyped_storage(), self._end, key)

    def _end(self, key: int) -> None:
        self.now -= self._sizes.pop(key, 0)


class Values:
    """Store, on the CPU, the values of meta tensors that can be computed from given integers.

    Values belong to storages, so views and writes into views need no special code. Tensors that depend on parameters or random
    numbers have no values.
    """

    def __init__(self) -> None:
        self._known: dict[int, Tensor] = {}  # storage -> bytes on the CPU

    def moved(self, x: Tensor) -> Tensor:
        """Return the tensor on the meta device. For tensors that are not floating-point, store the values with `set`."""
        there = torch.empty_like(x, device=META)
        if not x.is_floating_point():
            self.set(there, x)
        return there

    def move(self, model: nn.Module) -> nn.Module:
        """Move a model to the meta device. Store the values of buffers that are not floating-point.

        Parameters that are shared stay shared."""
        kept = [x.detach().clone() for x in model.buffers() if not x.is_floating_point()]
        before = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            model.to(META)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(before)
        for values, x in zip(kept, [x for x in model.buffers() if not x.is_floating_point()]):
            self.set(x, values)
        return model

    def set(self, x: Tensor, values: Tensor) -> None:
        """Set the values of a tensor on the meta device. The values are stored as long as the storage of the tensor exists."""
        key = storage_key(x)
        if key not in self._known:
            self._known[key] = torch.zeros(x.untyped_storage().nbytes(), dtype=torch.uint8)
            weakref.finalize(x.untyped_storage(), self._known.pop, key, None)
        self._seen_as(x).copy_(values)

    def get(self, x: Tensor) -> Tensor | None:
        """Return the values as a CPU tensor, or None if the values are not known.

        The CPU tensors of all views of one storage share memory.
        """
        if x.device.type == "cpu":
            return x
        return self._seen_as(x) if storage_key(x) in self._known else None

    def forget(self, x: Tensor) -> None:
        self._known.pop(storage_key(x), None)

    def _seen_as(self, x: Tensor) -> Tensor:
        flat = self._known[storage_key(x)]
        return torch.empty(0, dtype=x.dtype).set_(flat.untyped_storage(), x.storage_offset(), x.size(), x.stride())

    def follow(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any, written: Sequence[Tensor]) -> None:
        """Compute the values of the results of an operator, if the values of all inputs are known."""
        made, given = tensors(out), tensors((args, kwargs))
        small = all(x.numel() <= _LARGEST for x in made)
        found = [self.get(x) for x in given] if small and torch.Tag.nondeterministic_seeded not in func.tags else [None]
        if any(x is None for x in found) or (not given and any(x.is_floating_point() for x in made)):
            for x in (*made, *written):
                self.forget(x)
            return
        values = on_cpu(func, self.taken(args), self.taken(kwargs))
        for x, value in zip(made, tensors(values)):
            if not any(x is other for other in written):
                self.set(x, value)

    def taken(self, values: Any) -> Any:
        """Replace each tensor of these arguments by its values on the CPU, or by None if its values are not known."""
        return tree_map_only(Tensor, self.get, values)


def on_cpu(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the result of an operator for arguments on the CPU."""
    return func(*args, **{**kwargs, **({"device": CPU} if kwargs.get("device") is not None else {})})


@contextmanager
def large_tables_without_memory() -> Iterator[None]:
    """Within the context, `torch.zeros` creates a large tensor on the meta device, for example a table of all pairs of positions.

    A model that is built within the context needs little memory of the CPU.
    """
    zeros = torch.zeros

    def small_or_meta(*shape: int, **kwargs: Any) -> Tensor:
        large = zeros(*shape, **{**kwargs, "device": META})
        return large if large.numel() > LARGEST_TABLE else zeros(*shape, **kwargs)

    with patch.object(torch, "zeros", small_or_meta):
        yield


class _Generator(torch.Generator):
    """A generator for the CPU if a generator for the meta device is requested. PyTorch has no generator for this device."""

    def __new__(cls, device: Any = CPU) -> _Generator:
        return super().__new__(cls, CPU if torch.device(device) == META else device)


class _Autocast(torch.autocast):
    """Autocast for the CPU if autocast for the meta device is requested. PyTorch has no autocast for the meta device."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any):
        super().__init__("cpu" if device_type == "meta" else device_type, *args, **kwargs)


@contextmanager
def accelerator_branches() -> Iterator[None]:
    """Within the context, PyTorch uses the same operators as on CUDA.

    These are fused attention, fused dropout, the kernels of cuDNN for a GRU, and a copy to the device for every tensor that is
    created from Python numbers.
    """
    tensor, dropout, at_once = torch.tensor, F.dropout, torch._VF.gru

    def copied(data: Any, *, device: Any = None, **kwargs: Any) -> Tensor:
        if device is None or torch.device(device).type == "cpu":
            return tensor(data, device=device, **kwargs)
        return tensor(data, **kwargs).to(device)

    def copied_to(self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, **kwargs: Any) -> Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or self.device, **kwargs)

    def dropped(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if x.device.type == "cpu" or not training or not 0 < p < 1 or inplace:
            return dropout(x, p, training, inplace)
        return torch.native_dropout(x, p, True)[0]

    def recurrent(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
        return (at_once if x.device.type == "cpu" else gru)(x, *arguments)

    with (
        patch.object(F, "scaled_dot_product_attention", attention),
        patch.object(F, "dropout", dropped),
        patch.object(torch, "tensor", copied),
        patch.object(Tensor, "new_tensor", copied_to),
        patch.object(torch, "Generator", _Generator),
        patch.object(torch, "autocast", _Autocast),
        patch.object(torch._VF, "gru", recurrent),
    ):
        yield


def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Compute attention with the operator that PyTorch selects on CUDA.

    In half precision, without a mask, and with equal widths of queries and values, the operator is flash attention. Otherwise
    it is memory-efficient attention. As in PyTorch, a boolean mask is converted to numbers, and a mask with unaligned rows is
    padded.
    """
    assert not enable_gqa
    if attn_mask is None and q.dtype in _HALF and q.size(-1) == v.size(-1):
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            zero = torch.zeros((), dtype=q.dtype, device=q.device)
            attn_mask = torch.where(attn_mask.logical_not(), float("-inf"), zero)
        if not _aligned(attn_mask):
            columns = attn_mask.size(-1)
            attn_mask = F.pad(attn_mask, (0, _ALIGNMENT - columns % _ALIGNMENT))[..., :columns]
        attn_mask = attn_mask.expand(*q.shape[:3], k.size(2))
    keeps = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, attn_mask))
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        q, k, v, attn_mask, keeps, dropout_p, is_causal, scale=scale
    )[0]  # fmt: skip


def _aligned(mask: Tensor) -> bool:
    return mask.stride(-1) == 1 and all(stride % _ALIGNMENT == 0 for stride in mask.stride()[:-1])
