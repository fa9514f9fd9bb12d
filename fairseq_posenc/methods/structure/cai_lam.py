"""Graph Transformer: the path between two words, read by a recurrent network, in queries and keys."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, SideInput, option
from ...ops.graphs import FAR, distances, joined_by, paths_by
from ...ops.kernels.banks import BankScores
from ...ops.paths import unique_paths
from ...ops.precision import at_least_float32
from ...ops.trees import ITSELF, NOTHING, TOO_LONG, by_token

#: width of labels, layers of the GRU, labels of the longest path, and rows of the table of depths
_LABEL, _LAYERS, _LONGEST, _DEPTHS = 100, 2, 8, 32


class GraphTransformer(PositionMethod):
    """Add what a GRU makes of the path between two words of the tree to query and key, and a vector of the depth to embeddings.

    Equation: X_t = U_t + d[min(depth(t), 31)], A_ts = (q_t + a_ts) . (k_s + b_ts) / sqrt(d_h), [a_ts; b_ts] = W_l r_ts,
        r_ts = W [h; h'] + c of the last states h and h' of a bidirectional GRU over the labels of the path from t to s;
        Cai and Lam (2020), equations 3 to 7.
    Shapes: embed [B, S, C] -> [B, S, C]; content_scores -> [B, H, S, S].
    Source: Cai and Lam (2020); jcyk/gtos; survey, equation 30.
    Deviations: As in the authors' code and unlike the survey's equation, relations are not projected by the matrices of queries
        and keys, and each layer has its own W_l. As in the authors' code, the path leads from the query to the key. Edges
        against their direction have labels of their own. The global node is left out. Nodes are tokens, and tokens of one word
        have the label of a word to itself. A tree has one path for two words. With graph=edges, paths are the shortest along or
        against edges. Of several shortest paths, the one with the smallest numbers of labels is read; the authors' code draws
        one in training and takes the mean of all in evaluation. With graph=edges, two words that no path joins have a label of
        their own, and their depth is 31; the authors' graphs are connected. With graph=edges, depths are distances from the
        root. Labels and the layers of the GRU have no dropout; the authors' code drops both by 0.2. Labels start with a
        deviation of 0.1, and W_l uniformly by Glorot and Bengio's bound; the authors' code draws both with a deviation of 0.02.
        Sequential positions, as in posenc_cai_lam, are this project's extension to translation.
    Cost: the GRU, W and labels once a stack, 2 d^2 in every layer, 32 d for depths; the GRU reads the different paths of a batch
        once a forward; vectors of pairs are gathered in blocks, never [B, S, S, d] at once; O(S^3) in the workers that load
        data. On a CPU, training a small model reaches 0.21 of the tokens a second that it has without, and less where nearly
        all paths of a batch differ.
    Errors: PositionError where the data names no relations.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        hidden: int | None = option(
            None, "width of the GRU in each direction; none: half the width of the model", minimum=1, maximum=65536
        )
        graph: Literal["tree", "edges"] = option("tree", "what joins words: the tree of the sentence, or the edges of its graph")

    card = MethodCard(
        name="cai_lam",
        title="Graph Transformer (Cai and Lam)",
        citations=("cai-lam-2020-graph",),
        survey="4.6",
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
    def side_values(cls, sentence, options):
        labels, lengths = paths_by(options.graph, sentence, _LONGEST)
        far = (lengths > _LONGEST) & (lengths < FAR)  # the same in both directions
        labels[far], labels[far, 0] = NOTHING, TOO_LONG
        labels[lengths == 0, 0] = ITSELF
        leads = joined_by(options.graph, sentence)
        root = np.argmax(leads[:, -1])  # </s> hangs off it
        depths = np.minimum(distances(leads | leads.T)[root], _DEPTHS - 1)
        return {
            "cai_lam_path": by_token(labels.astype(np.int32), sentence.words, 2),
            "cai_lam_depth": by_token(depths, sentence.words),
        }

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if dims.relations == 0:
            raise PositionError("cai_lam reads the relations between words, and the data names none; prepare it with relations")
        width, hidden = dims.embed_dim, options.hidden or dims.embed_dim // 2
        self.labels = nn.Parameter(torch.randn(2 * dims.relations, _LABEL) * _LABEL**-0.5)
        self.gru = nn.GRU(_LABEL, hidden, _LAYERS, batch_first=True, bidirectional=True)
        self.relation = nn.Linear(2 * hidden, width)
        bound = (6 / (3 * width)) ** 0.5
        self.relation_of_layer = nn.Parameter(torch.empty(dims.num_layers, 2 * width, width).uniform_(-bound, bound))
        self.depths = nn.Parameter(torch.zeros(_DEPTHS, width))

    def prepare(self, ctx: AttentionContext) -> tuple[Tensor, Tensor]:
        """r of the different paths of the batch, [P, C], and which of them leads from query to key, [B, S, S]."""
        paths, index = unique_paths(ctx.side["cai_lam_path"], len(self.labels))
        lengths = (paths != NOTHING).sum(1).clamp(min=1)  # between words and padding there is none
        packed = pack_padded_sequence(self.labels[paths], lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, last = self.gru(packed)  # [layers and directions, P, hidden]
        both = at_least_float32(torch.cat([last[-2], last[-1]], -1))
        return F.linear(both, *(at_least_float32(given) for given in (self.relation.weight, self.relation.bias))), index

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.depths[ctx.side["cai_lam_depth"]].to(x.dtype)

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        """The three products beside q . k, so that a vector is made for a path and not for two words."""
        r, index = ctx.prepared[self]
        with torch.autocast(q.device.type, enabled=False):
            both = F.linear(at_least_float32(r), at_least_float32(self.relation_of_layer[ctx.layer]))
            of_query, of_key = both.unflatten(-1, (2, q.size(1), -1)).unbind(1)  # [P, H, D] each
            of_words = BankScores.apply(at_least_float32(q), of_key, index)
            of_words = of_words + BankScores.apply(at_least_float32(k), of_query, index.mT).mT
            alone = (of_query * of_key).sum(-1)[index]  # [P, H] -> [B, S, S, H]
        return ((of_words + alone.permute(0, 3, 1, 2)) * ctx.scale).to(q.dtype)
