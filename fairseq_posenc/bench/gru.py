"""The kernels of cuDNN for a GRU, on the meta device.

On an accelerator, PyTorch computes a GRU with cuDNN. The kernels of cuDNN are not operators of PyTorch, so that a count would
contain only one operator for all words. On the meta device, PyTorch computes each step of a GRU with about twelve operators,
which no accelerator uses. The function `gru` runs one operator for each kernel that cuDNN needs at least. These kernels are, in
each layer and direction:

* one product of all inputs with their weight,
* in each step, one product of the state with its weight, and one cell (all elementwise operations of the step).

The gradients of weights and biases are summed over all steps at once.

Source: Appleyard, Kočiský and Blunsom (2016), "Optimizing Performance of Recurrent Neural Networks on GPUs".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

#: gates of a GRU, and numbers that a cell stores for the backward pass, for each hidden unit
_GATES, _STORED = 3, 5

_library = torch.library.Library("posenc_bench", "DEF")
_library.define(
    "gru_cell.out(Tensor inputs, Tensor product, Tensor state, *, Tensor(a!) out, Tensor(b!) stored) -> (Tensor(a!), Tensor(b!))"
)
_library.define("gru_cell_backward(Tensor grad, Tensor stored) -> (Tensor, Tensor, Tensor)")


def _cell(inputs: Tensor, product: Tensor, state: Tensor, *, out: Tensor, stored: Tensor) -> tuple[Tensor, Tensor]:
    return out, stored


def _cell_backward(grad: Tensor, stored: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the inputs of the gates, of the product, and of the state."""
    gates = (*grad.shape[:-1], _GATES * grad.size(-1))
    return grad.new_empty(gates), grad.new_empty(gates), torch.empty_like(grad)


_library.impl("gru_cell.out", _cell, "Meta")
_library.impl("gru_cell_backward", _cell_backward, "Meta")


def gru(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    """Compute a GRU on the meta device, with the arguments of `torch.gru`: (output, last states)."""
    if isinstance(arguments[1], Tensor):  # a packed sequence, with the number of sentences of each step
        sizes, states, weights, biased, layers, _, _, both = arguments
        steps, batch_first = sizes.tolist(), False
    else:
        states, weights, biased, layers, _, _, both, batch_first = arguments
        x = (x.transpose(0, 1) if batch_first else x).contiguous()
        steps = [x.size(1)] * x.size(0)
        x = x.flatten(0, 1)
    assert biased
    directions, last = 1 + bool(both), []
    for layer in range(layers):
        found = []
        for number in range(layer * directions, (layer + 1) * directions):
            output, end = _Direction.apply(x, states[number], *weights[4 * number : 4 * number + 4], steps)
            found.append(output)
            last.append(end)
        x = torch.cat(found, -1) if len(found) > 1 else found[0]
    if not isinstance(arguments[1], Tensor):
        x = x.unflatten(0, (len(steps), -1))
        x = x.transpose(0, 1) if batch_first else x
    return x, torch.stack(last)


class _Direction(torch.autograd.Function):
    """Compute one direction of one layer.

    Shapes: x [N, I] for N words, sorted by step. state [B, C]. Result: states after every word [N, C], last states [B, C].
    """

    @staticmethod
    def forward(
        ctx, x: Tensor, state: Tensor, w_in: Tensor, w_state: Tensor, b_in: Tensor, b_state: Tensor, steps: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        per_word = _STORED if any(ctx.needs_input_grad) else 0
        gates = torch.addmm(b_in, x, w_in.t())
        out, stored = x.new_empty(len(x), state.size(1)), x.new_empty(len(x), per_word * state.size(1))
        at, start = 0, state
        for size in steps:
            rows = slice(at, at + size)
            product = torch.addmm(b_state, state[:size], w_state.t())
            torch.ops.posenc_bench.gru_cell.out(gates[rows], product, state[:size], out=out[rows], stored=stored[rows])
            state, at = out[rows], at + size
        ctx.steps = steps
        ctx.save_for_backward(x, w_in, w_state, out, stored)
        return out, torch.empty_like(start).copy_(out[: len(start)])  # in a packed sequence, the last words of all sentences

    @staticmethod
    def backward(ctx, grad: Tensor, grad_last: Tensor):
        x, w_in, w_state, out, stored = ctx.saved_tensors
        of_inputs, of_products = [], []
        at, of_state = len(x), grad_last
        for number, size in enumerate(reversed(ctx.steps)):
            rows, at = slice(at - size, at), at - size
            given = grad[rows]
            if len(of_state) == size:
                given = given + of_state
            elif number:
                torch.add(given[: len(of_state)], of_state)
            inputs, product, of_state = torch.ops.posenc_bench.gru_cell_backward(given, stored[rows])
            of_state = torch.addmm(of_state, product, w_state)
            of_inputs.append(inputs)
            of_products.append(product)
        of_inputs, of_products = _side_by_side(of_inputs, len(x)), _side_by_side(of_products, len(x))
        of_bias = torch.empty_like(of_inputs[0]), torch.empty_like(of_products[0])  # part of the products for the weights
        return of_inputs @ w_in, of_state, of_inputs.t() @ x, of_products.t() @ out, *of_bias, None


def _side_by_side(parts: list[Tensor], rows: int) -> Tensor:
    """Return a tensor with the rows of all parts. The cells write their parts into this tensor, without a copy."""
    return parts[0].new_empty(rows, parts[0].size(1))
