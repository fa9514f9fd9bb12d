"""Scores that are learned for each pair of positions, or computed only from the query, instead of products with keys."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option, shared_by_layers
from ...ops.distances import require_integer
from ...ops.pairs import pairs, rows
from ...ops.precision import at_least_float32
from ...ops.relative import spread

_MIX = (
    "synthetic scores only (none), plus the product of queries and keys (plus), or weighted against it by sigmoid(alpha) "
    "(plus_alpha)"
)
_SHARE = "sharing of the table: across heads, across layers, both (all), or none"


class _Synthesizer(PositionMethod):
    """Implement the mixture of synthesizer scores with the product of queries and keys, for the three synthesizers."""

    def __init__(self, options: Any, dims: Dims, share: str):
        super().__init__(options, dims)
        mixed = options.mix == "plus_alpha"
        self.alpha = self.parameter_table(share="all" if shared_by_layers(share) else "heads") if mixed else None
        if options.mix == "none":
            self.projections = self.alone

    #: projections that are needed if there is no mixture
    alone = frozenset({"value"})

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - (set() if self.options.mix == "plus_alpha" else {"rescale"})

    def scale(self, ctx: AttentionContext) -> float:
        return 0.0 if self.options.mix == "none" else self.dims.head_dim**-0.5

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        return scores * (1 - self._balance(ctx))

    def _balance(self, ctx: AttentionContext) -> float | Tensor:
        return 1.0 if self.alpha is None else self.of_layer(self.alpha, ctx, float32=True).sigmoid()


class SynthesizerRandom(_Synthesizer):
    r"""Use a learned score for every head, query position and key position, independent of the words.

    Equation: $A_{ts} = R[t,s]$, called random in Tay et al. (2021). With `mix=plus`, $A_{ts} = q_t \cdot k_s / \sqrt{d_h} +
        R[t,s]$, and with `mix=plus_alpha`, $A_{ts} = (1 - \operatorname{sigmoid}(a)) q_t \cdot k_s / \sqrt{d_h} +
        \operatorname{sigmoid}(a) R[t,s]$.
    Shapes: bias -> [1, H, T, S]. rescale [B, H, T, S] -> same.
    Source: Tay et al. (2021). Code: mesh-tensorflow.
    Deviations:
        * In a mixture, $q_t \cdot k_s$ is divided by $\sqrt{d_h}$. mesh-tensorflow scales the initial values of the query
          projection instead.
        * The table has n rows and n columns, where n is the maximum length. In mixtures, the table of mesh-tensorflow has 512
          rows and 512 columns.
        * With mix=plus_alpha, the heads of a layer share $a$, as in mesh-tensorflow. According to a public description, each head
          of the paper has its own weights.
        * Cross-attention has ordinary scores, because mesh-tensorflow defines the method for self-attention only.
    Cost: L h n^2 parameters per stack. mix=none has no projections of queries and keys, which saves 2 d^2 + 2 d parameters per
        layer.
    Raises: PositionError for a sentence of more than n positions, and for positions that are not integers.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        mix: Literal["none", "plus", "plus_alpha"] = option("none", _MIX)
        share: Literal["none", "heads", "layers", "all"] = option("none", _SHARE)

    card = MethodCard(
        name="synthesizer_random",
        title="Synthesizer, random",
        citations=("tay-etal-2021-synthesizer",),
        survey="not in its Table 1",
        reference="absolute",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="error",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="tables * n**2 + (mix == 'plus_alpha') * (1 if shared_by_layers else L)",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims, options.share)
        self.per_layer = not shared_by_layers(options.share)
        self.table = self.parameter_table(dims.max_positions, dims.max_positions, share=options.share)
        nn.init.normal_(self.table, std=0.02)

    def bias(self, ctx: AttentionContext) -> Tensor:
        return at_least_float32(pairs(self.of_layer(self.table, ctx), ctx.queries, ctx.keys)) * self._balance(ctx)


