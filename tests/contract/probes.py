"""Methods of tests only, each of which needs a corner of the contract that no method in methods/ uses yet."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_posenc.contract import AttentionContext, PositionMethod, Positions
from fairseq_posenc.ops.precision import widen
from fairseq_posenc.ops.sinusoids import sinusoid

from .broken import card
from .models import PAD


class RunningBias(PositionMethod):
    """As CABLE: a bias from sums over the words between query and key, which decoding carries from step to step."""

    card = card("running_bias", sites=("decoder",), count=lambda options, dims, site: dims.embed_dim * dims.num_heads)
    per_layer = True

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.weight = nn.Parameter(torch.randn(dims.embed_dim, dims.num_heads) / 4)

    def bias(self, ctx: AttentionContext) -> Tensor:
        new = F.softplus(widen(ctx.inputs[1]) @ widen(self.weight)).cumsum(1)  # [B, T, H]
        known = None if ctx.state is None else ctx.state.get("sums")
        sums = new if known is None else torch.cat([known, known[:, -1:] + new], 1)
        if ctx.state is not None:
            ctx.state.keep("sums", sums)
        sums = sums.transpose(1, 2)  # [B, H, S]
        return sums.unsqueeze(-2) - sums[..., -ctx.queries.ids.size(1) :].unsqueeze(-1)


class Gaussian(PositionMethod):
    """As hard-coded Gaussian attention: weights of positions alone, so that queries and keys are not projected."""

    card = card("gaussian", learnable=False, count=lambda options, dims, site: 0)
    projections = frozenset({"value"})

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        centre = torch.arange(v.size(1), device=v.device).view(-1, 1, 1) % 3 - 1.0
        delta = (ctx.keys.ids.unsqueeze(-2) - ctx.queries.ids.unsqueeze(-1)).unsqueeze(1)  # [B or 1, 1, T, S]
        scores = -(delta - centre).square() / 2
        if ctx.key_padding is not None:
            scores = scores.masked_fill(ctx.key_padding[:, None, None], float("-inf"))
        if ctx.causal:
            scores = scores.masked_fill(delta > 0, float("-inf"))
        return scores.softmax(-1).to(v.dtype) @ v


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


class Compressed(PositionMethod):
    """As DIET-Abs-LIN: keys and values are summed over positions into a few slots before they are projected."""

    card = card(
        "compressed", sites=("encoder", "cross"), reference="absolute", beyond="error",
        count=lambda options, dims, site: dims.max_key_positions * 3,
    )  # fmt: skip

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.slots = nn.Parameter(torch.randn(dims.max_key_positions, 3))

    key_limit = property(lambda self: self.dims.max_key_positions)

    def key_input(self, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        shares = F.embedding(at.ids, self.slots / 16).expand(x.size(0), -1, -1)
        if ctx.key_padding is not None:
            shares = shares.masked_fill(ctx.key_padding.unsqueeze(-1), 0.0)
        return shares.transpose(1, 2) @ x  # [B, 3, C]

    value_input = key_input

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        return (q @ k.transpose(-1, -2) * q.size(-1) ** -0.5).softmax(-1) @ v


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
