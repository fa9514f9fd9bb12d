"""Run operators on the meta device. The result of an operator is stored, because most meta kernels of PyTorch take a millisecond.

The layers of a model call the same operators with tensors of the same shapes. The stored results have no values, only shapes,
strides and types.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .meta import META, storage_key, tensors

#: operator and description of its arguments -> description of the result
_STORED: dict[Any, Any] = {}


def of(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the result of an operator. If the operator was run with equal arguments before, do not run the operator again."""
    given = tensors((args, kwargs))
    if func._schema.is_mutable or func.is_view or not given or not all(map(_is_plain, given)):
        return func(*args, **kwargs)
    key = func, torch.get_default_dtype(), _described(args), _described(kwargs)
    if key in _STORED:
        return _made(_STORED[key])
    out = func(*args, **kwargs)
    if _is_new(out, given):
        _STORED[key] = _described(out)
    return out


def _is_plain(x: Tensor) -> bool:
    """Return whether shape, strides, offset and type describe the tensor. A tensor on the CPU can be a Python number."""
    return x.device == META and not x.is_complex() and not x.is_neg()


def _described(value: Any) -> Any:
    """Return a description of arguments or results. Equal descriptions have equal types: 1, 1.0 and True differ."""
    if isinstance(value, Tensor):
        return Tensor, value.dtype, value.shape, value.stride(), value.storage_offset()
    if isinstance(value, (list, tuple)):
        return type(value), *map(_described, value)
    if isinstance(value, dict):
        return dict, *((name, _described(value[name])) for name in sorted(value))
    return type(value), value


def _is_new(out: Any, given: list[Tensor]) -> bool:
    """Return whether `_made` can create the result: plain tensors that share no memory and fill their memory."""
    made = tensors(out)
    keys = {storage_key(x) for x in (*made, *given)}
    sizes = ((x, _empty(x.dtype, x.shape, x.stride()).untyped_storage().nbytes()) for x in made)
    return (
        len(keys) == len(made) + len({storage_key(x) for x in given})
        and isinstance(out, (Tensor, tuple, list))
        and all(_is_plain(x) and x.storage_offset() == 0 and x.untyped_storage().nbytes() == size for x, size in sizes)
    )


def _made(described: Any) -> Any:
    """Return new tensors, and all other values, from the description of a result."""
    kind, *parts = described
    if kind is Tensor:
        return _empty(*parts[:3])
    return kind(map(_made, parts)) if kind in (list, tuple) else parts[0]


def _empty(dtype: torch.dtype, shape: Any, stride: Any) -> Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype, device=META)
