"""Attention to a window around each query."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, HeadOptions, MethodCard, PositionError, PositionMethod, heads_of, option
from ...ops.distances import distances


class Window(PositionMethod):
    r"""Restrict each query to the keys within a window around the query.

    Equation: $M_{ts} = 0$ if $|s-t| \le g w/2$ and $g$ divides $s - t$, else $-\infty$, with width $w$ and dilation $g$. The
        mask $M$ is added to the scores. Beltagy et al. (2020).
    Shapes: mask -> bool [B or 1, 1, T, S], or [B or 1, H, T, S] with heads=.
    Source: Beltagy, Peters and Cohan (2020). Code: Longformer in Hugging Face's transformers.
    Deviations:
        * The global tokens of Longformer, which have separate projections, are omitted.
        * In the decoder, only the left half of the window remains.
        * The window does not distinguish left from right. Positions within the window must come from another method.
        * posenc_window therefore also has learned positions, as the encoder of Longformer does. Its language model has
          relative and sinusoidal positions.
        * The default width is 32. The width of Longformer, 512, would include whole sentences.
    Cost: no parameters. The time and memory are the same as in full attention, because the scores of all pairs of tokens are
        computed.
    Raises: PositionError for an odd width, and for a head in heads= that does not exist.
    """

    @dataclass(frozen=True)
    class Options(HeadOptions):
        width: int = option(32, "width w of the window, an even number of keys on both sides together", minimum=0, maximum=65536)
        dilation: int = option(1, "distance g between neighbouring keys of the window, in tokens", minimum=1, maximum=65536)

        def __post_init__(self) -> None:
            if self.width % 2:
                raise PositionError(
                    f"width={self.width} is odd. Expected an even number, half of it for each side. "
                    f"Use width={self.width - 1} or width={self.width + 1}."
                )

    card = MethodCard(
        name="window",
        title="Sliding window (Longformer)",
        citations=("beltagy-etal-2020-longformer",),
        survey="not in its Table 1",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        directional=False,
        default_specs={"encoder": "learned+window", "decoder": "learned+window"},
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        heads_of(options, dims)

    def mask(self, ctx: AttentionContext) -> Tensor:
        distance = distances(ctx.queries, ctx.keys).abs().unsqueeze(1)  # [B or 1, 1, T, S]
        if distance.is_floating_point():  # positions of cape in training
            distance = distance.round()
        near = (distance <= self.options.width // 2 * self.options.dilation) & (distance % self.options.dilation == 0)
        if self.options.heads is None:
            return near
        used = heads_of(self.options, self.dims)
        return torch.cat([near if head in used else torch.ones_like(near) for head in range(self.dims.num_heads)], 1)
