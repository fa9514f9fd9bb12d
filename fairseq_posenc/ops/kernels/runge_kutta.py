"""Solve a differential equation whose right-hand side is a network, with explicit Runge-Kutta steps of equal size.

Channels are complex numbers, and a turn multiplies every channel by a number of absolute value 1. PyTorch would compute the same
gradients, but with several times as many operators per step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .derivatives import first_derivative_only


class RungeKutta(torch.autograd.Function):
    r"""Compute the states after every step, from the state before the first step.

    Equation: $p_i = w_{ni} z_n + \sum_{j < i} a_{ji} f_j$, $f_i = W_o \operatorname{ReLU}(W_i p_i + b_{ni}) + c_{ni}$ and
        $z_{n+1} = z_n + \bar w_{n0} \sum_j a_{jm} f_j$. n counts steps. i and j count the m calls of the network in a step. The
        coefficients $a$ contain the size of the step. The products with $w$ and $a$ are products of complex channels.
    Shapes: state [N, P, c], complex. w_in [N, 2 c, H] and w_out [N, H, 2 c] of N networks. b_in [n, m, N, 1, H] and
        b_out [n, m, N, 1, 2 c] for n steps of m calls. waves [n, m, c] and factors [m + 1, m + 1, c], complex. Result
        [n, N, P, c]. A network reads and writes the real part and the imaginary part of a channel as neighbouring numbers.
    Gradients: of the state, weights and biases. `waves` and `factors` are constants.

    Args:
        waves: w of the equation, with absolute value 1.
        factors: factors[0, i] is w_ni / w_n0, which is the same in every step. factors[1 + j, i] is a_ji. In the last column, i
            is m. factors[0, m] and all factors with j >= i are 0.
    """

    @staticmethod
    def forward(
        ctx, state: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor, b_out: Tensor, waves: Tensor, factors: Tensor
    ) -> Tensor:
        steps, calls, _ = waves.shape
        starts = torch.cat([waves, torch.zeros_like(waves[:, :1])], 1)[:, :, None, None]  # [n, m + 1, 1, 1, c]
        back = waves[:, 0, None, None].conj_physical()  # [n, 1, 1, c]
        stored = steps if any(ctx.needs_input_grad) else 1
        stages = state.new_empty(calls + 1, stored, *state.shape)  # p_i of all calls, and the sum of the step
        hidden = w_in.new_empty(calls, stored, *state.shape[:2], w_in.size(2))
        found = state.new_empty(steps, *state.shape)
        for n, (start, into_hidden, into_change) in enumerate(zip(starts.unbind(), b_in.unbind(), b_out.unbind())):
            stage, active = stages[:, n % stored], hidden[:, n % stored]
            torch.mul(start, state, out=stage)
            for i in range(calls):
                _activate(into_hidden[i], _pairs(stage[i]), w_in, active[i])
                change = torch.baddbmm(into_change[i], active[i], w_out)
                stage[i + 1 :].addcmul_(factors[i + 1, i + 1 :, None, None], _complex(change))
            state = torch.addcmul(state, back[n], stage[calls], out=found[n])
        ctx.save_for_backward(w_in, w_out, waves, factors, stages, hidden)
        return found

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        w_in, w_out, waves, factors, stages, hidden = ctx.saved_tensors
        steps, calls, _ = waves.shape
        before = factors.transpose(0, 1).conj_physical()  # [i, z and j, c]
        back = waves[:, 0, None, None].conj_physical()
        ends = (before[calls] * waves[:, :1])[:, :, None, None]  # from z_{n+1} to the changes f of the step: [n, m + 1, 1, 1, c]
        w_in_back, w_out_back = w_in.mT, w_out.mT
        # [m + 1, n, N, P, c]: gradients of z_n, turned to the start of the step, and of the changes f
        of_changes, of_hidden = torch.empty_like(stages), torch.empty_like(hidden)
        of_state = torch.zeros_like(stages[0, 0])
        for n in reversed(range(steps)):
            of_state = of_state + grad[n]
            of_change, of_active, active = of_changes[:, n], of_hidden[:, n], hidden[:, n]
            torch.mul(ends[n], of_state, out=of_change)
            for i in reversed(range(calls)):
                torch.bmm(_pairs(of_change[i + 1]), w_out_back, out=of_active[i])
                torch.ops.aten.threshold_backward.grad_input(of_active[i], active[i], 0, grad_input=of_active[i])
                of_stage = _complex(torch.bmm(of_active[i], w_in_back))
                of_change[: i + 1].addcmul_(before[i, : i + 1, None, None], of_stage)
            of_state = torch.addcmul(of_state, back[n], of_change[0])
        of_changes, stages = _pairs(of_changes[1:]), _pairs(stages[:calls])
        of_b_in, of_b_out = (x.sum(3, keepdim=True).transpose(0, 1) for x in (of_hidden, of_changes))
        return of_state, _summed(stages, of_hidden), of_b_in, _summed(hidden, of_changes), of_b_out, None, None


def _activate(bias: Tensor, x: Tensor, weight: Tensor, out: Tensor) -> None:
    """Write ReLU(x W + b) to `out`: [N, 1, H], [N, P, I] and [N, I, H] -> [N, P, H]."""
    if len(weight) == 1:  # on an accelerator, this operator is one kernel
        torch._addmm_activation(bias[0, 0], x[0], weight[0], out=out[0])
    else:
        torch.baddbmm(bias, x, weight, out=out).relu_()


def _pairs(x: Tensor) -> Tensor:
    """Return real and imaginary parts as neighbouring numbers: complex [..., c] -> [..., 2 c]."""
    return torch.view_as_real(x).flatten(-2)


def _complex(x: Tensor) -> Tensor:
    """Undo `_pairs`: [..., 2 c] -> complex [..., c]."""
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def _summed(x: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient of weights, summed over calls, steps and paths: [m, n, N, P, I], [m, n, N, P, O] -> [N, I, O]."""
    x, grad = (given.permute(2, 0, 1, 3, 4).flatten(1, 3) for given in (x, grad))  # [N, m n P, I], [N, m n P, O]
    return x.mT @ grad
