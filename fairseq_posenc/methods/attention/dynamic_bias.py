"""A small network over the signed distance."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, option
from ...ops.distances import by_distance
from ...ops.precision import widen


class DynamicPositionBias(PositionMethod):
    """A network maps the distance, or its signed logarithm, to a bias for every head.

    Equation: b_ts = MLP(sign(s-t) ln(1 + |s-t|)), or MLP(s-t) with log=false; Wang et al. (2022); Liu et al.
        (2022).
    Shapes: bias -> [1, H, T, S].
    Source: Wang et al. (2022), dynamic position bias; Liu et al. (2022), log-spaced; x-transformers.
    Deviations: one network a stack; a sequence in place of an image; SiLU, as x-transformers; cross-attention is ours.
    Cost: a network on T + S - 1 values a forward.
    """

    @dataclass(frozen=True)
    class Options(Options):
        hidden: int = option(64, "width of the network", minimum=1)
        depth: int = option(2, "number of its hidden layers", minimum=1)
        log: bool = option(True, "signed logarithms of distances")
        norm: bool = option(False, "a layer norm in every hidden layer")

    card = MethodCard(
        name="dynamic_bias",
        title="Dynamic position bias",
        citation="""@inproceedings{wang-etal-2022-crossformer,
  title = {CrossFormer: A Versatile Vision Transformer Hinging on Cross-scale Attention},
  author = {Wang, Wenxiao and Yao, Lu and Chen, Long and Lin, Binbin and Cai, Deng and He, Xiaofei and Liu, Wei},
  booktitle = {ICLR}, year = {2022}}""",
        equation="b_ts = MLP(sign(s-t) ln(1 + |s-t|))",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="runs",
        evidence="peer",
        sites=("encoder",),
        our_sites=("decoder", "cross"),
        parameters="w (2 + (depth-1) (w+1) + h) + h (norm: 2 w depth more)",
        count=lambda options, dims, site: (
            options.hidden * (2 + (options.depth - 1) * (options.hidden + 1) + dims.num_heads + 2 * options.norm * options.depth)
            + dims.num_heads
        ),
        deviations=(
            "a sequence in place of an image, and one network for all layers",
            "decoder and cross-attention are our extension",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        widths = [1, *[options.hidden] * options.depth, dims.num_heads]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.LayerNorm(options.hidden) for _ in range(options.depth * options.norm))

    def bias(self, ctx: AttentionContext) -> Tensor:
        return by_distance(ctx.queries, ctx.keys, self._network)

    def _network(self, delta: Tensor) -> Tensor:
        """[...] -> [H, ...]."""
        x = delta.to(widen(self.layers[0].weight).dtype)
        x = (x.sign() * x.abs().log1p() if self.options.log else x).unsqueeze(-1)
        for number, layer in enumerate(self.layers[:-1]):
            x = F.linear(x, widen(layer.weight), widen(layer.bias))
            if self.norms:
                norm = self.norms[number]
                x = F.layer_norm(x, norm.normalized_shape, widen(norm.weight), widen(norm.bias), norm.eps)
            x = F.silu(x)
        last = self.layers[-1]
        return F.linear(x, widen(last.weight), widen(last.bias)).movedim(-1, 0)
