"""Graph Transformer: a recurrent network encodes the path between two words. The result is added to queries and keys."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, Sentence, SideInput, option
from ...ops import devices
from ...ops.graphs import FAR, distances, joined_by, paths_by
from ...ops.kernels.banks import BankScores, BankScoresOfBoth
from ...ops.paths import paths_by_length
from ...ops.precision import at_least_float32
from ...ops.trees import ITSELF, NOTHING, TOO_LONG, by_token

#: width of labels, number of GRU layers, maximum number of labels per path, and rows of the table of depths
_LABEL, _LAYERS, _LONGEST, _DEPTHS = 100, 2, 8, 32


class GraphTransformer(PositionMethod):
    r"""Encode the path between two words of the tree with a GRU, and add the result to query and key. Also add a learned vector
    of the word's depth to the embeddings.

    Equation: $X_t = U_t + d[\min(\operatorname{depth}(t), 31)]$, $A_{ts} = (q_t + a_{ts}) \cdot (k_s + b_{ts}) / \sqrt{d_h}$,
        $[a_{ts}; b_{ts}] = W_l r_{ts}$, $r_{ts} = W [h; h'] + c$ of the last states $h$ and $h'$ of a bidirectional GRU over the
        labels of the path from $t$ to $s$. Cai and Lam (2020), equations 3 to 7.
    Shapes: embed [B, S, C] -> [B, S, C]. content_scores -> [B, H, S, S].
    Source: Cai and Lam (2020). Code: jcyk/gtos. Survey, equation 30.
    Deviations:
        * The query and key projections are not applied to $a_{ts}$ and $b_{ts}$. The authors' code does not apply
          them either. The survey's equation applies them.
        * Each layer has its own W_l, as in the authors' code.
        * The path leads from the query to the key, as in the authors' code.
        * Each relation has two labels: one for paths in the direction of the edge, and one for paths against this direction.
        * The global node of the authors' graphs is left out.
        * Nodes are tokens. The path between two tokens of one word has the label of the path from a word to itself.
        * A tree has one path between two words. With graph=edges, paths are the shortest paths along or against edges.
        * If there are several shortest paths, this project reads the path whose list of label numbers is the first in
          lexicographic order. The authors draw one of the shortest paths in training, and average all of them in evaluation.
        * With graph=edges, pairs of words without a path have their own label. The authors' graphs are connected.
        * With graph=edges, depths are distances from the root, and words without a path to the root have depth 31.
        * Labels and GRU layers have no dropout. The authors' code drops both with 0.2.
        * Initial labels have a standard deviation of 0.1. The initial W_l is uniform (Glorot and Bengio). The authors' code uses
          a deviation of 0.02 for both.
        * For translation, this project adds sequential positions: the architecture posenc_cai_lam also uses the method
          sinusoidal.
    Cost: the parameters of the GRU, W and the labels once per stack. 2 d^2 parameters per layer for W_l. 32 d parameters per
        stack for depths. The GRU reads each distinct path of a batch once per forward pass. The vectors of word pairs are
        gathered in blocks. The method never stores a tensor [B, S, S, d]. O(S^3) in the data loading workers. On a CPU, the
        method reduces the training speed of a small model to 0.21 times the speed without the method (in tokens per second).
        The speed is lower if nearly all paths of a batch differ.
    Raises: PositionError if the data has no relations.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        hidden: int | None = option(
            None, "width of the GRU in each direction (none: half of the model width)", minimum=1, maximum=65536
        )
        graph: Literal["tree", "edges"] = option("tree", "graph of the words: tree of the sentence, or graph of its edges")

    card = MethodCard(
        name="cai_lam",
        title="Graph Transformer (Cai and Lam)",
        citations=("cai-lam-2020-graph",),
        survey="4.3.2",
        reference="both",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="paper",
        sites=("encoder",),
        parameters=(
            "200 * relations + 6 * (hidden or d // 2) * (4 * (hidden or d // 2) + 104)"
            " + (2 * (hidden or d // 2) + 1) * d + 2 * d**2 * L + 32 * d"
        ),
        survey_parameters="7 d^2 + 3 d",
        directional=False,
        side_inputs=(
            SideInput("cai_lam_path", "B S S", files=("heads", "relations")),
            SideInput("cai_lam_depth", "B S", files=("heads",)),
        ),
        default_specs={"encoder": "sinusoidal+cai_lam", "decoder": "sinusoidal"},
    )

    @classmethod
    def side_values(cls, sentence: Sentence, options: Options) -> dict[str, np.ndarray]:
        labels, lengths = paths_by(options.graph, sentence, _LONGEST)
        far = (lengths > _LONGEST) & (lengths < FAR)  # symmetric: a path and its reverse have the same length
        labels[far], labels[far, 0] = NOTHING, TOO_LONG
        labels[lengths == 0, 0] = ITSELF
        leads = joined_by(options.graph, sentence)
        root = np.argmax(leads[:, -1])  # </s> is a child of the root
        depths = np.minimum(distances(leads | leads.T)[root], _DEPTHS - 1)
        return {
            "cai_lam_path": by_token(labels.astype(np.int32), sentence.words, 2),
            "cai_lam_depth": by_token(depths, sentence.words),
        }

    waits = True

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if dims.relations == 0:
            raise PositionError(
                "cai_lam: the data has no relations between words. Expected side files with relations. "
                "Create them with posenc side trees, then run posenc side binarise."
            )
        width, hidden = dims.embed_dim, options.hidden or dims.embed_dim // 2
        self.labels = nn.Parameter(torch.randn(2 * dims.relations, _LABEL) * _LABEL**-0.5)
        self.gru = nn.GRU(_LABEL, hidden, _LAYERS, batch_first=True, bidirectional=True)
        self.relation = nn.Linear(2 * hidden, width)
        bound = (6 / (3 * width)) ** 0.5
        self.relation_of_layer = nn.Parameter(torch.empty(dims.num_layers, 2 * width, width).uniform_(-bound, bound))
        self.depths = nn.Parameter(torch.zeros(_DEPTHS, width))

    def prepare(self, ctx: AttentionContext) -> tuple[Tensor, Tensor]:
        """Return r of the distinct paths of the batch, [P, C], and an index, [B, S, S].

        The index contains the number of the path from each query to each key.
        """
        paths, index, steps = paths_by_length(ctx.side["cai_lam_path"], len(self.labels))
        read = torch.cat([paths[:number, step] for step, number in enumerate(steps)])
        _, last = self.gru(PackedSequence(self.labels[read], torch.tensor(steps)))  # [layers and directions, P, hidden]
        both = at_least_float32(torch.cat([last[-2], last[-1]], -1))
        r = F.linear(both, *(at_least_float32(given) for given in (self.relation.weight, self.relation.bias)))
        return r.to(last.dtype), index  # converted once for all layers

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.depths[ctx.side["cai_lam_depth"]].to(x.dtype)

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the sum of the products q . b, a . k and a . b of the class's equation: [B, H, S, S].

        a . b is computed per path, not per pair of words.
        """
        r, index = ctx.prepared[self]
        with torch.autocast(q.device.type, enabled=False):
            r, weight = r.to(q.dtype), self.of_layer(self.relation_of_layer, ctx).to(q.dtype)  # [P, C], [2 C, C]
            of_query, of_key = F.linear(r, weight).unflatten(-1, (2, q.size(1), -1)).unbind(1)  # [P, H, D] each
            if devices.on_cpu(q):
                q, k = q * ctx.scale, k * ctx.scale
                of_words = BankScores.apply(q, of_key, index) + BankScores.apply(k, of_query, index.mT).mT
            else:  # queries and keys are mapped to the width of r. All heads then read the vectors r of the pairs
                to_query, to_key = (weight * ctx.scale).unflatten(0, (2, q.size(1), -1)).unbind()  # [H, D, C] each
                queries = (q.permute(1, 2, 0, 3).flatten(1, 2) @ to_key).unflatten(1, (-1, q.size(0)))  # [H, T, B, C]
                keys = (k.transpose(0, 1).flatten(1, 2) @ to_query).unflatten(1, (k.size(0), -1))  # [H, B, S, C]
                of_words = BankScoresOfBoth.apply(queries.permute(2, 0, 1, 3), keys.transpose(0, 1), r, index)
            alone = ((of_query * of_key).sum(-1) * ctx.scale)[index]  # [P, H] -> [B, S, S, H]
        return of_words + alone.permute(0, 3, 1, 2)
