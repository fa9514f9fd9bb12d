"""Dropout modules for --fast-dropout."""

from __future__ import annotations

from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from ....ops import devices
from ....ops.dropout import fast_dropout


class FastDropout(FairseqDropout):
    """Compute dropout on a CPU with `fast_dropout`. On other devices, compute fairseq's dropout."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        active = self.p > 0 and (self.training or self.apply_during_inference)
        return fast_dropout(x, self.p) if active and devices.on_cpu(x) else super().forward(x, inplace)


def replace_dropout(model: nn.Module) -> None:
    """Replace all dropout modules of fairseq by `FastDropout`."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is FairseqDropout:
                setattr(parent, name, FastDropout(child.p, child.module_name))
