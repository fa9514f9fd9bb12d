"""Learned penalties that grow with the logarithm or a power of the distance."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ...contract import AttentionContext, MethodCard, Options, PositionError, PositionMethod, across_layers, option
from ...ops.distances import by_distance
from ...ops.precision import widen

_CITATION = """@inproceedings{chi-etal-2022-kerple,
  title = {KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation},
  author = {Chi, Ta-Chung and Fan, Ting-Han and Ramadge, Peter J. and Rudnicky, Alexander I.},
  booktitle = {NeurIPS}, year = {2022}}"""
_DEVIATIONS = (
    "blind to direction outside of the causal decoder unless sides=apart",
    "both scalars are kept above 0.01 by a softplus, where the code clamps them",
    "encoder and cross-attention are our extension",
)
_LEAST = 0.01


@dataclass(frozen=True)
class _Options(Options):
    sides: Literal["same", "apart"] = option("same", "one penalty for both directions, or one for each; not in the decoder")
    share: Literal["layers", "none", "heads", "all"] = option("layers", "who has the scalars in common")


class _Kerple(PositionMethod):
    """What both forms have in common: two positive scalars of each head and side."""

    Options = _Options

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        if options.sides == "apart" and site == "decoder":
            raise PositionError(f"{self.card.name}: the causal decoder has one side only; leave sides=apart out")
        self.per_layer = not across_layers(options.share)
        self.power = self.parameter_table(_sides(options), share=options.share)
        self.rate = self.parameter_table(_sides(options), share=options.share)
        with torch.no_grad():  # so that p is uniform in (0, 2) and a in (0, 1), as the authors' are
            self.power.copy_(self.raw_power(_LEAST + 1.98 * torch.rand_like(self.power)))
            self.rate.copy_(_softplus_inverse(0.99 * torch.rand_like(self.rate)))

    def raw_power(self, power: Tensor) -> Tensor:
        """The parameter that stands for a power p."""
        return _softplus_inverse(power - _LEAST)

    def fall(self, away: Tensor, power: Tensor, rate: Tensor) -> Tensor:
        """The penalty at distances away >= 0."""
        raise NotImplementedError

    def bias(self, ctx: AttentionContext) -> Tensor:
        power, rate = (widen(self.of_layer(x, ctx)) for x in (self.power, self.rate))  # [H or 1, sides] each

        def values(delta: Tensor) -> Tensor:
            away = delta.abs().to(power.dtype)
            shape = (-1, *[1] * delta.dim())
            falls = [self.fall(away, p.view(shape), a.view(shape)) for p, a in zip(power.unbind(-1), rate.unbind(-1))]
            return -falls[0] if len(falls) == 1 else -torch.where(delta <= 0, *falls)

        return by_distance(ctx.queries, ctx.keys, values)


class KerpleLog(_Kerple):
    """A penalty that grows with the logarithm of the distance, its size and its scale learned for every head.

    Equation: A_ts = q_t . k_s / sqrt(d_h) - p ln(1 + a |s-t|); Chi et al. (2022), the logarithmic kernel.
    Shapes: bias -> [1, H, T, S].
    Source: Chi, Fan, Ramadge and Rudnicky (2022); chijames/KERPLE.
    Deviations: p and a stay above 0.01 by a softplus, not by clamping; encoder and cross-attention are ours.
    Cost: 2 h parameters a stack (4 h with sides=apart); one vector of T + S - 1 values a forward.
    """

    card = MethodCard(
        name="kerple_log",
        title="KERPLE, logarithmic",
        citation=_CITATION,
        equation="A_ts = q_t . k_s / sqrt(d_h) - p ln(1 + a |s-t|)",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("decoder",),
        our_sites=("encoder", "cross"),
        parameters="2 h",
        count=lambda options, dims, site: PositionMethod.table_count(options.share, dims, 2 * _sides(options)),
        deviations=_DEVIATIONS,
        stacks={"encoder": "kerple_log:sides=apart"},
    )

    def fall(self, away: Tensor, power: Tensor, rate: Tensor) -> Tensor:
        return (_LEAST + F.softplus(power)) * torch.log1p((_LEAST + F.softplus(rate)) * away)


class KerplePower(_Kerple):
    """A penalty that grows with a power of the distance, its exponent and its size learned for every head.

    Equation: A_ts = q_t . k_s / sqrt(d_h) - a |s-t|^p, 0 < p <= 2; Chi et al. (2022), the power kernel.
    Shapes: bias -> [1, H, T, S].
    Source: Chi, Fan, Ramadge and Rudnicky (2022); chijames/KERPLE.
    Deviations: a stays above 0.01 by a softplus and p between 0.01 and 2 by a sigmoid, not by clamping; encoder and
        cross-attention are ours.
    Cost: as kerple_log.
    """

    card = MethodCard(
        name="kerple_power",
        title="KERPLE, power",
        citation=_CITATION,
        equation="A_ts = q_t . k_s / sqrt(d_h) - a |s-t|^p",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("decoder",),
        our_sites=("encoder", "cross"),
        parameters="2 h",
        count=lambda options, dims, site: PositionMethod.table_count(options.share, dims, 2 * _sides(options)),
        deviations=_DEVIATIONS,
        stacks={"encoder": "kerple_power:sides=apart"},
    )

    def raw_power(self, power: Tensor) -> Tensor:
        return torch.logit((power - _LEAST) / (2 - _LEAST))

    def fall(self, away: Tensor, power: Tensor, rate: Tensor) -> Tensor:
        exponent = _LEAST + (2 - _LEAST) * power.sigmoid()
        # 0^p is 0; its logarithm, which the gradient needs, is not to be taken
        raised = torch.where(away > 0, torch.exp(exponent * away.clamp(min=1e-30).log()), 0.0)
        return (_LEAST + F.softplus(rate)) * raised


def _sides(options: _Options) -> int:
    return 2 if options.sides == "apart" else 1


def _softplus_inverse(x: Tensor) -> Tensor:
    return x + torch.log(-torch.expm1(-x.clamp(min=math.exp(-12))))
