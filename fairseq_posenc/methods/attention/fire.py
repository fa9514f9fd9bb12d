"""A small network over the distance in proportion to the position of the query."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, option
from ...ops.distances import by_distance, distances
from ...ops.precision import widen

_EPSILON = 1e-6


class Fire(PositionMethod):
    """A network maps the logarithm of the distance, in proportion to that of the query's position, to a bias for every head.

    Equation: b_ts = MLP(psi(|s-t|) / psi(max(t, T))), psi(x) = ln(|c x| + 1), T = |m L_0|; Li et al. (2024).
    Shapes: bias -> [B or 1, H, T, S].
    Source: Li et al. (2024); public copies of the appendix' code.
    Deviations: layers share the network, which is unverified; 1e-6 is added to the denominator, as in some copies of the code;
        encoder and cross-attention are ours, the latter with |s-t|.
    Cost: w (h + 2) + h + 2 parameters a stack; the network runs on T + S - 1 values while no query stands beyond T, else on T S.
    """

    @dataclass(frozen=True)
    class Options(Options):
        hidden: int = option(32, "width w of the network", minimum=8)
        threshold: float = option(512.0, "position L_0 below which queries are treated alike", minimum=1.0)

    card = MethodCard(
        name="fire",
        title="FIRE",
        citation="""@inproceedings{li-etal-2024-functional,
  title = {Functional Interpolation for Relative Positions Improves Long Context Transformers},
  author = {Li, Shanda and You, Chong and Guruganesh, Guru and Ainslie, Joshua and Ontanon, Santiago and Zaheer, Manzil and
            Sanghai, Sumit and Yang, Yiming and Kumar, Sanjiv and Bhojanapalli, Srinadh},
  booktitle = {ICLR}, year = {2024}}""",
        equation="b_ts = MLP(psi(|s-t|) / psi(max(t, T))), psi(x) = ln(|c x| + 1)",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("decoder",),
        our_sites=("encoder", "cross"),
        parameters="w (h + 2) + h + 2",
        count=lambda options, dims, site: options.hidden * (dims.num_heads + 2) + dims.num_heads + 2,
        deviations=(
            "blind to direction outside of the causal decoder",
            "relative below the threshold only; beyond it the position of the query counts",
            "layers share the network, which is unverified",
            "encoder and cross-attention are our extension",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.mlp = nn.Sequential(nn.Linear(1, options.hidden), nn.ReLU(), nn.Linear(options.hidden, dims.num_heads))
        self.slope = nn.Parameter(torch.tensor(0.1))
        self.multiplier = nn.Parameter(torch.tensor(1.0))

    def bias(self, ctx: AttentionContext) -> Tensor:
        threshold = (widen(self.multiplier) * self.options.threshold).abs()
        if ctx.queries.start is not None and ctx.queries.last <= threshold:
            return by_distance(ctx.queries, ctx.keys, lambda delta: self._network(delta, threshold))
        limits = torch.maximum(ctx.queries.ids.to(threshold.dtype), threshold).unsqueeze(-1)  # [B or 1, T, 1]
        return self._network(distances(ctx.queries, ctx.keys), limits).transpose(0, 1)  # [H, B, T, S] -> [B, H, T, S]

    def _network(self, delta: Tensor, limits: Tensor) -> Tensor:
        """[...] -> [H, ...]."""
        share = self._psi(delta.to(limits.dtype)) / (self._psi(limits) + _EPSILON)
        first, _, last = self.mlp
        hidden = torch.relu(share.unsqueeze(-1) * widen(first.weight[:, 0]) + widen(first.bias))
        return (hidden @ widen(last.weight).mT + widen(last.bias)).movedim(-1, 0)

    def _psi(self, x: Tensor) -> Tensor:
        return torch.log1p((widen(self.slope) * x).abs())
