"""Random ascending positions in training. The range of the positions also covers sentences that are longer than the training
sentences.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.distances import require_integer
from ...ops.sinusoids import SinusoidTable


class Randomised(PositionMethod):
    r"""Assign random ascending positions to the tokens of a training sentence. The range of the positions also covers
    sentences that are longer than the training sentences.

    Equation: $P[i_t]$ with $P$ the sinusoids of Vaswani et al. (2017). In training, $i_1 < \ldots < i_T$ are drawn without
        replacement from $\{0, \ldots, N - 1\}$ for each sentence. In evaluation, $i_t = t + \lfloor r u / (r + u) \rfloor$ with
        $u = (\mathrm{stride} - 1) t$ and $r = N - n$, for sentences of at most $n$ tokens. $n$ is the maximum
        length, and $N$ is a multiple of $n$ (option `factor`). Ruoss et al. (2023).
    Shapes: positions [B, T] -> [B, T]. embed [B, T, C] -> [B, T, C].
    Source: Ruoss et al. (2023). Code: google-deepmind/randomized_positional_encodings.
    Deviations:
        * The authors also draw positions in evaluation, because the length of the input is known.
        * The length of a translation is not known in decoding. In this project, evaluation therefore draws nothing.
        * In evaluation, the distance between the first positions is approximately `stride`.
        * The distances between later positions are smaller, and all positions are below N.
        * The default stride is the mean distance between the positions of a training sentence of 32 tokens.
        * Consecutive positions (stride=1) are very rare in training. With stride=1, the model loses the order of tokens in
          evaluation.
        * Each sentence has its own positions. The authors draw once for all sentences of a batch.
        * For each sentence, as many positions are drawn as the longest sentence of the batch has tokens. A shorter sentence
          uses the smallest of its positions.
    Cost: no parameters. In training, T of N positions are drawn for each sentence.
    Raises: PositionError for a sentence longer than the maximum length (--max-source-positions, --max-target-positions), and for
        non-integer positions. PositionError for another method of the spec that changes positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        factor: int = option(2, "range N of the positions, as a multiple of the maximum length", minimum=1, maximum=1000)
        stride: int | None = option(
            None,
            "distance between the first positions in evaluation (none: N / 32, for sentences of about 32 tokens)",
            minimum=1,
            maximum=65536,
        )
        vectors: Literal["sinusoidal", "none"] = option(
            "sinusoidal", "sinusoids added to the embeddings, or none (only the other methods of the spec read the positions)"
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
        sites=("encoder",),
        extended_sites=("decoder",),
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.range = options.factor * dims.max_positions
        self.stride = options.stride or max(1, self.range // 32)
        self.table = SinusoidTable(self.range, dims.embed_dim, "interleaved", "paper")

    @property
    def hooks(self) -> frozenset[str]:
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
        """Return the positions in evaluation: [B or 1, T] -> [B or 1, T].

        The positions are ascending and smaller than the range N. A position does not depend on the length of the sentence.
        """
        room, steps = self.range - self.dims.max_positions, (self.stride - 1) * ids
        return ids + room * steps // (room + steps).clamp(min=1)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table(ctx.queries).to(x.dtype)
