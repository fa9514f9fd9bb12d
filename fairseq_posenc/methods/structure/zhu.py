"""Structural Transformer: vectors of the labels of the path between two words, added to keys and values."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, Sentence, SideInput, option
from ...ops import devices
from ...ops.graphs import paths_by, relations_by
from ...ops.kernels.banks import BankScores, BankSums, Maps, linked_scores, linked_sums
from ...ops.paths import unique_paths
from ...ops.sinusoids import Sinusoids
from ...ops.trees import ITSELF, NOTHING, by_token

#: width of the hidden layer of attentive pooling
_POOLING = 128
#: number of vectors of whole paths
_FEATURES = 20000
#: in the hash of a path, each label is multiplied by a power of this number. Sums and products are computed modulo 2^64
_HASH = np.uint64(0x9E3779B97F4A7C15)


class StructuralTransformer(PositionMethod):
    r"""Add to keys and values a vector that encodes the path between two words in the tree.

    Equation: $A_{ts} = q_t \cdot (k_s + W_R r_{ts}) / \sqrt{d_h}$, $o_t = \sum_s \alpha_{ts} (v_s + W_F r_{ts})$, $r_{ts} =
        \operatorname{LayerNorm}(f(u_1, \ldots, u_m))$. $u_1, \ldots, u_m$ are the vectors of the labels of the path from $t$ to
        $s$. Each label includes its direction. Zhu et al. (2019), equations 4 to 9, survey, equations 28 and 29. The option
        `paths` selects $f$. `convolution`: $f$ is a convolution over the first four labels, with ReLU. `attention`: $f$ is
        self-attention over the first four labels, with attentive pooling. `average` and `sum`: $f$ is the average or the sum of
        the vectors of the first five labels. `feature`: $f$ is a vector of the whole path.
    Shapes: content_scores -> [B, H, S, S], content_values -> [B, H, S, D].
    Source: Zhu et al. (2019). Code: Amazing-J/structural-transformer. Survey.
    Deviations:
        * Paths come from a dependency tree. The authors' paths come from AMR graphs.
        * With graph=edges, paths are the shortest paths along or against edges. If there are several shortest paths, the method
          reads the path whose list of label numbers is the first in lexicographic order.
        * If two words are not connected by a path, all labels of the pair are missing.
        * The method treats two tokens of one word as siblings in the tree, as in the authors' code.
        * With graph=edges, the method ignores the label of a root. If no edge leads to a word, the tokens of the word are
          siblings with the unknown label.
        * Pooling follows self-attention, as in the paper. The authors' code applies a convolution after
          self-attention instead of pooling.
        * Missing labels are zero vectors, and f has no dropout.
        * With paths=feature, a hash is the index of a path. Two paths may therefore share a vector.
        * The layer norm removes the factor between average and sum, so that both lead to the same model.
        * The self-attention in f has one head without biases. The authors' code has eight heads with biases.
        * All layers share one table of labels, as in the authors' code. All heads share the vectors W_R r and W_F r, also as in
          the code.
    Cost: 2 (w d_h + d_h) + 2 w parameters per layer, where w is the option `width`. f has 4 w^2 + w parameters per layer for
        convolution, and 3 w^2 + 128 (w + 1) for attention. One table of labels per stack. f is computed for the distinct
        paths of a batch. The vectors of word pairs are gathered in blocks, and gathered again in the backward pass. On a CPU, the
        gathered vectors have the width d_h. On an accelerator, they have the width w. Computing the paths of a tree takes O(S^3)
        time in the data loading workers.
        On a CPU, the method reduces the training speed of a small model to 0.86 times the speed without the method (in tokens
        per second). The factor is 0.75 if nearly all paths of a batch differ.
    Raises: PositionError if the data has no relations.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        paths: Literal["convolution", "attention", "average", "sum", "feature"] = option(
            "convolution", "function f of the labels of a path"
        )
        width: int = option(64, "width w of the vectors of labels and paths", minimum=2, maximum=65536)
        graph: Literal["tree", "edges"] = option("tree", "graph of the words: tree of the sentence, or graph of its edges")

    card = MethodCard(
        name="zhu",
        title="Structural Transformer (Zhu et al.)",
        citations=("zhu-etal-2019-modeling",),
        survey="4.3.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="paper",
        sites=("encoder",),
        parameters=(
            "(20000 if paths == 'feature' else 2 * relations) * width + L * (2 * (width + 1) * d_h + 2 * width"
            " + (4 * width**2 + width if paths == 'convolution' else 3 * width**2 + 128 * (width + 1) if paths == 'attention'"
            " else 0))"
        ),
        survey_parameters="5 d^2 + (d + 1) d_r",
        directional=False,
        side_inputs=(SideInput("zhu_path", "B S S", files=("heads", "relations")),),
        default_specs={"encoder": "sinusoidal+zhu", "decoder": "sinusoidal"},
    )

    @classmethod
    def side_values(cls, sentence: Sentence, options: Options) -> dict[str, np.ndarray]:
        """Return the first labels of the path between every two tokens: [S, S, slots].

        The option `paths` selects the number of labels, `slots`: 4 or 5. With paths=feature, return a hash of each path
        instead: [S, S, 1].
        """
        slots = {"convolution": 4, "attention": 4, "average": 5, "sum": 5}.get(options.paths) or max(2, len(sentence))
        labels = by_token(paths_by(options.graph, sentence, slots)[0], sentence.words, 2)
        size = np.arange(len(sentence.words))
        token, other = np.nonzero((sentence.words[:, None] == sentence.words) & (size[:, None] != size))
        up = 2 * relations_by(options.graph, sentence)[sentence.words[token]]  # tokens of a word are siblings
        labels[token, other, 0], labels[token, other, 1] = up, up + 1
        labels[size, size, 0] = ITSELF
        if options.paths == "feature":
            powers = np.multiply.accumulate(np.full(slots, _HASH))
            number = (labels.astype(np.uint64) * powers).sum(2, keepdims=True)
            number ^= number >> np.uint64(32)
            return {"zhu_path": (1 + number % np.uint64(_FEATURES - 1)).astype(np.int32)}
        return {"zhu_path": labels.astype(np.int32)}

    waits = True

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if dims.relations == 0:
            raise PositionError(
                "zhu: the data has no relations between words. Expected side files with relations. "
                "Create them with posenc side trees, then run posenc side binarise."
            )
        layers, width = dims.num_layers, options.width
        self.labels = nn.Parameter(torch.randn(_FEATURES if options.paths == "feature" else 2 * dims.relations, width))
        with torch.no_grad():
            self.labels.mul_(width**-0.5)
        if options.paths == "convolution":
            self.convolution = _xavier(layers, width, 4 * width)
            self.convolution_bias = nn.Parameter(torch.zeros(layers, width))
        if options.paths == "attention":
            self.waves = Sinusoids(width, "halves", "fairseq")
            self.attention = _xavier(layers, 3 * width, width)  # queries, keys and values
            self.hidden = _xavier(layers, _POOLING, width)
            self.pooling = _xavier(layers, 1, _POOLING)
        self.norm = nn.Parameter(torch.ones(layers, width))
        self.norm_bias = nn.Parameter(torch.zeros(layers, width))
        for name in ("key", "value"):
            self.register_parameter(name, _xavier(layers, dims.head_dim, width))
            self.register_parameter(f"{name}_bias", nn.Parameter(torch.zeros(layers, dims.head_dim)))

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        r, index = self._relations(ctx)
        if devices.on_cpu(q):
            ctx.hand_over(self, r)
            return BankScores.apply(q * ctx.scale, self._mapped("key", r, ctx).to(q.dtype), index)
        with torch.autocast(q.device.type, enabled=False):
            key, key_bias, value, value_bias = (x.to(q.dtype) for which in ("key", "value") for x in self._map(which, ctx))
            maps = Maps(key * ctx.scale, key_bias * ctx.scale, value, value_bias)
            scores, link = linked_scores(q, maps, r.to(q.dtype), index)
        ctx.hand_over(self, link)
        return scores

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        handed = ctx.take(self)
        if devices.on_cpu(probs):
            r, index = self._relations(ctx, handed)
            return BankSums.apply(probs, self._mapped("value", r, ctx).to(probs.dtype), index)
        with torch.autocast(probs.device.type, enabled=False):
            return linked_sums(probs, handed)

    def _relations(self, ctx: AttentionContext, known: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the vectors r of the distinct paths, [P, w], and the index of the path between every two tokens, [B, S, S].

        `known` is r, if another hook has already computed it.
        """
        paths, index = ctx.once((self, "paths"), lambda: unique_paths(ctx.side["zhu_path"], len(self.labels)))
        if known is not None:
            return known, index
        norm, bias = (self.of_layer(parameter, ctx) for parameter in (self.norm, self.norm_bias))
        return F.layer_norm(self._encode(paths, ctx), (self.options.width,), norm, bias), index

    def _mapped(self, which: str, r: Tensor, ctx: AttentionContext) -> Tensor:
        """Return W r + b of the distinct paths, [P, 1, d_h]."""
        return F.linear(r, *self._map(which, ctx)).unsqueeze(1)

    def _map(self, which: str, ctx: AttentionContext) -> tuple[Tensor, Tensor]:
        """Return W, [d_h, w], and b, [d_h], of this layer."""
        weight, bias = (self.of_layer(self.get_parameter(name), ctx) for name in (which, f"{which}_bias"))
        return weight, bias

    def _encode(self, paths: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the vectors of paths: [P, slots] -> [P, w]."""
        known = (paths != NOTHING).unsqueeze(-1)  # [P, slots, 1]
        x = self.labels[paths] * known * self.options.width**0.5
        if self.options.paths == "feature":
            return x[:, 0]
        # the kernel is as wide as a path, so the convolution is one linear map of its four labels
        if self.options.paths == "convolution":
            weight, bias = (self.of_layer(parameter, ctx) for parameter in (self.convolution, self.convolution_bias))
            return F.linear(x.flatten(1), weight, bias).relu()
        if self.options.paths == "attention":
            return self._attend(x, known, ctx)
        total = x.sum(1)
        return total / known.sum(1).clamp(min=1) if self.options.paths == "average" else total

    def _attend(self, x: Tensor, known: Tensor, ctx: AttentionContext) -> Tensor:
        """Apply self-attention to the labels of a path. Return the weighted mean of the result."""
        width, least = self.options.width, torch.finfo(x.dtype).min
        x = x + self.waves(torch.arange(x.size(1), device=x.device)).to(x.dtype)
        attention, hidden, pooling = (self.of_layer(weight, ctx) for weight in (self.attention, self.hidden, self.pooling))
        q, k, v = F.linear(x, attention).chunk(3, -1)
        weights = (q @ k.mT / width**0.5).masked_fill(~known.mT, least).softmax(-1)
        found = weights @ v  # [P, slots, w]
        scores = F.linear(torch.tanh(F.linear(found, hidden)), pooling)  # [P, slots, 1]
        return (scores.masked_fill(~known, least).softmax(1) * found * known).sum(1)


def _xavier(layers: int, out: int, width: int) -> nn.Parameter:
    bound = (6 / (out + width)) ** 0.5
    return nn.Parameter(torch.empty(layers, out, width).uniform_(-bound, bound))
