"""Positions that are real numbers, moved and stretched at random in training."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.sinusoids import SinusoidTable


class Cape(PositionMethod):
    """Shift and scale the positions of a training sentence by random real numbers, each position and all together.

    Equation: P[(a t + D + e_t) l] with D ~ U(-D_max, D_max) and log l ~ U(-log l_max, log l_max) for every sentence and
        e_t ~ U(-e_max, e_max) for every word in training, P[a t] in evaluation, P the sinusoids of Vaswani et al. (2017);
        Likhomanenko et al. (2021).
    Shapes: positions [B, T] -> same, in float32; embed [B, T, C] -> [B, T, C].
    Source: Likhomanenko et al. (2021); the branch cape of flashlight, and gcambara/cape.
    Deviations: the code for translation is not public: that both sides of a sentence pair share D and l, each in proportion
        to its own limits, and the ratio a of lengths could not be read, and e_max=0.5 is that of the code for speech; the
        public code scales the jitter by the factor of positions too; positions are not centred at the mean, which a decoder
        cannot know; the survey draws l itself where the codes draw its logarithm.
    Cost: no parameters; sinusoids of every sentence's own positions in training.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        shift: float = option(
            5.0, "the largest shift of a sentence, D_max; the authors use 10 with 18 layers", minimum=0.0, maximum=1e6
        )
        jitter: float = option(
            0.5, "the largest shift of a word, e_max; beyond 0.5 neighbours may change places", minimum=0.0, maximum=1e6
        )
        scale: float = option(1.0, "the largest factor of a sentence, l_max", minimum=1.0, maximum=1000.0)
        ratio: float = option(
            1.0,
            "factor of all positions, a: in the encoder the mean length of targets over that of sources",
            minimum=0.001,
            maximum=1000.0,
        )
        vectors: Literal["sinusoidal", "none"] = option(
            "sinusoidal", "sinusoids added to the embeddings, or nothing: other methods of the spec then read the positions"
        )

    card = MethodCard(
        name="cape",
        title="Continuous augmented positions (CAPE)",
        citations=("likhomanenko-etal-2021-cape",),
        survey="4.2",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        extrapolation="runs",
        evidence="reconstruction",
        sites=("encoder", "decoder"),
    )
    position_type = "fractional"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.table = SinusoidTable(dims.max_positions, dims.embed_dim, "interleaved", "paper")

    @property
    def hooks(self):
        return super().hooks - ({"embed"} if self.options.vectors == "none" else set())

    def reach(self, positions: int) -> float:
        options = self.options
        return ((positions - 1) * options.ratio + options.shift + options.jitter) * options.scale + 1

    def positions(self, ids: Tensor, ctx: AttentionContext) -> Tensor:
        options = self.options
        ids = ids if options.ratio == 1 else ids * options.ratio
        if not self.training:
            return ids
        moved, scaled = self._of_the_pair(ids.size(0), ctx).split(1, 1)  # [B, 1] each
        jitter = torch.empty(ids.shape, device=ids.device).uniform_(-options.jitter, options.jitter)
        return (ids + options.shift * moved + jitter) * (math.log(options.scale) * scaled).exp()

    def _of_the_pair(self, rows: int, ctx: AttentionContext) -> Tensor:
        """[B, 2], from -1 to 1: the random numbers that the encoder has drawn for the sentence, or new ones."""
        device = ctx.queries.ids.device
        return ctx.once_per_pair(self.card.name, lambda: torch.empty(rows, 2, device=device).uniform_(-1, 1))

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table(ctx.queries).to(x.dtype)
