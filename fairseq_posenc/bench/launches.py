"""Count kernel launches, waits, bytes and peak memory of one run on the meta device, with their source lines.

A wait is a synchronisation: the host waits for a value of the device.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import results
from .meta import CPU, META, Memory, Values, accelerator_branches, on_cpu, storage_key, tensors

aten = torch.ops.aten
#: operators that allocate a tensor without writing into it
_ALLOCATIONS = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}
#: operators that write without reading their first argument
_OVERWRITES = {
    aten.ones_like,
    aten.zeros_like,
    aten.full_like,
    aten.rand_like,
    aten.randn_like,
    aten.new_zeros,
    aten.new_ones,
    aten.new_full,
    aten.copy_,
    aten.fill_,
    aten.zero_,
    aten.normal_,
    aten.uniform_,
    aten.bernoulli_,
    aten.random_,
}
#: operators that read only some elements of their first argument. They read as many elements as they return
_SELECTIONS = {aten.embedding, aten.index_select, aten.gather, aten.index, aten.take_along_dim}
#: operators that return a value to the host, or whose result has a shape that depends on values. The host waits for the device
_WAITS = {
    aten._local_scalar_dense, aten.equal, aten.nonzero, aten._unique, aten._unique2, aten.unique_dim, aten.unique_consecutive,
    aten.masked_select, aten.repeat_interleave, aten.bincount, aten.histc, aten.is_nonzero,
}  # fmt: skip
_INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index, aten._unsafe_index_put}
_COPIES = {aten._to_copy, aten.copy_}
_MASKS = (torch.bool, torch.uint8)


@dataclass
class Cost:
    """Cost of operators: number of kernel `launches`, number of `waits` of the host, bytes `read` and `written` by kernels."""

    launches: int = 0
    waits: int = 0
    read: int = 0
    written: int = 0

    def add(self, launches: int, waits: int, read: int, written: int) -> None:
        self.launches += launches
        self.waits += waits
        self.read += read
        self.written += written

    @property
    def moved(self) -> int:
        return self.read + self.written


@dataclass
class Count(Cost):
    """Cost of one run.

    `peak` is the maximum memory, in bytes, of the tensors of the run. `float64` is the number of operators on the device with
    float64 results. `host` is the number of operators that create tensors on the CPU. A place is an operator and the function
    that calls it. `places` contains the cost of each place. `lines` contains the source lines of each place.
    """

    peak: int = 0
    float64: int = 0
    host: int = 0
    places: dict[str, Cost] = field(default_factory=dict)
    lines: dict[str, Counter[str]] = field(default_factory=dict)

    def totals(self) -> dict[str, int]:
        """Return the costs of the whole run by name, such as the number of kernel launches, without the costs of the places."""
        return {name: getattr(self, name) for name in ("launches", "waits", "read", "written", "peak", "float64", "host")}


def count(action: Callable[[], Any], values: Values) -> Count:
    """Run an action once with tensors on the meta device. Return the cost of this run (`Count`)."""
    enabled = gc.isenabled()
    gc.disable()  # so that memory is freed at the same place in every run
    try:
        with _Counter(values) as counter, accelerator_branches():
            action()
            counter.count.peak = counter.memory.peak
    finally:
        if enabled:
            gc.enable()
    return counter.count


class _Counter(TorchDispatchMode):
    def __init__(self, values: Values) -> None:
        super().__init__()
        self.values, self.count = values, Count()
        self.memory = Memory()
        self._at: dict[int, tuple[str, str]] = {}  # number of an autograd node -> function and source line of its forward pass

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        given = tensors((args, kwargs))
        name, packet = func.overloadpacket.__name__, func.overloadpacket
        device = kwargs.get("device")
        leaves = any(x.device == META for x in given)
        if not leaves and (device is None or torch.device(device) != META):
            out = func(*args, **kwargs)
            if tensors(out) and not func.is_view and not name.startswith("detach"):
                self.count.host += 1
            return out
        if packet in _WAITS or (leaves and device is not None and torch.device(device) == CPU):
            self._add(name, int(packet in _WAITS and packet is not aten._local_scalar_dense), 1, sum(map(_bytes, given)), 0)
            return self._answer(func, args, kwargs)
        kwargs.update({"generator": None} if "generator" in kwargs else {})  # the meta device has no generator
        masked = packet in _INDEXING and any(x is not None and x.dtype in _MASKS for x in args[1])
        copies = any(
            x.device == CPU and (x.dim() or packet in _COPIES) for x in given
        )  # a copy from the host, unless the memory is pinned
        out = self._answer(func, args, kwargs) if masked and packet is aten.index else results.of(func, args, kwargs)
        made = tensors(out)
        before = {storage_key(x) for x in given}
        new = [x for x in made if storage_key(x) not in before and x.device == META]
        mutates = func._schema.is_mutable
        is_view = not new and not mutates
        written = _written(func, args, kwargs) if mutates else []
        if not masked and not is_view:
            self.values.follow(func, args, kwargs, out, written)
        for x in new:
            self.memory.begin(x)
        if is_view or not (new or written) or packet in _ALLOCATIONS:
            return out
        self.count.float64 += any(x.dtype == torch.float64 for x in new)
        to_out = any(argument.is_out for argument in func._schema.arguments)  # an argument such as `out=` is not read
        unread = given[:1] if packet in _OVERWRITES else written if to_out else []
        read = [_bytes(x) for x in given if not any(x is other for other in unread)]
        wrote = sum(map(_bytes, [*new, *written]))
        if packet in _SELECTIONS and read:
            read[0] = min(read[0], wrote)
        self._add(name, 1, int(masked or copies), sum(read), wrote)
        return out

    def _answer(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the result of an operator that reads the values of tensors.

        If all values are known, the operator runs on the CPU. Otherwise, `_unknown` returns ones or True, so that conditions
        that test this result are true. If the shape of the result is unknown, `_unknown` raises NotImplementedError.
        """
        taken = self.values.taken((args, kwargs))
        to_host = torch.device(kwargs.get("device") or META) == CPU
        known = len(tensors(taken)) == len(tensors((args, kwargs)))
        out = on_cpu(func, *taken) if known else _unknown(func.overloadpacket, args)
        if to_host or not tensors(out):
            return out
        moved = [self.values.moved(x) if isinstance(x, Tensor) else x for x in ([out] if isinstance(out, Tensor) else out)]
        for x in tensors(moved):
            self.memory.begin(x)
        return moved[0] if isinstance(out, Tensor) else tuple(moved)

    # -- places ----------------------------------------------------------------------------------------------------

    def _add(self, name: str, launches: int, waits: int, read: int, written: int) -> None:
        place, line = self._place()
        where = f"{name} {place}"
        self.count.add(launches, waits, read, written)
        self.count.places.setdefault(where, Cost()).add(launches, waits, read, written)
        self.count.lines.setdefault(where, Counter())[line] += launches + waits

    def _place(self) -> tuple[str, str]:
        """Return the function to which an operator belongs, and the source line in this function.

        The operator belongs to the innermost function of this package that calls the operator, directly or indirectly. If no
        function of this package calls the operator, the operator belongs to the innermost calling function of fairseq.

            An operator in a backward pass belongs to the function that called the corresponding operator of the forward pass.
            If this package defines the backward pass itself, the operator belongs to the function of this backward pass.
        """
        node = torch._C._current_autograd_node()
        found = _caller()
        if node is None:
            number = torch.autograd._get_sequence_nr() - 1
            self._at.setdefault(number, found)
            return found
        if found[0] and "bench/" not in found[0]:  # this package defines this backward pass
            return found
        place, line = self._at.get(node._sequence_nr(), ("gradients", ""))
        return f"{place}, backwards", line


