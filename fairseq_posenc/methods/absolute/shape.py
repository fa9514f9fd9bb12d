"""Absolute positions that start at a random number in training."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.sinusoids import SinusoidTable


class Shape(PositionMethod):
    """Move all positions of a sentence by one random number in training, so that a model learns no absolute ones.

    Equation: P[t + k], k ~ U{0, ..., K} for every sentence in training and 0 in evaluation, P the sinusoids of Vaswani et al.
        (2017); Kiyono et al. (2021).
    Shapes: positions [B, T] -> same; embed [B, T, C] -> [B, T, C].
    Source: Kiyono et al. (2021); butsugiri/shape.
    Deviations: the authors' code draws k below K and adds K itself in evaluation (start=K); the positions moved are those of all
        methods of the spec.
    Cost: no parameters; sinusoids of every sentence's own positions in training.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        shift: int = option(500, "the largest shift, K", minimum=0, maximum=1000000)
        start: Literal["0", "K"] = option("0", "the first position in evaluation: 0, or K as in the authors' code")
        vectors: Literal["sinusoidal", "none"] = option(
            "sinusoidal", "sinusoids added to the embeddings, or nothing: other methods of the spec then read the positions"
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
    def hooks(self):
        return super().hooks - ({"embed"} if self.options.vectors == "none" else set())

    def reach(self, positions: int) -> float:
        return positions + self.options.shift

    def positions(self, ids: Tensor, ctx: AttentionContext) -> Tensor:
        if self.training:
            return ids + torch.randint(self.options.shift + 1, (ids.size(0), 1), device=ids.device)
        return ids + self.options.shift if self.options.start == "K" else ids

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table(ctx.queries).to(x.dtype)
