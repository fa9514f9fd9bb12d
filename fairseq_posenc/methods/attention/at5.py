"""T5's bias with learned bucket borders (a reconstruction)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionError, PositionMethod, option
from ...ops.distances import by_distance
from ...ops.precision import widen


class AdaptiveT5(PositionMethod):
    """T5's bias whose exact range and largest distance are learned on each side; a reconstruction from the abstract.

    Equation: A_ts = q_t . k_s / sqrt(d_h) + (1-f) w[floor beta] + f w[floor beta + 1], f = beta - floor beta,
        beta(a) = a below alpha, else alpha + (B - alpha) ln(a/alpha) / ln(gamma/alpha), at most B - 1, a = |s-t|;
        alpha, gamma and w of the side of the key. Reconstructed after Wu et al. (2021).
    Shapes: bias -> [1, H, T, S].
    Source: Wu, Zhang, Mao and Chen (2021), abstract; its equations could not be read.
    Deviations: the whole form is ours: the paper says that buckets are learned, and we could not read how.
    Cost: sides * (B h + 2 g) parameters a stack, g = 1 or h; one vector of T + S - 1 values a forward.
    """

    @dataclass(frozen=True)
    class Options(Options):
        buckets: int = option(16, "number B of buckets on each side", minimum=3)
        max_distance: float = option(128.0, "initial largest distance gamma", minimum=2.0)
        borders: Literal["shared", "heads"] = option("shared", "alpha and gamma for all heads together or for each")
        interpolate: bool = option(True, "between neighbouring buckets; false is T5 with fixed borders")
        share: Literal["layers", "none", "heads"] = option("layers", "who has the parameters in common")

        def __post_init__(self):
            if self.max_distance <= self.buckets / 2 + 1:
                raise PositionError(f"max_distance={self.max_distance} must be more than buckets/2 + 1 = {self.buckets / 2 + 1}")
            if not self.interpolate and self.buckets % 2:
                raise PositionError(f"interpolate=false needs an even number of buckets, not {self.buckets}")
            if self.share == "heads" and self.borders == "heads":
                raise PositionError("borders=heads contradicts share=heads")

    card = MethodCard(
        name="at5",
        title="Adaptive T5 bias (reconstruction)",
        citation="""@inproceedings{wu-etal-2021-scalar,
  title = {On Scalar Embedding of Relative Positions in Attention Models},
  author = {Wu, Junshuang and Zhang, Richong and Mao, Yongyi and Chen, Junfan},
  booktitle = {AAAI}, pages = {14050--14057}, year = {2021}}""",
        equation="A_ts = q_t . k_s / sqrt(d_h) + (1-f) w[floor beta] + f w[floor beta + 1], beta with learned borders",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="reconstruction",
        sites=("encoder", "decoder"),
        our_sites=("cross",),
        parameters="sides (B h + 2 g), g = 1 or h; one side in the decoder",
        count=lambda options, dims, site: (
            PositionMethod.table_count(options.share, dims, _sides(site) * options.buckets)
            + (PositionMethod.table_count(_border_share(options), dims, 2 * _sides(site)) if options.interpolate else 0)
        ),
        deviations=(
            "reconstructed: the paper's equations could not be read; do not take published scores as evidence for this form",
            "cross-attention is our extension",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.per_layer = options.share != "layers"
        self.weight = self.parameter_table(_sides(site), options.buckets, share=options.share)
        nn.init.normal_(self.weight, std=dims.embed_dim**-0.5)
        # alpha starts at B/2 and gamma at max_distance
        self.exact = self.parameter_table(_sides(site), share=_border_share(options)).requires_grad_(options.interpolate)
        self.largest = self.parameter_table(_sides(site), share=_border_share(options)).requires_grad_(options.interpolate)
        nn.init.constant_(self.largest, math.log(math.expm1(options.max_distance - options.buckets / 2 - 1)))

    def borders(self, ctx: AttentionContext):
        """alpha and gamma: [H or 1, sides] each."""
        alpha = 1 + (self.options.buckets - 2) * widen(self.of_layer(self.exact, ctx)).sigmoid()
        return alpha, alpha + 1 + F.softplus(widen(self.of_layer(self.largest, ctx)))

    def bias(self, ctx: AttentionContext) -> Tensor:
        weight = widen(self.of_layer(self.weight, ctx))  # [H or 1, sides, B]
        alphas, gammas = self.borders(ctx)

        def values(delta: Tensor) -> Tensor:
            shape = (-1,) + (1,) * delta.dim()
            sides = [(-delta).clamp(min=0), delta.clamp(min=0)][: weight.size(1)]
            found = [
                self._side(away, weight[:, side], alphas[:, side].view(shape), gammas[:, side].view(shape))
                for side, away in enumerate(sides)
            ]
            return found[0] if len(found) == 1 else torch.where(delta > 0, found[1], found[0])

        return by_distance(ctx.queries, ctx.keys, values)

    def _side(self, away: Tensor, weight: Tensor, alpha: Tensor, gamma: Tensor) -> Tensor:
        """[...] distances, [H or 1, B], [H or 1, ...] borders -> [H, ...]."""
        buckets = self.options.buckets
        away = away.to(alpha.dtype).unsqueeze(0)
        ratio = torch.log(torch.maximum(away, alpha) / alpha) / torch.log(gamma / alpha)
        beta = torch.where(away < alpha, away, alpha + (buckets - alpha) * ratio).clamp(max=buckets - 1)
        low = beta.detach().floor().long()
        heads = max(weight.size(0), low.size(0))
        index = low.expand(heads, *low.shape[1:]).flatten(1)
        rows = weight.expand(heads, -1)
        below = rows.gather(1, index).view(heads, *low.shape[1:])
        if not self.options.interpolate:
            return below
        above = rows.gather(1, (index + 1).clamp(max=buckets - 1)).view_as(below)
        return torch.lerp(below, above, (beta - low).expand_as(below))


def _sides(site: str) -> int:
    return 1 if site == "decoder" else 2


def _border_share(options) -> str:
    shared = {"none": "heads", "heads": "heads", "layers": "all", "all": "all"}
    return options.share if options.borders == "heads" else shared[options.share]
