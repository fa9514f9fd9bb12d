"""Adaptive T5: small networks compute the bias from the distance, which is first mapped to a number below 1."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.distances import by_distance

#: standard deviation of the initial weights, and initial biases
_DEVIATION, _OFFSET = 0.1, 0.1


class SoftT5(PositionMethod):
    r"""Add to the scores the output of a small network of the distance. Each head has one network per direction.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} + F(1 - \exp(-\operatorname{ReLU}(c) |s-t| / n))$, $F(x) = w_3 \cdot g(W_2
        g(w_1 x + b_1) + b_2) + b_3$, with $n$ the option `length` and $g$ the option `activation`. Each head has its own $c$ and
        $F$ for keys up to the query, and its own $c$ and $F$ for later keys. Wu et al. (2021).
    Shapes: bias -> [1, H, T, S].
    Source: Wu, Zhang, Mao and Chen (2021), of which the abstract was read. Code:
        BDBC-KG-NLP/AAAI2021-Scalar-Embedding-of-Relative-Positions, machine_translation.
    Deviations:
        * Dropout in the networks draws one mask for each distance. The authors' code draws one for each pair of words.
          fairseq's option --retain-dropout does not keep this dropout in decoding.
        * The authors use the bias only in the first layer (layers=0), as posenc_soft_t5 does.
        * The sizes and sigmoids are from the authors' script for translation, which contains both width=16 and width=32.
        * Cross-attention is an extension of this project.
    Cost: sides h (2 + 2 w_1 + w_1 w_2 + 2 w_2) parameters per stack for the widths $w_1$ and $w_2$. sides is 1 in a causal
        decoder, else 2. Each forward pass computes T + S - 1 values per head and network, one per distance.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        width: int = option(16, "width of the first hidden layer", minimum=1, maximum=4096)
        second: int = option(4, "width of the second hidden layer", minimum=1, maximum=4096)
        activation: Literal["sigmoid", "relu"] = option("sigmoid", "activation g of the hidden layers")
        length: float = option(256.0, "number n by which distances are divided", minimum=1.0, maximum=1e6)
        dropout: float = option(0.5, "dropout of the first hidden layer", minimum=0.0, maximum=0.99)
        share: Literal["layers", "none"] = option("layers", "sharing of the parameters: across layers, or none")

    card = MethodCard(
        name="soft_t5",
        title="Adaptive T5 (AT5)",
        citations=("wu-etal-2021-scalar",),
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        extended_sites=("cross",),
        parameters="(1 if causal else 2) * tables * (2 + 2 * width + width * second + 2 * second)",
        default_specs={"encoder": "soft_t5:layers=0", "decoder": "soft_t5:layers=0"},
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        sides, width, second = 1 if dims.causal else 2, options.width, options.second
        self.per_layer = options.share != "layers"

        def table(*shape: int) -> nn.Parameter:
            return self.parameter_table(sides, *shape, share=options.share)

        self.slope = table()
        self.weight1, self.bias1 = table(width, 1), table(width)
        self.weight2, self.bias2 = table(second, width), table(second)
        self.weight3, self.bias3 = table(1, second), table(1)
        nn.init.uniform_(self.slope, 1.0, 15.0)
        for number in "123":
            nn.init.trunc_normal_(self.get_parameter(f"weight{number}"), std=_DEVIATION, a=-2 * _DEVIATION, b=2 * _DEVIATION)
            nn.init.constant_(self.get_parameter(f"bias{number}"), _OFFSET)

    def bias(self, ctx: AttentionContext) -> Tensor:
        slopes = self.of_layer(self.slope, ctx, float32=True)  # [H, sides]

        def values(delta: Tensor) -> Tensor:
            distances = [(-delta).clamp(min=0), delta.clamp(min=0)][: slopes.size(1)]
            found = [self._network(distance.flatten().to(slopes.dtype), side, ctx) for side, distance in enumerate(distances)]
            biases = [bias.view(-1, *delta.shape) for bias in found]  # [H, N] -> [H, ...]
            return biases[0] if len(biases) == 1 else torch.where(delta > 0, biases[1], biases[0])

        return by_distance(ctx.queries, ctx.keys, values)

    def _network(self, distance: Tensor, side: int, ctx: AttentionContext) -> Tensor:
        """Return the bias of one direction: [N] -> [H, N]."""

        def own(name: str) -> Tensor:
            return self.of_layer(self.get_parameter(name), ctx, float32=True)[:, side]

        slope = own("slope").unsqueeze(-1).relu()  # [H, 1]
        x = (-(-slope * distance / self.options.length).expm1()).unsqueeze(-1)  # [H, N, 1]
        activate = torch.sigmoid if self.options.activation == "sigmoid" else F.relu
        for number in "12":
            x = activate(torch.baddbmm(own(f"bias{number}").unsqueeze(1), x, own(f"weight{number}").mT))  # [H, N, width]
            x = F.dropout(x, self.options.dropout, self.training) if number == "1" else x
        return torch.baddbmm(own("bias3").unsqueeze(1), x, own("weight3").mT).squeeze(-1)  # [H, N, 1] -> [H, N]
