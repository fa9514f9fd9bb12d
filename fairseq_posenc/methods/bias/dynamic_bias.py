"""A bias computed by a small network from the signed distance."""

import itertools
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.distances import by_distance
from ...ops.precision import at_least_float32


class DynamicPositionBias(PositionMethod):
    r"""Map the distance, or its signed logarithm, to a bias per head with a small network.

    Equation: $b_{ts} = \operatorname{MLP}(\operatorname{sign}(s-t) \ln(1 + |s-t|))$ is added to the scores. With `log=false`,
        $b_{ts} = \operatorname{MLP}(s-t)$. With `bounded=true`, $16 \operatorname{sigmoid}(\operatorname{MLP})$ replaces
        $\operatorname{MLP}$. Wang et al. (2022) and Liu et al. (2022).
    Shapes: bias -> [1, H, T, S].
    Source: Wang et al. (2022), dynamic position bias. Liu et al. (2022), log-spaced continuous position bias of Swin
        Transformer V2. Code: cheerss/CrossFormer, and x-transformers.
    Deviations:
        * The network reads s - t. x-transformers reads t - s.
        * The defaults are the defaults of x-transformers, except log and hidden. x-transformers has log=false by default. The
          default width in x-transformers is a quarter of the hidden size of the model.
        * Wang et al. use raw distances, norms and ReLU (log=false, norm=true, activation=relu, depth=3).
        * Liu et al. use logarithms, ReLU and a bounded output (activation=relu, bounded=true, depth=1, hidden=512).
        * Liu et al. scale the logarithms by the window size. Sentences do not have a window size.
        * The cosine attention of Liu et al. is omitted.
        * The input is a sequence. The papers use images.
        * All layers share one network. Both papers have one network per layer.
        * Decoder and cross-attention are extensions of this project.
    Cost: each forward pass applies the network to T + S - 1 distances.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        hidden: int = option(64, "width of the hidden layers", minimum=1, maximum=4096)
        depth: int = option(2, "number of hidden layers", minimum=1, maximum=64)
        log: bool = option(True, "signed logarithms of distances as input (false: distances)")
        norm: bool = option(False, "layer norm in each hidden layer")
        activation: Literal["silu", "relu"] = option("silu", "activation of the hidden layers (relu in both papers)")
        bounded: bool = option(False, "sigmoid of the output times 16, as in Liu et al. (2022)")

    card = MethodCard(
        name="dynamic_bias",
        title="Dynamic position bias",
        citations=("wang-etal-2022-crossformer", "liu-etal-2022-swin"),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="peer",
        sites=("encoder",),
        extended_sites=("decoder", "cross"),
        parameters="hidden * (2 + (depth - 1) * (hidden + 1) + h + 2 * norm * depth) + h",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        widths = [1, *[options.hidden] * options.depth, dims.num_heads]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(nn.LayerNorm(options.hidden) for _ in range(options.depth * options.norm))

    def bias(self, ctx: AttentionContext) -> Tensor:
        return by_distance(ctx.queries, ctx.keys, self._network)

    def _network(self, delta: Tensor) -> Tensor:
        """Apply the network to each element: [...] -> [H, ...]."""
        x = delta.to(at_least_float32(next(self.layers.parameters())).dtype)
        x = (x.sign() * x.abs().log1p() if self.options.log else x).unsqueeze(-1)
        for number, layer in enumerate(self.layers[:-1]):
            x = F.linear(x, *map(at_least_float32, layer.parameters()))
            if self.norms:
                weight, shift = map(at_least_float32, self.norms[number].parameters())
                x = F.layer_norm(x, x.shape[-1:], weight, shift)
            x = F.relu(x) if self.options.activation == "relu" else F.silu(x)
        x = F.linear(x, *map(at_least_float32, self.layers[-1].parameters())).movedim(-1, 0)  # [..., H] -> [H, ...]
        return 16 * x.sigmoid() if self.options.bounded else x
