"""A bias computed by a network from the scores and from another bias, for each pair of tokens."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.constants import Constants
from ...ops.distances import distances
from ...ops.precision import at_least_float32
from .alibi import penalty, slopes
from .fire import Fire
from .kerple import KerpleLog

#: slope of the network's activation for negative inputs
_SLOPE = 0.01


class Dape(PositionMethod):
    r"""Add to the scores a distance bias and the output of a small network that reads the scores and biases of all heads.

    Equation: $A = S + B + W_2 g(W_1 [S; B] + b_1) + b_2$ for each pair $(t, s)$. $A$, $S$ and $B$ contain one number per head.
        $S = q_t \cdot k_s / \sqrt{d_h}$, $B$ is the bias of the base method, and $g$ is a leaky ReLU with slope 0.01. Zheng et
        al. (2024a). `base=none`: $A = S + W_2 g(W_1 S + b_1) + b_2$. `kernel=k`: $W_1$ and $W_2$ are convolutions over $k$
        neighbouring keys, as in DAPE V2. Zheng et al. (2024b).
    Shapes: rescale [B, H, T, S] -> [B, H, T, S].
    Source: Zheng et al. (2024a, 2024b). Code: chuanyang-Zheng/DAPE.
    Deviations:
        * The authors' original name of the method is CAPE. It is not the method `cape` of this project.
        * With a kernel, the input and the hidden units of masked keys are 0. The authors mask only the input.
        * Decoding and training therefore compute different scores in the authors' code. In this project, decoding and
          training compute equal scores.
        * Masked keys are padding, later keys in causal attention, and keys that another method or attn_mask hides.
        * The network mixes the heads. If masks differ between heads, a kernel reads only keys that no head masks.
        * With base=fire, the network of fire has a ReLU, and its threshold starts at 512. The authors' network has a leaky ReLU,
          and their training starts the threshold at half of the training length.
        * Convolutions read 0 at padding, so that left padding has no effect.
        * Layers do not share the parameters of the base method. These parameters are the scalars of kerple_log, or the network
          of fire.
        * Encoder and cross-attention are extensions of this project. There, kerple_log has one penalty per direction.
        * start=zero sets W_2 and b_2 to 0, so that training starts at the base method. The authors start
          W_2 and b_2 at random values.
    Cost: 3 h w k + w + h parameters per layer for w hidden units, and the parameters of the base method. 2 h w k + w + h
        parameters per layer with base=none. Each layer computes hidden units [B, w, T, S]. For each pair of tokens, W_2 needs
        h w k multiplications. W_1 needs twice as many, or the same number with base=none.
        With kernel=1, if all sentences have the same bias, the product of W_1 and the bias is computed once for all sentences.
        Every implementation needs the scores, hidden units and biases of all pairs of tokens in the forward pass and in the
        backward pass. These tensors have the type float32.
    Raises: PositionError for an even kernel.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        base: Literal["kerple_log", "alibi", "fire", "none"] = option("kerple_log", "method that computes the bias B")
        kernel: int = option(1, "odd number of neighbouring keys that the network reads (3 in DAPE V2)", minimum=1, maximum=63)
        hidden: int = option(32, "number w of hidden units", minimum=1, maximum=65536)
        start: Literal["random", "zero"] = option("random", "initial W_2 and b_2: random as in the authors' code, or 0")

        def __post_init__(self) -> None:
            if self.kernel % 2 == 0:
                raise PositionError(f"kernel={self.kernel} is even. Expected an odd number. Use kernel={self.kernel + 1}.")

    card = MethodCard(
        name="dape",
        title="Data-adaptive positional encoding (DAPE)",
        citations=("zheng-etal-2024-dape", "zheng-etal-2024-process"),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        extended_sites=("encoder", "cross"),
        parameters=(
            "L * (hidden * h * kernel * (2 if base == 'none' else 3) + hidden + h"
            " + (2 * h * (1 if causal else 2) if base == 'kerple_log' else 32 * (h + 2) + h + 2 if base == 'fire' else 0))"
        ),
    )

    rescale_reads = "scores"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        layers, heads, hidden, kernel = dims.num_layers, dims.num_heads, options.hidden, options.kernel
        self.base = None
        self.slopes = Constants(slopes(heads)) if options.base == "alibi" else None
        if options.base == "kerple_log":
            self.base = KerpleLog(KerpleLog.Options(sides="same" if dims.causal else "apart", share="none"), dims)
        elif options.base == "fire":
            self.base = Fire(Fire.Options(share="none"), dims)
        read = heads if options.base == "none" else 2 * heads
        self.first_weight, self.first_bias = _convolution(layers, read, hidden, kernel)
        self.second_weight, self.second_bias = _convolution(layers, hidden, heads, kernel)
        if options.start == "zero":
            nn.init.zeros_(self.second_weight)
            nn.init.zeros_(self.second_bias)

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        with torch.autocast(scores.device.type, enabled=False):
            return self._adapted(at_least_float32(scores), ctx)

    def _adapted(self, scores: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the sum of the scores [B, H, T, S], the bias of the base, and the output of the network."""
        bias = self._base(ctx)
        if self.options.kernel == 1:
            return self._of_pairs(scores, bias, ctx)
        read = scores if bias is None else torch.cat([scores, bias.to(scores.dtype).expand_as(scores)], 1)  # [B, H or 2 H, T, S]
        masked = self._masked(ctx)
        hidden = F.leaky_relu(self._convolved(self.first_weight, self.first_bias, read, masked, ctx), _SLOPE)
        added = self._convolved(self.second_weight, self.second_bias, hidden, masked, ctx)  # [B, w, T, S] -> [B, H, T, S]
        return scores + added if bias is None else scores + bias + added

    def _of_pairs(self, scores: Tensor, bias: Tensor | None, ctx: AttentionContext) -> Tensor:
        """Return the sum of the scores, the bias and the output of the network.

        If all sentences have the same bias, the product of W_1 and the bias is computed once for all sentences.
        """
        given = self.first_weight, self.first_bias, self.second_weight, self.second_bias
        w_1, b_1, w_2, b_2 = (self.of_layer(parameter, ctx, float32=True) for parameter in given)
        rows, heads = scores.shape[:2]
        of_scores, *of_biases = w_1.squeeze(-1).split(heads, 1)
        b_1, b_2 = b_1[:, None], b_2[:, None, None]
        if bias is not None:
            bias = bias.to(scores.dtype).expand(-1, heads, -1, -1)
            b_1, b_2 = b_1 + of_biases[0] @ bias.flatten(2), b_2 + bias  # [B or 1, w, T S] and [B or 1, H, T, S]
        hidden = torch.baddbmm(b_1, of_scores.expand(rows, -1, -1), scores.flatten(2))
        found = torch.baddbmm((scores + b_2).flatten(2), w_2.squeeze(-1).expand(rows, -1, -1), F.leaky_relu(hidden, _SLOPE))
        return found.view_as(scores)

    def _base(self, ctx: AttentionContext) -> Tensor | None:
        """Return the bias of the base method [B or 1, H, T, S], or None."""
        if self.slopes is not None:
            return penalty(ctx, self.slopes.values)
        return None if self.base is None else self.base.bias(ctx)

    def _convolved(self, weight: Tensor, bias: Tensor, x: Tensor, masked: Tensor | None, ctx: AttentionContext) -> Tensor:
        """Apply one map of the network: [B, N, T, S] -> [B, M, T, S].

        A kernel reads zeros before the first key, after the last key, and at masked keys.
        """
        weight, bias = (self.of_layer(parameter, ctx, float32=True) for parameter in (weight, bias))
        x = x if masked is None else x.masked_fill(masked, 0.0)
        return F.conv2d(x, weight.unsqueeze(-2), bias, padding=(0, weight.size(-1) // 2))

    def _masked(self, ctx: AttentionContext) -> Tensor | None:
        """Return True for keys that a kernel must not read: bool [B or 1, 1, T or 1, S]. Return None if there are no such keys.

        A key is masked if at least one head must not attend to the key. If ctx.allowed is None, the later keys are masked in
        causal attention. If ctx.allowed is None and the attention is not causal, no key is masked.
        """
        if ctx.allowed is not None:
            return ~ctx.allowed.all(1, keepdim=True)
        return distances(ctx.queries, ctx.keys).unsqueeze(1) > 0 if self.dims.causal else None


def _convolution(layers: int, inputs: int, outputs: int, kernel: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Return weights [L, outputs, inputs, kernel] and biases [L, outputs], with the initial values of nn.Linear and nn.Conv2d."""
    bound = (inputs * kernel) ** -0.5
    weight = torch.empty(layers, outputs, inputs, kernel).uniform_(-bound, bound)
    return nn.Parameter(weight), nn.Parameter(torch.empty(layers, outputs).uniform_(-bound, bound))
