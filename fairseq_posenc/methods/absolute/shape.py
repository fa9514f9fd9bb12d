"""Absolute positions that start at a random number in training."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.sinusoids import SinusoidTable


class Shape(PositionMethod):
    r"""Shift all positions of a training sentence by one random number, so that the model does not learn absolute positions.

    Equation: $P[t + k]$ with $P$ the sinusoids of Vaswani et al. (2017). For each sentence, $k \sim U\{0, \ldots, K\}$ in
        training and $k = 0$ in evaluation. Kiyono et al. (2021).
    Shapes: positions [B, T] -> [B, T]. embed [B, T, C] -> [B, T, C].
    Source: Kiyono et al. (2021). Code: butsugiri/shape.
    Deviations:
        * The authors' code draws k from 0 to K - 1. In evaluation, the authors' code adds K to the positions.
        * With the option start=K, this project adds K to the positions in evaluation, as the authors' code does.
        * The shift applies to the positions of all methods of the spec.
    Cost: no parameters. In training, sinusoids are computed for the positions of each sentence.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        shift: int = option(500, "largest shift K, in positions", minimum=0, maximum=1000000)
        start: Literal["0", "K"] = option("0", "first position in evaluation: 0, or K as in the authors' code")
        vectors: Literal["sinusoidal", "none"] = option(
            "sinusoidal", "sinusoids added to the embeddings, or none (only the other methods of the spec read the positions)"
        )

    card = MethodCard(
        name="shape",
        title="Shifted absolute positions (SHAPE)",
        citations=("kiyono-etal-2021-shape",),
        survey="not in the survey",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.table = SinusoidTable(dims.max_positions, dims.embed_dim, "interleaved", "paper")

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - ({"embed"} if self.options.vectors == "none" else set())

    def reach(self, positions: int) -> float:
        return positions + self.options.shift

    def positions(self, ids: Tensor, ctx: AttentionContext) -> Tensor:
        if self.training:
            return ids + torch.randint(self.options.shift + 1, (ids.size(0), 1), device=ids.device)
        return ids + self.options.shift if self.options.start == "K" else ids

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table(ctx.queries).to(x.dtype)