class SynthesizerFactorised(_Synthesizer):
    r"""Use a learned score for every head, query position and key position. The scores are the product of two factors of low
    rank.

    Equation: $A_{ts} = R_1[t] \cdot R_2[s]$, called factorised random in Tay et al. (2021). Mixtures are as in
        `synthesizer_random`.
    Shapes: bias -> [1, H, T, S]. rescale [B, H, T, S] -> same.
    Source: Tay et al. (2021). Code: mesh-tensorflow.
    Deviations:
        * The default rank is 8, as in the paper. mesh-tensorflow has rank 16, and draws both factors from the standard normal
          distribution. Here, initial scores are close to 0.
        * In a mixture, $q_t \cdot k_s$ is divided by $\sqrt{d_h}$.
        * mesh-tensorflow mixes $q_t \cdot k_s$ only with full tables, not with factors.
        * Cross-attention has ordinary scores, because mesh-tensorflow defines the method for self-attention only.
    Cost: 2 L h n rank parameters per stack. mix=none has no projections of queries and keys, which saves 2 d^2 + 2 d parameters
        per layer.
    Raises: PositionError for a sentence of more than n positions, and for positions that are not integers.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        rank: int = option(8, "width of the two factors of a table", minimum=1, maximum=65536)
        mix: Literal["none", "plus", "plus_alpha"] = option("none", _MIX)
        share: Literal["none", "heads", "layers", "all"] = option("none", _SHARE)

    card = replace(
        SynthesizerRandom.card,
        name="synthesizer_factorised",
        title="Synthesizer, factorised random",
        parameters="2 * tables * n * rank + (mix == 'plus_alpha') * (1 if shared_by_layers else L)",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims, options.share)
        self.per_layer = not shared_by_layers(options.share)
        self.query_factor = self.parameter_table(dims.max_positions, options.rank, share=options.share)
        self.key_factor = self.parameter_table(dims.max_positions, options.rank, share=options.share)
        for factor in (self.query_factor, self.key_factor):
            nn.init.normal_(factor, std=options.rank**-0.25 * 0.3)

    def bias(self, ctx: AttentionContext) -> Tensor:
        queries = rows(self.of_layer(self.query_factor, ctx), ctx.queries)
        keys = rows(self.of_layer(self.key_factor, ctx), ctx.keys)
        return at_least_float32(queries @ keys.transpose(-1, -2)) * self._balance(ctx)  # [B or 1, H or 1, T, S]


class SynthesizerDense(_Synthesizer):
    r"""Compute the scores of all key positions from the query only, with a small network.

    Equation: $A_t = W_2 \operatorname{ReLU}(W_1 x_t + b_1) + b_2 \in \mathbb{R}^n$, called dense in Tay et al. (2021).
        With `form=minus`, $A_t = W^T \operatorname{ReLU}(q_t)$ with one $W \in \mathbb{R}^{d_h \times n}$ for all heads.
        With `mix=plus` or `mix=plus_alpha`, scores are mixed with $q_t \cdot k_s$ as in `synthesizer_random`.
    Shapes: content_scores -> [B, H, T, S]. rescale [B, H, T, S] -> same.
    Source: Tay et al. (2021). Code: mesh-tensorflow (dense_minus).
    Deviations:
        * Every head has its own network, whose hidden width is d_h by default.
        * In a mixture, $q_t \cdot k_s$ is divided by $\sqrt{d_h}$. mesh-tensorflow scales the initial values of the query
          projection instead.
        * Cross-attention has ordinary scores, because mesh-tensorflow defines the method for self-attention only.
    Cost: L h (hidden (d + 1) + (hidden + 1) n) parameters per stack, L d_h n with form=minus. For every
        query, the network computes scores of all S keys. If sentences have different positions, for example with padding on the
        left, the network computes scores of all n positions. mix=none has no key projection. mix=none with form=paper has no
        query projection either. Each missing projection saves d^2 + d parameters per layer.
    Raises: PositionError for hidden with form=minus, for a sentence of more than n positions, and for positions that are
        not integers.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        form: Literal["paper", "minus"] = option(
            "paper", "two layers over the input of the attention, or mesh-tensorflow's one layer over the query"
        )
        hidden: int | None = option(None, "width of the hidden layer, for form=paper (none: d_h)", minimum=1, maximum=65536)
        mix: Literal["none", "plus", "plus_alpha"] = option("none", _MIX)

        def __post_init__(self) -> None:
            if self.form == "minus" and self.hidden is not None:
                raise PositionError(f"hidden={self.hidden} has no effect with form=minus. Remove hidden.")

    card = replace(
        SynthesizerRandom.card,
        name="synthesizer_dense",
        title="Synthesizer, dense",
        parameters="L * (h * ((hidden or d_h) * (d + 1) + ((hidden or d_h) + 1) * n) if form == 'paper' else d_h * n)"
        " + (mix == 'plus_alpha') * L",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        self.alone = frozenset({"value"} if options.form == "paper" else {"query", "value"})
        super().__init__(options, dims, "none")
        if options.form == "minus":
            self.table = self.parameter_table(dims.head_dim, dims.max_positions, share="heads")
            nn.init.normal_(self.table, std=dims.head_dim**-0.5)
            return
        hidden = options.hidden or dims.head_dim
        self.hidden_weight = self.parameter_table(hidden, dims.embed_dim, share="none")
        self.hidden_bias = self.parameter_table(hidden, share="none")
        self.out_weight = self.parameter_table(dims.max_positions, hidden, share="none")
        self.out_bias = self.parameter_table(dims.max_positions, share="none")
        nn.init.normal_(self.hidden_weight, std=dims.embed_dim**-0.5)
        nn.init.normal_(self.out_weight, std=hidden**-0.5)

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        start, count = ctx.keys.start, ctx.keys.ids.size(1)
        read = slice(None) if start is None else slice(start, start + count)  # of the n positions
        if self.options.form == "minus":
            scores = F.relu(q) @ self.of_layer(self.table, ctx)[..., read]
        else:
            scores = self._network(ctx.inputs[0], read, ctx)
        if start is None:
            scores = spread(scores, require_integer(ctx.keys.ids).unsqueeze(1).expand(-1, scores.size(2), -1))
        return scores * self._balance(ctx)

    def _network(self, x: Tensor, read: slice, ctx: AttentionContext) -> Tensor:
        """Return the scores of the n key positions in the slice `read`: [B, T, C] -> [B, H, T, n].

        Each layer of the network is one product for all heads and sentences.
        """
        weight, bias = (self.of_layer(table, ctx).flatten(0, 1) for table in (self.hidden_weight, self.hidden_bias))
        hidden = F.relu(F.linear(x, weight, bias)).unflatten(-1, (self.dims.num_heads, -1))  # [B, T, H, hidden]
        weight, bias = (self.of_layer(table, ctx)[:, read] for table in (self.out_weight, self.out_bias))
        scores = torch.baddbmm(bias.unsqueeze(1), hidden.flatten(0, 1).transpose(0, 1), weight.mT)  # [H, B T, n]
        return scores.unflatten(1, x.shape[:2]).transpose(0, 1)
