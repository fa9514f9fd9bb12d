"""Adam with the updates of fairseq's Adam, computed by the fused kernel of PyTorch."""

import ast
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam
from omegaconf import II
from torch import Tensor

from ...core import Refusal


@dataclass
class FusedAdamConfig(FairseqDataclass):
    """The options of fairseq's Adam. `lr` is the option --lr."""

    adam_betas: str = field(default="(0.9, 0.999)", metadata={"help": "decay rates of the two moving averages"})
    adam_eps: float = field(default=1e-8, metadata={"help": "number that is added to the denominator"})
    weight_decay: float = field(default=0.0, metadata={"help": "weight decay, as in AdamW"})
    lr: list[float] = II("optimization.lr")  # noqa: RUF009  (fairseq replaces it by the value of --lr)


@register_optimizer("posenc_adam", dataclass=FusedAdamConfig)
class FairseqFusedAdam(FairseqOptimizer):
    """The optimizer `posenc_adam` of fairseq-train."""

    average_params = FairseqAdam.average_params  # for --use-bmuf

    def __init__(self, cfg: FusedAdamConfig, params: Any):
        super().__init__(cfg)
        self._optimizer = FusedAdam(params, **self.optimizer_config)
        if any(x.dtype in (torch.float16, torch.bfloat16) for group in self._optimizer.param_groups for x in group["params"]):
            raise Refusal(
                "--optimizer posenc_adam: --memory-efficient-fp16 and --memory-efficient-bf16 are not supported. Expected "
                "neither. Use --fp16 or --bf16 without them, or --optimizer adam."
            )

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """Return the options of `FusedAdam`."""
        lr = self.cfg.lr
        return {
            "lr": lr[0] if isinstance(lr, Collection) else lr,
            "betas": _betas(str(self.cfg.adam_betas)),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    def multiply_grads(self, c: float | Tensor) -> None:
        """Multiply all gradients by `c`. The kernel of `step` does this, so that no other kernel reads all gradients."""
        if isinstance(self._optimizer, FusedAdam):
            self._optimizer.factor = self._optimizer.factor * c
        else:  # fairseq has replaced the optimizer, for example for --zero-sharding
            super().multiply_grads(c)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Scale all gradients so that their norm is at most `max_norm`, as fairseq does. 0: no limit. Return the norm before.

        Like `multiply_grads`, this function leaves the multiplication to `step`.
        """
        grads = [parameter.grad for parameter in self.params if parameter.grad is not None]
        experts = any(hasattr(parameter, "expert") for parameter in self.params)
        if not isinstance(self._optimizer, FusedAdam):
            return super().clip_grad_norm(max_norm, aggregate_norm_fn)
        if not grads or aggregate_norm_fn is not None or experts:
            factor, self._optimizer.factor = self._optimizer.factor, 1.0
            super().multiply_grads(factor)
            return super().clip_grad_norm(max_norm, aggregate_norm_fn)
        norm = torch.stack(torch._foreach_norm(grads)).norm() * self._optimizer.factor
        if max_norm > 0:
            self.multiply_grads((max_norm / (norm + 1e-6)).clamp_(max=1))
        return norm


class FusedAdam(torch.optim.AdamW):
    r"""Compute the updates of fairseq's Adam up to rounding, with one kernel for all parameters or one for each parameter.

    Equation: $\theta \leftarrow \theta - \eta \lambda \theta - \eta \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t} \cdot
        \frac{m}{\sqrt{v} + \epsilon}$ with the number t of updates of this parameter. PyTorch's Adam adds epsilon to $\sqrt{v /
        (1 - \beta_2^t)}$. This class therefore divides epsilon by $\sqrt{1 - \beta_2^t}$ in each update.

    All gradients are multiplied by `factor`. An update and `zero_grad` set it to 1.
    """

    supports_flat_params = True  # fairseq may give one tensor that contains all parameters

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float, weight_decay: float):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        self.factor: float | Tensor = 1.0
        self._updates: dict[Tensor, int] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.factor = 1.0
        super().zero_grad(set_to_none)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._updates.clear()
        # the state of fairseq's Adam has no entry "fused". Without the entry, PyTorch uses another kernel
        groups = [{**group, "fused": True} for group in state_dict["param_groups"]]
        super().load_state_dict({**state_dict, "param_groups": groups})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        groups, factor, self.factor = self.param_groups, self.factor, 1.0
        # the kernel divides the gradients by grad_scale, as for torch.amp.GradScaler
        self.grad_scale = torch.as_tensor(factor, dtype=torch.float32).reciprocal()
        self.param_groups = [part for group in groups for part in self._by_updates(group)]
        try:
            super().step()
        finally:
            self.param_groups = groups
        return loss

    def _by_updates(self, group: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Divide a group into groups of parameters with the same number of updates, each with its epsilon.

        Parameters without a gradient are left out. A parameter has fewer updates than others if it had no gradient in an
        update, for example because of --encoder-layerdrop.
        """
        parts: dict[int, list[Tensor]] = {}
        for parameter in group["params"]:
            if parameter.grad is not None:
                if parameter not in self._updates:
                    self._updates[parameter] = int(self.state[parameter].get("step", 0))
                self._updates[parameter] += 1
                parts.setdefault(self._updates[parameter], []).append(parameter)
        for updates, parameters in parts.items():
            yield {**group, "params": parameters, "eps": group["eps"] / math.sqrt(1 - group["betas"][1] ** updates)}


def _betas(text: str) -> tuple[float, float]:
    """Return the two numbers of --adam-betas."""
    try:
        first, second = (float(beta) for beta in ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError):
        first = second = -1.0
    if not (0 <= first < 1 and 0 <= second < 1):
        raise Refusal(f"--adam-betas {text}: expected two numbers from 0 to less than 1, such as '(0.9, 0.98)'.")
    return first, second
