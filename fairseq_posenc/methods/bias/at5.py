"""T5's bias with learned bucket borders (a reconstruction)."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.distances import by_distance
from ...ops.precision import at_least_float32


class AdaptiveT5(PositionMethod):
    r"""Add a T5 bias with learned bucket borders per direction (a reconstruction from the abstract of the paper).

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} + (1 - f) w[\lfloor \beta \rfloor] + f w[\lfloor \beta \rfloor + 1]$, $f =
        \beta - \lfloor \beta \rfloor$, for the distance $a = |s-t|$. $\beta(a) = a$ below $\alpha$, else $\alpha + (B - \alpha)
        \ln(a/\alpha) / \ln(\gamma/\alpha)$, at most $B - 1$. $\alpha = 1 + (B - 2) \operatorname{sigmoid}(x)$, $\gamma = \alpha +
        1 + (D - B/2 - 1) \exp(y)$, with $B$ the option `buckets` and $D$ the option `max_distance`. $x$, $y$ and the table $w$
        are learned separately for keys on the left and on the right of the query. $x$ and $y$ start at 0. Reconstructed after
        Wu et al. (2021).
    Shapes: bias -> [1, H, T, S].
    Source: Wu, Zhang, Mao and Chen (2021), abstract. The equations of the paper could not be read.
    Deviations:
        * The form is a reconstruction by this project from the abstract. Published scores are not evidence for this form.
        * The authors' code has another form, which is the method `soft_t5`.
        * Cross-attention is an extension of this project.
        * $y$ is on a logarithmic scale. In earlier versions of this project, $\gamma$ was $\alpha + 1 +
          \operatorname{softplus}(y)$. The parameter $y$ was then on the scale of positions.
        * Checkpoints of earlier versions can be loaded, with unchanged scores. To resume training, add --reset-optimizer.
    Cost: sides * (B h + 2 g) parameters per stack. sides is 1 in a causal decoder, else 2. g is h with borders=heads, else 1.
        Each forward pass computes T + S - 1 values per head, one per distance.
    Raises: PositionError if max_distance does not exceed buckets/2 + 1. PositionError for an odd number of buckets with
        interpolate=false. PositionError for borders=heads with interpolate=false or with share=heads.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        buckets: int = option(16, "number B of buckets per direction", minimum=3, maximum=65536)
        max_distance: float = option(128.0, "initial largest distance gamma, in positions", minimum=2.0, maximum=65536.0)
        borders: Literal["shared", "heads"] = option("shared", "one alpha and gamma for all heads, or one per head")
        interpolate: bool = option(True, "interpolation between neighbouring buckets (false: T5's bias with fixed borders)")
        share: Literal["layers", "none", "heads"] = option("layers", "sharing of the table: across heads, across layers, or none")

        def __post_init__(self) -> None:
            if self.max_distance <= self.buckets / 2 + 1:
                raise PositionError(
                    f"max_distance={self.max_distance} is too small. Expected more than buckets/2 + 1 = {self.buckets / 2 + 1}."
                )
            if not self.interpolate and self.buckets % 2:
                raise PositionError(f"buckets={self.buckets} is odd. With interpolate=false, expected an even number.")
            if not self.interpolate and self.borders != type(self).borders:
                raise PositionError(
                    "borders has no effect with interpolate=false, because the borders are then fixed. Expected interpolate=true "
                    "or borders=shared. Remove borders."
                )
            if self.share == "heads" and self.borders == "heads":
                raise PositionError("borders=heads cannot be combined with share=heads. Remove one of the two.")

    card = MethodCard(
        name="at5",
        title="Adaptive T5 bias (reconstruction)",
        citations=("wu-etal-2021-scalar",),
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="reconstruction",
        sites=("encoder", "decoder"),
        extended_sites=("cross",),
        parameters="(1 if causal else 2)"
        " * (tables * buckets + interpolate * 2 * (tables if borders == 'heads' else 1 if shared_by_layers else L))",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.sides = 1 if dims.causal else 2
        self.per_layer = options.share != "layers"
        self.weight = self.parameter_table(self.sides, options.buckets, share=options.share)
        nn.init.normal_(self.weight, std=dims.embed_dim**-0.5)
        # with the initial value 0 of both parameters, alpha is B/2 and gamma is max_distance
        self.exact = self.parameter_table(self.sides, share=_border_share(options)).requires_grad_(options.interpolate)
        self.largest = self.parameter_table(self.sides, 1, share=_border_share(options)).requires_grad_(options.interpolate)
        self.initial_range = options.max_distance - options.buckets / 2 - 1

    def borders(self, ctx: AttentionContext) -> tuple[Tensor, Tensor]:
        """Return alpha and gamma, [H or 1, sides] each."""
        alpha = 1 + (self.options.buckets - 2) * self.of_layer(self.exact, ctx, float32=True).sigmoid()
        growth = self.of_layer(self.largest, ctx, float32=True).squeeze(-1).exp()
        return alpha, alpha + 1 + self.initial_range * growth

    def bias(self, ctx: AttentionContext) -> Tensor:
        weight = self.of_layer(self.weight, ctx, float32=True)  # [H or 1, sides, B]
        alphas, gammas = self.borders(ctx)

        def values(delta: Tensor) -> Tensor:
            shape = (-1,) + (1,) * delta.dim()
            distances = [(-delta).clamp(min=0), delta.clamp(min=0)][: weight.size(1)]
            biases = [
                self._side(distance, weight[:, side], alphas[:, side].view(shape), gammas[:, side].view(shape))
                for side, distance in enumerate(distances)
            ]
            return biases[0] if len(biases) == 1 else torch.where(delta > 0, biases[1], biases[0])

        return by_distance(ctx.queries, ctx.keys, values)

    def _side(self, distance: Tensor, weight: Tensor, alpha: Tensor, gamma: Tensor) -> Tensor:
        """Return the bias [H, ...] of one direction.

        `distance` [...] contains the distances. `weight` [H or 1, B] contains the bias of every bucket. `alpha` and `gamma`
        [H or 1, ...] come from `borders`.
        """
        buckets = self.options.buckets
        distance = distance.to(alpha.dtype).unsqueeze(0)
        ratio = torch.log(torch.maximum(distance, alpha) / alpha) / torch.log(gamma / alpha)
        beta = torch.where(distance < alpha, distance, alpha + (buckets - alpha) * ratio).clamp(max=buckets - 1)
        low = beta.detach().floor().long()
        heads = max(weight.size(0), low.size(0))
        index = low.expand(heads, *low.shape[1:]).flatten(1)
        rows = weight.expand(heads, -1)
        below = rows.gather(1, index).view(heads, *low.shape[1:])
        if not self.options.interpolate:
            return below
        above = rows.gather(1, (index + 1).clamp(max=buckets - 1)).view_as(below)
        return torch.lerp(below, above, (beta - low).expand_as(below))

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """Load a state dict of this version or of an earlier version.

        In the earlier version, `largest` has the shape [L, H, sides], and gamma is alpha + 1 + softplus(largest).
        """
        name = f"{prefix}largest"
        given = state_dict.get(name)
        if given is not None and given.dim() == 3:
            growth = F.softplus(at_least_float32(given)) / self.initial_range
            state_dict[name] = growth.log().to(given.dtype).unsqueeze(-1)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _border_share(options) -> str:
    """Return the value of `share` for alpha and gamma.

    With borders=heads, return the option `share` unchanged. Otherwise, return the value with which all heads share
    alpha and gamma.
    """
    shared = {"none": "heads", "heads": "heads", "layers": "all", "all": "all"}
    return options.share if options.borders == "heads" else shared[options.share]
