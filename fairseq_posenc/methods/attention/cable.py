"""Penalties that the words between query and key add up to."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, option
from ...ops.precision import widen


@dataclass(frozen=True)
class _Options(Options):
    share: Literal["none", "heads", "layers", "all"] = option("none", "who has the increments in common")


class RunningSum(PositionMethod):
    """What both methods have in common: an increment of every word, and its running sum, which decoding carries on."""

    Options = _Options
    per_layer = reads_words = True

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.weight = self.parameter_table(dims.embed_dim, share=options.share)
        self.offset = self.parameter_table(share=options.share)

    def increments(self, x: Tensor, weight: Tensor, bias: Tensor, ctx: AttentionContext) -> Tensor:
        """x_t W + b: [B, T, C] -> [B, H or 1, T]."""
        return (widen(x) @ widen(self.of_layer(weight, ctx)).mT + widen(self.of_layer(bias, ctx))).transpose(-1, -2)

    def running(self, steps: Tensor, ctx: AttentionContext) -> Tensor:
        """Sums up to every key: [B, H or 1, new keys] -> [B, H or 1, S]; padding adds nothing."""
        if ctx.key_padding is not None:
            steps = steps.masked_fill(ctx.key_padding.unsqueeze(1)[..., -steps.size(-1) :], 0.0)
        if ctx.state is None:
            return steps.cumsum(-1)
        known = ctx.state.get("sum")
        sums = steps.cumsum(-1)
        if known is not None:  # rows first: they follow the beams
            sums = torch.cat([known, known[..., -1:] + sums], -1)
        return ctx.state.keep("sum", sums)

    @staticmethod
    def differences(sums: Tensor, ctx: AttentionContext) -> Tensor:
        """Sum at the key minus sum at the query: [B, H or 1, S] -> [B, H or 1, T, S]."""
        if ctx.queries.start is not None and ctx.keys.start is not None:
            first = ctx.queries.start - ctx.keys.start
            own = sums[..., first : first + ctx.queries.ids.size(1)]
        else:  # the last key of the same position: padding on the left repeats the first
            same = ctx.queries.ids.unsqueeze(-1) == ctx.keys.ids.unsqueeze(-2)  # [B or 1, T, S]
            columns = (same * torch.arange(1, same.size(-1) + 1, device=same.device)).argmax(-1)
            own = sums.gather(-1, columns.unsqueeze(1).expand(sums.size(0), sums.size(1), -1))
        return sums.unsqueeze(-2) - own.unsqueeze(-1)


class Cable(RunningSum):
    """Every word pushes earlier words away, by an amount that it chooses.

    Equation: A_ts = q_t . k_s / sqrt(d_h) - sum_(j=s+1..t) softplus(w . x_j + b); Veisi et al. (2025).
    Shapes: bias -> [B, H, T, S].
    Source: Veisi, Amirzadeh and Mansourian (2025); axiomlab/Cable.
    Deviations: the product keeps 1/sqrt(d_h), which the authors' code leaves out in effect; encoder: minus the sum over the words
        between, whichever comes first, which is unverified.
    Cost: L (d h + h) parameters a stack; running sums [B, H, S].
    """

    card = MethodCard(
        name="cable",
        title="CABLE, context-aware biases",
        citation="""@article{veisi-etal-2025-context,
  title = {Context-aware Biases for Length Extrapolation},
  author = {Veisi, Ali and Amirzadeh, Hamidreza and Mansourian, Amir},
  journal = {arXiv:2503.08067}, year = {2025}}""",
        equation="A_ts = q_t . k_s / sqrt(d_h) - sum_(j=s+1..t) softplus(w . x_j + b)",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("decoder",),
        our_sites=("encoder",),
        parameters="L (d h + h)",
        count=lambda options, dims, site: PositionMethod.table_count(options.share, dims, dims.embed_dim + 1),
        deviations=(
            "the product keeps 1/sqrt(d_h), which the authors' code leaves out in effect",
            "the encoder's symmetric form is unverified and our extension",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        nn.init.normal_(self.weight, std=dims.embed_dim**-0.5)

    def bias(self, ctx: AttentionContext) -> Tensor:
        sums = self.running(-F.softplus(self.increments(ctx.inputs[1], self.weight, self.offset, ctx)), ctx)
        fall = -self.differences(sums, ctx)
        return -fall.abs() if ctx.site == "encoder" else fall
