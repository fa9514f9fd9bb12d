"""Structural position representations: depths in the dependency tree, and distances between words in the tree."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, Sentence, SideInput, option
from ...ops.relative import spread
from ...ops.sinusoids import SinusoidTable
from ...ops.trees import Tree, by_token


class AbsoluteStructure(PositionMethod):
    r"""Add sinusoids of the depth of every word in the dependency tree to the embeddings.

    Equation: $X_t = U_t + PE(\operatorname{depth}(t))$, $\operatorname{depth}(\mathrm{root}) = 0$. With `fuse=tanh`, $X_t = U_t
        + \tanh(PE(t) + PE(\operatorname{depth}(t)))$. With `fuse=linear_tanh`, $X_t = U_t + \tanh(W_1 PE(t) + W_2
        PE(\operatorname{depth}(t)) + b)$. Wang et al. (2019), survey, section 4.3.1.
    Shapes: embed [B, S, C] -> [B, S, C].
    Source: Wang et al. (2019). Survey.
    Deviations:
        * UNVERIFIED: how the paper combines the position in the sentence with the depth. The paper only states that the function
          is not linear.
        * fuse=sum does not contain PE(t). The architecture posenc_spr_abs therefore also uses the method sinusoidal. The
          other two values of fuse contain PE(t).
        * Tokens have the depth of their word. </s> is a child of the root.
    Cost: no parameters, or 2 d^2 + d with fuse=linear_tanh. O(S) in the data loading workers.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        fuse: Literal["sum", "tanh", "linear_tanh"] = option(
            "sum",
            "sinusoids of the depth (sum), or tanh of their sum with the sinusoids of the position, without or with a linear map",
        )
        sinusoids: Literal["fairseq", "paper"] = option(
            "fairseq", "all sines before all cosines at fairseq's frequencies, or interleaved at those of Vaswani et al."
        )

    card = MethodCard(
        name="spr_abs",
        title="Structural positions, absolute (Wang et al.)",
        citations=("wang-etal-2019-self",),
        survey="4.3.1",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        extrapolation="runs",
        evidence="reconstruction",
        sites=("encoder",),
        parameters="2 * d**2 + d if fuse == 'linear_tanh' else 0",
        survey_parameters="0",
        directional=False,
        side_inputs=(SideInput("spr_depth", "B S", files=("heads",)),),
        default_specs={"encoder": "sinusoidal+spr_abs", "decoder": "sinusoidal"},
    )

    @classmethod
    def side_values(cls, sentence: Sentence, options: Options) -> dict[str, np.ndarray]:
        heads = sentence.heads
        assert heads is not None  # the card requires this side file
        return {"spr_depth": by_token(Tree(heads).depths, sentence.words)}

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        form = ("halves", "fairseq") if options.sinusoids == "fairseq" else ("interleaved", "paper")
        self.table = SinusoidTable(dims.max_positions, dims.embed_dim, *form)
        if options.fuse == "linear_tanh":
            self.of_position = nn.Linear(dims.embed_dim, dims.embed_dim)
            self.of_depth = nn.Linear(dims.embed_dim, dims.embed_dim, bias=False)
            for layer in (self.of_position, self.of_depth):
                nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(self.of_position.bias)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        depth = self.table.of_words(ctx.side["spr_depth"]).to(x.dtype)  # [B, S, C]
        if self.options.fuse == "sum":
            return x + depth
        position = self.table(ctx.queries).to(x.dtype)
        if self.options.fuse == "linear_tanh":
            position, depth = self.of_position(position), self.of_depth(depth)
        return x + torch.tanh(position + depth)


