"""Graph-Bert: three numbers per word.

The numbers are the word's Weisfeiler-Lehman colour, its rank by closeness to the root, and its distance from the root.
"""

import zlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, Sentence, SideInput, option
from ...ops.graphs import distances, joined_by
from ...ops.sinusoids import SinusoidTable
from ...ops.trees import by_token

#: number of rows of the authors' tables, and distance of words that cannot be reached from the root
_ROWS, _UNREACHED = 100, 99
#: restart probability of the random walk
_RESTART = 0.15
#: closeness is rounded to this number of decimals. Smaller differences are rounding errors
_DECIMALS = 9


class GraphBert(PositionMethod):
    r"""Add three vectors per word to the embeddings. Each vector encodes one number about the place of the word in a graph.
    The vectors are sinusoids or learned.

    Equation: $X_t = U_t + PE(WL(t)) + PE(\operatorname{rank}(t)) + PE(\operatorname{hops}(t))$. $WL(t)$ is the word's
        Weisfeiler-Lehman colour. $\operatorname{rank}(t)$ is the word's rank by decreasing closeness $S(\mathrm{root}, t)$,
        with $S = a (I - (1 - a) A D^{-1})^{-1}$ and $a = 0.15$. $\operatorname{hops}(t)$ is the word's distance from the root.
        Zhang et al. (2020), equations 1 to 5.
    Shapes: embed [B, S, C] -> [B, S, C].
    Source: Zhang et al. (2020). Code: jwzhanggy/Graph-Bert.
    Deviations:
        * The use for sentences is a reconstruction. The authors represent nodes of one large graph.
        * A sine and its cosine have the same frequency. The paper prints 2l/d for sines and (2l+1)/d for cosines.
        * The graph is the tree of the sentence. With graph=edges, it is the graph in the side file. In both cases, edges have
          both directions.
        * In the terms of the paper, the target node is the root, and the context of the target node contains all words.
        * Words without a path to the root have distance 99, as in the authors' code.
        * </s> is not in the graph and has no vectors.
        * The authors' code has learned tables (embedding=learned).
        * The authors' code uses the normalised adjacency matrix D^(-1/2) A D^(-1/2) (normalise=both).
        * In the authors' code, colours are numbered within one graph. Here a colour has the same meaning in all sentences.
        * After one round, the colour of a word is the degree of the word. After more rounds, the colour is a hash with 100
          possible values. Words with different neighbourhoods may therefore have the same colour.
        * Words of equal closeness are ranked from left to right.
    Cost: no parameters, or 300 d with embedding=learned. O(n^3) per sentence in the data loading workers.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        embedding: Literal["sinusoids", "learned"] = option("sinusoids", "sinusoids of the numbers, or three learned tables")
        normalise: Literal["columns", "both"] = option(
            "columns", "normalisation of the adjacency matrix: D^(-1) on columns, or D^(-1/2) on both sides"
        )
        rounds: int = option(1, "number of rounds that refine colours with the colours of neighbours", minimum=1, maximum=100)
        graph: Literal["tree", "edges"] = option("tree", "graph of the words: tree of the sentence, or graph of its edges")

    card = MethodCard(
        name="graph_bert",
        title="Graph-Bert",
        citations=("zhang-etal-2020-graph",),
        survey="4.3.2",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        extrapolation="runs",
        evidence="reconstruction",
        sites=("encoder",),
        parameters="300 * d if embedding == 'learned' else 0",
        survey_parameters="0",
        side_inputs=(SideInput("graph_bert", "B S", padding=-1, files=("heads",)),),
        default_specs={"encoder": "sinusoidal+graph_bert", "decoder": "sinusoidal"},
    )

    @classmethod
    def side_values(cls, sentence: Sentence, options: Options) -> dict[str, np.ndarray]:
        """Return colour, rank and hops of every token, or -1 for </s>: [S, 3]."""
        found = np.full((len(sentence), 3), -1, np.int32)
        if len(sentence) > 1:
            leads = joined_by(options.graph, sentence)
            joined, root = (leads | leads.T)[:-1, :-1], int(np.argmax(leads[:, -1]))  # </s> is a child of the root
            close = closeness(joined, options.normalise)[root].round(_DECIMALS)
            close[root] = np.inf  # the root is the first word in its own ranking
            found[np.argsort(-close, kind="stable"), 1] = np.arange(len(close))
            found[:-1, 0], found[:-1, 2] = colours(joined, options.rounds), np.minimum(distances(joined)[root], _UNREACHED)
        return {"graph_bert": by_token(found, sentence.words)}

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if options.embedding == "learned":
            self.weight = nn.Parameter(torch.randn(3, _ROWS, dims.embed_dim) * dims.embed_dim**-0.5)
        else:
            self.table = SinusoidTable(max(dims.max_positions, _ROWS), dims.embed_dim, "halves", "fairseq")

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        numbers = ctx.side["graph_bert"].long()  # [B, S, 3]
        known = (numbers[..., :1] >= 0).to(x.dtype)
        columns = numbers.clamp(min=0).unbind(-1)
        if self.options.embedding == "learned":
            vectors = [table[column.clamp(max=_ROWS - 1)] for table, column in zip(self.weight, columns)]
        else:
            vectors = [self.table.of_words(column).to(x.dtype) for column in columns]
        return x + known * sum(vectors)


def closeness(adjacency: np.ndarray, normalise: str = "columns") -> np.ndarray:
    """Return S = a (I - (1 - a) A')^(-1): [n, n]. A' is A with normalised columns, or with normalised rows and columns."""
    degree = adjacency.sum(0).clip(min=1)
    scaled = adjacency / degree if normalise == "columns" else adjacency / np.sqrt(degree[:, None] * degree)
    return _RESTART * np.linalg.inv(np.eye(len(scaled)) - (1 - _RESTART) * scaled)


def colours(adjacency: np.ndarray, rounds: int) -> np.ndarray:
    """Return Weisfeiler-Lehman colours that have the same meaning in all graphs: [n]. After one round, they are the degrees."""
    found = adjacency.sum(0).astype(int)
    for _ in range(rounds - 1):
        signs = [(int(own), sorted(found[row > 0].tolist())) for own, row in zip(found, adjacency)]
        found = np.array([zlib.crc32(repr(sign).encode()) % _ROWS for sign in signs])
    return found
