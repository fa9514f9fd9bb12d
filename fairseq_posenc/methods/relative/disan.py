"""Directional masks, and attention with a score for every channel."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.distances import distances


class Disan(PositionMethod):
    r"""Mask keys by direction: a head attends either only to earlier keys or only to later keys. By default, no head attends to
    the query's own key.

    Equation: $M_{ts} = 0$ for $s < t$ in forward heads and for $s > t$ in backward heads, else $-\infty$. Shen et al. (2018),
        equation 13. `multi_dimensional`: $f_{ts} = c \tanh((W_1 h_s + W_2 h_t + b) / c) + M_{ts}$, a score for every channel, $h
        = \operatorname{ELU}(v)$, $s_t = \sum_s \operatorname{softmax}_s(f_{ts}) \odot h_s$, $F = \operatorname{sigmoid}(W_{f1}
        h_t + W_{f2} s_t + b_f)$, $o_t = F \odot h_t + (1 - F) \odot s_t$. Shen et al., equations 9 to 16.
    Shapes: mask -> bool [1, H, T, S]. attend -> [B, H, T, D].
    Source: Shen et al. (2018). Code: taoshen58/DiSAN.
    Deviations:
        * Scores are products of queries and keys by default. The authors use multi_dimensional=true.
        * In the encoder, half of the heads of each layer have the forward mask, and the other half have the backward mask
          (directions=both). The authors have a separate attention block for each direction.
        * The multi-dimensional form works on the channels of each head. The value projection replaces the matrix W_h of the
          paper.
        * The output projection combines the directions.
        * If a head has no key for a query, its output is 0. This concerns the first token in forward heads and the last token in
          backward heads.
        * Attention dropout drops the weights of the multi-dimensional form. The authors drop inputs of the linear layers.
        * The decoder is an extension of this project. All its heads attend to earlier keys.
    Cost: no parameters. With multi_dimensional=true, L h (4 d_h^2 + 2 d_h) parameters per stack, and no query and key
        projections. This form computes B H T S D scores in blocks of about S / d_h queries. A block has about B H S^2 scores.
    Raises: PositionError for directions=backward in the decoder. PositionError for diagonal=true in the decoder without
        multi_dimensional=true, because the mask would equal the causal mask. PositionError for directions=both in the encoder
        with an odd number of heads. PositionError for temperature without multi_dimensional=true.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        directions: Literal["both", "forward", "backward"] = option(
            "both",
            "keys of the heads: earlier for half and later for half, or earlier (forward) or later (backward) for all",
        )
        diagonal: bool = option(False, "attention of a token to itself")
        multi_dimensional: bool = option(False, "one score per channel instead of the product of queries and keys")
        temperature: float = option(5.0, "scale c of the multi-dimensional scores", minimum=0.1)

        def __post_init__(self) -> None:
            if not self.multi_dimensional and self.temperature != type(self).temperature:
                raise PositionError(
                    "temperature has no effect without multi_dimensional=true. Expected multi_dimensional=true. "
                    "Remove temperature, or add multi_dimensional=true."
                )

    card = MethodCard(
        name="disan",
        title="Directional masks (DiSAN)",
        citations=("shen-etal-2018-disan",),
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder",),
        extended_sites=("decoder",),
        parameters="L * h * (4 * d_h**2 + 2 * d_h) if multi_dimensional else 0",
        survey_parameters="0",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if dims.causal and options.directions == "backward":
            raise PositionError("disan: directions=backward is not supported in the decoder (causal). Use directions=forward.")
        if not dims.causal and options.directions == "both" and dims.num_heads % 2:
            raise PositionError(
                f"disan: directions=both with {dims.num_heads} heads. Expected an even number of heads. "
                "Change the number of heads."
            )
        if dims.causal and options.diagonal and not options.multi_dimensional:
            raise PositionError(
                "disan: diagonal=true has no effect in the decoder, which has a causal mask. Use the method none instead."
            )
        half = dims.num_heads // 2
        forward = {"forward": dims.num_heads, "backward": 0, "both": dims.num_heads if dims.causal else half}
        self.forward_heads = forward[options.directions]
        if options.multi_dimensional:
            self.projections = frozenset({"value"})
            shape = (dims.num_layers, dims.num_heads, dims.head_dim, dims.head_dim)
            for name in ("of_key", "of_query", "gate_of_input", "gate_of_sum"):
                weight = nn.Parameter(torch.empty(shape))
                nn.init.uniform_(weight, -((3 / dims.head_dim) ** 0.5), (3 / dims.head_dim) ** 0.5)
                self.register_parameter(name, weight)
            self.score_bias = nn.Parameter(torch.zeros(shape[:3]))
            self.gate_bias = nn.Parameter(torch.zeros(shape[:3]))

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - {"mask" if self.options.multi_dimensional else "attend"}

    def mask(self, ctx: AttentionContext) -> Tensor:
        delta = distances(ctx.queries, ctx.keys).unsqueeze(1)  # [B or 1, 1, T, S]
        before, after = (delta <= 0, delta >= 0) if self.options.diagonal else (delta < 0, delta > 0)
        backward_heads = self.dims.num_heads - self.forward_heads
        return torch.cat([before.expand(-1, self.forward_heads, -1, -1), after.expand(-1, backward_heads, -1, -1)], 1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        """Compute the multi-dimensional form. `q` and `k` are not projected. The last rows of `v` belong to the queries."""
        hidden = F.elu(v)  # [B, H, S, D]
        own = hidden[:, :, -q.size(2) :]
        layer = ctx.layer
        keys = hidden @ self.of_key[layer]
        queries = own @ self.of_query[layer] + self.score_bias[layer].unsqueeze(1)
        allowed = self.mask(ctx)
        if ctx.key_padding is not None:
            allowed = allowed & ~ctx.key_padding[:, None, None, :]
        summed = self._in_blocks(queries, keys, hidden, allowed.expand(-1, hidden.size(1), -1, -1), ctx.dropout)
        gate = own @ self.gate_of_input[layer] + summed @ self.gate_of_sum[layer] + self.gate_bias[layer].unsqueeze(1)
        return torch.lerp(summed, own, gate.sigmoid())

    def _in_blocks(self, queries: Tensor, keys: Tensor, hidden: Tensor, allowed: Tensor, dropout: float) -> Tensor:
        """Compute attention in blocks of queries. The backward pass computes each block again.

        The method never stores a tensor [B, H, T, S, D].
        """
        rows = max(1, hidden.size(2) // hidden.size(3))
        blocks = zip(queries.split(rows, 2), allowed.split(rows, 2))
        done = [checkpoint(self._block, query, keys, hidden, seen, dropout, use_reentrant=False) for query, seen in blocks]
        return torch.cat(done, 2)

    def _block(self, queries: Tensor, keys: Tensor, hidden: Tensor, allowed: Tensor, dropout: float) -> Tensor:
        c = self.options.temperature
        scores = c * torch.tanh((queries.unsqueeze(3) + keys.unsqueeze(2)) / c)  # [B, H, rows, S, D]
        fully_masked = ~allowed.any(-1, keepdim=True)
        scores = scores.masked_fill(~(allowed | fully_masked).unsqueeze(-1), float("-inf"))
        summed = (F.dropout(scores.softmax(3), dropout) * hidden.unsqueeze(2)).sum(3)
        return summed.masked_fill(fully_masked, 0.0)
