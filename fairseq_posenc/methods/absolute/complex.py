"""Complex embeddings, whose phase is a linear function of the position."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.precision import at_least_float32


class ComplexEmbedding(PositionMethod):
    r"""Interpret each embedding as complex numbers and rotate them by the position times a token-specific frequency.

    Equation: $g(u, t)_k = r_k(u) \exp(i (w_k(u) t + \theta_k(u)))$ for $k = 1$ to $d/2$. The channels contain all real
        parts, followed by all imaginary parts. For token $u$, $r_k$ is the amplitude, $w_k$ is the frequency and $\theta_k$
        is the initial phase. Wang et al. (2020).
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Wang, Zhao, Lioma, Li, Zhang and Simonsen (2020), equation 5 and appendix C, adapted to a real-valued model. Code:
        iclr-complex-order/complex-order.
    Deviations:
        * The two halves of the model's embedding are the real and imaginary parts of $r \exp(i \theta)$.
        * Amplitudes and initial phases are therefore learned as Cartesian coordinates. They add no parameters to the embedding.
        * Real and imaginary parts are concatenated for a real-valued Transformer, as appendix C suggests.
        * The authors' translation model is complex-valued throughout. The architecture posenc_complex_transformer implements this
          model.
        * The authors' translation model learns no frequencies (learned=false) and no initial phases.
        * Initial frequencies are the frequencies of sinusoids, as in the authors' code for translation and for classification.
          In the code of appendix C, initial frequencies are standard normal.
        * With frequencies=word, initial frequencies are random in the range of the sinusoids' frequencies. The authors' language
          model has normal initial frequencies with standard deviation 0.02.
    Cost: V d / 2 parameters per stack for a dictionary of V tokens. With frequencies=word, V parameters. With
        frequencies=dimension, d / 2 parameters. With learned=false, no parameters. Each token
        takes d / 2 products of complex numbers.
    Raises: PositionError for an odd width, and for frequencies=word with learned=false.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        frequencies: Literal["word_and_dimension", "word", "dimension"] = option(
            "word_and_dimension", "one frequency per token and dimension, per token, or per dimension"
        )
        learned: bool = option(True, "learned frequencies (false: the fixed frequencies of sinusoids)")
        first_position: Literal[1, 0] = option(1, "number of the first position (1 in the authors' code)")

        def __post_init__(self) -> None:
            if self.frequencies == "word" and not self.learned:
                raise PositionError("frequencies=word requires learned frequencies. Remove learned=false.")

    card = MethodCard(
        name="complex",
        title="Complex word embeddings",
        citations=("wang-etal-2020-encoding",),
        survey="4.1.1",
        reference="absolute",
        injection="other",
        learnable=True,
        recurring=False,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="learned * (1 if frequencies == 'dimension' else V) * (1 if frequencies == 'word' else d // 2)",
        survey_parameters="2 V d",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if dims.embed_dim % 2:
            raise PositionError(f"complex: the embedding dimension {dims.embed_dim} is odd. Expected an even number.")
        half = dims.embed_dim // 2
        # as in the authors' code, two neighbouring complex numbers share an initial frequency
        pair = torch.arange(half, dtype=torch.float64) // 2
        exponent = 2 * pair / half
        if options.frequencies == "word":
            exponent = torch.rand(dims.vocab_size, 1, dtype=torch.float64)
        elif options.frequencies == "word_and_dimension":
            exponent = exponent.expand(dims.vocab_size, -1)
        start = torch.exp(-math.log(10000.0) * exponent).float()
        if options.learned:
            self.frequency = nn.Parameter(start)
        else:  # the frequencies are stored as integers with the same bits, so that `.half()` does not round the frequencies
            self.register_buffer("bits", start.view(torch.int32), persistent=False)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        frequency = self.frequency if self.options.learned else self.bits.view(torch.float32)
        if self.options.frequencies != "dimension":
            frequency = F.embedding(tokens, frequency)  # [V, d/2 or 1] -> [B, T, d/2 or 1]
        frequency = at_least_float32(frequency)
        angle = frequency * (ctx.queries.ids + self.options.first_position).to(frequency.dtype).unsqueeze(-1)
        re, im = at_least_float32(x).chunk(2, -1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([re * cos - im * sin, re * sin + im * cos], -1).to(x.dtype)
