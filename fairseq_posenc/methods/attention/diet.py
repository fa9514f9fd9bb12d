"""Learned scores of positions, decoupled from words: by distance, as a product of positions, and with compressed keys."""

from dataclasses import dataclass
from typing import Literal, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionError, PositionMethod, Positions, across_layers, option
from ...ops.distances import from_table, whole
from ...ops.pairs import rows
from ...ops.precision import widen

_CITATION = """@inproceedings{chen-etal-2021-simple,
  title = {A Simple and Effective Positional Encoding for Transformers},
  author = {Chen, Pu-Chin and Tsai, Henry and Bhojanapalli, Srinadh and Chung, Hyung Won and Chang, Yin-Wen and Ferng, Chun-Sung},
  booktitle = {EMNLP}, year = {2021}}"""
_SHARED = "who has the tables in common"
_SCALE = "of the scaled product: 1/sqrt(d_h), or 1/sqrt(d) of the whole model as the paper prints it"
_CROSS = (
    "cross-attention, which the paper includes without defining it, has target positions of queries and source positions of keys"
)


class _Diet(PositionMethod):
    def scale(self, head_dim: int) -> float:
        return (head_dim if self.options.scale == "head" else self.dims.embed_dim) ** -0.5


class DietRelative(_Diet):
    """A learned scalar for every layer, head and distance, added to the scores.

    Equation: A_ts = q_t . k_s / sqrt(d_h) + R[t-s]; Chen et al. (2021), equation 3.
    Shapes: bias -> [1, H, T, S].
    Source: Chen et al. (2021).
    Deviations: 1/sqrt(d_h) where the paper prints sqrt(d) (scale=model); R starts at 0, which the paper leaves open; distances
        beyond the table use its ends. The term of segments is the method segments: diet_rel+segments.
    Cost: L h (2n - 1) parameters a stack; one vector of T + S - 1 values a layer.
    """

    @dataclass(frozen=True)
    class Options(Options):
        share: Literal["none", "heads", "layers", "all"] = option("none", _SHARED)
        scale: Literal["head", "model"] = option("head", _SCALE)

    card = MethodCard(
        name="diet_rel",
        title="DIET, relative",
        citation=_CITATION,
        equation="A_ts = q_t . k_s / sqrt(d_h) + R[t-s]",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="paper",
        sites=("encoder", "decoder"),
        our_sites=("cross",),
        parameters="L h (2n-1)",
        count=lambda options, dims, site: PositionMethod.table_count(options.share, dims, 2 * dims.max_distance + 1),
        deviations=(
            "1/sqrt(d_h), where the paper prints sqrt(d) of the hidden size",
            "scalars start at 0, which the paper leaves open",
            "distances beyond the table use its ends",
            _CROSS,
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.per_layer = not across_layers(options.share)
        self.table = self.parameter_table(2 * dims.max_distance + 1, share=options.share)

    def bias(self, ctx: AttentionContext) -> Tensor:
        return from_table(widen(self.of_layer(self.table, ctx)), ctx.queries, ctx.keys)


class DietAbsolute(_Diet):
    """Products of learned vectors of the two positions, added to the scores.

    Equation: A_ts = q_t . k_s / sqrt(d_h) + P_Q[t] . P_K[s]; Chen et al. (2021), equation 1.
    Shapes: bias -> [1, H, T, S].
    Source: Chen et al. (2021).
    Deviations: 1/sqrt(d_h) where the paper prints sqrt(d) (scale=model); vectors start normal with deviation 0.02, which the
        paper leaves open. The term of segments is the method segments: diet_abs+segments.
    Cost: 2 h n rank parameters a stack (L times as many with share=none); one product of positions a forward.
    """

    @dataclass(frozen=True)
    class Options(Options):
        rank: Optional[int] = option(None, "width of the vectors; the paper tries 64, 128, 256 and 512 (none: d_h)", minimum=1)
        share: Literal["none", "heads", "layers", "all"] = option("layers", _SHARED)
        scale: Literal["head", "model"] = option("head", _SCALE)

    card = MethodCard(
        name="diet_abs",
        title="DIET, absolute",
        citation=_CITATION,
        equation="A_ts = q_t . k_s / sqrt(d_h) + P_Q[t] . P_K[s]",
        survey="not in the survey",
        reference="absolute",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="error",
        evidence="paper",
        sites=("encoder", "decoder"),
        our_sites=("cross",),
        parameters="2 h n rank",
        count=lambda options, dims, site: PositionMethod.table_count(
            options.share, dims, (dims.max_positions + dims.max_key_positions) * (options.rank or dims.head_dim)
        ),
        deviations=(
            "1/sqrt(d_h), where the paper prints sqrt(d) of the hidden size",
            "vectors start normal with deviation 0.02, which the paper leaves open",
            _CROSS,
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.per_layer = not across_layers(options.share)
        rank = options.rank or dims.head_dim
        self.query_positions = self.parameter_table(dims.max_positions, rank, share=options.share)
        self.key_positions = self.parameter_table(dims.max_key_positions, rank, share=options.share)
        for table in (self.query_positions, self.key_positions):
            nn.init.normal_(table, std=0.02)

    def bias(self, ctx: AttentionContext) -> Tensor:
        queries = rows(self.of_layer(self.query_positions, ctx), ctx.queries)
        return widen(queries @ rows(self.of_layer(self.key_positions, ctx), ctx.keys).transpose(-1, -2))


class DietLinformer(_Diet):
    """Linformer's compressed keys and values, with products of learned vectors of query positions and compressed keys.

    Equation: A_tj = q_t . k_j / sqrt(d_h) + P_Q[t] . P_K[j], k_j = ((E X) W_K)_j, v_j = ((F X) W_V)_j, E and F in R^(rank x n);
        Chen et al. (2021), equation 4.
    Shapes: key_input, value_input [B, S, C] -> [B, rank, C]; attend -> [B, H, T, D].
    Source: Chen et al. (2021); Wang et al. (2020) for Linformer.
    Deviations: 1/sqrt(d_h) where the paper prints sqrt(d) (scale=model); vectors are `width` wide, where equation 4 prints d;
        E is addressed by position and without padding; E starts uniform as a linear layer, P normal with deviation 0.02.
        Compressed keys mix all positions, so there is no form for a causal decoder.
    Cost: L (rank n + h (n + rank) width) parameters a stack, rank n more a layer with tie=false; O(T rank) in time and memory.
    """

    @dataclass(frozen=True)
    class Options(Options):
        rank: int = option(32, "number of compressed keys", minimum=1)
        width: Optional[int] = option(None, "width of the vectors of positions (none: d_h)", minimum=1)
        tie: bool = option(True, "compress keys and values alike, F = E")
        share: Literal["none", "heads", "layers", "all"] = option(
            "none", "who has the vectors of positions in common; with layers, E and F too"
        )
        scale: Literal["head", "model"] = option("head", _SCALE)

    card = MethodCard(
        name="diet_linformer",
        title="DIET with Linformer's compressed keys",
        citation=_CITATION,
        equation="A_tj = q_t . ((E X) W_K)_j / sqrt(d_h) + P_Q[t] . P_K[j]",
        survey="not in the survey",
        reference="absolute",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="error",
        evidence="paper",
        sites=("encoder",),
        our_sites=("cross",),
        parameters="L (rank n + h (n + rank) width)",
        count=lambda options, dims, site: (
            PositionMethod.table_count(
                options.share, dims, (dims.max_positions + options.rank) * (options.width or dims.head_dim)
            )
            + (1 if across_layers(options.share) else dims.num_layers) * options.rank * dims.max_key_positions * (2 - options.tie)
        ),
        deviations=(
            "1/sqrt(d_h), where the paper prints sqrt(d) of the hidden size",
            "vectors of positions have a width of their own, where equation 4 prints d",
            "padding is left out of the compressed keys",
            "in the decoder there is no causal form; posenc_diet_linformer has diet_abs there",
            _CROSS,
        ),
        stacks={"decoder": "diet_abs"},
    )

    compresses = True

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        width = options.width or dims.head_dim
        self.query_positions = self.parameter_table(dims.max_positions, width, share=options.share)
        self.key_positions = self.parameter_table(options.rank, width, share=options.share)
        for table in (self.query_positions, self.key_positions):
            nn.init.normal_(table, std=0.02)
        layers = 1 if across_layers(options.share) else dims.num_layers
        for name in ("key_mixer", "value_mixer"):
            used = name == "key_mixer" or not options.tie
            mixer = nn.Parameter(torch.empty(layers, options.rank, dims.max_key_positions)) if used else None
            if mixer is not None:
                nn.init.uniform_(mixer, -(dims.max_key_positions**-0.5), dims.max_key_positions**-0.5)
            self.register_parameter(name, mixer)

    def key_input(self, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self._compress(self.key_mixer, x, at, ctx)

    def value_input(self, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self._compress(self.key_mixer if self.options.tie else self.value_mixer, x, at, ctx)

    def _compress(self, mixer: Tensor, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """[B, S, C] -> [B, rank, C]."""
        if ctx.key_padding is not None:
            x = x.masked_fill(ctx.key_padding.unsqueeze(-1), 0.0)
        mixing = self.of_layer(mixer, ctx)[:, whole(at.ids)].transpose(0, 1)  # [rank, B or 1, S] -> [B or 1, rank, S]
        return (widen(mixing) @ widen(x)).to(x.dtype)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        queries = rows(self.of_layer(self.query_positions, ctx), ctx.queries)  # [B or 1, H or 1, T, width]
        bias = queries @ self.of_layer(self.key_positions, ctx).transpose(-1, -2)  # [B or 1, H or 1, T, rank]
        bias = bias.to(q.dtype).expand(-1, q.size(1), -1, -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=self.scale(self.dims.head_dim))


class Segments(PositionMethod):
    """Learned scores of the pair of segments that two tokens belong to, or vectors of segments with the embeddings.

    Equation: A_ts + E[seg(t), seg(s)], or x_t + E[seg(t)] with place=input; Chen et al. (2021), equations 1 and 3, section 3.2.
    Shapes: bias -> [B, H, S, S]; embed [B, S, C] -> same.
    Source: Chen et al. (2021).
    Deviations: a segment ends with its separator; segments beyond the table use its last row; E starts at 0. With one segment
        the term is constant and left out.
    Cost: L h segments^2 parameters a stack, or segments d at the input.
    Errors: PositionError where the dictionary lacks the separator.
    """

    @dataclass(frozen=True)
    class Options(Options):
        place: Literal["heads", "input"] = option("heads", "a scalar for every pair of segments, layer and head, or a vector")
        segments: int = option(8, "number of segments that are told apart", minimum=2)
        separator: str = option("</s>", "the token that ends a segment, as it stands in the dictionary")

    card = MethodCard(
        name="segments",
        title="Segment attention of DIET",
        citation=_CITATION,
        equation="A_ts + E[seg(t), seg(s)]",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="paper",
        sites=("encoder",),
        parameters="L h segments^2 (input: segments d)",
        count=lambda options, dims, site: (
            options.segments * dims.embed_dim
            if options.place == "input"
            else dims.num_layers * dims.num_heads * options.segments**2
        ),
        deviations=(
            "segments beyond the table use its last row",
            "scores start at 0, which the paper leaves open",
            "attention modules without tokens see one segment",
        ),
        stacks={"encoder": "diet_abs+segments", "decoder": "diet_abs"},  # the paper's own; segments alone know no order
    )

    per_layer = reads_words = True

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
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
        """[B, S] -> the segment of every token, that is the number of separators before it."""
        if self.separator is None:
            return torch.zeros_like(tokens)
        ends = tokens.eq(self.separator).long()
        return (ends.cumsum(-1) - ends).clamp(max=self.options.segments - 1)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table[self.segments(tokens)]

    def bias(self, ctx: AttentionContext) -> Optional[Tensor]:
        if ctx.tokens is None:
            return None
        own = self.segments(ctx.tokens)
        if not self.training and not own.masked_fill(ctx.tokens == self.dims.padding_idx, 0).any():
            return None
        table = widen(self.of_layer(self.table, ctx))  # [H, segments, segments]
        return table[:, own.unsqueeze(-1), own.unsqueeze(-2)].transpose(0, 1)  # [H, B, S, S] -> [B, H, S, S]
