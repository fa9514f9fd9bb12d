"""Methods with one error each. The tests prove that the checks detect these errors.

Four methods are correct: `Sound`, `OwnKernel`, `RunningSum` and `SaysThatItReadsContent`. Each of the other methods contains one
error.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairseq_posenc.core import AttentionContext, MethodCard, MethodOptions, PositionMethod, Positions, acts_on, option
from fairseq_posenc.methods.rotary.rope import Rope


def card(name: str, **changes) -> MethodCard:
    """Return the card of `Sound` with this name and with changed fields.

    A changed field of a broken method can be wrong about the method.
    """
    true = MethodCard(
        name=name, title=name, citations=(), survey="", reference="relative", injection="MAM", learnable=True,
        recurring=True, extrapolation="runs", evidence="reconstruction", sites=("encoder", "decoder", "cross"),
        parameters="2 * h",
    )  # fmt: skip
    return dataclasses.replace(true, **changes)


class Sound(PositionMethod):
    """A correct method: two learned slopes per head. The first slope is for keys on the left.

    The second slope has a large effect on keys on the right, and a small effect on keys on the left.
    """

    card = card("sound")

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.slopes = nn.Parameter(torch.arange(1.0, 2 * dims.num_heads + 1).view(2, -1, 1, 1) / 4)

    def bias(self, ctx: AttentionContext) -> Tensor:
        delta = (ctx.keys.ids.unsqueeze(-2) - ctx.queries.ids.unsqueeze(-1)).unsqueeze(1).to(self.slopes.dtype)
        return (
            -self.slopes[0] * (-delta).clamp(min=0)
            - self.slopes[1] * (delta + delta.square() / 99).clamp(min=0)
            - (self.slopes[1] * delta / 9)
        )


class Columns(Sound):
    card = card("columns")

    def bias(self, ctx):
        return super().bias(ctx) * (1 + torch.arange(ctx.keys.ids.size(1)) / 20)


class LengthDependent(Sound):
    card = card("length_dependent")

    def bias(self, ctx):
        return super().bias(ctx) / ctx.keys.ids.size(1)


class LeaksFuture(Sound):
    card = card("leaks_future")

    def embed(self, x, tokens, ctx):
        return x + x.roll(-1, 1)


class OwnKernel(PositionMethod):
    """A correct method with its own kernel. Its two subclasses have an error in the mask."""

    card = card("own_kernel", learnable=False, parameters="0")

    def attend(self, q, k, v, ctx):
        delta = ctx.keys.ids.unsqueeze(-2) - ctx.queries.ids.unsqueeze(-1)
        scores = q @ k.transpose(-1, -2) - (delta.unsqueeze(1) - 0.5).abs().to(q.dtype)
        return scores.masked_fill(self.hidden(delta, ctx), float("-inf")).softmax(-1) @ v

    def hidden(self, delta, ctx):
        hidden = (delta > 0).unsqueeze(1) & ctx.causal
        return hidden if ctx.key_padding is None else hidden | ctx.key_padding[:, None, None]


class ForgetsCausality(OwnKernel):
    card = card("forgets_causality", learnable=False, parameters="0")

    def hidden(self, delta, ctx):
        return super().hidden(delta, ctx.replace(causal=False))


class ForgetsPadding(OwnKernel):
    card = card("forgets_padding", learnable=False, parameters="0")

    def hidden(self, delta, ctx):
        return super().hidden(delta, ctx.replace(key_padding=None))


class MixesSentences(Sound):
    card = card("mixes_sentences")

    def before_layer(self, x, ctx):
        return x - x.mean(0, keepdim=True) / 2


class RunningSum(Sound):
    """A correct method that adds to each embedding one eighth of the sum of all embeddings up to this word.

    Two subclasses have errors in the decoding state.
    """

    card = card("running_sum", sites=("decoder",))

    def embed(self, x, tokens, ctx):
        known = None if ctx.state is None else ctx.state.get("sum")
        total = x.cumsum(1) + (0 if known is None else known)
        if ctx.state is not None:
            self.remember(ctx.state, total[:, -1:])
        return x + total / 8

    def remember(self, state, total):
        state.store_per_row("sum", total)


class ReadsContent(Sound):
    """Read hidden states in a bias, although `content_dependent` is false.

    Decoding therefore computes the bias in advance, without hidden states.
    """

    card = card("reads_content", sites=("decoder",))
    per_layer = True

    def bias(self, ctx):
        return super().bias(ctx) + ctx.inputs[1].mean(-1)[:, None, None]


class SaysThatItReadsContent(ReadsContent):
    card = card("says_that_it_reads_content", sites=("decoder",))
    content_dependent = True

    def bias(self, ctx):
        words = ctx.inputs[1].mean(-1)
        if ctx.state is not None:
            known = ctx.state.get("words")
            words = ctx.state.store_per_row("words", words if known is None else torch.cat([known, words], 1))
        return Sound.bias(self, ctx) + words[:, None, None]


class FixesPositions(Sound):
    """Store the key positions as a tensor that does not depend on the sentence.

    This is wrong, because with padding on the left, the positions differ between sentences.
    """

    card = card("fixes_positions", sites=("cross",))

    def bias(self, ctx):
        if ctx.state is not None:
            known = ctx.state.get("ids")
            ctx = ctx.replace(keys=Positions(ctx.state.store_shared("ids", ctx.keys.ids) if known is None else known))
        return super().bias(ctx)


class StaysWhenBeamsMove(RunningSum):
    card = card("stays_when_beams_move", sites=("decoder",))

    def remember(self, state, total):
        state.store_shared("sum", total)


class ForgetsItsState(RunningSum):
    card = card("forgets_its_state", sites=("decoder",))

    def remember(self, state, total):
        pass


class UnusedParameter(Sound):
    card = card("unused_parameter", parameters="2 * h + 1")

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.idle = nn.Parameter(torch.ones(1))


class MultipliedByZero(UnusedParameter):
    card = card("multiplied_by_zero", parameters="2 * h + 1")

    def bias(self, ctx):
        return super().bias(ctx) + 0 * self.idle


class CutsTheGradient(Sound):
    card = card("cuts_the_gradient")

    def bias(self, ctx):
        found = super().bias(ctx)
        return found / 2 + found.detach() / 2


class ChangesItself(Sound):
    card = card("changes_itself")

    def bias(self, ctx):
        self.last = super().bias(ctx)
        return self.last


class ChangesItsTable(Sound):
    """Change a tensor in place that is neither a parameter nor a buffer."""

    card = card("changes_its_table")

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.table = torch.zeros(3)

    def bias(self, ctx):
        self.table[0] += 1
        return super().bias(ctx)


class ChangesItsBuffer(Sound):
    card = card("changes_its_buffer")

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def bias(self, ctx):
        self.calls += 1
        return super().bias(ctx)


class CountsCalls(Sound):
    """Multiply the input of the query projection by a number that increases with every call.

    If activation checkpointing runs a layer again, the layer then computes other activations.
    """

    card = card("counts_calls")

    @acts_on("query")
    def project_input(self, which, x, at, ctx):
        self.calls = getattr(self, "calls", 0) + 1
        return x * (1 + self.calls / 10)


class Random(Sound):
    card = card("random")

    def bias(self, ctx):
        return super().bias(ctx) + torch.rand(1)


class RandomScores(Sound):
    card = card("random_scores")

    def bias(self, ctx):
        found = super().bias(ctx)
        return found + torch.rand_like(found)


class WrongCount(Sound):
    card = card("wrong_count", parameters="2 * h * L")


class NotLearnable(Sound):
    card = card("not_learnable", learnable=False)


class NotRecurring(Sound):
    card = card("not_recurring", recurring=False)


class NotWithEmbeddings(Sound):
    card = card("not_with_embeddings", injection="APE")


class NotRelative(Sound):
    card = card("not_relative")

    def bias(self, ctx):
        return super().bias(ctx) * (1 + ctx.keys.ids[:, None, None] / 20)


class NotAbsolute(Sound):
    card = card("not_absolute", reference="absolute")


class NotUnbound(Sound):
    card = card("not_unbound")
    limit = property(lambda self: self.dims.max_positions)


class NotLimited(Sound):
    card = card("not_limited", extrapolation="error")
    limit = key_limit = None


class LimitedTooEarly(Sound):
    card = card("limited_too_early", extrapolation="error")
    limit = property(lambda self: self.dims.max_positions - 1)


class DependsOnTheLimit(Sound):
    card = card("depends_on_the_limit")

    def bias(self, ctx):
        return super().bias(ctx) / self.dims.max_positions


class NotClipped(Sound):
    card = card("not_clipped", extrapolation="clips")


class Clipped(Sound):
    card = card("clipped")

    def bias(self, ctx):
        far = Positions(ctx.keys.ids.clamp(min=ctx.queries.last - 7))
        return super().bias(ctx.replace(keys=far)).clamp(min=-7)


class TellsNoDirection(Sound):
    card = card("no_direction", learnable=False, parameters="0")

    def bias(self, ctx):
        return -(ctx.keys.ids.unsqueeze(-2) - ctx.queries.ids.unsqueeze(-1)).abs().unsqueeze(1).float()


class NoEffect(PositionMethod):
    card = card("no_effect", learnable=False, parameters="0")


class CountedOnly(Sound):
    card = card("counted_only")

    def bias(self, ctx):
        at = [Positions.counted(at.start or 0, at.ids.size(1)) for at in (ctx.queries, ctx.keys)]
        return super().bias(ctx.replace(queries=at[0], keys=at[1])) * (1 if ctx.keys.start is not None else 2)


class HalfPositions(Sound):
    card = card("half_positions")

    def bias(self, ctx):
        at = [Positions(at.ids.to(self.slopes.dtype)) for at in (ctx.queries, ctx.keys)]
        return super().bias(ctx.replace(queries=at[0], keys=at[1]))


class WidensEverything(Sound):
    card = card("widens_everything")

    def before_layer(self, x, ctx):
        return x.float() + 0.01


class MaskOfInfinities(Sound):
    card = card("mask_of_infinities")

    def bias(self, ctx):
        delta = ctx.keys.ids.unsqueeze(-2) - ctx.queries.ids.unsqueeze(-1)
        return super().bias(ctx).masked_fill((delta >= 0).unsqueeze(1), float("-inf"))

    def mask(self, ctx):
        return torch.ones(1, 1, 1, 1, dtype=torch.bool)


class ChangesWeights(Sound):
    card = card("changes_weights")

    def content_values(self, probs, v, ctx):
        return probs.mul_(0.9) @ v * 0.1


class ValuesOfColumns(Sound):
    """Add the weighted sum of values, multiplied by the row number of the query in the tensor.

    A correct method would read the position of the query.
    """

    card = card("values_of_columns")

    def content_values(self, probs, v, ctx):
        return probs @ v * torch.arange(probs.size(2)).view(-1, 1) / 10


class SavesItsTable(Sound):
    card = card("saves_its_table")

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.register_buffer("table", torch.zeros(3))


class IgnoresAnOption(Sound):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        strong: bool = option(False, "a stronger bias")

    card = card("ignores_an_option")


class ClaimsNoDirection(Sound):
    card = card("claims_no_direction", directional=False)


class RotaryClaimsAbsolute(Rope):
    card = dataclasses.replace(Rope.card, name="rotary_claims_absolute", reference="absolute")


class RotaryClaimsClipping(Rope):
    card = dataclasses.replace(Rope.card, name="rotary_claims_clipping", extrapolation="clips")


class NotStochastic(Sound):
    card = card("not_stochastic")

    def prepare(self, ctx):
        return torch.rand(1)


class ClaimsNoise(Sound):
    card = card("claims_noise", stochastic=True)


class IndexesATable(Sound):
    """Needs integer positions, but position_type is not set."""

    card = card("indexes_a_table", parameters="2 * h + 99")

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.table = nn.Parameter(torch.randn(99))

    def bias(self, ctx):
        far = (ctx.keys.ids.unsqueeze(-2) - ctx.queries.ids.unsqueeze(-1)).abs().clamp(max=98)
        return super().bias(ctx) + self.table[far].unsqueeze(1)


class SquaresScores(Sound):
    """The new scores are not the scores times a factor, but rescale_reads is not set."""

    card = card("squares_scores")

    def rescale(self, scores, q, k, ctx):
        return scores + scores.square()


class ReadsQueries(Sound):
    """The new scores depend on the queries, but rescale_reads is "scores"."""

    card = card("reads_queries")
    rescale_reads = "scores"

    def rescale(self, scores, q, k, ctx):
        return scores * q.mean(-1, keepdim=True)


class DiffersBetweenLayers(Sound):
    """The bias differs between layers, but per_layer is not set."""

    card = card("differs_between_layers")

    def bias(self, ctx):
        return super().bias(ctx) * (1 + ctx.layer)


class AddsANumber(Sound):
    card = card("adds_a_number", losses=("size",))

    def before_layer(self, x, ctx):
        ctx.add_loss("size", x.square().sum())
        return x


class AddsALossWithoutAGradient(Sound):
    card = card("adds_a_loss_without_a_gradient", losses=("size",))

    def before_layer(self, x, ctx):
        ctx.add_loss("size", x.square().sum((1, 2)).detach())
        return x


class AddsALossInSecret(Sound):
    card = card("adds_a_loss_in_secret")

    def before_layer(self, x, ctx):
        ctx.add_loss("size", x.square().sum((1, 2)))
        return x


class ClaimsALoss(Sound):
    card = card("claims_a_loss", losses=("size",))


class ClaimsNothing(Sound):
    card = card("claims_nothing", reference="none")


class MasksForNothing(Sound):
    """Hide all keys inside attention. If the mask is computed outside of attention, allow all keys."""

    card = card("masks_for_nothing")

    def mask(self, ctx):
        used = ctx.inputs is not None
        return torch.full((1, 1, ctx.queries.ids.size(1), ctx.keys.ids.size(1)), not used)
