"""Positions that are drawn from a longer range in training, in order."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.distances import require_integer
from ...ops.sinusoids import SinusoidTable


class Randomised(PositionMethod):
    """Number the words of a training sentence by a random ascending choice from a range that longer sentences need.

    Equation: P[i_t] with i_1 < ... < i_T drawn without replacement from {0, ..., N - 1} for every sentence in training, P the
        sinusoids of Vaswani et al. (2017); Ruoss et al. (2023). In evaluation i_t = t + floor(r u / (r + u)) with
        u = (stride - 1) t and r = N - n for sentences of at most n words.
    Shapes: positions [B, T] -> same; embed [B, T, C] -> [B, T, C].
    Source: Ruoss et al. (2023); google-deepmind/randomized_positional_encodings.
    Deviations: The authors' models draw in evaluation too, because they know the length. A decoder does not know its length, so
        evaluation draws nothing: the first positions are `stride` apart, later ones closer, and all are below N. The default
        stride is the mean distance between the numbers of a training sentence of 32 words. Consecutive numbers (stride=1), which
        training hardly ever draws, lose the order of words. The authors draw once for all sentences of a batch. A sentence
        that is shorter than its batch has the first of the drawn numbers.
    Cost: no parameters; in training a choice of T numbers from N for every sentence.
    Errors: PositionError for a sentence longer than the longest (--max-source-positions, --max-target-positions), of which N is
        a multiple.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        factor: int = option(2, "N, in lengths of the longest sentence that the model takes", minimum=1, maximum=1000)
        stride: int | None = option(
            None,
            "distance between the first positions in evaluation; none is N / 32, for sentences of some 32 words",
            minimum=1,
            maximum=65536,
        )
        vectors: Literal["sinusoidal", "none"] = option(
            "sinusoidal", "sinusoids added to the embeddings, or nothing: other methods of the spec then read the positions"
        )

    card = MethodCard(
        name="randomised",
        title="Randomised positions",
        citations=("ruoss-etal-2023-randomized",),
        survey="not in the survey",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        extrapolation="error",
        evidence="paper",
        sites=("encoder", "decoder"),
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.range = options.factor * dims.max_positions
        self.stride = options.stride or max(1, self.range // 32)
        self.table = SinusoidTable(self.range, dims.embed_dim, "interleaved", "paper")

    @property
    def hooks(self):
        return super().hooks - ({"embed"} if self.options.vectors == "none" else set())

    def reach(self, positions: int) -> float:
        return positions * self.options.factor

    def positions(self, ids: Tensor, ctx: AttentionContext) -> Tensor:
        if not self.training:
            return self._in_steps(ids)
        ids = require_integer(ids)
        chosen = torch.rand(ids.size(0), self.range, device=ids.device).topk(ids.size(1)).indices  # [B, T] of [B, N]
        return chosen.sort().values.gather(1, ids)

    def _in_steps(self, ids: Tensor) -> Tensor:
        """[B or 1, T] -> the same: ascending numbers below N, which do not depend on the length of the sentence."""
        room, steps = self.range - self.dims.max_positions, (self.stride - 1) * ids
        return ids + room * steps // (room + steps).clamp(min=1)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table(ctx.queries).to(x.dtype)
