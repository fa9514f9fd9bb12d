"""Real-valued positions, shifted and scaled at random in training."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.sinusoids import SinusoidTable


class Cape(PositionMethod):
    r"""Shift and scale the positions of each training sentence by random real numbers, and add random jitter to each position.

    Equation: $P[(a t + D + e_t) l]$ in training and $P[a t]$ in evaluation, with $P$ the sinusoids of Vaswani et al. (2017) and
        $a$ the option `ratio`. The shift $D \sim U(-D_{\max}, D_{\max})$ and the scale $\log l \sim U(-\log l_{\max}, \log
        l_{\max})$ are drawn for each sentence. The jitter $e_t \sim U(-e_{\max}, e_{\max})$ is drawn for each token. Likhomanenko
        et al. (2021).
    Shapes: positions [B, T] -> [B, T], in float32 in training. embed [B, T, C] -> [B, T, C].
    Source: Likhomanenko et al. (2021). Code: branch cape of flashlight, and gcambara/cape.
    Deviations:
        * Encoder and decoder use the same two random numbers per sentence pair. D and l are computed from these numbers. The
          options shift and scale of each site set the limits of D and l.
        * The ratio a is 1 by default. In the encoder, set the ratio to the mean target length divided by the mean source
          length.
        * The authors' code for translation is not public. The shared random numbers and the ratio a are unverified.
        * The option jitter sets e_max. Its default 0.5 is the value of the authors' code for speech.
        * The public code also multiplies the jitter by the factor a.
        * The mean of the positions is not subtracted, because a decoder does not know this mean.
        * The survey draws l uniformly. The public code draws the logarithm of l uniformly.
    Cost: no parameters. In training, sinusoids are computed for the positions of each sentence.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        shift: float = option(
            5.0, "largest shift D_max of a sentence, in positions (the authors use 10 with 18 layers)", minimum=0.0, maximum=1e6
        )
        jitter: float = option(
            0.5,
            "largest jitter e_max of a token, in positions (beyond 0.5, neighbouring tokens can change order)",
            minimum=0.0,
            maximum=1e6,
        )
        scale: float = option(1.0, "largest scale l_max of a sentence", minimum=1.0, maximum=1000.0)
        ratio: float = option(
            1.0,
            "factor a of all positions (in the encoder: mean target length divided by mean source length)",
            minimum=0.001,
            maximum=1000.0,
        )
        vectors: Literal["sinusoidal", "none"] = option(
            "sinusoidal", "sinusoids added to the embeddings, or none (only the other methods of the spec read the positions)"
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
    def hooks(self) -> frozenset[str]:
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
        """Return random numbers [B, 2] from -1 to 1.

        The decoder reuses the numbers that the encoder has drawn for the sentence pair.
        """
        device = ctx.queries.ids.device
        return ctx.once_per_pair(self.card.name, lambda: torch.empty(rows, 2, device=device).uniform_(-1, 1))

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table(ctx.queries).to(x.dtype)
