"""ALiBi: biases that are linear in the distance. The paper has a form for decoders. The other forms are for encoders."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, HeadOptions, MethodCard, PositionError, PositionMethod, heads_of, option
from ...ops.constants import Constants
from ...ops.distances import by_distance, distances
from ...ops.precision import at_least_float32


def slopes(heads: int) -> list[float]:
    """Return the paper's slopes for h heads. If h is a power of two, head i = 1 to h has the slope 2^(-8i/h).

    Otherwise, let n be the largest power of two below h. The first n heads have the slopes of a model with n heads. The other
    h - n heads have the slopes of the heads 1, 3, 5, ... of a model with 2 n heads.
    """
    below = 2 ** (heads.bit_length() - 1)
    of_power = [2 ** (-8 * i / below) for i in range(1, below + 1)]
    return of_power + [2 ** (-8 * i / (2 * below)) for i in range(1, 2 * (heads - below), 2)]


def on_heads(values: Sequence[float], options: HeadOptions, dims: Dims, other: float = 0.0) -> list[Any]:
    """Return one value per head: the given values for heads that use the method, `other` for the other heads."""
    found: list[Any] = [other] * dims.num_heads
    for head, value in zip(heads_of(options, dims), values):
        found[head] = value
    return found


def penalty(ctx: AttentionContext, per_head: Tensor) -> Tensor:
    """Return -m_h |s - t| for every head h, query position t and key position s: [B or 1, H, T, S].

    `per_head` [H] contains the slopes m_h.
    """
    return by_distance(ctx.queries, ctx.keys, lambda delta: -torch.tensordot(per_head, delta.abs().float(), 0))


class Alibi(PositionMethod):
    r"""Subtract from the scores a penalty that grows linearly with the distance to earlier keys, with a fixed slope per head.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} - m_h (t - s)$. If $H$ is a power of two, head $h = 1$ to $H$ has the slope
        $m_h = 2^{-8h/H}$. Press et al. (2022), section 3.
    Shapes: bias -> [1, H, T, S].
    Source: Press, Smith and Lewis (2022). Code: ofirpress/attention_with_linear_biases.
    Deviations:
        * The authors' forms for encoders are separate methods: alibi_symmetric, alibi_nonsymmetric and alibi_learned.
        * Cross-attention is an extension of this project, with the term - m_h |s - ratio t|. The term is
          relative only for ratio=1.
        * With heads=, the n chosen heads have the slopes of a model with n heads. The other heads have no penalty, as in
          x-transformers.
    Cost: no parameters. Each forward pass computes T + S - 1 values per head, one per distance. With a ratio other than 1, each
        forward pass computes T S values per head, one per pair of query and key.
    Raises: PositionError for a ratio other than 1 outside cross-attention, and for a head in heads= that does not exist.
    """

    @dataclass(frozen=True)
    class Options(HeadOptions):
        ratio: float = option(1.0, "number of source tokens per target token (only in cross-attention)", minimum=0.0)

    card = MethodCard(
        name="alibi",
        title="ALiBi (causal)",
        citations=("press-etal-2022-train",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="peer",
        sites=("decoder",),
        extended_sites=("cross",),
        default_specs={"encoder": "alibi_symmetric", "decoder": "alibi"},
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if not dims.cross and options.ratio != 1.0:
            raise PositionError("alibi: ratio is supported only at site cross. Remove ratio.")
        self.slopes = Constants(on_heads(slopes(len(heads_of(options, dims))), options, dims))

    def bias(self, ctx: AttentionContext) -> Tensor:
        if self.options.ratio == 1.0:
            return penalty(ctx, self.slopes.values)
        distance = (ctx.keys.ids.unsqueeze(-2) - self.options.ratio * ctx.queries.ids.unsqueeze(-1)).abs()
        return -self.slopes.values[:, None, None] * distance.unsqueeze(1)  # [H, 1, 1] * [B, 1, T, S]

    def bias_factors(self, ctx: AttentionContext) -> tuple[Tensor, Tensor] | None:
        """Return two factors for keys up to the query: m_h [1, H, 1, 1], and s minus the last position [B or 1, 1, S, 1].

        m_h s differs from -m_h (t - s) by a number that is equal for all keys. Return None if the attention is not causal.
        """
        if not ctx.causal:
            return None
        keys = ctx.keys.ids - ctx.keys.ids[:, -1:]  # near 0 for the last keys
        return self.slopes.values[None, :, None, None], keys[:, None, :, None].float()


class AlibiSymmetric(PositionMethod):
    r"""Apply ALiBi's penalty in both directions, so that scores depend on the distance but not on the direction.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} - m_h |s - t|$ with the slopes $m_h$ of `alibi`. This is the first form for
        encoders in issue 5 of the authors' code.
    Shapes: bias -> [1, H, T, S].
    Source: ofirpress/attention_with_linear_biases, issue 5. Code: fairseq, examples/data2vec.
    Deviations:
        * The paper describes only the causal form.
        * Cross-attention is an extension of this project. There, s is the source position, and t is the target position.
    Cost: as for alibi.
    Raises: PositionError for a head in heads= that does not exist.
    """

    Options = HeadOptions

    card = replace(
        Alibi.card,
        name="alibi_symmetric",
        title="ALiBi, symmetric",
        evidence="paper",
        sites=("encoder",),
        directional=False,
    )

    def __init__(self, options: HeadOptions, dims: Dims):
        super().__init__(options, dims)
        self.slopes = Constants(on_heads(slopes(len(heads_of(options, dims))), options, dims))

    def bias(self, ctx: AttentionContext) -> Tensor:
        return penalty(ctx, self.slopes.values)


class AlibiNonsymmetric(PositionMethod):
    r"""Restrict half of the heads to keys on the left and half to keys on the right, with ALiBi's penalty.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} - m_h |s - t|$. Heads are counted from 0. Heads with $h < H/2$ attend only to
        keys with $s \le t$, and the other heads only to keys with $s \ge t$. Each half has the slopes of a model with
        $H/2$ heads. This is the second form for encoders in issue 5 of the authors' code.
    Shapes: bias -> [1, H, T, S]. mask -> bool [1, H, T, S].
    Source: ofirpress/attention_with_linear_biases, issue 5.
    Deviations:
        * The paper describes only the causal form.
    Cost: as for alibi.
    Raises: PositionError for an odd number of heads that use the method, and for a head in heads= that does not exist.
    """

    Options = HeadOptions

    card = replace(
        AlibiSymmetric.card,
        name="alibi_nonsymmetric",
        title="ALiBi, nonsymmetric",
        default_specs={"encoder": "alibi_nonsymmetric", "decoder": "alibi"},
        extended_sites=(),
        directional=True,
    )

    def __init__(self, options: HeadOptions, dims: Dims):
        super().__init__(options, dims)
        heads = heads_of(options, dims)
        if len(heads) % 2:
            raise PositionError(
                f"alibi_nonsymmetric: {len(heads)} heads are an odd number. Expected an even number of heads. "
                "Change the number of heads, or use alibi_symmetric."
            )
        self.slopes = Constants(on_heads(2 * slopes(len(heads) // 2), options, dims))
        half = len(heads) // 2
        #: side to which each head attends: -1 left, 1 right, 0 both
        self.sides = on_heads([-1] * half + [1] * half, options, dims, other=0)

    def bias(self, ctx: AttentionContext) -> Tensor:
        return penalty(ctx, self.slopes.values)

    def mask(self, ctx: AttentionContext) -> Tensor:
        delta = distances(ctx.queries, ctx.keys).unsqueeze(1)  # [B or 1, 1, T, S]
        seen = {-1: delta <= 0, 0: torch.ones_like(delta, dtype=torch.bool), 1: delta >= 0}
        return torch.cat([seen[side] for side in self.sides], 1)


class AlibiLearned(PositionMethod):
    r"""Subtract from the scores a penalty that grows linearly with the distance, with a learned slope per head and direction.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} - f(l_h) \max(t - s, 0) - f(r_h) \max(s - t, 0)$, with $l_h$ and $r_h$ learned.
        $f$ is the exponential. With `slope=sigmoid`, $f$ is the sigmoid. Issue 5 of the authors' code describes several forms
        for encoders. The third form has the sigmoid.
    Shapes: bias -> [1, H, T, S].
    Source: ofirpress/attention_with_linear_biases, issue 5.
    Deviations:
        * The authors' form is slope=sigmoid. In this form, the initial l and r are normal with mean -2 and standard
          deviation 1.
        * By default, slopes are exponentials that start at the paper's fixed slopes.
        * By default, the initial slopes for keys on the right are the fixed slopes in reversed order.
        * If the number of heads is even, the two initial slopes of each head therefore differ.
        * All layers share the slopes. The issue does not say whether layers share them.
        * Decoder and cross-attention are extensions of this project.
    Cost: 2 h parameters per stack, or h in a causal decoder.
    Raises: PositionError for a head in heads= that does not exist.
    """

    @dataclass(frozen=True)
    class Options(HeadOptions):
        slope: Literal["exponential", "sigmoid"] = option(
            "exponential", "function from parameter to slope (exponential starts at the fixed slopes, sigmoid starts at random)"
        )

    card = replace(
        AlibiNonsymmetric.card,
        name="alibi_learned",
        title="ALiBi, learned slopes",
        learnable=True,
        extended_sites=("decoder", "cross"),
        parameters="used_heads if causal else 2 * used_heads",
        default_specs={},
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        fixed = torch.tensor(slopes(len(heads_of(options, dims)))).log()
        self.left = nn.Parameter(fixed.clone())
        self.right = nn.Parameter(fixed.flip(0).clone()) if not dims.causal else None
        if options.slope == "sigmoid":
            for side in self.parameters():
                nn.init.normal_(side, mean=-2.0)

    def bias(self, ctx: AttentionContext) -> Tensor:
        left = self._slopes(self.left)
        right = left if self.right is None else self._slopes(self.right)

        def values(delta: Tensor) -> Tensor:
            distance = delta.to(left.dtype)
            return -torch.tensordot(left, (-distance).clamp(min=0), 0) - torch.tensordot(right, distance.clamp(min=0), 0)

        return by_distance(ctx.queries, ctx.keys, values)

    def _slopes(self, parameter: Tensor) -> Tensor:
        """Return one slope per head: [heads in use] -> [H]. Heads that do not use the method have slope 0."""
        parameter = at_least_float32(parameter)
        found = parameter.sigmoid() if self.options.slope == "sigmoid" else parameter.exp()
        if self.options.heads is None:
            return found
        heads = torch.tensor(self.options.heads, device=found.device)
        return found.new_zeros(self.dims.num_heads).index_copy(0, heads, found)
