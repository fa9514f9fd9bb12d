"""A fixed penalty from the products of sinusoids."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, option
from ...ops.distances import by_distance


class Sandwich(PositionMethod):
    """The product of two sinusoids of positions, which falls with their distance, with a slope for every head.

    Equation: A_ts = q_t . k_s / sqrt(d_h) + (sum_j cos((s-t) / 10000^(2j/D)) - D/2) / (8 i/h), j = 1 .. D/2, head i = 1 .. h;
        Chi et al. (2023).
    Shapes: bias -> [1, H, T, S].
    Source: Chi, Fan, Rudnicky and Ramadge (2023); NVIDIA/NeMo.
    Deviations: the default D = 128 is unverified; encoder and cross-attention are ours.
    Cost: no parameters; one vector of T + S - 1 sums a forward.
    """

    @dataclass(frozen=True)
    class Options(Options):
        width: int = option(128, "width D of the sinusoids", minimum=2)

    card = MethodCard(
        name="sandwich",
        title="Sandwich",
        citation="""@inproceedings{chi-etal-2023-dissecting,
  title = {Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis},
  author = {Chi, Ta-Chung and Fan, Ting-Han and Rudnicky, Alexander and Ramadge, Peter},
  booktitle = {ACL}, year = {2023}}""",
        equation="A_ts = q_t . k_s / sqrt(d_h) + (sum_j cos((s-t) / 10000^(2j/D)) - D/2) / (8 i/h)",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("decoder",),
        our_sites=("encoder", "cross"),
        deviations=(
            "blind to direction outside of the causal decoder",
            "the width of 128 is unverified; NeMo has the width of a head",
            "encoder and cross-attention are our extension",
        ),
    )

    def bias(self, ctx: AttentionContext) -> Tensor:
        half, heads, device = self.options.width // 2, self.dims.num_heads, ctx.keys.ids.device
        steps = torch.arange(1, half + 1, dtype=torch.float64, device=device)
        waves = torch.exp(-2 * math.log(10000.0) / self.options.width * steps)
        slopes = torch.arange(1, heads + 1, dtype=torch.float64, device=device) * (8 / heads)

        def values(delta: Tensor) -> Tensor:
            fall = (delta.double().unsqueeze(-1) * waves).cos().sum(-1) - half
            return torch.tensordot(1 / slopes, fall, 0).float()

        return by_distance(ctx.queries, ctx.keys, values)
