"""Disentangled attention: products of content with relative positions.

deberta_emd also adds absolute positions in the last layer.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from ...core import (
    AttentionContext,
    Dims,
    MethodCard,
    MethodOptions,
    PositionError,
    PositionMethod,
    Positions,
    Projection,
    acts_on,
    option,
)
from ...ops.distances import require_integer
from ...ops.relative import kept_while_decoding, key_products, query_products


class Deberta(PositionMethod):
    r"""Add products of queries with projected distance vectors, and products of keys with other projections of the distance
    vectors.

    Equation: $A_{ts} = (q_t \cdot k_s + q_t \cdot K_r[D(t,s)] + k_s \cdot Q_r[D(t,s)]) / \sqrt{3 d_h}$, $K_r = P W_K$, $Q_r = P
        W_Q$, $D(t,s) = \min(\max(t - s + K, 0), 2K - 1)$, with one learned vector per distance in $P$. He et al. (2021),
        equation 4.
    Shapes: content_scores -> [B, H, T, S].
    Source: He, Liu, Gao and Chen (2021). Code: microsoft/DeBERTa. Code: Hugging Face's DeBERTa. Survey, equation 15.
    Deviations:
        * The term of the keys has the index D(t,s), as in the authors' code. The paper and the survey print D(s,t)
          (index=paper).
        * The position vectors have no dropout.
        * The survey does not count the projections, and counts the absolute positions of deberta_emd.
        * Decoder and cross-attention are extensions of this project.
    Cost: 2 K d + L (2 d^2 + d) parameters per stack, 2 K d with share_key=true. Memory O(B H T (T + S)).
    Raises: PositionError if half of `buckets` (rounded down) is not smaller than max_distance - 1. PositionError for
        share_key=true with terms=both or terms=c2p, if keys and queries have different widths. PositionError for index=paper
        with terms=c2p. PositionError for non-integer positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        max_distance: int | None = option(
            None, "distance K at which the vectors end (none: max_positions)", minimum=1, maximum=65536
        )
        buckets: int | None = option(
            None,
            "number of logarithmic buckets per direction (256 in versions 2 and 3; none: every distance)",
            minimum=4,
            maximum=65536,
        )
        index: Literal["code", "paper"] = option(
            "code", "row for the term of the keys: D(t,s) as in the code, or D(s,t) as in the paper"
        )
        terms: Literal["both", "c2p", "p2c"] = option(
            "both", "vectors that are multiplied with the distance vectors: queries (c2p), keys (p2c), or both"
        )
        share_key: bool = option(False, "same projections for positions and tokens, as in versions 2 and 3")
        norm: bool = option(False, "layer norm on the vectors of positions, as in versions 2 and 3")

        def __post_init__(self) -> None:
            if self.terms == "c2p" and self.index != type(self).index:
                raise PositionError(
                    "index has no effect with terms=c2p, because only the term of the keys reads it. Expected terms=both or "
                    "terms=p2c. Remove index, or use other terms."
                )

        def farthest(self, dims: Dims) -> int:
            return self.max_distance or dims.max_distance + 1

        def reach(self, dims: Dims) -> int:
            return self.buckets or self.farthest(dims)

    card = MethodCard(
        name="deberta",
        title="DeBERTa, disentangled attention",
        citations=("he-etal-2021-deberta",),
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="peer",
        sites=("encoder",),
        extended_sites=("decoder", "cross"),
        parameters="2 * (buckets or max_distance or max(n, m)) * d + norm * 2 * d"
        " + L * (0 if share_key else (2 if terms == 'both' else 1) * d**2 + (0 if terms == 'c2p' else d))",
        survey_parameters="3 n d",
    )
    position_type = "integer"
    key_weight: nn.Parameter | None
    query_weight: nn.Parameter | None

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.reach, self.farthest = options.reach(dims), options.farthest(dims)
        if options.buckets is not None and options.buckets // 2 >= self.farthest - 1:
            raise PositionError(
                f"{self.card.name}: buckets={options.buckets} is too large for max_distance={self.farthest}. "
                f"Expected at most {2 * (self.farthest - 1) - 1} buckets. Remove buckets, or increase max_distance."
            )
        if options.share_key and options.terms != "p2c" and dims.key_width != dims.embed_dim:
            raise PositionError(
                f"{self.card.name}: share_key=true requires queries and keys of equal width, but queries have width "
                f"{dims.embed_dim} and keys have width {dims.key_width}. Use share_key=false, terms=p2c or equal widths."
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

    def scale(self, ctx: AttentionContext) -> float:
        return ((3 if self.options.terms == "both" else 2) * self.dims.head_dim) ** -0.5

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        scale, terms = ctx.scale, []
        if self.options.terms != "p2c":
            vectors = kept_while_decoding("deberta_key", lambda delta: self._vectors("key", -delta, ctx).to(q.dtype), ctx)
            terms.append(query_products(q * scale, ctx, vectors))
        if self.options.terms != "c2p":
            turned = -1 if self.options.index == "code" else 1
            vectors = kept_while_decoding(
                "deberta_query", lambda delta: self._vectors("query", turned * delta, ctx).to(k.dtype), ctx, of_queries=False
            )
            terms.append(key_products(k * scale, ctx, vectors))
        return functools.reduce(torch.add, terms)  # [B, H, T, S]

    def _vectors(self, which: str, distance: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the projected vectors of distances t - s: [W] -> [H, W, D]."""
        p = self.table[self.row(distance)]
        p = p if self.norm is None else self.norm(p)
        if self.options.share_key:
            return ctx.project(which, p)
        weight = self.of_layer(self.get_parameter(f"{which}_weight"), ctx)  # [C, C]
        bias = self.of_layer(self.query_bias, ctx) if which == "query" and self.query_bias is not None else None
        return nn.functional.linear(p, weight, bias).unflatten(-1, (self.dims.num_heads, -1)).transpose(0, 1)

    def row(self, distance: Tensor) -> Tensor:
        """Return the row indices of distances t - s in the table."""
        distance = require_integer(distance)
        distance = distance if self.options.buckets is None else self._bucket(distance)
        return (distance + self.reach).clamp(0, 2 * self.reach - 1)

    def _bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of a distance. The bucket of -x is minus the bucket of x.

        For distances up to half of the number of buckets, the bucket is the distance. For longer distances, buckets are
        logarithmic.
        """
        middle = self.options.buckets // 2
        far = torch.log(distance.abs().clamp(min=middle).double() / middle) / math.log((self.farthest - 1) / middle)
        far = (torch.ceil(far * (middle - 1)) + middle).long()
        return torch.where(distance.abs() <= middle, distance, distance.sign() * far)


class DebertaDecoding(Deberta):
    """Compute disentangled attention, and add absolute positions to the inputs of the queries in the last layer.

    Equation: `deberta` with $q_t = W_Q (x_t + P_{abs}[t])$ in the last layer. He et al. (2021), section 3.2.
    Shapes: project_input of queries [B, T, C] -> same. content_scores -> [B, H, T, S].
    Source: He, Liu, Gao and Chen (2021), the enhanced mask decoder. Code: microsoft/DeBERTa.
    Deviations:
        * The method is reconstructed for translation: the last layer of the encoder or decoder replaces the enhanced mask
          decoder.
        * The last layer runs once. The authors' code runs it twice with the same weights.
        * Only queries read P_abs. In the authors' code the residual connection also contains P_abs. The paper does not
          specify this.
        * The term of the keys has the index D(t,s), as in the authors' code. The paper and the survey print D(s,t)
          (index=paper).
        * The position vectors have no dropout.
        * The survey does not count the projections.
        * The decoder is an extension of this project.
    Cost: n d parameters more than deberta.
    Raises: PositionError as for deberta. PositionError for sentences longer than the table of absolute positions.
    """

    card = replace(
        Deberta.card,
        name="deberta_emd",
        title="DeBERTa, absolute positions at the end",
        reference="both",
        extrapolation="error",
        evidence="reconstruction",
        extended_sites=("decoder",),
        parameters="2 * (buckets or max_distance or max(n, m)) * d + norm * 2 * d"
        " + L * (0 if share_key else (2 if terms == 'both' else 1) * d**2 + (0 if terms == 'c2p' else d)) + n * d",
    )

    def __init__(self, options: Deberta.Options, dims: Dims):
        super().__init__(options, dims)
        self.absolute = nn.Parameter(torch.empty(dims.max_positions, dims.embed_dim))
        nn.init.normal_(self.absolute, std=0.02)

    @acts_on("query")
    def project_input(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return x + self.absolute[require_integer(at.ids)] if ctx.layer == self.dims.num_layers - 1 else x
