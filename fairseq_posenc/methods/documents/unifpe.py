"""Positions of a training sentence, shifted to a random block of the position range."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.sinusoids import SinusoidTable


class UnifPE(PositionMethod):
    r"""Shift the positions of each training sentence to a random block of the position range.

    Equation: $P[t + o]$ with $P$ the sinusoids of fairseq. $l$ is the number of tokens of the sentence with `</s>`, and $M$ is
        the number of positions (option `range`). $m = \lfloor M / l \rfloor$ blocks of $l$ positions fit, and $g = M
        \operatorname{mod} l$ positions remain. $j$ and $k$ are drawn uniformly from $\{0, \ldots, m - 1\}$. $o = j l + g$ if
        $j \ge k$, else $o = j l$. $o = 0$ where $2 l \ge M$, and in evaluation. With probability `plain`, $o = 0$ for all
        sentences of a training step. Peng, Bawden and Yvon (2024).
    Shapes: positions [B, T] -> same. embed [B, T, C] -> [B, T, C].
    Source: Peng, Bawden and Yvon (2024). Code: ziqianPeng/fairseq. Only the code was read, not the paper's text.
    Deviations:
        * Offsets are drawn in every forward pass. The authors' dataset draws them when it is built.
        * The authors have the learned positions of mBART. The spec unifpe:vectors=none+learned is equivalent. The default of this
          project is sinusoids.
        * With tie=true, o is the offset of the source. The decoder uses min(o, M - l), where l is the length of the target. The
          authors also lower the offset of the source.
        * As in the authors' code, the gap of g positions is never after the last block. Positions are therefore not used
          equally often.
    Cost: no parameters. Sinusoids of the positions of each sentence in training.
    Raises: PositionError for `randomised` in the same spec.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        range: int | None = option(None, "number M of positions (none: the maximum length)", minimum=1, maximum=1048576)
        plain: float = option(
            0.3,
            "probability that a training step has no offsets, drawn separately for encoder and decoder",
            minimum=0.0,
            maximum=1.0,
        )
        tie: bool = option(False, "same offset for source and target of a sentence pair")
        vectors: Literal["sinusoidal", "none"] = option(
            "sinusoidal", "sinusoids added to the embeddings, or none (only the other methods of the spec read the positions)"
        )

    card = MethodCard(
        name="unifpe",
        title="Uniform positions (UnifPE)",
        citations=("peng-etal-2024-investigating",),
        survey="not in the survey",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.range = options.range or dims.max_positions
        self.table = SinusoidTable(dims.max_positions, dims.embed_dim, "halves", "fairseq", origin=dims.padding_idx + 1)

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - ({"embed"} if self.options.vectors == "none" else set())

    def reach(self, positions: int) -> float:
        return max(positions, self.range)

    def positions(self, ids: Tensor, ctx: AttentionContext) -> Tensor:
        """In training, add the offset of each sentence to all its positions, including padding.

        Padding after the last block can have a position of at least M. M is the number of positions (option `range`).

        If another method has a table of positions, `SitePositions` limits these positions to the rows of the table.
        """
        if not self.training:
            return ids
        lengths = self._lengths(ids, ctx)  # [B, 1]
        if self.options.tie:
            drawn = ctx.once_per_pair(self.card.name, lambda: self._offsets(lengths))
            drawn = drawn.minimum((self.range - lengths).clamp(min=0))
        else:
            drawn = self._offsets(lengths)
        return ids + drawn * (torch.rand((), device=ids.device) >= self.options.plain)

    def _lengths(self, ids: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the number of tokens of each sentence, [B, 1]."""
        if ctx.tokens is not None:
            return ctx.tokens.ne(self.dims.padding_idx).sum(1, keepdim=True)
        if ctx.key_padding is not None:
            return (~ctx.key_padding).sum(1, keepdim=True)
        return ids.new_full((ids.size(0), 1), ids.size(1))

    def _offsets(self, lengths: Tensor) -> Tensor:
        """Draw the offset of each sentence: [B, 1] -> [B, 1]."""
        blocks = self.range // lengths.clamp(min=1)
        gap = self.range - blocks * lengths
        drawn = torch.rand(len(lengths), 2, device=lengths.device) * blocks  # [B, 2]
        block, gap_before = drawn.long().minimum(blocks - 1).clamp(min=0).split(1, 1)  # [B, 1] each
        offset = block * lengths + gap * (block >= gap_before)
        return offset * (2 * lengths < self.range)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table(ctx.queries).to(x.dtype)
