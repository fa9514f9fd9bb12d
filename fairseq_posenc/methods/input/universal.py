"""Coordinates of position and step before every layer, as in the Universal Transformer."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, option
from ...ops.precision import widen
from ...ops.sinusoids import SinusoidTable


class Universal(PositionMethod):
    """Sinusoids of the position and of the layer's number, added before every layer and not to the embeddings.

    Equation: H^l = F(H^(l-1) + C[l]), C[l][t, 2k] = sin(t w_k) + sin(l w_k), C[l][t, 2k+1] = cos(t w_k) + cos(l w_k);
        Dehghani et al. (2019), equations 6 and 7.
    Shapes: before_layer [B, T, C] -> [B, T, C].
    Source: Dehghani et al. (2019); tensor2tensor's universal_transformer_util.
    Deviations: adaptive computation time is not part of the method; layers are tied by the model's --tie-encoder-layers and
        --tie-decoder-layers, which the architecture posenc_universal sets.
    Cost: no parameters; with steps=learned L d a stack.
    """

    @dataclass(frozen=True)
    class Options(Options):
        steps: Literal["sinusoidal", "learned"] = option("sinusoidal", "the layer's number as a sinusoid (the paper) or learned")
        first_step: Literal[1, 0] = option(1, "number of the first layer: 1 in the paper, 0 in tensor2tensor")
        layout: Literal["interleaved", "halves"] = option("interleaved", "each sine beside its cosine, or all sines first")
        grid: Literal["paper", "fairseq"] = option("paper", "frequencies as in the paper, or as in fairseq and tensor2tensor")

    card = MethodCard(
        name="universal",
        title="Universal Transformer coordinates",
        citation="""@inproceedings{dehghani-etal-2019-universal,
  title = {Universal Transformers},
  author = {Dehghani, Mostafa and Gouws, Stephan and Vinyals, Oriol and Uszkoreit, Jakob and Kaiser, Lukasz},
  booktitle = {ICLR}, year = {2019}}""",
        equation="C[l][t, 2k] = sin(t w_k) + sin(l w_k), C[l][t, 2k+1] = cos(t w_k) + cos(l w_k), before every layer",
        survey="4.2",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="0 (L d with steps=learned)",
        count=lambda options, dims, site: dims.num_layers * dims.embed_dim if options.steps == "learned" else 0,
        survey_parameters="0",
        tied_layers=True,
        deviations=("no adaptive computation time; layers are tied by an option of the model",),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        form = (dims.embed_dim, options.layout, options.grid)
        self.table = SinusoidTable(dims.max_positions, *form)
        if options.steps == "learned":
            self.steps = nn.Parameter(torch.randn(dims.num_layers, dims.embed_dim))
        else:
            self.step_table = SinusoidTable(dims.num_layers, *form, origin=options.first_step)

    def before_layer(self, x: Tensor, ctx: AttentionContext) -> Tensor:
        step = self.steps[ctx.layer] if self.options.steps == "learned" else self.step_table.rows[ctx.layer]
        return x + (self.table(ctx.queries) + widen(step)).to(x.dtype)
