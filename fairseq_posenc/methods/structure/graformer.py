"""Graformer: a learned bias for the directed distance of two words in the tree or graph."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...core import (
    AttentionContext,
    Dims,
    MethodCard,
    MethodOptions,
    PositionMethod,
    Sentence,
    SideInput,
    option,
    shared_by_layers,
)
from ...ops.graphs import FAR, distances, joined_by
from ...ops.trees import by_token

#: _NO_WAY is the value of `FAR`, written as a literal because cards consist of literals. Values above _IN_WORD are offsets
#: between tokens of one word. The offset o is stored as 2 * _IN_WORD + o
_NO_WAY, _IN_WORD = 10000, 20000


class Graformer(PositionMethod):
    r"""Add a learned scalar for every head and every bucket of the directed distance between two words of the graph.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} + g[R(t, s)]$. $R(t, s)$ is a separate index if there is no path
        from $t$ to $s$ and no path from $s$ to $t$. Between tokens of one word, $R(t, s)$ is the offset $s - t$, with separate
        scalars for offsets. Otherwise, $R(t, s)$ is $d(t, s)$ if $d(t, s) \le d(s, t)$, else $-d(s, t)$. $d$ is the length of
        the shortest directed path. Schmitt et al. (2021), survey, equation 31.
    Shapes: bias -> [B, H, S, S].
    Source: Schmitt et al. (2021). Code: mnschmit/graformer. Survey.
    Deviations:
        * Positive and negative distances are clipped separately. The authors' code clips the bucket number, so that large
          positive distances share the bucket of the largest negative distance.
        * The authors' code encodes titles with special buckets. This project does not encode titles.
        * The authors' code has a regulariser for monotone weights. This project does not have this regulariser.
        * By default, the graph is the dependency tree of the sentence. The edges of the tree lead from heads to dependents.
          With graph=edges, the graph comes from the side file of edges.
        * With undirected=true, paths may follow edges in both directions.
        * Tables start at zero, so that training starts as plain attention. The authors draw the initial values from
          (-1, 1).
        * For translation, this project adds sequential positions: the architecture posenc_graformer also uses the method
          sinusoidal.
        * </s> is a child of the root.
    Cost: (2 max_distance + 2 + 2 max_offset) h parameters per stack. O(S^3) in the data loading workers.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        max_distance: int = option(
            10, "largest distance with a separate scalar (larger distances share its scalar)", minimum=1, maximum=65536
        )
        max_offset: int = option(
            10,
            "largest offset between tokens of one word with a separate scalar (larger offsets share its scalar)",
            minimum=1,
            maximum=65536,
        )
        graph: Literal["tree", "edges"] = option("tree", "graph of the words: tree of the sentence, or graph of its edges")
        undirected: bool = option(False, "paths along edges in both directions")
        share: Literal["layers", "none", "heads", "all"] = option(
            "layers", "sharing of the table: across heads, across layers, both (all), or none"
        )

    card = MethodCard(
        name="graformer",
        title="Graformer",
        citations=("schmitt-etal-2021-modeling",),
        survey="4.3.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="paper",
        sites=("encoder",),
        parameters="tables * (2 * max_distance + 2 + 2 * max_offset)",
        survey_parameters="2 (D_max + 1) h",
        side_inputs=(SideInput("graformer_distance", "B S S", padding=_NO_WAY, files=("heads",)),),
        default_specs={"encoder": "sinusoidal+graformer", "decoder": "sinusoidal"},
    )
    content_dependent = True

    @classmethod
    def side_values(cls, sentence: Sentence, options: Options) -> dict[str, np.ndarray]:
        words, joined = sentence.words, joined_by(options.graph, sentence)
        there = distances(joined | joined.T if options.undirected else joined)
        distance = by_token(np.where(there <= there.T, there, -there.T), words, 2)
        token = np.arange(len(words))
        within = (words[:, None] == words) & (token[:, None] != token)
        return {"graformer_distance": np.where(within, 2 * _IN_WORD + token - token[:, None], distance).astype(np.int32)}

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.per_layer = not shared_by_layers(options.share)
        self.table = self.parameter_table(2 * options.max_distance + 2 + 2 * options.max_offset, share=options.share)

    def bias(self, ctx: AttentionContext) -> Tensor:
        table = self.of_layer(self.table, ctx, float32=True)  # [H or 1, buckets]
        buckets = ctx.once((self, "buckets"), lambda: self._buckets(ctx.side["graformer_distance"].long()))
        return table[:, buckets].transpose(0, 1)  # [H or 1, B, S, S] -> [B, H or 1, S, S]

    def _buckets(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance: 0 for the word itself, 1 for no path, then distances 1, -1, 2, -2, ...

        The last buckets are the offsets between two tokens of one word, in the order 1, -1, 2, -2, ...
        """
        far, near = self.options.max_distance, self.options.max_offset
        between = self._number(distance, far, 0)
        between = torch.where(distance == 0, 0, torch.where(distance == FAR, 1, between))
        return torch.where(distance > _IN_WORD, self._number(distance - 2 * _IN_WORD, near, 2 * far), between)

    @staticmethod
    def _number(distance: Tensor, limit: int, first: int) -> Tensor:
        return first + 2 * distance.abs().clamp(max=limit) + (distance < 0)
