"""Attention scores that are learned for positions, or made from the query alone, in place of products with keys."""

from dataclasses import dataclass
from typing import Literal, Optional

import torch.nn.functional as F
from torch import Tensor, nn

from ...contract import AttentionContext, Dims, MethodCard, Options, PositionError, PositionMethod, across_layers, option
from ...ops.distances import whole
from ...ops.pairs import pairs, rows
from ...ops.precision import widen
from ...ops.relative import spread

_CITATION = """@inproceedings{tay-etal-2021-synthesizer,
  title = {Synthesizer: Rethinking Self-Attention for Transformer Models},
  author = {Tay, Yi and Bahri, Dara and Metzler, Donald and Juan, Da-Cheng and Zhao, Zhe and Zheng, Che},
  booktitle = {ICML}, year = {2021}}"""
_DEVIATIONS = (
    "every head has its own values, where mesh-tensorflow has one projection for keys and values",
    "decoder self-attention is causal, as mesh-tensorflow's; attention to the source keeps its products",
)
_MIX = "alone, added to the product of queries and keys, or with a learned balance sigmoid(alpha)"


class _Synthesizer(PositionMethod):
    """What the three have in common: the mixture with the product of queries and keys, and a limit."""

    def __init__(self, options, dims, site, share: str):
        super().__init__(options, dims, site)
        mixed = options.mix == "plus_alpha"
        self.alpha = self.parameter_table(share="all" if across_layers(share) else "heads") if mixed else None
        if options.mix == "none":
            self.projections = self.alone

    #: projections that the scores need without a mixture
    alone = frozenset({"value"})

    @property
    def hooks(self):
        return super().hooks - (set() if self.options.mix == "plus_alpha" else {"rescale"})

    def scale(self, head_dim: int) -> float:
        return 0.0 if self.options.mix == "none" else head_dim**-0.5

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        return scores * (1 - self._balance(ctx))

    def _balance(self, ctx: AttentionContext):
        return 1.0 if self.alpha is None else widen(self.of_layer(self.alpha, ctx)).sigmoid()

    @staticmethod
    def alpha_count(options, dims: Dims, share: str) -> int:
        return (1 if across_layers(share) else dims.num_layers) if options.mix == "plus_alpha" else 0


class SynthesizerRandom(_Synthesizer):
    """A learned score for every head and pair of positions, whatever the words.

    Equation: A_ts = R[t,s]; Tay et al. (2021), random. plus: q_t . k_s / sqrt(d_h) + R; plus_alpha: the two weighted by
        1 - sigmoid(a) and sigmoid(a).
    Shapes: bias -> [1, H, T, S]; rescale [B, H, T, S] -> same.
    Source: Tay et al. (2021); mesh-tensorflow.
    Deviations: values of every head; in a mixture the product keeps 1/sqrt(d_h).
    Cost: L h n^2 parameters a stack, and without queries and keys 2 d^2 + 2 d fewer a layer.
    """

    @dataclass(frozen=True)
    class Options(Options):
        mix: Literal["none", "plus", "plus_alpha"] = option("none", _MIX)
        share: Literal["none", "heads", "layers", "all"] = option("none", "who has the table in common")

    card = MethodCard(
        name="synthesizer_random",
        title="Synthesizer, random",
        citation=_CITATION,
        equation="A_ts = R[t,s]",
        survey="not in its Table 1",
        reference="absolute",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="error",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="L h n^2",
        count=lambda options, dims, site: (
            PositionMethod.table_count(options.share, dims, dims.max_positions**2)
            + _Synthesizer.alpha_count(options, dims, options.share)
        ),
        deviations=_DEVIATIONS,
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site, options.share)
        self.per_layer = not across_layers(options.share)
        self.table = self.parameter_table(dims.max_positions, dims.max_positions, share=options.share)
        nn.init.normal_(self.table, std=0.02)

    def bias(self, ctx: AttentionContext) -> Tensor:
        return widen(pairs(self.of_layer(self.table, ctx), ctx.queries, ctx.keys)) * self._balance(ctx)


