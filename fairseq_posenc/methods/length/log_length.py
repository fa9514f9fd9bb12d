"""Scores that grow with the logarithm of the number of keys."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.running import order


class LogLength(PositionMethod):
    r"""Multiply the product of queries and keys by a factor that grows with the logarithm of the number of keys.

    Equation: $A_{ts} = f(n_t) q_t \cdot k_s / \sqrt{d_h}$ with $n_t$ keys for query $t$. `form=mt`: $f(n) = \max(\ln n, 0.1) /
        \ln n_0$. Zhang et al. (2023). `form=ssmax`: $f(n) = a \ln n$, or $a \ln n + b$, with $a$ and $b$ learned. Nakanishi
        (2025). `form=floor`: $f(n) = 1 + 0.1 \ln \max(1, n / n_0)$. This form is from the model Inkling.
    Shapes: scale -> [B or 1, H or 1, T or 1, 1].
    Source: Zhang et al. (2023) and their code ZhuochengZhang98/D2DToolkits. Nakanishi (2025). Inkling in Hugging Face's
        transformers 5.
    Deviations:
        * n_t is the number of tokens in the key sequence. In causal attention, n_t includes only tokens up to the query.
        * n_0 is 25 by default, for every corpus and at every site. The authors set it to the mean length of their training
          sentences. Set length= to this mean.
        * With form=mt, the decoder of the authors' code has half of the mean target length as n_0. For mean target sentences of
          50 tokens, set decoder=log_length:length=25.
        * n counts neither padding nor later tokens. Two public implementations of ssmax count padding or later tokens.
        * The released code of Inkling also multiplies Inkling's position bias by f. In this project, f does not change the
          biases of other methods.
        * Methods that add terms to the scores, such as shaw, read queries without the factor f. Methods that change the scores,
          such as cope, read queries that are multiplied by f.
        * The model Inkling has form=floor only in layers without a window. The use of form=floor for source sentences is an
          extension of this project.
        * With form=ssmax, a starts at 1/ln n_0, so that the factor is 1 for n_0 keys. The paper's value could not be verified.
        * The architecture posenc_log_length also has sinusoidal positions, because the factor does not distinguish positions.
    Cost: no parameters. L h parameters for ssmax, and L h more for its bias. The model can still use
        scaled_dot_product_attention.
    Raises: PositionError for bias=, start= or share= without ssmax. PositionError if both options length and
        start are set, because length then has no effect.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        form: Literal["mt", "ssmax", "floor"] = option(
            "mt", "factor: proportional to ln n, learned multiple of ln n, or 1 up to n_0 keys and larger beyond"
        )
        length: float = option(
            25.0, "number n_0 of keys whose factor is 1, such as the mean training length in tokens", minimum=2.0
        )
        start: float | None = option(None, "initial value of a, for ssmax (none: 1/ln n_0)", minimum=0.0)
        bias: bool = option(False, "learned constant b added to the factor, for ssmax")
        share: Literal["none", "heads", "layers", "all"] = option(
            "none", "sharing of a and b: across heads, across layers, both (all), or none, for ssmax"
        )

        def __post_init__(self) -> None:
            own = {"start": self.start is not None, "bias": self.bias, "share": self.share != type(self).share}
            given = [name for name, changed in own.items() if changed]
            if self.form != "ssmax" and given:
                raise PositionError(
                    f"{given[0]} has no effect with form={self.form}. Expected form=ssmax. Remove {given[0]}, or use form=ssmax."
                )
            if self.start is not None and self.length != type(self).length:
                raise PositionError(
                    "length has no effect with start, because length only determines the initial value of a. Expected one of the "
                    "two. Remove length, or remove start."
                )

    card = MethodCard(
        name="log_length",
        title="Log-length scaling",
        citations=("zhang-etal-2023-addressing", "nakanishi-2025-scalable"),
        survey="not in the survey",
        reference="none",
        injection="other",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder", "cross"),
        parameters="tables * (1 + bias) if form == 'ssmax' else 0",
        directional=False,
        default_specs={"encoder": "sinusoidal+log_length", "decoder": "sinusoidal+log_length", "cross": "log_length"},
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.factor = self.offset = None
        if options.form == "ssmax":
            self.factor = self.parameter_table(share=options.share)
            nn.init.constant_(self.factor, 1 / math.log(options.length) if options.start is None else options.start)
            self.offset = self.parameter_table(share=options.share) if options.bias else None

    def scale(self, ctx: AttentionContext) -> Tensor:
        n = self._keys(ctx).clamp(min=1).float()[:, None, :, None]  # [B or 1, T or 1] -> [B or 1, 1, T or 1, 1]
        if self.options.form == "mt":
            return n.log().clamp(min=0.1) / math.log(self.options.length)
        if self.options.form == "floor":
            return 1 + 0.1 * (n / self.options.length).clamp(min=1).log()
        factor = n.log() * self.of_layer(self.factor, ctx, float32=True)[:, None, None]  # [B or 1, H or 1, T or 1, 1]
        return factor if self.offset is None else factor + self.of_layer(self.offset, ctx, float32=True)[:, None, None]

    def _keys(self, ctx: AttentionContext) -> Tensor:
        """Return the number of keys of each query, without padding: [B or 1, T or 1]."""
        ids, keys = ctx.queries.ids, ctx.keys
        if not self.dims.causal and ctx.key_padding is None:
            return torch.full((1, 1), keys.ids.size(1), device=ids.device)
        if not self.dims.causal:
            return (~ctx.key_padding).sum(-1, keepdim=True)
        if keys.start is not None and ctx.queries.start is not None:  # padding, if there is any, is at the end
            return ids - keys.start + 1
        of_queries, of_keys = order(ctx)
        up_to = of_keys.unsqueeze(1) <= of_queries.unsqueeze(2)  # [B or 1, T, S]
        return (up_to if ctx.key_padding is None else up_to & ~ctx.key_padding.unsqueeze(1)).sum(-1)
