"""The class that a position method extends: hooks, and helpers for parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from .card import MethodCard, MethodOptions
from .context import AttentionContext, Positions
from .dims import Dims
from .export import refuse_script
from .formula import owners
from .hooks import HOOKS, Projection
from .renamed import refuse_old_members
from .sentence import Sentence


def default_scale(head_dim: int) -> float:
    """The factor of the product of queries and keys where no method sets another."""
    return head_dim**-0.5


class PositionMethod(nn.Module):
    """A position method of one attention in all layers of a stack; subclasses are leaves and override what their paper changes.

    One instance serves all layers of its stack: what the layers share is one tensor, what they do not share carries a leading
    layer axis and is read with `of_layer`. A hook that is not overridden costs nothing; `hooks.py` says when each acts and how
    those of several methods come together.
    """

    card: ClassVar[MethodCard]
    Options: ClassVar[type[MethodOptions]] = MethodOptions
    #: projections of the attention that the method uses; others are not built
    projections: frozenset[str] = frozenset({"query", "key", "value"})
    #: whether `bias` and `mask` differ between layers; where they do not, they are made once per forward
    per_layer: bool = False
    #: whether `bias` reads more than positions (ctx.inputs, ctx.tokens, ctx.side), so that decoding cannot make it ahead
    content_dependent: bool = False
    #: what `rescale` reads: positions alone (it multiplies by a factor), the scores, or queries and keys ("content");
    #: "weights": it reads the scores and returns logarithms of attention weights, to which no other method may add a term
    rescale_reads: Literal["positions", "scores", "content", "weights"] = "positions"
    #: "integer": hooks need integer positions, as the rows of a table; "fractional": `positions` returns fractions in training
    position_type: Literal["any", "integer", "fractional"] = "any"
    #: whether positions are counted from the tokens, so that the positions of another method would have no effect
    counts_tokens: bool = False

    __prepare_scriptable__ = refuse_script
    _overridden: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        refuse_old_members(cls)
        cls._overridden = frozenset(hook for hook in HOOKS if getattr(cls, hook) is not getattr(PositionMethod, hook))

    def __init__(self, options: Any, dims: Dims):
        super().__init__()
        self.options, self.dims = options, dims

    # -- in the workers that load data, without the module ------------------------------------------------------------

    @classmethod
    def side_values(cls, sentence: Sentence, options: Any) -> Mapping[str, np.ndarray]:
        """What the card makes from files, for one sentence and by its tokens: [], [S] or [S, S], with fixed axes after them."""
        raise NotImplementedError

    # -- what the host asks ------------------------------------------------------------------------------------------

    @property
    def hooks(self) -> frozenset[str]:
        """The hooks in use, read off the class; a method whose options switch one off narrows this."""
        return self._overridden

    @property
    def draws(self) -> bool:
        """Whether `prepare` draws random numbers with these options."""
        return self.card.stochastic and "prepare" in self.hooks

    @classmethod
    def projections_of(cls, hook: str) -> frozenset[str]:
        """The projections that this hook of the method changes or reads; `acts_on` narrows those of the table of hooks."""
        return getattr(getattr(cls, hook), "projections", HOOKS[hook].projections)

    @property
    def mixes_keys(self) -> bool:
        """Whether `project_input` gives other keys than one for every position."""
        return "project_input" in self.hooks and getattr(type(self).project_input, "mixes_positions", False)

    @property
    def caches_keys(self) -> bool:
        """Whether decoding keeps projected keys and values for `attend`."""
        return not getattr(type(self).attend, "recurrent", False)

    @property
    def limit(self) -> int | None:
        """The number of query positions that the method can tell apart, where more is an error."""
        return self.dims.max_positions if self.card.extrapolation == "error" else None

    @property
    def key_limit(self) -> int | None:
        """The same for key positions; differs in cross-attention alone."""
        return self.dims.max_key_positions if self.card.extrapolation == "error" else None

    def reach(self, positions: int) -> float:
        """How many positions other methods meet where `positions` has changed those of a sentence of this many."""
        return positions

    # -- hooks, in the order of a forward ----------------------------------------------------------------------------

    def positions(self, ids: Tensor, ctx: AttentionContext) -> Tensor:
        """[B, T] -> same, may become float; drawn once per batch in training, not drawn in evaluation (of [1, T])."""
        return ids

    def prepare(self, ctx: AttentionContext) -> Any:
        """Return what the hooks of one forward pass share: random numbers, tensors with a gradient.

        It is called once per forward pass, before the layers. The other hooks read the result as ctx.prepared[self].
        """
        raise NotImplementedError

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        """[B, T, C], [B, T] -> [B, T, C]; once, where tokens become vectors; sentences start in the first column."""
        return x

    def before_layer(self, x: Tensor, ctx: AttentionContext) -> Tensor:
        """[B, T, C] -> [B, T, C]; before every layer."""
        return x

    def project_input(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """Change the input of the query, key or value projection: [B, T, C] -> same; keys and values [B, S, C] -> [B, S', C].

        It is called once per key: the result is cached while decoding. `acts_on` names the projections that it changes.
        """
        return x

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """Change projected queries or keys: [B, H, T, D] -> [B, H, T, D'], once per key; `which` is never "value"."""
        return x

    def scale(self, ctx: AttentionContext) -> float | Tensor:
        """Return the factor of the product of queries and keys: a float, or a tensor [B or 1, H or 1, T, 1] of query factors.

        A float replaces 1/sqrt(d_h) and depends on options and sizes only. All methods of a spec must agree on it; they read it
        as ctx.scale. A tensor is a factor of each query beside ctx.scale, computed from the positions in every forward pass:
        queries are multiplied by it after `rotate`, and tensors of several methods multiply. When a model is built, the hook is
        called once per layer for a single position without inputs.
        """
        return default_scale(self.dims.head_dim)

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        """[B, H, T, S] -> [B, H, T, S]; changes the scaled product of queries and keys before anything is added to it."""
        return scores

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        """-> [B, H, T, S], added to the scaled product; may depend on queries and keys."""
        raise NotImplementedError

    def bias(self, ctx: AttentionContext) -> Tensor | None:
        """-> [B or 1, H or 1, T, S] in float32, added to the scaled product, or None for nothing; see `content_dependent`."""
        raise NotImplementedError

    def bias_factors(self, ctx: AttentionContext) -> tuple[Tensor, Tensor] | None:
        """Return two factors of `bias` for all queries and keys of a causal attention, or None where it has none.

        Equation: bias_ts = sum_r q'_tr k'_sr + (any number of t), which the softmax cancels.
        Shapes: q' [B or 1, H or 1, T, R] and k' [B or 1, H or 1, S, R], in float32 or wider.

        `bias` stays the definition. The attention adds the factors to queries and keys as further channels where this is faster.
        """
        return None

    def mask(self, ctx: AttentionContext) -> Tensor:
        """-> bool [B or 1, H or 1, T, S], True where a query may look; a query that may look nowhere gets zeros."""
        raise NotImplementedError

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        """[B, H, T, S], [B, H, S, D] -> [B, H, T, D], added to the heads' outputs."""
        raise NotImplementedError

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        """-> [B, H, T, D]; replaces the whole kernel: scale, scores, masks, softmax and values."""
        raise NotImplementedError

    # -- helpers of methods with parameters --------------------------------------------------------------------------

    def parameter_table(self, *shape: int, share: str) -> nn.Parameter:
        """A zero parameter [L or 1, H or 1, *shape]; `share` names what has one table in common: none, heads, layers, all."""
        return nn.Parameter(torch.zeros(*owners(share, self.dims), *shape))

    def of_layer(self, parameter: Tensor, ctx: AttentionContext) -> Tensor:
        """[L or 1, ...] -> [...]: the part of a parameter that this layer uses."""
        return parameter[ctx.layer if parameter.size(0) > 1 else 0]
