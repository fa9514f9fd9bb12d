"""A bias computed by a small network from the distance divided by the position of the query."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops import devices
from ...ops.distances import by_distance
from ...ops.precision import at_least_float32

_EPSILON = 1e-6
#: maximum number of pairs of query and key in one call of the network, for a CPU and for an accelerator. The cache of a CPU
#: core can contain the hidden units of these pairs
_PAIRS_ON_CPU, _PAIRS = 2**14, 2**22
#: maximum number of pairs for which an accelerator computes the network per pair instead of per distance
_FEW_PAIRS = 2**19


class Fire(PositionMethod):
    r"""Compute a bias per head with a small network. The input is the logarithm of the distance, divided by the logarithm of
    the query position.

    Equation: $b_{ts} = \operatorname{MLP}(\psi(|s-t|) / \psi(\max(t, T)))$, $\psi(x) = \ln(|c x| + 1)$, $T = |m L_0|$, with $c$
        and $m$ learned and $L_0$ the option `threshold`. $b_{ts}$ is added to the scores. Li et al. (2024).
    Shapes: bias -> [B or 1, H, T, S].
    Source: Li et al. (2024). Code: public copies of the code in the paper's appendix.
    Deviations:
        * By default, layers share one network, which is the paper's variant FIRE-S. With share=none, the method is the paper's
          FIRE, with one network per layer.
        * 1e-6 is added to the denominator, as in all copies of the code that were read.
        * The network has one hidden layer of 32 units, as in these copies. According to ReaLLMASIC/ReaLLM-Forge, the code in the
          paper has one, too. Another source says that the paper has two. The number in the paper's experiments is unverified.
        * Scores are relative only below the threshold T. Beyond T, they also depend on the position of the query.
        * Encoder and cross-attention are extensions of this project. There, |s-t| does not distinguish left from right.
    Cost: w (h + 2) + h + 2 parameters per network of width w. If no query position exceeds the threshold, the network runs on
        one value per distance. Otherwise, the network runs on every pair of query and key, in blocks of queries. The backward
        pass computes these blocks again, so that only the bias is stored. If there are few pairs, an accelerator computes all
        pairs at once, without blocks.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        hidden: int = option(32, "width w of the network", minimum=8, maximum=65536)
        threshold: float = option(
            512.0, "initial threshold L_0, in positions (below the threshold, the bias depends only on the distance)", minimum=1.0
        )
        share: Literal["layers", "none"] = option("layers", "one network for all layers (FIRE-S), or one per layer (FIRE)")

    card = MethodCard(
        name="fire",
        title="FIRE",
        citations=("li-etal-2024-functional",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        extended_sites=("encoder", "cross"),
        parameters="(1 if shared_by_layers else L) * (hidden * (h + 2) + h + 2)",
        directional=False,
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.per_layer = options.share == "none"
        layers = (dims.num_layers,) if self.per_layer else ()
        self.mlp = nn.Sequential(_Linear(layers, 1, options.hidden), nn.ReLU(), _Linear(layers, options.hidden, dims.num_heads))
        self.slope = nn.Parameter(torch.full(layers, 0.1))
        self.multiplier = nn.Parameter(torch.full(layers, 1.0))

    def bias(self, ctx: AttentionContext) -> Tensor:
        threshold = (self._own(self.multiplier, ctx.layer) * self.options.threshold).abs()
        # with few pairs, compute the bias of every pair, so that the host does not wait for the value of the threshold
        few = not devices.on_cpu(threshold) and ctx.queries.ids.numel() * ctx.keys.ids.numel() <= _FEW_PAIRS
        if few:
            return self._of_queries(ctx.queries.ids, threshold, ctx.keys.ids, ctx.layer).transpose(0, 1)
        if ctx.queries.start is not None and ctx.queries.last <= threshold:
            return by_distance(ctx.queries, ctx.keys, lambda delta: self._network(delta, threshold, ctx.layer))
        pairs = _PAIRS_ON_CPU if devices.on_cpu(threshold) else _PAIRS
        size = max(1, pairs // ctx.keys.ids.numel())
        found = [
            checkpoint(self._of_queries, ids, threshold, ctx.keys.ids, ctx.layer, use_reentrant=False, preserve_rng_state=False)
            for ids in ctx.queries.ids.split(size, 1)
        ]
        return torch.cat(found, 2).transpose(0, 1)  # [H, B, T, S] -> [B, H, T, S]

    def _of_queries(self, ids: Tensor, threshold: Tensor, keys: Tensor, layer: int) -> Tensor:
        """Return the bias of a block of queries: [B or 1, T] -> [H, B or 1, T, S].

        For each pair of query and key, the network stores w numbers, where w is the width of the network.
        """
        limits = torch.maximum(ids.to(threshold.dtype), threshold).unsqueeze(-1)  # [B or 1, T, 1]
        return self._network(keys.unsqueeze(-2) - ids.unsqueeze(-1), limits, layer)

    def _network(self, delta: Tensor, limits: Tensor, layer: int) -> Tensor:
        """Apply the network to each pair: [...] -> [H, ...]."""
        slope = self._own(self.slope, layer)
        ratio = _psi(slope * delta.to(limits.dtype)) / (_psi(slope * limits) + _EPSILON)
        first, last = ([self._own(parameter, layer) for parameter in self.mlp[i].parameters()] for i in (0, 2))
        hidden = torch.relu(F.linear(ratio.unsqueeze(-1), *first))
        return F.linear(hidden, *last).movedim(-1, 0)  # [..., H] -> [H, ...]

    def _own(self, parameter: Tensor, layer: int) -> Tensor:
        """Return the part of a parameter that this layer uses."""
        return at_least_float32(parameter[layer] if self.per_layer else parameter)


class _Linear(nn.Module):
    """Parameters of one linear map, or of one linear map per layer, with the initial values of nn.Linear."""

    def __init__(self, layers: tuple[int, ...], inputs: int, outputs: int):
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(*layers, outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(*layers, outputs).uniform_(-bound, bound))


def _psi(x: Tensor) -> Tensor:
    return torch.log1p(x.abs())
