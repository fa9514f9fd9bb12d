"""Sinusoids of the requested output length (Takase and Okazaki 2019)."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, SideInput, option
from ...ops import devices
from ...ops.characters import printed_characters
from ...ops.sinusoids import Sinusoids, sinusoid


class OutputLength(PositionMethod):
    """Read the requested length of each sentence, and compute the length of each prefix (base class of ldpe and lrpe)."""

    def __init__(self, options: Any, dims: Dims):
        super().__init__(options, dims)
        self.counts_tokens = options.unit == "token"  # the position of a token is then the number of tokens before it
        if options.unit == "char":
            self.register_buffer("characters", printed_characters(dims.words, dims.vocab_size), persistent=False)

    def lengths(self, ctx: AttentionContext) -> Tensor:
        """Return the requested lengths [B, 1]. On a CPU, raise PositionError for negative lengths.

        If `ctx.queries.start` is set (see `Positions`), only the first decoding step checks the lengths. If
        `ctx.queries.start` is not set, every decoding step checks the lengths.
        """
        lengths = ctx.side["target_length"].unsqueeze(1)
        if devices.on_cpu(lengths) and not ctx.queries.start and (lengths < 0).any():
            raise PositionError(
                f"{self.card.name} (decoder): the side input 'target_length' contains {int(lengths.min())}. "
                "Expected lengths of at least 0."
            )
        return lengths

    def before(self, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        """Return, for each column, the length of the text before the token that this column predicts: [B, T] -> [B or 1, T]."""
        if self.options.unit == "token":
            return ctx.queries.ids
        prefix = tokens if ctx.tokens is None else ctx.tokens  # in decoding, `tokens` are only the new tokens
        return self.characters[prefix].cumsum(1)[:, -tokens.size(1) :]


class LengthDifference(OutputLength):
    r"""Add sinusoids of the remaining output length to the decoder's embeddings.

    Equation: $x_k = \sqrt{d} E[y_k] + PE(r_k)$, $r_k = \max(L - c_k, r_{\min})$, with $E$ the token embeddings and $PE$ the
        sinusoids. $L$ is the length of the output without `</s>`, and $c_k$ the length of the $k$ tokens before the predicted
        token. $r$ is therefore 0 at `</s>`. Takase and Okazaki (2019), LDPE. Survey, equation 32.
    Shapes: embed [B, T, C] -> [B, T, C], with side input target_length [B].
    Source: Takase and Okazaki (2019). Code: takase/control-length. Length noise (--length-noise) and predicted lengths
        (--length-from predictor) are from Oka, Chousa, Sudoh and Nakamura (2020). Only the abstract of this paper was read.
    Deviations:
        * The first token has r = L. The paper's equation gives the same value if the paper's length includes </s>. The authors'
          code adds 2 to r (offset=2).
        * Sinusoids are computed, not read from a table. The smallest value of r is min_remaining.
        * The authors' code fails if the output is 3 tokens longer than the requested length.
        * All sines come before all cosines, as in fairseq. The options layout=interleaved,grid=paper implement the equation.
        * unit=char counts printed characters of subwords. The authors count tokens, which are characters in their data.
    Cost: no parameters. One vector of sinusoids is computed per token.
    Raises: PositionError for a negative length (on a CPU), and for a batch without lengths. PositionError for unit=token with
        another method that changes positions. The position of a token is then not the number of tokens before this
        token.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        unit: Literal["token", "char"] = option(
            "token", "unit of the lengths: target tokens, or printed characters with one space per word"
        )
        offset: int = option(0, "number added to the remaining length (2 in the authors' code)", minimum=0)
        min_remaining: int | None = option(
            None, "smallest remaining length (none: 0, or -W in training with --length-noise W)", maximum=0
        )
        layout: Literal["halves", "interleaved"] = option(
            "halves", "all sines before all cosines, or each sine next to its cosine"
        )
        grid: Literal["fairseq", "paper"] = option(
            "fairseq", "frequencies of fairseq and tensor2tensor, or frequencies of the paper"
        )

    card = MethodCard(
        name="ldpe",
        title="Length-difference positional encoding",
        citations=("takase-okazaki-2019-positional", "oka-etal-2020-incorporating"),
        survey="4.4",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        survey_parameters="0",
        side_inputs=(SideInput("target_length", "B", "target"),),
        default_specs={"encoder": "sinusoidal"},
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.waves = Sinusoids(dims.embed_dim, options.layout, options.grid)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        remaining = self.lengths(ctx) - self.before(tokens, ctx)  # [B, T]
        remaining = remaining.clamp(min=self.options.min_remaining or 0)
        return x + self.waves(remaining + self.options.offset).to(x.dtype)


class LengthRatio(OutputLength):
    r"""Add sinusoids, whose wavelengths depend on the output length, to the decoder's embeddings.

    Equation: $x_k = \sqrt{d} E[y_k] + P_k$, $P_k[2i] = \sin(t l^{-2i/d})$, $P_k[2i+1] = \cos(t l^{-2i/d})$, $t = c_k + 1$, $l = L
        + 1$, with $E$ the token embeddings. $L$ is the length of the output without `</s>`, and $c_k$ the length of the $k$
        tokens before the predicted token. Takase and Okazaki (2019), LRPE. Survey, equation 33.
    Shapes: embed [B, T, C] -> [B, T, C], with side input target_length [B].
    Source: Takase and Okazaki (2019). Code: takase/control-length. Length noise (--length-noise) and predicted lengths
        (--length-from predictor) are from Oka, Chousa, Sudoh and Nakamura (2020). Only the abstract of this paper was read.
    Deviations:
        * The authors' code counts t from 2 (offset=1).
        * In training, the authors' code gives all sentences of a batch the positions of the first sentence, which is a defect.
        * All sines come before all cosines, and the last wavelength is 2 pi l, as in fairseq.
        * The options layout=interleaved,grid=paper implement the equation.
        * unit=char counts printed characters of subwords.
    Cost: no parameters. One vector of sinusoids is computed per token.
    Raises: PositionError for a negative length (on a CPU), and for a batch without lengths. PositionError for unit=token with
        another method that changes positions, because positions are then not numbers of tokens.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        unit: Literal["token", "char"] = option(
            "token", "unit of the lengths: target tokens, or printed characters with one space per word"
        )
        offset: int = option(0, "number added to the position (1 in the authors' code)", minimum=0)
        layout: Literal["halves", "interleaved"] = option(
            "halves", "all sines before all cosines, or each sine next to its cosine"
        )
        grid: Literal["fairseq", "paper"] = option(
            "fairseq", "frequencies of fairseq and tensor2tensor, or frequencies of the paper"
        )

    card = replace(
        LengthDifference.card,
        name="lrpe",
        title="Length-ratio positional encoding",
    )

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        position = self.before(tokens, ctx) + 1 + self.options.offset  # [B or 1, T]
        waves = sinusoid(position, x.size(-1), self.options.layout, self.options.grid, self.lengths(ctx) + 1)
        return x + waves.to(x.dtype)
