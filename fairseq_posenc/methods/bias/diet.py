"""DIET: learned scores for distances, pairs of positions or pairs of sentences. One method also compresses keys and values."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
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
    shared_by_layers,
)
from ...ops.distances import from_table, require_integer
from ...ops.pairs import rows
from ...ops.precision import at_least_float32
from ...ops.segments import Separator, labels, refuse_width, sentence_vectors
from ...ops.sinusoids import Sinusoids

_SHARED = "sharing of the table: across heads, across layers, both (all), or none"
_SCALE = "scale of the product of queries and keys: 1/sqrt(d_h), or 1/sqrt(d) as printed in the paper"


class _Diet(PositionMethod):
    def scale(self, ctx: AttentionContext) -> float:
        return (self.dims.head_dim if self.options.scale == "head" else self.dims.embed_dim) ** -0.5


class DietRelative(_Diet):
    r"""Add a learned scalar per layer, head and distance to the scores.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} + R[t-s]$, with $R$ learned. Chen et al. (2021), equation 3.
    Shapes: bias -> [1, H, T, S].
    Source: Chen et al. (2021).
    Deviations:
        * The scale is $1/\sqrt{d_h}$. With scale=model, the scale is $1/\sqrt{d}$, where $d$ is the hidden size. The paper
          prints this scale.
        * R starts at 0. The paper does not give initial values.
        * Distances beyond the table share the last entry of their direction.
        * The paper's segment term is the separate method `segments` (spec: diet_rel+segments).
        * The paper changes "all the attention layers both in the encoder and decoder".
        * The paper does not say whether this includes cross-attention. In cross-attention of this project, queries have target
          positions and keys have source positions.
    Cost: L h (2n - 1) parameters per stack. Each layer computes T + S - 1 values per head, one per distance.
    Raises: PositionError for non-integer positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        share: Literal["none", "heads", "layers", "all"] = option("none", _SHARED)
        scale: Literal["head", "model"] = option("head", _SCALE)

    card = MethodCard(
        name="diet_rel",
        title="DIET, relative",
        citations=("chen-etal-2021-simple",),
        survey="4.6",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="paper",
        sites=("encoder", "decoder"),
        extended_sites=("cross",),
        parameters="tables * (2 * max(n, m) - 1)",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.per_layer = not shared_by_layers(options.share)
        self.table = self.parameter_table(2 * dims.max_distance + 1, share=options.share)

    def bias(self, ctx: AttentionContext) -> Tensor:
        return from_table(self.of_layer(self.table, ctx, float32=True), ctx.queries, ctx.keys)


class DietAbsolute(_Diet):
    r"""Add to the scores the dot product of two learned vectors: one of the query position, one of the key position.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} + P_Q[t] \cdot P_K[s]$, with $P_Q$ and $P_K$ learned. Chen et al. (2021),
        equation 1.
    Shapes: bias -> [1, H, T, S].
    Source: Chen et al. (2021).
    Deviations:
        * The scale is $1/\sqrt{d_h}$. With scale=model, the scale is $1/\sqrt{d}$, where $d$ is the hidden size. The paper
          prints this scale.
        * The initial vectors are normal with standard deviation 0.02. The paper does not give initial values.
        * The paper's segment term is the separate method `segments` (spec: diet_abs+segments).
        * The paper changes "all the attention layers both in the encoder and decoder".
        * The paper does not say whether this includes cross-attention. In cross-attention of this project, queries have target
          positions and keys have source positions.
    Cost: 2 h n rank parameters per stack, or L times as many with share=none. Each forward pass computes one matrix product of
        the position vectors. With share=none or share=heads, each layer computes one matrix product.
    Raises: PositionError for positions beyond the tables, and for non-integer positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        rank: int | None = option(
            None, "width of the position vectors (none: d_h, in the paper: 64, 128, 256 and 512)", minimum=1, maximum=65536
        )
        share: Literal["none", "heads", "layers", "all"] = option("layers", _SHARED)
        scale: Literal["head", "model"] = option("head", _SCALE)

    card = replace(
        DietRelative.card,
        name="diet_abs",
        title="DIET, absolute",
        reference="absolute",
        extrapolation="error",
        parameters="tables * (n + m) * (rank or d_h)",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.per_layer = not shared_by_layers(options.share)
        rank = options.rank or dims.head_dim
        self.query_positions = self.parameter_table(dims.max_positions, rank, share=options.share)
        self.key_positions = self.parameter_table(dims.max_key_positions, rank, share=options.share)
        for table in (self.query_positions, self.key_positions):
            nn.init.normal_(table, std=0.02)

    def bias(self, ctx: AttentionContext) -> Tensor:
        queries, keys = self.bias_factors(ctx)
        return queries @ keys.transpose(-1, -2)

    def bias_factors(self, ctx: AttentionContext) -> tuple[Tensor, Tensor]:
        """Return the vectors of the positions of queries [B or 1, H or 1, T, rank], and of keys [B or 1, H or 1, S, rank]."""
        queries = rows(self.of_layer(self.query_positions, ctx), ctx.queries)
        return queries, rows(self.of_layer(self.key_positions, ctx), ctx.keys)


class DietLinformer(_Diet):
    r"""Compress keys and values as in Linformer. Add products of learned vectors to the scores of queries and compressed keys.

    Equation: $A_{tj} = q_t \cdot k_j / \sqrt{d_h} + P_Q[t] \cdot P_K[j]$, $k_j = ((E X) W_K)_j$, $v_j = ((F X) W_V)_j$, with
        compressed key $j$ and learned $E$ and $F$ in $\mathbb{R}^{\mathrm{rank} \times n}$. Chen et al. (2021), equation 4.
    Shapes: project_input of keys and values [B, S, C] -> [B, rank, C]. attend -> [B, H, T, D].
    Source: Chen et al. (2021). Wang et al. (2020) for Linformer.
    Deviations:
        * The scale is $1/\sqrt{d_h}$. With scale=model, the scale is $1/\sqrt{d}$, where $d$ is the hidden size. The paper
          prints this scale.
        * The width of the position vectors is an option. In equation 4, this width is d.
        * E is indexed by position. Hidden states at padding are set to 0. Padding therefore does not change the compressed
          keys.
        * The initial E is uniform, as in a linear layer. Initial vectors are normal with standard deviation 0.02.
        * Compressed keys mix all positions, so that a causal decoder is unsupported. posenc_diet_linformer has diet_abs in the
          decoder.
        * The paper changes "all the attention layers both in the encoder and decoder".
        * The paper does not say whether this includes cross-attention. In cross-attention of this project, queries have target
          positions and keys have source positions.
    Cost: L (rank n + h (n + rank) width) parameters per stack, and rank n more per layer with tie=false. O(T rank) time and
        memory.
    Raises: PositionError for positions beyond the tables, and for non-integer positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        rank: int = option(32, "number of compressed keys", minimum=1, maximum=65536)
        width: int | None = option(None, "width of the position vectors (none: d_h)", minimum=1, maximum=65536)
        tie: bool = option(True, "same compression matrix for keys and values, F = E")
        share: Literal["none", "heads", "layers", "all"] = option(
            "none", "sharing of position vectors: across heads, layers, both (all), or none (layers and all also share E and F)"
        )
        scale: Literal["head", "model"] = option("head", _SCALE)

    card = replace(
        DietAbsolute.card,
        name="diet_linformer",
        title="DIET with Linformer's compressed keys",
        sites=("encoder",),
        parameters="tables * (n + rank) * (width or d_h) + (1 if shared_by_layers else L) * rank * m * (2 - tie)",
        default_specs={"decoder": "diet_abs"},
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        width = options.width or dims.head_dim
        self.query_positions = self.parameter_table(dims.max_positions, width, share=options.share)
        self.key_positions = self.parameter_table(options.rank, width, share=options.share)
        for table in (self.query_positions, self.key_positions):
            nn.init.normal_(table, std=0.02)
        layers = 1 if shared_by_layers(options.share) else dims.num_layers
        for name in ("key_mixer", "value_mixer"):
            used = name == "key_mixer" or not options.tie
            mixer = nn.Parameter(torch.empty(layers, options.rank, dims.max_key_positions)) if used else None
            if mixer is not None:
                nn.init.uniform_(mixer, -(dims.max_key_positions**-0.5), dims.max_key_positions**-0.5)
            self.register_parameter(name, mixer)

    @acts_on("key", "value", mixes_positions=True)
    def project_input(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        mixer = self.key_mixer if which == "key" or self.options.tie else self.value_mixer
        if ctx.key_padding is not None:
            x = x.masked_fill(ctx.key_padding.unsqueeze(-1), 0.0)
        mixing = self.of_layer(mixer, ctx)[:, require_integer(at.ids)].transpose(0, 1)  # [rank, B or 1, S] -> [B or 1, rank, S]
        return (at_least_float32(mixing) @ at_least_float32(x)).to(x.dtype)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        queries = rows(self.of_layer(self.query_positions, ctx), ctx.queries)  # [B or 1, H or 1, T, width]
        bias = queries @ self.of_layer(self.key_positions, ctx).transpose(-1, -2)  # [B or 1, H or 1, T, rank]
        bias = bias.to(q.dtype).expand(-1, q.size(1), -1, -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=ctx.dropout, scale=ctx.scale)


class Segments(PositionMethod):
    r"""Add a learned scalar per pair of sentences to the scores, or add a vector per sentence to the embeddings.

    Equation: $A_{ts} + E[\operatorname{seg}(t), \operatorname{seg}(s)]$, with $E$ learned and $\operatorname{seg}(t)$ the number
        of separators before $t$. Chen et al. (2021), equations 1 and 3, and section 3.2. `place=input`: $x_t +
        E_s[\operatorname{lab}(t)]$, with $E_s$ the sentence vectors and $\operatorname{lab}(t)$ the label of the sentence of
        $t$. With `count=start`, $\operatorname{lab}(t) = \operatorname{seg}(t) + 1$. With `count=end`, $\operatorname{lab}(t)$
        is the number of source sentences minus $\operatorname{seg}(t)$. The last source sentence then has label 1. Lupo,
        Dinarelli and Besacier (2023). `every_layer=true` adds the vector before every layer.
    Shapes: bias -> [B, H, T, S]. embed and before_layer [B, T, C] -> [B, T, C].
    Source: Chen et al. (2021). place=input: Lupo, Dinarelli and Besacier (2023), whose text was not read. Code of place=input:
        lorelupo/focused-concat.
    Deviations:
        * A document contains a separator token between two sentences. A separator belongs to the sentence before it.
        * A source of single sentences has no separators, and the term has no effect with place=heads. With place=input, every
          token of such a source receives the vector of label 1.
        * If an attention module receives no tokens, all positions belong to one sentence.
        * Sentences beyond the table share its last row. Labels below 1 are replaced by 1.
        * The scalars E start at 0. The paper does not give initial values.
        * Initial vectors are normal with standard deviation $1/\sqrt{d}$. The authors' initial vectors have standard
          deviation 1.
        * Encoder and decoder have a table each. The authors' stacks share one table.
        * In the authors' code, the first decoder token has label 1. In this project, this token has the label of the
          first sentence. With count=end, this label is the number of source sentences.
        * place=heads in the decoder is an extension of this project.
    Cost: L h segments^2 parameters per stack, or segments d with place=input and vectors=learned.
    Raises: PositionError if a dictionary does not contain the separator. PositionError for the options vectors, count
        or every_layer without place=input. PositionError for the option segments without vectors=learned. PositionError for
        the option every_layer with layers=.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        place: Literal["heads", "input"] = option(
            "heads", "scalar added to the scores of each head, or vector added to the embeddings"
        )
        segments: int = option(8, "number of distinct sentences", minimum=2, maximum=1024)
        separator: str = option("<sep>", "token of the dictionary that ends a sentence")
        vectors: Literal["learned", "sinusoidal", "onehot"] = option("learned", "type of the sentence vectors, with place=input")
        count: Literal["start", "end"] = option(
            "start", "start of the sentence count, with place=input: first sentence, or last sentence of the source"
        )
        every_layer: bool = option(
            False, "sentence vectors added before every layer and not only to the embeddings, with place=input"
        )

        def __post_init__(self) -> None:
            changed = [name for name in ("vectors", "count", "every_layer") if getattr(self, name) != getattr(type(self), name)]
            if self.place == "heads" and changed:
                raise PositionError(
                    f"segments: {changed[0]} has no effect with place=heads. Expected place=input. Leave {changed[0]} out."
                )
            if self.vectors != "learned" and self.segments != type(self).segments:
                raise PositionError(
                    "segments has no effect without vectors=learned. Expected vectors=learned. Leave segments out."
                )
            if self.every_layer and self.layers is not None:
                raise PositionError("segments: every_layer means all layers. Expected no layers=. Leave one of them out.")

    card = replace(
        DietRelative.card,
        name="segments",
        title="Segment attention of DIET, sentence vectors",
        citations=("chen-etal-2021-simple", "lupo-etal-2023-encoding"),
        sites=("encoder",),
        extended_sites=("decoder",),
        parameters="(segments * d if vectors == 'learned' else 0) if place == 'input' else L * h * segments**2",
        default_specs={"encoder": "diet_abs+segments", "decoder": "diet_abs"},
        documents=True,
    )

    per_layer = content_dependent = True

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.separator = Separator("segments", options.separator, dims)
        self.waves: Sinusoids | None = None
        self.table = None
        if options.place == "heads":
            self.table = self.parameter_table(options.segments, options.segments, share="none")
        elif options.vectors == "learned":
            self.table = nn.Parameter(torch.zeros(options.segments, dims.embed_dim))
            nn.init.normal_(self.table, std=dims.embed_dim**-0.5)
        else:
            refuse_width("segments", options.vectors, dims.embed_dim)
            self.waves = Sinusoids(dims.embed_dim, "halves", "fairseq") if options.vectors == "sinusoidal" else None

    @property
    def hooks(self) -> frozenset[str]:
        if self.options.place == "heads":
            return super().hooks - {"embed", "before_layer"}
        return super().hooks - {"bias"} - (set() if self.options.every_layer else {"before_layer"})

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self._vectors(ctx, tokens).to(x.dtype)

    def before_layer(self, x: Tensor, ctx: AttentionContext) -> Tensor:
        # in layer 0, the embeddings already contain the vectors
        return x if ctx.layer == 0 else x + self._vectors(ctx, x[..., 0]).to(x.dtype)

    def _vectors(self, ctx: AttentionContext, like: Tensor) -> Tensor:
        """Return, for each query, the vector of its sentence: [B, T, C]. Only the shape [B, T] of `like` is used."""

        def label() -> Tensor:
            found = labels(self.separator, ctx, self.options.count)
            return torch.ones_like(like, dtype=torch.long) if found is None else found

        return sentence_vectors(self.waves or self.table, ctx.once((self, "labels"), label), self.dims.embed_dim)

    def bias(self, ctx: AttentionContext) -> Tensor | None:
        queries, keys = self.separator.of_queries(ctx), self.separator.of_keys(ctx)
        if queries is None or keys is None or ctx.tokens is None:
            return None
        words = lambda: keys.masked_fill(ctx.tokens == self.dims.padding_idx, 0)  # noqa: E731
        if not (self.training or ctx.causal or ctx.once((self, "several"), lambda: bool(words().any()))):
            return None
        table = self.of_layer(self.get_parameter("table"), ctx)  # [H, segments, segments]
        queries, keys = (number.clamp(max=self.options.segments - 1) for number in (queries, keys))
        numbers = torch.arange(self.options.segments, device=keys.device).unsqueeze(-1)
        chosen = (keys.unsqueeze(-2) == numbers).to(table.dtype)  # [B, segments, S], one 1 per key
        # a matrix product, because the backward pass of indexing would add the gradients of all pairs of tokens to few entries
        # of the table
        return table[:, queries].transpose(0, 1) @ chosen.unsqueeze(1)  # [B, H, T, segments] -> [B, H, T, S]
