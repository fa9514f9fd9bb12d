"""Measure one call of a function: peak memory, operations, bytes that operators access, and time of every operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from .meta import Memory, storage_key, tensors

#: number of profiled runs, and number of operators in the result
_PROFILED, _SHOWN = 3, 8


@dataclass(frozen=True)
class Counts:
    """Peak memory of tensors, operations of matrix products, and bytes that all operators read and write."""

    mib: float
    gflop: float
    gib: float


def counted(action: Callable[[], Any], device: torch.device) -> Counts:
    """Measure the peak memory, the operations and the bytes (see `Counts`) of one call of `action`.

    The caller has already called `action` once, so that new optimizer states are not counted.
    """
    if device.type == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        action()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
    with _Counter() as counter:
        action()
    peak = peak if device.type == "cuda" else counter.memory.peak
    return Counts(peak / 2**20, counter.operations / 1e9, counter.moved / 2**30)


def operators(action: Callable[[], Any], device: torch.device) -> dict[str, float]:
    """Return the time of every operator in one run, in milliseconds.

    The time of an operator does not include the time of the operators that it calls.
    """
    on_device = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_device else ProfilerActivity.CPU]) as found:
        for _ in range(_PROFILED):
            action()
    taken = "self_device_time_total" if on_device else "self_cpu_time_total"
    return {event.key: getattr(event, taken) / 1e3 / _PROFILED for event in found.key_averages()}


def differences(own: dict[str, float], stock: dict[str, float]) -> dict[str, list[float]]:
    """Return the operators whose times differ most between a model and stock fairseq.

    The values are the times of the model and of stock fairseq, in milliseconds.
    """
    both = {name: [own.get(name, 0.0), stock.get(name, 0.0)] for name in own.keys() | stock.keys()}
    return dict(sorted(both.items(), key=lambda item: -abs(item[1][0] - item[1][1]))[:_SHOWN])


class _Counter(TorchDispatchMode):
    """Add the memory of each storage that an operator creates, and subtract it when the storage is freed.

    Also sum the operations of matrix products, and the bytes that operators read and write.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.moved = 0
        self.memory = Memory()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tensors((args, kwargs))
        keys = {storage_key(x) for x in given}
        out = func(*args, **(kwargs or {}))
        made = tensors(out)
        for x in made:
            if storage_key(x) not in keys:
                self.memory.begin(x)
        if func._schema.is_mutable or any(storage_key(x) not in keys for x in made):  # otherwise the result is a view
            self.moved += sum(min(x.numel() * x.element_size(), x.untyped_storage().nbytes()) for x in given + made)
        count = _FORMULAS.get(func.overloadpacket)
        if count is not None:
            self.operations += count(*args, **(kwargs or {}), out_val=out)
        return out


aten = torch.ops.aten
#: PyTorch's formulas for the number of operations. PyTorch has no formulas for in-place matrix products and for fused attention
#: on a CPU, so this table adds them. For causal attention, masked scores count as well
_FORMULAS = {
    **flop_registry,
    aten.addmm_: flop_registry[aten.addmm],
    aten.baddbmm_: flop_registry[aten.baddbmm],
    aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[aten._scaled_dot_product_flash_attention],
    aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[aten._scaled_dot_product_flash_attention_backward],
}