def _unknown(packet: Any, args: Any) -> Any:
    """Return the result that is assumed for an operator whose inputs have unknown values.

    The result of `equal` is True. If the operator copies values to the host, the result consists of ones.
    """
    if packet is aten.equal:
        return True
    if packet in (aten._local_scalar_dense, aten._to_copy):
        ones = torch.ones(args[0].shape, dtype=args[0].dtype)
        return ones.item() if packet is aten._local_scalar_dense else ones
    raise NotImplementedError(f"{packet}: the shape of the result depends on values, which the meta device does not compute")


def _caller() -> tuple[str, str]:
    frame = sys._getframe(1)
    outside = None
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_ROOT) and name not in _SKIPPED:
            file = name[len(_ROOT) :]
            return f"{file} {frame.f_code.co_name}", f"{file}:{frame.f_lineno}"
        if outside is None and "/fairseq/" in name:
            file = name.rpartition("/fairseq/")[2]
            outside = f"fairseq/{file} {frame.f_code.co_name}", f"fairseq/{file}:{frame.f_lineno}"
        frame = frame.f_back
    return outside or ("", "")


_ROOT = f"{Path(__file__).parent.parent}/"
_SKIPPED = {__file__, *(str(Path(__file__).with_name(name)) for name in ("meta.py", "gru.py"))}


def _written(func: Any, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors to which an operator writes."""
    arguments = enumerate(func._schema.arguments)
    written = [(n, x.name) for n, x in arguments if x.alias_info is not None and x.alias_info.is_write]
    return tensors([args[n] if n < len(args) else kwargs.get(name) for n, name in written])


def _bytes(x: Tensor) -> int:
    """Return the bytes that a kernel reads from a tensor or writes to it. Broadcast and overlapping elements count once."""
    if not x.numel():
        return 0
    distinct, span = 1, 1
    for size, stride in zip(x.shape, x.stride()):
        if stride:
            distinct, span = distinct * size, span + (size - 1) * abs(stride)
    return min(distinct, span) * x.element_size()
