"""Methods of tests only, each of which needs a corner of the contract that no method in methods/ uses yet."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairseq_posenc.contract import AttentionContext, PositionMethod, Positions
from fairseq_posenc.ops.sinusoids import sinusoid

from .broken import card
from .models import PAD


class Shifted(PositionMethod):
    """As SHAPE: all positions of a batch moved by one random number in training."""

    card = card(
        "shifted", learnable=False, count=lambda options, dims, site: 0, reference="absolute", injection="APE",
        recurring=False, sites=("encoder", "decoder"),
    )  # fmt: skip

    def positions(self, ids: Tensor) -> Tensor:
        return ids + torch.randint(50, ()) if self.training else ids

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + sinusoid(ctx.queries.ids, x.size(-1), "halves", "paper").to(x.dtype)


class JustShifted(Shifted):
    """The shift alone, to be composed."""

    card = card("just_shifted", learnable=False, count=lambda options, dims, site: 0, sites=("encoder", "decoder"))

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x


class Graph(PositionMethod):
    """As Graformer: a bias for every kind of edge between two words of the source."""

    card = card("graph", sites=("encoder",), count=lambda options, dims, site: 5 * dims.num_heads)

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.table = nn.Parameter(torch.randn(5, dims.num_heads))

    def bias(self, ctx: AttentionContext) -> Tensor:
        return self.table[ctx.structure["graph"]].permute(0, 3, 1, 2)  # [B, S, S] -> [B, H, S, S]


def graph(tokens: Tensor) -> dict:
    """A kind of edge for every two words, from the words and their distance."""
    at = torch.arange(tokens.size(1))
    return {"graph": (tokens.unsqueeze(1) + 2 * tokens.unsqueeze(2) + at - at.unsqueeze(1)) % 5}


class Countdown(PositionMethod):
    """As length-difference encodings: sinusoids of the words that are left, from a length given for every sentence."""

    card = card(
        "countdown", learnable=False, count=lambda options, dims, site: 0, reference="absolute", injection="APE",
        recurring=False, sites=("decoder",),
    )  # fmt: skip

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        left = ctx.structure["length"].unsqueeze(1) - ctx.queries.ids  # [B, T]
        return x + sinusoid(left, x.size(-1), "interleaved", "paper").to(x.dtype)


def length(tokens: Tensor) -> dict:
    return {"length": tokens.ne(PAD).sum(1) + 2}


class CountdownCross(Countdown):
    """The same as queries of the attention to the source: side information beside keys that beams share."""

    card = card(
        "countdown_cross", learnable=False, count=lambda options, dims, site: 0, reference="absolute", injection="APE",
        sites=("cross",),
    )  # fmt: skip

    embed = PositionMethod.embed

    def query_input(self, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        left = ctx.structure["length"].unsqueeze(1) - at.ids
        return x + sinusoid(left, x.size(-1), "interleaved", "paper").to(x.dtype)
