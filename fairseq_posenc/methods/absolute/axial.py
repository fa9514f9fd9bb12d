"""Learned vectors for the rows and columns of a grid, added to the embeddings. Each cell of the grid is one position."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.distances import require_integer


class Axial(PositionMethod):
    r"""Arrange positions in a grid. Concatenate or sum learned vectors of row and column, and add the result to each embedding.

    Equation: $P[t] = (A[\lfloor t / n_2 \rfloor], B[t \operatorname{mod} n_2])$ with $A \in \mathbb{R}^{n_1 \times d_1}$, $B \in
        \mathbb{R}^{n_2 \times d_2}$ and $d_1 + d_2 = d$, for positions below $n_1 n_2$. With `combine=sum`, $P[t] = A[\lfloor t /
        n_2 \rfloor] + B[t \operatorname{mod} n_2]$ and $d_1 = d_2 = d$.
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Kitaev, Kaiser and Levskaya (2020). The exact form is in the code: trax, and Reformer in Hugging Face's
        transformers.
    Deviations:
        * The grid has two axes. The authors' code allows more axes.
        * The initial standard deviation is d^-0.5, as in fairseq's learned positions. In the authors' code, the standard
          deviation is 1.
        * In training, sentences may be shorter than the grid. Hugging Face's code raises an error for such sentences.
        * The survey places the channels of the column before the channels of the row.
    Cost: n_1 d_1 + n_2 d_2 parameters per stack.
    Raises: PositionError for a grid with fewer positions than the maximum length. PositionError for row_width with
        combine=sum. PositionError for a row_width that is not smaller than the model width. PositionError for non-integer
        positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        rows: int = option(32, "number n_1 of rows of the grid (segments of a sentence)", minimum=1, maximum=65536)
        columns: int = option(32, "number n_2 of columns of the grid (positions per segment)", minimum=1, maximum=65536)
        combine: Literal["concatenation", "sum"] = option(
            "concatenation", "row channels followed by column channels, or the sum of both vectors"
        )
        row_width: int | None = option(
            None, "number d_1 of row channels (none: half of the model width)", minimum=1, maximum=65536
        )

    card = MethodCard(
        name="axial",
        title="Axial positions (Reformer)",
        citations=("kitaev-etal-2020-reformer",),
        survey="4.1.1",
        reference="absolute",
        injection="APE",
        learnable=True,
        recurring=False,
        extrapolation="error",
        evidence="peer",
        sites=("encoder", "decoder"),
        parameters=(
            "(rows + columns) * d if combine == 'sum' else rows * (row_width or d // 2) + columns * (d - (row_width or d // 2))"
        ),
        survey_parameters="(d - d_1) n / n_1 + d_1 n_1",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        width, summed = dims.embed_dim, options.combine == "sum"
        cells = options.rows * options.columns
        if cells < dims.max_positions:
            raise PositionError(
                f"axial: rows={options.rows} times columns={options.columns} is {cells} positions. "
                f"Expected at least the maximum length {dims.max_positions}. "
                f"Use rows={-(-dims.max_positions // options.columns)}, "
                "or reduce --max-source-positions and --max-target-positions."
            )
        if options.row_width is not None and (summed or options.row_width >= width):
            raise PositionError(
                f"axial: row_width={options.row_width} is not allowed. "
                "Expected combine=concatenation and less than the embedding "
                f"dimension {width}. Remove row_width."
            )
        row_width = options.row_width or width // 2
        self.of_row = nn.Parameter(torch.empty(options.rows, width if summed else row_width))
        self.of_column = nn.Parameter(torch.empty(options.columns, width if summed else width - row_width))
        for table in (self.of_row, self.of_column):
            nn.init.normal_(table, std=width**-0.5)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        ids = require_integer(ctx.queries.ids)
        row = F.embedding(ids.div(self.options.columns, rounding_mode="floor"), self.of_row)  # [B or 1, T, d_1]
        column = F.embedding(ids % self.options.columns, self.of_column)  # [B or 1, T, d_2]
        return x + (row + column if self.options.combine == "sum" else torch.cat([row, column], -1))
