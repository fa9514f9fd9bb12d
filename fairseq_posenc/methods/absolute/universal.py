"""Sinusoids of position and layer added before every layer, as in the Universal Transformer."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.precision import at_least_float32
from ...ops.sinusoids import SinusoidTable


class Universal(PositionMethod):
    r"""Add sinusoids of the position and of the layer number to the input of every layer.

    Equation: $H^l = F(H^{l-1} + C[l])$, $C[l][t, 2k] = \sin(t w_k) + \sin(l w_k)$, $C[l][t, 2k+1] = \cos(t w_k) + \cos(l w_k)$,
        with $w_k = 10000^{-2k/d}$. $F$ is the layer. $H^l$ is the output of step $l$, with $l = 1$ to $L$. Dehghani et al.
        (2019), equations 6 and 7.
    Shapes: before_layer [B, T, C] -> [B, T, C].
    Source: Dehghani et al. (2019). Code: tensor2tensor's universal_transformer_util.
    Deviations:
        * Positions count from 0, as in tensor2tensor. Steps (layers) count from 1, as in the paper.
        * The paper counts both from 1 (first_position=1). tensor2tensor counts both from 0 (first_step=0).
        * With layers=, steps count only the layers that use the method. The paper adds $C[l]$ before every layer.
        * --tie-encoder-layers and --tie-decoder-layers tie the layers. The architecture posenc_universal sets both.
        * The options --encoder-halting and --decoder-halting add adaptive computation time. The architecture
          posenc_universal_halting sets these options and ties the layers.
    Cost: no parameters. L d parameters per stack with steps=learned. One addition per layer.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        steps: Literal["sinusoidal", "learned"] = option(
            "sinusoidal", "sinusoid of the layer number as in the paper, or learned vector of each layer"
        )
        first_step: Literal[1, 0] = option(1, "number of the first layer (1 in the paper, 0 in tensor2tensor)")
        first_position: Literal[0, 1] = option(0, "number of the first position (1 in the paper, 0 in tensor2tensor)")
        layout: Literal["interleaved", "halves"] = option(
            "interleaved", "each sine next to its cosine, or all sines before all cosines"
        )
        grid: Literal["paper", "fairseq"] = option(
            "paper", "frequencies of the paper, or frequencies of fairseq and tensor2tensor"
        )

    card = MethodCard(
        name="universal",
        title="Universal Transformer coordinates",
        citations=("dehghani-etal-2019-universal",),
        survey="4.2",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="L * d if steps == 'learned' else 0",
        survey_parameters="0",
        tied_layers=True,
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        form = (dims.embed_dim, options.layout, options.grid)
        self.table = SinusoidTable(dims.max_positions, *form, origin=options.first_position)
        if options.steps == "learned":
            self.steps = nn.Parameter(torch.randn(dims.num_layers, dims.embed_dim))
        else:
            self.step_table = SinusoidTable(dims.num_layers, *form, origin=options.first_step)

    def before_layer(self, x: Tensor, ctx: AttentionContext) -> Tensor:
        step = self.steps[ctx.layer] if self.options.steps == "learned" else self.step_table.values[ctx.layer]
        return x + (self.table(ctx.queries) + at_least_float32(step)).to(x.dtype)
