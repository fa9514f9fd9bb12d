"""Linear biases on distances, in the form of the paper and in forms for encoders."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionError, PositionMethod, option
from ...ops.distances import by_distance, distances
from ...ops.precision import widen

_CITATION = """@inproceedings{press-etal-2022-train,
  title = {Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation},
  author = {Press, Ofir and Smith, Noah A. and Lewis, Mike},
  booktitle = {ICLR}, year = {2022}}"""


def slopes(heads: int) -> list[float]:
    """The paper's slopes: 2^(-8i/h) for powers of two, else those of the power below and every second of the power above."""
    below = 2 ** (heads.bit_length() - 1)
    found = [2 ** (-8 * i / below) for i in range(1, below + 1)]
    return found + [2 ** (-8 * i / (2 * below)) for i in range(1, 2 * (heads - below), 2)]


def penalty(ctx: AttentionContext, slopes: list[float]) -> Tensor:
    """- m_h |s - t|: [B or 1, H, T, S]."""
    fall = torch.tensor(slopes, device=ctx.keys.ids.device)
    return by_distance(ctx.queries, ctx.keys, lambda delta: -torch.tensordot(fall, delta.abs().float(), 0))


class Alibi(PositionMethod):
    """A penalty that grows with the distance to earlier keys, with a fixed slope for every head.

    Equation: A_ts = q_t . k_s / sqrt(d_h) - m_h (t - s), m_h = 2^(-8h/H); Press et al. (2022), section 3.
    Shapes: bias -> [1, H, T, S].
    Source: Press, Smith and Lewis (2022); ofirpress/attention_with_linear_biases.
    Deviations: cross-attention is ours, - m_h |s - ratio t|; encoders have forms of their own under other names.
    Cost: no parameters; one vector of T + S - 1 values a forward.
    """

    @dataclass(frozen=True)
    class Options(Options):
        ratio: float = option(1.0, "cross only: source tokens for a target token", minimum=0.0)

    card = MethodCard(
        name="alibi",
        title="ALiBi (causal)",
        citation=_CITATION,
        equation="A_ts = q_t . k_s / sqrt(d_h) - m_h (t - s)",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        beyond="runs",
        evidence="peer",
        sites=("decoder",),
        our_sites=("cross",),
        deviations=("cross-attention is our extension: - m_h |s - ratio t|, which is relative for ratio=1 only",),
        stacks={"encoder": "alibi_symmetric", "decoder": "alibi"},
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        if site != "cross" and options.ratio != 1.0:
            raise PositionError("alibi: ratio is an option of cross-attention only")
        self.slopes = slopes(dims.num_heads)

    def bias(self, ctx: AttentionContext) -> Tensor:
        if self.options.ratio == 1.0:
            return penalty(ctx, self.slopes)
        away = (ctx.keys.ids.unsqueeze(-2) - self.options.ratio * ctx.queries.ids.unsqueeze(-1)).abs()
        fall = torch.tensor(self.slopes, device=away.device)
        return -fall[:, None, None] * away.unsqueeze(1)  # [H, 1, 1] * [B, 1, T, S]


class AlibiSymmetric(PositionMethod):
    """ALiBi's penalty on both sides alike; it tells near from far and not left from right.

    Equation: A_ts = q_t . k_s / sqrt(d_h) - m_h |s - t|; data2vec 2.0 and the ALiBi authors' issue 5.
    Shapes: bias -> [1, H, T, S].
    Source: fairseq, examples/data2vec; x-transformers.
    Deviations: not the paper's, which is causal; in cross-attention the source position is compared with the target position.
    Cost: as alibi.
    """

    card = MethodCard(
        name="alibi_symmetric",
        title="ALiBi, symmetric",
        citation=_CITATION,
        equation="A_ts = q_t . k_s / sqrt(d_h) - m_h |s - t|",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("encoder",),
        our_sites=("cross",),
        deviations=("a form for encoders by others than the paper's authors; blind to direction",),
        stacks={"encoder": "alibi_symmetric", "decoder": "alibi"},
    )

    def bias(self, ctx: AttentionContext) -> Tensor:
        return penalty(ctx, slopes(self.dims.num_heads))


class AlibiNonsymmetric(PositionMethod):
    """ALiBi for encoders in which half of the heads look to the left and half to the right.

    Equation: A_ts = q_t . k_s / sqrt(d_h) - m_h |s - t|, heads h < H/2 for s <= t only and the others for s >= t only,
        with the slopes of H/2 heads in each half.
    Shapes: bias -> [1, H, T, S]; mask -> bool [1, H, T, S].
    Source: the ALiBi authors' issue 5 names the form; its exact equation could not be verified.
    Deviations: slopes of each half and the visible diagonal are our choice.
    Cost: as alibi.
    """

    card = MethodCard(
        name="alibi_nonsymmetric",
        title="ALiBi, nonsymmetric",
        citation=_CITATION,
        equation="A_ts = q_t . k_s / sqrt(d_h) - m_h |s - t|, half of the heads for s <= t, half for s >= t",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        beyond="runs",
        evidence="reconstruction",
        sites=("encoder",),
        deviations=("reconstructed: named in the authors' issue 5, exact form unverified",),
        stacks={"encoder": "alibi_nonsymmetric", "decoder": "alibi"},
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        if dims.num_heads % 2:
            raise PositionError(f"alibi_nonsymmetric needs an even number of heads, not {dims.num_heads}")
        self.slopes = 2 * slopes(dims.num_heads // 2)

    def bias(self, ctx: AttentionContext) -> Tensor:
        return penalty(ctx, self.slopes)

    def mask(self, ctx: AttentionContext) -> Tensor:
        delta = distances(ctx.queries, ctx.keys).unsqueeze(1)  # [B or 1, 1, T, S]
        half = self.dims.num_heads // 2
        return torch.cat([(delta <= 0).expand(-1, half, -1, -1), (delta >= 0).expand(-1, half, -1, -1)], 1)


class AlibiLearned(PositionMethod):
    """ALiBi with learned slopes, one for each head and side.

    Equation: A_ts = q_t . k_s / sqrt(d_h) - exp(l_h) max(t - s, 0) - exp(r_h) max(s - t, 0), l and r start at the fixed slopes.
    Shapes: bias -> [1, H, T, S].
    Source: the ALiBi authors' issue 5 names the form; its exact equation could not be verified.
    Deviations: slopes stay positive by the exponential, our choice; on the right they start in reversed order of the heads, so
        that no head starts blind to direction.
    Cost: 2 h parameters a stack, h in the decoder.
    """

    card = MethodCard(
        name="alibi_learned",
        title="ALiBi, learned slopes",
        citation=_CITATION,
        equation="A_ts = q_t . k_s / sqrt(d_h) - exp(l_h) max(t - s, 0) - exp(r_h) max(s - t, 0)",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="runs",
        evidence="reconstruction",
        sites=("encoder",),
        our_sites=("decoder", "cross"),
        parameters="2 h; decoder: h",
        count=lambda options, dims, site: dims.num_heads * (1 if site == "decoder" else 2),
        deviations=("reconstructed: named in the authors' issue 5, exact form unverified",),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        fixed = torch.tensor(slopes(dims.num_heads)).log()
        self.left = nn.Parameter(fixed.clone())
        self.right = nn.Parameter(fixed.flip(0).clone()) if site != "decoder" else None

    def bias(self, ctx: AttentionContext) -> Tensor:
        left = widen(self.left).exp()
        right = left if self.right is None else widen(self.right).exp()

        def values(delta: Tensor) -> Tensor:
            far = delta.to(left.dtype)
            return -torch.tensordot(left, (-far).clamp(min=0), 0) - torch.tensordot(right, far.clamp(min=0), 0)

        return by_distance(ctx.queries, ctx.keys, values)
