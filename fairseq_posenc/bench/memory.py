"""The most memory that tensors take while something runs."""

from __future__ import annotations

import weakref
from typing import Any, Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def peak(action: Callable[[], Any], device: torch.device) -> float:
    """MiB of all tensors that an action makes and that are there at the same time; the same in every run."""
    action()  # what is made once, such as the state of an optimiser
    if device.type == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        action()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    with _LiveStorages() as storages:
        action()
    return storages.peak / 2**20


class _LiveStorages(TorchDispatchMode):
    """Counts the bytes of the storages that operations return, from their first sight to their end."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_key(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and _key(x) not in self.seen | given:
                self._begin(x.untyped_storage())
        return out

    def _begin(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        self.seen.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._end, key, size)

    def _end(self, key: int, size: int) -> None:
        self.seen.discard(key)
        self.now -= size


def _key(x: torch.Tensor) -> int:
    return x.untyped_storage()._cdata