class RelativeStructure(PositionMethod):
    r"""Add learned vectors to keys and values. The places of the two words in the dependency tree select the vectors.

    Equation: $A_{ts} = q_t \cdot (k_s + a^K[\operatorname{clip}(r)]) / \sqrt{d_h}$, $o_t = \sum_s \alpha_{ts} (v_s +
        a^V[\operatorname{clip}(r)])$, where $r(t, s) = \operatorname{depth}(t) - \operatorname{depth}(s)$ if one of the words is
        an ancestor of the other, else $\operatorname{sgn}(t - s) (\operatorname{depth}(t) + \operatorname{depth}(s))$. Wang et
        al. (2019), survey, section 4.3.1.
    Shapes: content_scores -> [B, H, T, S], content_values -> [B, H, T, D].
    Source: Wang et al. (2019). Survey. The form of the vectors is from Shaw et al. (2018).
    Deviations:
        * UNVERIFIED: the clipping distance.
        * UNVERIFIED: how the paper combines these vectors with vectors of sequential distances. The spec shaw+spr_rel adds both
          kinds of vectors. The architecture posenc_spr_rel combines this method with the method sinusoidal.
        * Heads share tables by default. In the parameter count of the survey, each head has its own
          tables, and layers share the tables (share=layers).
        * In Table 1 of the survey, this information does not recur in every layer. In this project, every layer adds the
          vectors, as in Shaw et al. (2018).
        * Tokens of one word have r = 0. </s> is a child of the root in the tree.
    Cost: 2 (2k + 1) d_h parameters per layer if heads share tables. Memory O(B H T S). The data
        loading workers compute the side input of a sentence in O(S^2) time.
    Raises: PositionError for keys=false with values=false.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        max_distance: int = option(
            16, "largest distance k with separate vectors (larger distances share the vectors of k)", minimum=0, maximum=65536
        )
        keys: bool = option(True, "vectors added to keys")
        values: bool = option(True, "vectors added to values")
        share: Literal["heads", "none", "layers", "all"] = option(
            "heads", "sharing of the table: across heads, across layers, both (all), or none"
        )

    card = MethodCard(
        name="spr_rel",
        title="Structural positions, relative (Wang et al.)",
        citations=("wang-etal-2019-self",),
        survey="4.3.1",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="reconstruction",
        sites=("encoder",),
        parameters="tables * (keys + values) * (2 * max_distance + 1) * d_h",
        survey_parameters="2 (2 n + 1) d",
        side_inputs=(SideInput("spr_distance", "B S S", files=("heads",)),),
        default_specs={"encoder": "sinusoidal+spr_rel", "decoder": "sinusoidal"},
    )

    @classmethod
    def side_values(cls, sentence: Sentence, options: Options) -> dict[str, np.ndarray]:
        heads = sentence.heads
        assert heads is not None  # the card requires this side file
        tree, place = Tree(heads), np.arange(len(heads))
        related = tree.ancestors | tree.ancestors.T
        row, column = tree.depths[:, None], tree.depths
        distance = np.where(related, row - column, np.sign(place[:, None] - place) * (row + column))
        return {"spr_distance": by_token(distance.astype(np.int16), sentence.words, 2)}

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if not (options.keys or options.values):
            raise PositionError(
                "spr_rel: keys=false and values=false leave no term. Remove one of the two, or use the method none."
            )
        rows = 2 * options.max_distance + 1
        for name, used in (("key_table", options.keys), ("value_table", options.values)):
            table = self.parameter_table(rows, dims.head_dim, share=options.share) if used else None
            self.register_parameter(name, table)
            if table is not None:
                bound = (6 / (rows + dims.head_dim)) ** 0.5  # Xavier initialisation with the size of one table
                nn.init.uniform_(table, -bound, bound)

    @property
    def hooks(self) -> frozenset[str]:
        unused = {"content_scores": not self.options.keys, "content_values": not self.options.values}
        return super().hooks - {hook for hook, left_out in unused.items() if left_out}

    def _rows(self, ctx: AttentionContext) -> Tensor:
        """Return the index of the table row for every pair of tokens: [B, T, S]."""
        limit = self.options.max_distance
        return ctx.once((self, "rows"), lambda: ctx.side["spr_distance"].long().clamp(-limit, limit) + limit)

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        table = self.of_layer(self.key_table, ctx).to(q.dtype)  # [H or 1, 2k + 1, D]
        return spread((q * ctx.scale) @ table.transpose(-1, -2), self._rows(ctx))

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        table = self.of_layer(self.value_table, ctx).to(probs.dtype)
        index = self._rows(ctx).unsqueeze(1).expand_as(probs)
        sums = probs.new_zeros(*probs.shape[:3], table.size(-2)).scatter_add(-1, index, probs)  # [B, H, T, 2k + 1]
        return sums @ table
