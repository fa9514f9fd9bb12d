"""Eigenvectors of the Laplacian of a tree or graph, as coordinates of words."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, Sentence, SideInput, option
from ...ops.graphs import joined_by
from ...ops.trees import by_token


class Laplacian(PositionMethod):
    r"""Apply a learned linear map to coordinates of words, and add the result to the embeddings. The coordinates are entries
    of eigenvectors of the graph's normalised Laplacian.

    Equation: $X_t = U_t + W l_t + b$, where $l_t \in \mathbb{R}^k$ contains the entries of word $t$ in the eigenvectors 2 to
        $k + 1$ of $I - D^{-1/2} A D^{-1/2}$. The eigenvectors are sorted by ascending eigenvalue. Dwivedi and Bresson (2021),
        section 2.3.
    Shapes: embed [B, S, C] -> [B, S, C].
    Source: Dwivedi and Bresson (2021). Code: graphdeeplearning/graphtransformer.
    Deviations:
        * Attention reads all words. The authors' attention reads only neighbours.
        * In training, each eigenvector of each sentence is multiplied by a random sign. In the authors' code, all sentences of a
          batch have the same signs.
        * The solver is eigh instead of eig.
        * If a sentence has fewer than k + 1 eigenvectors, the remaining coordinates of its words are zeros. The authors' code
          fails for such sentences.
        * Tokens have the coordinates of their word. </s> is not in the graph and has zeros.
        * For translation, this project adds sequential positions: the architecture posenc_laplacian also uses the method
          sinusoidal.
        * By default, the graph is the dependency tree of the sentence. With graph=edges, the graph comes from the side file of
          edges. In both cases, edges have both directions.
        * Each connected component of more than one word has the eigenvalue 0. A word without edges has the eigenvalue 1. This
          project leaves out only the first eigenvector, even if several eigenvalues are 0.
        * Trees often have repeated eigenvalues. The eigenvectors of a repeated eigenvalue are only defined up to a rotation.
          In training, the method multiplies eigenvectors by random signs, but does not rotate eigenvectors randomly.
        * In evaluation, the solver determines the signs and the rotations.
    Cost: (k + 1) d parameters per stack. O(n^3) per sentence in the data loading workers.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        eigenvectors: int = option(8, "number k of eigenvectors", minimum=1, maximum=1024)
        graph: Literal["tree", "edges"] = option("tree", "graph of the words: tree of the sentence, or graph of its edges")

    card = MethodCard(
        name="laplacian",
        title="Laplacian eigenvectors",
        citations=("dwivedi-bresson-2021-generalization",),
        survey="4.3.2",
        reference="absolute",
        injection="APE",
        learnable=True,
        recurring=False,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder",),
        parameters="(eigenvectors + 1) * d",
        survey_parameters="0",
        stochastic=True,
        side_inputs=(SideInput("laplacian", "B S", files=("heads",)),),
        default_specs={"encoder": "sinusoidal+laplacian", "decoder": "sinusoidal"},
    )

    @classmethod
    def side_values(cls, sentence: Sentence, options: Options) -> dict[str, np.ndarray]:
        found = np.zeros((len(sentence), options.eigenvectors), np.float32)
        if len(sentence) > 2:
            leads = joined_by(options.graph, sentence)[:-1, :-1]  # without </s>
            vectors = eigenvectors(leads | leads.T)[1][:, 1 : options.eigenvectors + 1]
            found[:-1, : vectors.shape[1]] = vectors
        return {"laplacian": by_token(found, sentence.words)}

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.projection = nn.Linear(options.eigenvectors, dims.embed_dim)

    def prepare(self, ctx: AttentionContext) -> Tensor | None:
        """Return a random sign per sentence and eigenvector, [B, 1, k], or None in evaluation."""
        given = ctx.side["laplacian"]
        if not self.training:
            return None
        return torch.randint(2, (given.size(0), 1, given.size(2)), device=given.device) * 2 - 1

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        coordinates, signs = ctx.side["laplacian"].to(self.projection.weight.dtype), ctx.prepared[self]
        return x + self.projection(coordinates if signs is None else coordinates * signs).to(x.dtype)


def eigenvectors(adjacency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues and the eigenvectors of the normalised Laplacian of an undirected graph.

    The eigenvalues [n] are in ascending order. The eigenvectors are the columns of the second array [n, n].
    """
    root = 1 / np.sqrt(adjacency.sum(1).clip(min=1))
    return np.linalg.eigh(np.eye(len(adjacency)) - root[:, None] * adjacency * root)
