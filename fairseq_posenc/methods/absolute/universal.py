"""Sinusoids of position and layer added before every layer, as in the Universal Transformer."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.precision import at_least_float32
from ...ops.sinusoids import SinusoidTable


class Universal(PositionMethod):
    """Sinusoids of the position and of the layer's number, added before every layer and not to the embeddings.

    Equation: H^l = F(H^(l-1) + C[l]), C[l][t, 2k] = sin(t w_k) + sin(l w_k), C[l][t, 2k+1] = cos(t w_k) + cos(l w_k), with
        w_k = 10000^(-2k/d) and l = 1 to L; Dehghani et al. (2019), equations 6 and 7.
    Shapes: before_layer [B, T, C] -> [B, T, C].
    Source: Dehghani et al. (2019); tensor2tensor's universal_transformer_util.
    Deviations: positions count from 0, as in tensor2tensor, where the paper counts both positions and steps from 1
        (first_position=1) and tensor2tensor both from 0 (first_step=0); with layers=, steps count the layers that use the
        method, because the paper adds coordinates before every layer; layers are tied by --tie-encoder-layers and
        --tie-decoder-layers of the model, which the architecture posenc_universal sets, and adaptive computation time is
        --encoder-halting and --decoder-halting, which posenc_universal_halting sets too.
    Cost: no parameters, with steps=learned L d a stack; one addition per layer.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        steps: Literal["sinusoidal", "learned"] = option(
            "sinusoidal", "a sinusoid of the layer's number as in the paper, or a learned vector"
        )
        first_step: Literal[1, 0] = option(1, "number of the first layer: 1 in the paper, 0 in tensor2tensor")
        first_position: Literal[0, 1] = option(0, "number of the first position: 1 in the paper, 0 in tensor2tensor")
        layout: Literal["interleaved", "halves"] = option(
            "interleaved", "each sine beside its cosine, or all sines before all cosines"
        )
        grid: Literal["paper", "fairseq"] = option("paper", "frequencies of the paper, or of fairseq and tensor2tensor")

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
        step = self.steps[ctx.layer] if self.options.steps == "learned" else self.step_table.rows[ctx.layer]
        return x + (self.table(ctx.queries) + at_least_float32(step)).to(x.dtype)
