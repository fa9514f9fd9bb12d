"""Adam with the updates of fairseq's Adam, computed by the fused kernel of PyTorch."""

import ast
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
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

    def __init__(self, cfg: FusedAdamConfig, params: Any):
        super().__init__(cfg)
        self._optimizer = FusedAdam(params, **self.optimizer_config)
        self._factor: float | Tensor = 1.0  # the gradients are multiplied by it in `step`

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """Return the options of `FusedAdam`. When fairseq resumes training, they replace the options in the checkpoint."""
        lr = self.cfg.lr
        return {
            "lr": lr[0] if isinstance(lr, Collection) else lr,
            "betas": _betas(str(self.cfg.adam_betas)),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    def multiply_grads(self, c: float | Tensor) -> None:
        """Multiply all gradients by `c`. The kernel of `step` does this, so that no other kernel reads all gradients."""
        self._factor = self._factor * c

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Scale all gradients so that their norm is at most `max_norm`, as fairseq does. 0: no limit. Return the norm before.

        Like `multiply_grads`, this function leaves the multiplication to `step`.
        """
        grads = [parameter.grad for parameter in self.params if parameter.grad is not None]
        if not grads or aggregate_norm_fn is not None or any(hasattr(parameter, "expert") for parameter in self.params):
            self._multiply_now()
            return super().clip_grad_norm(max_norm, aggregate_norm_fn)
        norm = torch.stack(torch._foreach_norm(grads)).norm() * self._factor
        if max_norm > 0:
            self._factor = self._factor * (max_norm / (norm + 1e-6)).clamp_(max=1)
        return norm

    def _multiply_now(self) -> None:
        factor, self._factor = self._factor, 1.0
        super().multiply_grads(factor)

    def step(self, closure: Callable[[], Any] | None = None, scale: float = 1.0, groups: Any = None) -> None:
        """Update the parameters. `scale` is a number by which the gradients are divided."""
        factor, self._factor = self._factor, 1.0
        # the kernel divides the gradients by grad_scale, as for torch.amp.GradScaler
        self._optimizer.grad_scale = torch.as_tensor(scale / factor, dtype=torch.float32)
        super().step(closure, groups=groups)

    def zero_grad(self) -> None:
        self._factor = 1.0
        super().zero_grad()


class FusedAdam(torch.optim.AdamW):
    r"""Compute the updates of fairseq's Adam up to rounding, with one kernel for all parameters or one for each parameter.

    Equation: $\theta \leftarrow \theta - \eta \lambda \theta - \eta \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t} \cdot
        \frac{m}{\sqrt{v} + \epsilon}$ with the number t of the update. PyTorch's Adam adds epsilon to $\sqrt{v / (1 -
        \beta_2^t)}$. This class therefore divides epsilon by $\sqrt{1 - \beta_2^t}$ in each update.
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float, weight_decay: float):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        given = [group["eps"] for group in self.param_groups]
        for group in self.param_groups:
            group["updates"] = group.get("updates", 0) + 1
            group["eps"] /= math.sqrt(1 - group["betas"][1] ** group["updates"])
        try:
            return super().step(closure)
        finally:
            for group, eps in zip(self.param_groups, given):
                group["eps"] = eps


def _betas(text: str) -> tuple[float, float]:
    """Return the two numbers of --adam-betas."""
    try:
        first, second = (float(beta) for beta in ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError):
        first = second = -1.0
    if not (0 <= first < 1 and 0 <= second < 1):
        raise Refusal(f"--adam-betas {text}: expected two numbers from 0 to less than 1, such as '(0.9, 0.98)'.")
    return first, second