class SynthesizerFactorised(_Synthesizer):
    """The random synthesizer with a table of low rank.

    Equation: A_ts = R_1[t] . R_2[s]; Tay et al. (2021), factorised random; mixtures as synthesizer_random.
    Shapes: bias -> [1, H, T, S]; rescale [B, H, T, S] -> same.
    Source: Tay et al. (2021); mesh-tensorflow.
    Deviations: as synthesizer_random; rank 8 is the paper's by other accounts, unverified, and mesh-tensorflow's is 16.
    Cost: 2 L h n rank parameters a stack.
    """

    @dataclass(frozen=True)
    class Options(Options):
        rank: int = option(8, "width of the factors", minimum=1)
        mix: Literal["none", "plus", "plus_alpha"] = option("none", _MIX)
        share: Literal["none", "heads", "layers", "all"] = option("none", "who has the factors in common")

    card = MethodCard(
        name="synthesizer_factorised",
        title="Synthesizer, factorised random",
        citation=_CITATION,
        equation="A_ts = R_1[t] . R_2[s]",
        survey="not in its Table 1",
        reference="absolute",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="error",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="2 L h n rank",
        count=lambda options, dims, site: (
            PositionMethod.table_count(options.share, dims, 2 * dims.max_positions * options.rank)
            + _Synthesizer.alpha_count(options, dims, options.share)
        ),
        deviations=(*_DEVIATIONS, "rank 8 is unverified; mesh-tensorflow's is 16"),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site, options.share)
        self.per_layer = not across_layers(options.share)
        self.query_factor = self.parameter_table(dims.max_positions, options.rank, share=options.share)
        self.key_factor = self.parameter_table(dims.max_positions, options.rank, share=options.share)
        for factor in (self.query_factor, self.key_factor):
            nn.init.normal_(factor, std=options.rank**-0.25 * 0.3)

    def bias(self, ctx: AttentionContext) -> Tensor:
        queries = rows(self.of_layer(self.query_factor, ctx), ctx.queries)
        keys = rows(self.of_layer(self.key_factor, ctx), ctx.keys)
        return widen(queries @ keys.transpose(-1, -2)) * self._balance(ctx)  # [B or 1, H or 1, T, S]


class SynthesizerDense(_Synthesizer):
    """Every query says by itself how much it looks at each position.

    Equation: A_t = W_2 ReLU(W_1 x_t + b_1) + b_2 in R^n; Tay et al. (2021), dense. minus: A_t = W^T ReLU(q_t), W in
        R^(d_h x n) shared by the heads. Mixtures as synthesizer_random.
    Shapes: content_scores -> [B, H, T, S]; rescale [B, H, T, S] -> same.
    Source: Tay et al. (2021); mesh-tensorflow (dense_minus).
    Deviations: as synthesizer_random.
    Cost: L h (hidden (d + 1) + (hidden + 1) n) parameters a stack, minus: L d_h n; logits of all n positions for every query.
    """

    @dataclass(frozen=True)
    class Options(Options):
        form: Literal["paper", "minus"] = option("paper", "two layers over the input, or one over the query")
        hidden: Optional[int] = option(None, "width of the hidden layer of the paper's form (none: d_h)", minimum=1)
        mix: Literal["none", "plus", "plus_alpha"] = option("none", _MIX)

        def __post_init__(self):
            if self.form == "minus" and self.hidden is not None:
                raise PositionError("hidden belongs to form=paper")

        def count(self, dims) -> int:
            hidden, n = self.hidden or dims.head_dim, dims.max_positions
            paper = dims.num_heads * (hidden * (dims.embed_dim + 1) + (hidden + 1) * n)
            return dims.num_layers * (paper if self.form == "paper" else dims.head_dim * n)

    card = MethodCard(
        name="synthesizer_dense",
        title="Synthesizer, dense",
        citation=_CITATION,
        equation="A_t = W_2 ReLU(W_1 x_t + b_1) + b_2",
        survey="not in its Table 1",
        reference="absolute",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="error",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="L h (hidden (d+1) + (hidden+1) n)",
        count=lambda options, dims, site: options.count(dims) + _Synthesizer.alpha_count(options, dims, "none"),
        deviations=_DEVIATIONS,
    )

    def __init__(self, options, dims, site):
        self.alone = frozenset({"value"} if options.form == "paper" else {"query", "value"})
        super().__init__(options, dims, site, "none")
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
        if self.options.form == "minus":
            logits = F.relu(q) @ self.of_layer(self.table, ctx)  # [B, H, T, n]
        else:
            x = F.relu(self._layer(ctx.inputs[0].unsqueeze(1), "hidden", ctx))  # [B, H, T, hidden]
            logits = self._layer(x, "out", ctx)  # [B, H, T, n]
        if ctx.keys.start is not None:
            scores = logits[..., ctx.keys.start : ctx.keys.start + ctx.keys.ids.size(1)]
        else:
            scores = spread(logits, whole(ctx.keys.ids).unsqueeze(1).expand(-1, logits.size(2), -1))
        return scores * self._balance(ctx)

    def _layer(self, x: Tensor, name: str, ctx: AttentionContext) -> Tensor:
        weight, bias = (self.of_layer(getattr(self, f"{name}_{part}"), ctx) for part in ("weight", "bias"))
        return x @ weight.mT + bias.unsqueeze(1)
