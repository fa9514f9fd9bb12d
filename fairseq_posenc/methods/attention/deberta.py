"""Disentangled attention: words meet positions on both sides, and absolute positions come at the end."""

import math
from dataclasses import dataclass
from typing import Literal, Optional

import torch
from torch import Tensor, nn

from ...contract import AttentionContext, Dims, MethodCard, Options, PositionError, PositionMethod, Positions, option
from ...ops.distances import whole
from ...ops.relative import key_products, query_products

_CITATION = """@inproceedings{he-etal-2021-deberta,
  title = {DeBERTa: Decoding-enhanced BERT with Disentangled Attention},
  author = {He, Pengcheng and Liu, Xiaodong and Gao, Jianfeng and Chen, Weizhu},
  booktitle = {ICLR}, year = {2021}}"""
_DEVIATIONS = (
    "keys meet the code's index D(t,s) by default, where the paper and the survey print D(s,t) (index=paper)",
    "no dropout on the vectors of positions",
    "the survey leaves the projections out of its count and includes the absolute positions of deberta_emd",
    "decoder and cross-attention are our extension",
)


class Deberta(PositionMethod):
    """Queries meet projected vectors of the distance, and so do keys, with projections of their own.

    Equation: A_ts = (q_t . k_s + q_t . K_r[D(t,s)] + k_s . Q_r[D(t,s)]) / sqrt(3 d_h), K_r = P W_K, Q_r = P W_Q,
        D(t,s) = min(max(t - s + K, 0), 2K - 1); He et al. (2021), equation 4.
    Shapes: content_scores -> [B, H, T, S].
    Source: He, Liu, Gao and Chen (2021); microsoft/DeBERTa; Hugging Face's DeBERTa; survey, equation 15.
    Deviations: index D(t,s) for keys as in the code (index=paper: D(s,t)); no dropout on P; decoder and cross-attention are ours.
    Cost: 2 K d + L (2 d^2 + d) parameters a stack (2 K d with share_key); memory O(B H T (T + S)).
    Errors: PositionError where buckets leave no exact ones.
    """

    @dataclass(frozen=True)
    class Options(Options):
        max_distance: Optional[int] = option(None, "distance K at which the vectors end (none: max_positions)", minimum=1)
        buckets: Optional[int] = option(
            None, "logarithmic buckets on each side, as in versions 2 and 3, which have 256 (none: every distance)", minimum=4
        )
        index: Literal["code", "paper"] = option("code", "row of keys: D(t,s) as in the code, or D(s,t) as in the paper")
        terms: Literal["both", "c2p", "p2c"] = option("both", "queries meet positions (c2p), keys do (p2c), or both")
        share_key: bool = option(False, "project positions as words are, as in versions 2 and 3")
        norm: bool = option(False, "a layer norm on the vectors of positions, as in versions 2 and 3")

        def farthest(self, dims: Dims) -> int:
            return self.max_distance or dims.max_distance + 1

        def reach(self, dims: Dims) -> int:
            return self.buckets or self.farthest(dims)

        def count(self, dims: Dims) -> int:
            own = 0 if self.share_key else {"both": 2, "c2p": 1, "p2c": 1}[self.terms] * dims.embed_dim**2
            own += 0 if self.share_key or self.terms == "c2p" else dims.embed_dim
            return 2 * self.reach(dims) * dims.embed_dim + dims.num_layers * own + (2 * dims.embed_dim if self.norm else 0)

    card = MethodCard(
        name="deberta",
        title="DeBERTa, disentangled attention",
        citation=_CITATION,
        equation="A_ts = (q_t . k_s + q_t . K_r[D(t,s)] + k_s . Q_r[D(t,s)]) / sqrt(3 d_h)",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="peer",
        sites=("encoder",),
        our_sites=("decoder", "cross"),
        parameters="2 K d + L (2 d^2 + d)",
        count=lambda options, dims, site: options.count(dims),
        survey_parameters="3 n d",
        deviations=_DEVIATIONS,
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.reach, self.farthest = options.reach(dims), options.farthest(dims)
        if options.buckets is not None and options.buckets // 2 >= self.farthest - 1:
            raise PositionError(
                f"{self.card.name}: half of buckets={options.buckets} reaches max_distance={self.farthest} as it is; "
                "leave buckets out"
            )
        self.table = nn.Parameter(torch.empty(2 * self.reach, dims.embed_dim))
        nn.init.normal_(self.table, std=0.02)
        self.norm = nn.LayerNorm(dims.embed_dim, eps=1e-7) if options.norm else None
        for name, unused in (("key_weight", "p2c"), ("query_weight", "c2p")):
            used = not options.share_key and options.terms != unused
            weight = nn.Parameter(torch.empty(dims.num_layers, dims.embed_dim, dims.embed_dim)) if used else None
            self.register_parameter(name, weight)
            for matrix in () if weight is None else weight:
                nn.init.xavier_uniform_(matrix, gain=2**-0.5)
        self.query_bias = None if self.query_weight is None else nn.Parameter(torch.zeros(dims.num_layers, dims.embed_dim))

    def scale(self, head_dim: int) -> float:
        return ((3 if self.options.terms == "both" else 2) * head_dim) ** -0.5

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        scale, total = self.scale(self.dims.head_dim), 0.0
        if self.options.terms != "p2c":
            total = query_products(q * scale, ctx, lambda delta: self._vectors("key", -delta, ctx).to(q.dtype))
        if self.options.terms != "c2p":
            turned = -1 if self.options.index == "code" else 1
            total = total + key_products(k * scale, ctx, lambda delta: self._vectors("query", turned * delta, ctx).to(k.dtype))
        return total

    def _vectors(self, which: str, away: Tensor, ctx: AttentionContext) -> Tensor:
        """Projected vectors of distances t - s: [W] -> [H, W, D]."""
        p = self.table[self.row(away)]
        p = p if self.norm is None else self.norm(p)
        if self.options.share_key:
            return ctx.project(which, p)
        weight = (self.key_weight if which == "key" else self.query_weight)[ctx.layer]
        bias = self.query_bias[ctx.layer] if which == "query" else None
        return nn.functional.linear(p, weight, bias).unflatten(-1, (self.dims.num_heads, -1)).transpose(0, 1)

    def row(self, away: Tensor) -> Tensor:
        """The row of the table for distances t - s."""
        away = whole(away) if self.options.buckets is None else self._bucket(whole(away))
        return (away + self.reach).clamp(0, 2 * self.reach - 1)

    def _bucket(self, away: Tensor) -> Tensor:
        """Exact up to half of the buckets, then logarithmic; an odd function."""
        middle = self.options.buckets // 2
        far = torch.log(away.abs().clamp(min=middle).double() / middle) / math.log((self.farthest - 1) / middle)
        far = (torch.ceil(far * (middle - 1)) + middle).long()
        return torch.where(away.abs() <= middle, away, away.sign() * far)


class DebertaDecoding(Deberta):
    """DeBERTa with absolute positions at the end: they join the queries of the last layer.

    Equation: deberta, and q_t = W_Q (x_t + P_abs[t]) in the last layer; He et al. (2021), section 3.2.
    Shapes: query_input [B, T, C] -> same; content_scores -> [B, H, T, S].
    Source: He, Liu, Gao and Chen (2021), the enhanced mask decoder; microsoft/DeBERTa.
    Deviations: the last layer runs once, where the code runs it twice with the same weights; a mask decoder of a language model
        becomes the end of encoder and decoder.
    Cost: n d parameters more than deberta.
    """

    card = MethodCard(
        name="deberta_emd",
        title="DeBERTa, absolute positions at the end",
        citation=_CITATION,
        equation="deberta, and q_t = W_Q (x_t + P_abs[t]) in the last layer",
        survey="4.1.2",
        reference="both",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="error",
        evidence="reconstruction",
        sites=("encoder",),
        our_sites=("decoder",),
        parameters="2 K d + L (2 d^2 + d) + n d",
        count=lambda options, dims, site: options.count(dims) + dims.max_positions * dims.embed_dim,
        survey_parameters="3 n d",
        deviations=(*_DEVIATIONS, "reconstructed for translation: the last layer runs once, where the code runs it twice"),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.absolute = nn.Parameter(torch.empty(dims.max_positions, dims.embed_dim))
        nn.init.normal_(self.absolute, std=0.02)

    def query_input(self, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return x + self.absolute[whole(at.ids)] if ctx.layer == self.dims.num_layers - 1 else x
