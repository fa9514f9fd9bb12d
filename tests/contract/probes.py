"""Methods for tests only. Each method uses one part of the contract, such as a hook, a side input or a loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairseq_posenc.core import AttentionContext, PositionMethod, Positions, Projection, SideInput, acts_on
from fairseq_posenc.ops.precision import at_least_float32
from fairseq_posenc.ops.sinusoids import sinusoid
from fairseq_posenc.testing.models import TARGET_ROOM

from .broken import card


class Shifted(PositionMethod):
    """Shift all positions of a batch by one random number in training. SHAPE draws one number per sentence instead."""

    card = card(
        "shifted", learnable=False, parameters="0", reference="absolute", injection="APE",
        recurring=False, sites=("encoder", "decoder"),
    )  # fmt: skip

    def positions(self, ids: Tensor, ctx: AttentionContext) -> Tensor:
        return ids + torch.randint(50, ()) if self.training else ids

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + sinusoid(ctx.queries.ids, x.size(-1), "halves", "paper").to(x.dtype)


class JustShifted(PositionMethod):
    """Shift the positions as `Shifted` does, but add no vectors and no bias. Specs combine this method with other methods."""

    card = card("just_shifted", learnable=False, parameters="0", sites=("encoder", "decoder"))

    positions = Shifted.positions


class Graph(PositionMethod):
    """Add a bias for every kind of edge between two words, as Graformer does. Side input: [B, S, S] of the source."""

    card = card("graph", sites=("encoder",), parameters="5 * h", side_inputs=(SideInput("edges", "B S S"),))

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.table = nn.Parameter(torch.randn(5, dims.num_heads))

    def bias(self, ctx: AttentionContext) -> Tensor:
        return self.table[ctx.side["edges"]].permute(0, 3, 1, 2)  # [B, S, S] -> [B, H, S, S]


def edges(tokens: Tensor) -> dict:
    """Return a kind of edge for every pair of words, from the words and their distance."""
    at = torch.arange(len(tokens))
    return {"edges": (tokens.unsqueeze(0) + 2 * tokens.unsqueeze(1) + at - at.unsqueeze(1)) % 5}


class TargetGraph(Graph):
    """Add the bias of `Graph` to the scores of the decoder's self-attention, for the words of the current prefix.

    Side input: [B, S, S] of the target.
    """

    card = card("target_graph", sites=("decoder",), parameters="5 * h", side_inputs=(SideInput("pairs", "B S S", "target"),))
    content_dependent = True

    def bias(self, ctx: AttentionContext) -> Tensor:
        return self.table[ctx.side["pairs"][:, ctx.queries.start :]].permute(0, 3, 1, 2)  # [B, T, S] -> [B, H, T, S]


def pairs(tokens: Tensor) -> dict:
    at = torch.arange(TARGET_ROOM)
    return {"pairs": (int(tokens.sum()) + 2 * at + 3 * at.unsqueeze(1)) % 5}


class Depth(PositionMethod):
    """Add a vector for the depth of every word in a tree. Side input: [B, S] of the source."""

    card = card(
        "depth", sites=("encoder",), parameters="5 * d", injection="APE", recurring=False,
        side_inputs=(SideInput("depth", "B S", padding=4),),
    )  # fmt: skip

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.table = nn.Parameter(torch.randn(5, dims.embed_dim))

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table[ctx.side["depth"]]


def depth(tokens: Tensor) -> dict:
    return {"depth": (tokens + torch.arange(len(tokens))) % 5}


class DepthOfKeys(PositionMethod):
    """Add a bias for the depth of each key in cross-attention. All beams of a sentence share these keys.

    Side input: the depth of each source word, [B, S].
    """

    card = card("depth_of_keys", sites=("cross",), parameters="5 * h", side_inputs=(SideInput("depth", "B S", padding=4),))

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.table = nn.Parameter(torch.randn(5, dims.num_heads))

    def bias(self, ctx: AttentionContext) -> Tensor:
        return self.table[ctx.side["depth"]].permute(0, 2, 1).unsqueeze(2)  # [B, S] -> [B, H, 1, S]


class DepthOfTarget(Depth):
    """Add a vector for the depth of each word of the current prefix in the decoder. Side input: [B, S] of the target."""

    card = card(
        "depth_of_target", sites=("decoder",), parameters="5 * d", injection="APE", recurring=False,
        side_inputs=(SideInput("plan", "B S", "target"),),
    )  # fmt: skip

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table[ctx.side["plan"][:, ctx.queries.start :]]


def plan(tokens: Tensor) -> dict:
    return {"plan": (int(tokens.sum()) + torch.arange(TARGET_ROOM)) % 5}


class Countdown(PositionMethod):
    """Add sinusoids of the remaining length, as length-difference encodings do. The side input is the target length, [B]."""

    card = card(
        "countdown", learnable=False, parameters="0", reference="absolute", injection="APE",
        recurring=False, sites=("decoder",), side_inputs=(SideInput("length", "B", "target"),),
    )  # fmt: skip

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        left = ctx.side["length"].unsqueeze(1) - ctx.queries.ids  # [B, T]
        return x + sinusoid(left, x.size(-1), "interleaved", "paper").to(x.dtype)


def length(tokens: Tensor) -> dict:
    return {"length": torch.tensor(len(tokens) + 2)}


class CountdownCross(Countdown):
    """Add sinusoids of the remaining length to the queries of cross-attention. All beams of a sentence share the keys.

    The side input is the target length, [B].
    """

    card = card(
        "countdown_cross", learnable=False, parameters="0", reference="absolute", injection="APE",
        sites=("cross",), side_inputs=(SideInput("length", "B", "target"),),
    )  # fmt: skip

    embed = PositionMethod.embed

    @acts_on("query")
    def project_input(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        left = ctx.side["length"].unsqueeze(1) - at.ids
        return x + sinusoid(left, x.size(-1), "interleaved", "paper").to(x.dtype)


class QueryTemperature(PositionMethod):
    """Multiply queries by a learned power of the logarithm of their position (logarithmic scaling)."""

    card = card("query_temperature", reference="absolute", parameters="h", directional=True)

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.power = nn.Parameter(torch.full((dims.num_heads,), 0.5))

    def scale(self, ctx: AttentionContext) -> Tensor:
        power = at_least_float32(self.power)
        growth = (ctx.queries.ids.to(power.dtype) + 2).log()[:, None, :, None]  # [B or 1, T] -> [B or 1, 1, T, 1]
        return growth ** power[:, None, None]  # -> [B or 1, H, T, 1]


class Halting(PositionMethod):
    """Add a loss to the cross-entropy, as adaptive halting adds its ponder cost.

    The loss of a sentence is the sum of the squared lengths of its scaled word vectors, divided by 100.
    """

    card = card(
        "halting", sites=("encoder", "decoder"), parameters="d", injection="APE", reference="none", recurring=False,
        losses=("ponder",),
    )  # fmt: skip

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.weight = nn.Parameter(torch.ones(dims.embed_dim))

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        ctx.add_loss("ponder", (x * self.weight).square().sum((1, 2)) / 100)
        return x * self.weight
