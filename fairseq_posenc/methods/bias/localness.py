"""A Gaussian window around a predicted centre, added to the scores."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.kernels.parabolas import Parabolas
from ...ops.precision import at_least_float32
from ...ops.spans import from_first_key

#: added to predicted windows, in tokens. A window of 0 would lead to a division by zero
_SMALLEST = 0.1


class Localness(PositionMethod):
    r"""Add a Gaussian bias around a centre to the scores, with centre and width predicted from the query.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} - 2 ((s - P_t) / D_t)^2$, $P_t = (I - 1) \operatorname{sigmoid}(U_p \cdot
        \tanh(W_p q_t))$, $D_t = I \operatorname{sigmoid}(U_d \cdot \tanh(W_p q_t)) + 0.1$. $s$ is 0 for the first key. $I$ is the
        number of keys of the sentence. In causal attention, $I$ is the number of keys up to the query. $U_p$, $U_d$ and $W_p$ are
        learned. Yang et al. (2018). `centre=query`: $P_t = t$. `window=layer`: $D_t = I \operatorname{sigmoid}(U_d \cdot
        \tanh(W_d k)) + 0.1$, with $k$ the mean of the keys to which the query may attend. `window=fixed`: $D_t$ is the option
        `width`.
    Shapes: content_scores -> [B, H, T, S]. With window=layer, rescale [B, H, T, S] -> same.
    Source: Yang et al. (2018), of which the abstract was read. Code: baosongyang/Context-Aware-SAN, of the first author.
    Deviations:
        * Each head has its own W_p of d_h x d_h, or all heads share one. The authors' code maps the queries of all heads with one
          matrix of d x d. It also has biases.
        * Positions are relative to the first key. If another method changes the positions of the tokens, I is the number of
          positions from the first to the last key.
        * U_p and U_d start at 0. Each centre is then the middle of the sentence, and each window has half the length of the
          sentence.
        * The authors use the method only in some layers, for example layers=0-2.
    Cost: with share=heads, d_h^2 + d_h parameters per layer for the centre. The window adds d_h parameters
        per layer with window=query, or d_h^2 + d_h with centre=query or window=layer. The bias is a tensor [B, H, T, S] per
        layer. With window=layer, the layer also stores the scores, because a fused kernel cannot be used.
    Raises: PositionError for a method with rotations in the same layer, and for the option width without window=fixed.
        PositionError for the option share with centre=query and window=fixed, because this form has no parameters.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        centre: Literal["predicted", "query"] = option(
            "predicted", "centre P_t: predicted from the query, or the position of the query"
        )
        window: Literal["query", "layer", "fixed"] = option(
            "query", "width D_t: predicted from the query, from the mean key of the layer, or fixed"
        )
        width: int = option(10, "width of a fixed window, in tokens", minimum=1, maximum=65536)
        share: Literal["heads", "none", "layers", "all"] = option(
            "heads", "sharing of the parameters: across heads, across layers, both (all), or none"
        )

        def __post_init__(self) -> None:
            if self.window != "fixed" and self.width != type(self).width:
                raise PositionError(
                    "localness: width has no effect on a predicted window. Expected window=fixed. Leave width out."
                )
            if self.centre == "query" and self.window == "fixed" and self.share != type(self).share:
                raise PositionError(
                    "share has no effect without parameters. Expected a predicted centre or a predicted window. Leave share out."
                )

    card = MethodCard(
        name="localness",
        title="Localness (predicted Gaussian bias)",
        citations=("yang-etal-2018-modeling",),
        survey="not in the survey",
        reference="both",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters=(
            "tables * ((d_h**2 if centre == 'predicted' or window == 'query' else 0) + (d_h if centre == 'predicted' else 0)"
            " + (0 if window == 'fixed' else d_h) + (d_h**2 if window == 'layer' else 0))"
        ),
        default_specs={"encoder": "sinusoidal+localness", "decoder": "sinusoidal+localness"},
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        reads_query = options.centre == "predicted" or options.window == "query"
        self.query_weight = self._matrix() if reads_query else None
        self.key_weight = self._matrix() if options.window == "layer" else None
        self.centre = self.parameter_table(dims.head_dim, share=options.share) if options.centre == "predicted" else None
        self.window = self.parameter_table(dims.head_dim, share=options.share) if options.window != "fixed" else None

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - (set() if self.options.window == "layer" else {"rescale"})

    def _matrix(self) -> nn.Parameter:
        """Return a parameter [L or 1, H or 1, d_h, d_h]. Each matrix has Xavier's uniform distribution."""
        weight = self.parameter_table(self.dims.head_dim, self.dims.head_dim, share=self.options.share)
        bound = (3 / self.dims.head_dim) ** 0.5
        return nn.Parameter(nn.init.uniform_(weight.data, -bound, bound))

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        """Keep ctx.allowed for `content_scores`, and return the scores unchanged.

        `content_scores` requires ctx.allowed to compute the mean of the keys to which a query may attend (window=layer).
        """
        if ctx.allowed is not None:
            ctx.hand_over((self, ctx.layer), ctx.allowed)
        return scores

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        queries, keys = (  # [B or 1, 1, T, 1]
            from_first_key(at.ids, ctx)[:, None, :, None].to(torch.float32) for at in (ctx.queries, ctx.keys)
        )
        size = self._sizes(ctx)  # [B or 1, 1, T or 1, 1]
        hidden = None if self.query_weight is None else self._hidden(self.query_weight, q, ctx)
        centre = queries if self.centre is None else (size - 1) * self._gate(self.centre, hidden, ctx)  # [B, H, T, 1]
        if self.window is None:
            window = queries.new_full((1, 1, 1, 1), self.options.width)
        else:
            if self.key_weight is not None:
                hidden = self._hidden(self.key_weight, self._mean_key(k, ctx), ctx)
            window = size * self._gate(self.window, hidden, ctx) + _SMALLEST
        return Parabolas.apply(centre, window, keys.transpose(2, 3), q.dtype)  # [B or 1, 1, S, 1] -> [B or 1, 1, 1, S]

    def _hidden(self, weight: Tensor, x: Tensor, ctx: AttentionContext) -> Tensor:
        """Return tanh(W x) of each head: [B, H, T, D] -> [B, H, T, D], in float32 or wider."""
        return (at_least_float32(x) @ self.of_layer(weight, ctx, float32=True).mT).tanh()

    def _gate(self, vector: Tensor, hidden: Tensor | None, ctx: AttentionContext) -> Tensor:
        """Return sigmoid(u . hidden): [B, H, T, D] -> [B, H, T, 1]."""
        if hidden is None:
            raise ValueError("no hidden units")
        return (hidden @ self.of_layer(vector, ctx, float32=True).unsqueeze(-1)).sigmoid()

    def _sizes(self, ctx: AttentionContext) -> Tensor:
        """Return the number of positions from the first to the last key: [B or 1, 1, T or 1, 1].

        In causal attention, only keys up to the query are counted. If no method changes the positions of the tokens, the result
        is the number of keys.
        """
        if ctx.causal or self.dims.causal:
            last = from_first_key(ctx.queries.ids, ctx)[:, None, :, None]
        else:
            ids = from_first_key(ctx.keys.ids, ctx)
            ids = ids if ctx.key_padding is None else ids.masked_fill(ctx.key_padding, 0)
            last = ids.amax(1)[:, None, None, None]
        return last.to(torch.float32) + 1

    def _mean_key(self, k: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the mean of the keys to which a query may attend: [B, H, S, D] -> [B, H, T or 1, D], in float32 or wider."""
        k, allowed = at_least_float32(k), ctx.take((self, ctx.layer))
        seen = k.new_ones(1, 1, 1, k.size(2))
        if ctx.causal or self.dims.causal:
            seen = (ctx.keys.ids.unsqueeze(1) <= ctx.queries.ids.unsqueeze(2)).unsqueeze(1).to(k.dtype)  # [B or 1, 1, T, S]
        if allowed is None and ctx.key_padding is not None:
            allowed = ~ctx.key_padding[:, None, None]
        if allowed is not None:
            seen = seen.masked_fill(~allowed, 0.0)  # [B or 1, H or 1, T or 1, S]
        return (seen / seen.sum(-1, keepdim=True).clamp(min=1)) @ k
