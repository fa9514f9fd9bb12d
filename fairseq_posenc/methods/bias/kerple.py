"""Learned penalties that grow with the logarithm or a power of the distance."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option, shared_by_layers
from ...ops.distances import by_distance

_LEAST = 0.01


@dataclass(frozen=True)
class _Options(MethodOptions):
    sides: Literal["same", "apart"] = option(
        "same", "one penalty for both directions, or one per direction (not in a causal decoder)"
    )
    share: Literal["layers", "none", "heads", "all"] = option(
        "layers", "sharing of the scalars: across heads, across layers, both (all), or none"
    )


class _Kerple(PositionMethod):
    """Base class of the logarithmic form and the power form. A penalty has two positive learned scalars per head.

    With sides=apart, each direction has separate scalars.
    """

    Options = _Options

    def __init__(self, options: _Options, dims: Dims):
        super().__init__(options, dims)
        if options.sides == "apart" and dims.causal:
            raise PositionError(f"{self.card.name}: sides=apart is not supported in the decoder (causal). Remove sides=apart.")
        sides = 2 if options.sides == "apart" else 1
        self.per_layer = not shared_by_layers(options.share)
        self.power = self.parameter_table(sides, share=options.share)
        self.rate = self.parameter_table(sides, share=options.share)
        with torch.no_grad():  # p is then uniform in (0.01, 1.99) and a in (0.01, 1). The authors' ranges are (0, 2) and (0, 1)
            self.power.copy_(self.raw_power(_LEAST + 1.98 * torch.rand_like(self.power)))
            self.rate.copy_(_softplus_inverse(0.99 * torch.rand_like(self.rate)))

    def raw_power(self, power: Tensor) -> Tensor:
        """Return the raw value of p, which the parameter self.power contains. The method `scalars` computes p from this value.

        The argument `power` is p.
        """
        return _softplus_inverse(power - _LEAST)

    def scalars(self, power: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the scalars of all heads from their raw values. Return -p and a. For the power form, return p and -a."""
        raise NotImplementedError

    def of_distance(self, distance: Tensor, power: Tensor, rate: Tensor) -> Tensor:
        """Return the bias at each distance, which is at most 0. `distance` is at least 0. See `scalars` for the scalars."""
        raise NotImplementedError

    def bias(self, ctx: AttentionContext) -> Tensor:
        power, rate = self.scalars(*(self.of_layer(x, ctx, float32=True) for x in (self.power, self.rate)))  # [H or 1, sides]

        def values(delta: Tensor) -> Tensor:
            # layers can have different positions in decoding, where a layer computes its bias for several steps
            distance = ctx.once((self, ctx.queries, ctx.keys), lambda: delta.abs().to(power.dtype))
            shape = (-1, *[1] * delta.dim())
            sides = [self.of_distance(distance, p.view(shape), a.view(shape)) for p, a in zip(power.unbind(-1), rate.unbind(-1))]
            return sides[0] if len(sides) == 1 else torch.where(delta <= 0, sides[0], sides[1])

        return by_distance(ctx.queries, ctx.keys, values)


class KerpleLog(_Kerple):
    r"""Subtract a penalty that grows with the logarithm of the distance. Each head learns a factor of the penalty, and a factor
    of the distance.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} - p \ln(1 + a |s-t|)$, with $p$ and $a$ learned. Chi et al. (2022), the
        logarithmic kernel.
    Shapes: bias -> [1, H, T, S].
    Source: Chi, Fan, Ramadge and Rudnicky (2022). Code: chijames/KERPLE.
    Deviations:
        * A softplus keeps p and a above 0.01. The authors' code clamps p and a.
        * Equation 1 of the paper also divides the penalty by the root of the width of a head. The authors' code does not.
        * Encoder and cross-attention are extensions of this project. They distinguish left from right only with sides=apart.
    Cost: 2 h parameters per stack, or 4 h with sides=apart. Each forward pass computes T + S - 1 values per head, one
        per distance.
    Raises: PositionError for sides=apart in a causal decoder.
    """

    card = MethodCard(
        name="kerple_log",
        title="KERPLE, logarithmic",
        citations=("chi-etal-2022-kerple",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        extended_sites=("encoder", "cross"),
        parameters="2 * tables * (2 if sides == 'apart' else 1)",
        directional=False,
        default_specs={"encoder": "kerple_log:sides=apart"},
    )

    def scalars(self, power: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        return -_LEAST - F.softplus(power), _LEAST + F.softplus(rate)

    def of_distance(self, distance: Tensor, power: Tensor, rate: Tensor) -> Tensor:
        return power * torch.log1p(rate * distance)


class KerplePower(_Kerple):
    r"""Subtract a penalty that grows with a power of the distance, with learned exponent and learned size per head.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} - a |s-t|^p$, $0 < p \le 2$, with $p$ and $a$ learned. Chi et al. (2022), the
        power kernel.
    Shapes: bias -> [1, H, T, S].
    Source: Chi, Fan, Ramadge and Rudnicky (2022). Code: chijames/KERPLE.
    Deviations:
        * A softplus keeps a above 0.01, and a sigmoid keeps p between 0.01 and 2. The authors' code clamps a and p.
        * Equation 1 of the paper also divides the penalty by the root of the width of a head. The authors' code does not.
        * Encoder and cross-attention are extensions of this project. They distinguish left from right only with sides=apart.
    Cost: as for kerple_log.
    Raises: PositionError for sides=apart in a causal decoder.
    """

    card = replace(
        KerpleLog.card,
        name="kerple_power",
        title="KERPLE, power",
        default_specs={"encoder": "kerple_power:sides=apart"},
    )

    def raw_power(self, power: Tensor) -> Tensor:
        return torch.logit((power - _LEAST) / (2 - _LEAST))

    def scalars(self, power: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        return _LEAST + (2 - _LEAST) * power.sigmoid(), -_LEAST - F.softplus(rate)

    def of_distance(self, distance: Tensor, power: Tensor, rate: Tensor) -> Tensor:
        # 0^p is 0, and ln 0 would make the gradient NaN
        raised = torch.where(distance > 0, torch.exp(power * distance.clamp(min=1e-30).log()), 0.0)
        return rate * raised


def _softplus_inverse(x: Tensor) -> Tensor:
    return x + torch.log(-torch.expm1(-x.clamp(min=math.exp(-12))))
