"""Learned scores of positions, independent of words: by distance, as a product of positions, and with compressed keys."""

from dataclasses import dataclass
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

_SHARED = "share one table across heads, layers or both"
_SCALE = "scale of the product of queries and keys: 1/sqrt(d_h), or 1/sqrt(d) as the paper prints it"


class _Diet(PositionMethod):
    def scale(self, ctx: AttentionContext) -> float:
        return (self.dims.head_dim if self.options.scale == "head" else self.dims.embed_dim) ** -0.5


class DietRelative(_Diet):
    """A learned scalar for each layer, head and distance, added to the scores.

    Equation: A_ts = q_t . k_s / sqrt(d_h) + R[t-s]; Chen et al. (2021), equation 3.
    Shapes: bias -> [1, H, T, S].
    Source: Chen et al. (2021).
    Deviations: 1/sqrt(d_h), where the paper prints sqrt(d) of the hidden size (scale=model); R starts at 0, which the paper
        leaves open; distances beyond the table use its ends; the term of segments is a method of its own
        (diet_rel+segments); the paper changes "all the attention layers both in the encoder and decoder" and leaves open whether
        cross-attention is one of them (here: target positions of queries and source positions of keys).
    Cost: L h (2n - 1) parameters a stack; one vector of T + S - 1 values a layer.
    Errors: PositionError for fractions of positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        share: Literal["none", "heads", "layers", "all"] = option("none", _SHARED)
        scale: Literal["head", "model"] = option("head", _SCALE)

    card = MethodCard(
        name="diet_rel",
        title="DIET, relative",
        citations=("chen-etal-2021-simple",),
        survey="not in the survey",
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
        return from_table(at_least_float32(self.of_layer(self.table, ctx)), ctx.queries, ctx.keys)


class DietAbsolute(_Diet):
    """Products of learned vectors of the two positions, added to the scores.

    Equation: A_ts = q_t . k_s / sqrt(d_h) + P_Q[t] . P_K[s]; Chen et al. (2021), equation 1.
    Shapes: bias -> [1, H, T, S].
    Source: Chen et al. (2021).
    Deviations: 1/sqrt(d_h), where the paper prints sqrt(d) of the hidden size (scale=model); vectors start normal with
        deviation 0.02, which the paper leaves open; the term of segments is a method of its own (diet_abs+segments);
        the paper changes "all the attention layers both in the encoder and decoder" and leaves open whether cross-attention is
        one of them (here: target positions of queries and source positions of keys).
    Cost: 2 h n rank parameters a stack (L times as many with share=none); one product of positions a forward.
    Errors: PositionError for positions past the tables and for fractions of positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        rank: int | None = option(
            None, "width of the vectors; the paper tries 64, 128, 256 and 512 (none: d_h)", minimum=1, maximum=65536
        )
        share: Literal["none", "heads", "layers", "all"] = option("layers", _SHARED)
        scale: Literal["head", "model"] = option("head", _SCALE)

    card = MethodCard(
        name="diet_abs",
        title="DIET, absolute",
        citations=("chen-etal-2021-simple",),
        survey="not in the survey",
        reference="absolute",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="error",
        evidence="paper",
        sites=("encoder", "decoder"),
        extended_sites=("cross",),
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
        queries = rows(self.of_layer(self.query_positions, ctx), ctx.queries)
        return at_least_float32(queries @ rows(self.of_layer(self.key_positions, ctx), ctx.keys).transpose(-1, -2))


class DietLinformer(_Diet):
    """Linformer's compressed keys and values, with products of learned vectors of query positions and of compressed keys.

    Equation: A_tj = q_t . k_j / sqrt(d_h) + P_Q[t] . P_K[j], k_j = ((E X) W_K)_j, v_j = ((F X) W_V)_j, E and F in R^(rank x n);
        Chen et al. (2021), equation 4.
    Shapes: project_input of keys and values [B, S, C] -> [B, rank, C]; attend -> [B, H, T, D].
    Source: Chen et al. (2021); Wang et al. (2020) for Linformer.
    Deviations: 1/sqrt(d_h), where the paper prints sqrt(d) of the hidden size (scale=model); vectors of positions have a width
        of their own, where equation 4 prints d; E is indexed by position, so that padding is left out of the compressed keys;
        E starts uniform as a linear layer, vectors normal with deviation 0.02; compressed keys mix all positions, so there
        is no form for a causal decoder, and posenc_diet_linformer has diet_abs there; the paper
        changes "all the attention layers both in the encoder and decoder" and leaves open whether cross-attention is one of them
        (here: target positions of queries and source positions of keys).
    Cost: L (rank n + h (n + rank) width) parameters a stack, rank n more a layer with tie=false; O(T rank) in time and memory.
    Errors: PositionError for positions past the tables and for fractions of positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        rank: int = option(32, "number of compressed keys", minimum=1, maximum=65536)
        width: int | None = option(None, "width of the vectors of positions (none: d_h)", minimum=1, maximum=65536)
        tie: bool = option(True, "compress keys and values by the same matrix, F = E")
        share: Literal["none", "heads", "layers", "all"] = option(
            "none", "share vectors of positions across heads, layers or both; layers and all share E and F too"
        )
        scale: Literal["head", "model"] = option("head", _SCALE)

    card = MethodCard(
        name="diet_linformer",
        title="DIET with Linformer's compressed keys",
        citations=("chen-etal-2021-simple",),
        survey="not in the survey",
        reference="absolute",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="error",
        evidence="paper",
        sites=("encoder",),
        extended_sites=("cross",),
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
    """Learned scores of the pair of segments that two tokens belong to, or vectors of segments with the embeddings.

    Equation: A_ts + E[seg(t), seg(s)], or x_t + E[seg(t)] with place=input; Chen et al. (2021), equations 1 and 3, section 3.2.
    Shapes: bias -> [B, H, S, S]; embed [B, S, C] -> same.
    Source: Chen et al. (2021).
    Deviations: a segment ends with its separator, by default the end of the sentence: in a source of single sentences, where it
        occurs once, all words are of one segment, so that the term is the same for all keys and has no effect
        (place=input: one vector for all words); segments beyond the table use its last row; scores start at 0, which the paper
        leaves open; attention modules without tokens have one segment.
    Cost: L h segments^2 parameters a stack, or segments d at the input.
    Errors: PositionError where the dictionary lacks the separator.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        place: Literal["heads", "input"] = option("heads", "a scalar in the scores of each head, or a vector with the embeddings")
        segments: int = option(8, "number of segments that are told apart", minimum=2, maximum=1024)
        separator: str = option("</s>", "the token that ends a segment, as it stands in the dictionary")

    card = MethodCard(
        name="segments",
        title="Segment attention of DIET",
        citations=("chen-etal-2021-simple",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="paper",
        sites=("encoder",),
        parameters="segments * d if place == 'input' else L * h * segments**2",
        default_specs={"encoder": "diet_abs+segments", "decoder": "diet_abs"},
    )

    per_layer = content_dependent = True

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if dims.words and options.separator not in dims.words:
            raise PositionError(
                f"segments: the dictionary has no token {options.separator!r}; name one that ends a segment in the source text, "
                "as separator=..."
            )
        self.separator = dims.words.get(options.separator)
        if options.place == "input":
            self.table = nn.Parameter(torch.zeros(options.segments, dims.embed_dim))
            nn.init.normal_(self.table, std=dims.embed_dim**-0.5)
        else:
            self.table = self.parameter_table(options.segments, options.segments, share="none")

    @property
    def hooks(self):
        return super().hooks - {"bias" if self.options.place == "input" else "embed"}

    def segments(self, tokens: Tensor) -> Tensor:
        """[B, S] -> the segment of each token, which is the number of separators before it."""
        if self.separator is None:
            return torch.zeros_like(tokens)
        ends = tokens.eq(self.separator).long()
        return (ends.cumsum(-1) - ends).clamp(max=self.options.segments - 1)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table[self.segments(tokens)]

    def bias(self, ctx: AttentionContext) -> Tensor | None:
        if ctx.tokens is None:
            return None
        own = self.segments(ctx.tokens)
        if not self.training and not own.masked_fill(ctx.tokens == self.dims.padding_idx, 0).any():
            return None
        table = at_least_float32(self.of_layer(self.table, ctx))  # [H, segments, segments]
        return table[:, own.unsqueeze(-1), own.unsqueeze(-2)].transpose(0, 1)  # [H, B, S, S] -> [B, H, S, S]
