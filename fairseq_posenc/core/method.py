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
    """Return the default factor of the product of queries and keys."""
    return head_dim**-0.5


class PositionMethod(nn.Module):
    """Base class of position methods. A method overrides the hooks that its paper changes.

    One instance is used by all layers of a stack. Parameters that layers do not share have a leading layer axis. `of_layer`
    selects the layer. Hooks that are not overridden have no cost. `hooks.py` defines when each hook is called and how methods
    combine.
    """

    card: ClassVar[MethodCard]
    Options: ClassVar[type[MethodOptions]] = MethodOptions
    #: projections of the attention that the method uses; other projections are not built
    projections: frozenset[str] = frozenset({"query", "key", "value"})
    #: whether `bias` and `mask` differ between layers; if not, they are computed once per forward pass
    per_layer: bool = False
    #: whether `bias` or `rotate` reads ctx.inputs, ctx.tokens or ctx.side; decoding can then not compute the bias in advance
    content_dependent: bool = False
    #: input of `rescale`: "positions" (a factor), "scores", or "content" (queries and keys). "weights": `rescale` returns
    #: logarithms of attention weights. Other methods must then not add terms to the scores
    rescale_reads: Literal["positions", "scores", "content", "weights"] = "positions"
    #: "integer": hooks need integer positions, for example as row numbers of a table. "fractional": `positions` returns fractions
    #: in training
    position_type: Literal["any", "integer", "fractional"] = "any"
    #: whether the method counts positions from the tokens. The hook `positions` of another method would then have no effect
    counts_tokens: bool = False
    #: whether every forward pass reads a value of an accelerator, such as the number of different paths
    waits: bool = False

    __prepare_scriptable__ = refuse_script
    _overridden: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        refuse_old_members(cls)
        cls._overridden = frozenset(hook for hook in HOOKS if getattr(cls, hook) is not getattr(PositionMethod, hook))

    def __init__(self, options: Any, dims: Dims):
        super().__init__()
        self.options, self.dims = options, dims

    # -- in the data loader processes, without the module --------------------------------------------------------------

    @classmethod
    def side_values(cls, sentence: Sentence, options: Any) -> Mapping[str, np.ndarray]:
        """Return the side inputs of one sentence by name.

        Shapes: [], [S] or [S, S] with one entry per token, then axes of fixed size.
        """
        raise NotImplementedError

    # -- properties that the host reads ------------------------------------------------------------------------------

    @property
    def hooks(self) -> frozenset[str]:
        """Return the overridden hooks. A method whose options disable a hook overrides this property."""
        return self._overridden

    @property
    def draws(self) -> bool:
        """Return whether `prepare` draws random numbers with these options."""
        return self.card.stochastic and "prepare" in self.hooks

    @classmethod
    def projections_of(cls, hook: str) -> frozenset[str]:
        """Return the projections that this hook changes or reads: from `acts_on`, or from the table of hooks."""
        return getattr(getattr(cls, hook), "projections", HOOKS[hook].projections)

    @property
    def mixes_keys(self) -> bool:
        """Return whether `project_input` changes the number of keys or mixes their positions."""
        return "project_input" in self.hooks and getattr(type(self).project_input, "mixes_positions", False)

    @property
    def caches_keys(self) -> bool:
        """Return whether decoding caches projected keys and values for `attend`."""
        return not getattr(type(self).attend, "recurrent", False)

    @property
    def limit(self) -> int | None:
        """Return the maximum number of query positions, or None if it is not limited."""
        return self.dims.max_positions if self.card.extrapolation == "error" else None

    @property
    def key_limit(self) -> int | None:
        """Return the maximum number of key positions, or None. It differs from `limit` only in cross-attention."""
        return self.dims.max_key_positions if self.card.extrapolation == "error" else None

    def reach(self, positions: int) -> float:
        """Return the number of positions that other methods must support after `positions`, for a sentence of this length."""
        return positions

    # -- hooks, in the order of a forward pass -----------------------------------------------------------------------

    def positions(self, ids: Tensor, ctx: AttentionContext) -> Tensor:
        """Change position ids: [B, T] -> same, may become float.

        In evaluation, ids are [1, T], and no random numbers are drawn.
        """
        return ids

    def prepare(self, ctx: AttentionContext) -> Any:
        """Return values that the hooks of one forward pass share, such as random numbers or tensors with a gradient.

        It is called once per forward pass, before the layers. Other hooks read the result as ctx.prepared[self].
        """
        raise NotImplementedError

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        """Change the embeddings: [B, T, C], tokens [B, T] -> [B, T, C]. Sentences start in the first column."""
        return x

    def before_layer(self, x: Tensor, ctx: AttentionContext) -> Tensor:
        """Change the input of each layer: [B, T, C] -> [B, T, C]."""
        return x

    def project_input(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """Change the input of the query, key or value projection: [B, T, C] -> same; keys and values [B, S, C] -> [B, S', C].

        Each key is passed once, because decoding caches the result. `acts_on` names the projections that the method changes.
        """
        return x

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """Change projected queries or keys: [B, H, T, D] -> [B, H, T, D'].

        Each key is passed once, because decoding caches the result. `which` is never "value".
        """
        return x

    def scale(self, ctx: AttentionContext) -> float | Tensor:
        """Return the factor of the product of queries and keys: a float, or a tensor [B or 1, H or 1, T, 1] of query factors.

        A float replaces 1/sqrt(d_h) and depends on options and sizes only. All methods of a spec that return a float must return
        the same float. Hooks read this float as ctx.scale. A tensor is an additional factor per query. This tensor is computed
        from the positions in every forward pass, and multiplies the queries after `rotate`. Tensors of several methods are
        multiplied. When a model is built, the hook is called once per layer for a single position without inputs.
        """
        return default_scale(self.dims.head_dim)

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        """Change the scaled product of queries and keys, before terms are added: [B, H, T, S] -> [B, H, T, S]."""
        return scores

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        """Return a term [B, H, T, S] that is added to the scaled product. It may depend on queries and keys."""
        raise NotImplementedError

    def bias(self, ctx: AttentionContext) -> Tensor | None:
        """Return a term [B or 1, H or 1, T, S] in float32 that is added to the scaled product, or None.

        Set `content_dependent` if the bias depends on more than positions.
        """
        raise NotImplementedError

    def bias_factors(self, ctx: AttentionContext) -> tuple[Tensor, Tensor] | None:
        """Return two factors of `bias` for all queries and keys of a causal attention, or None if the bias has no factors.

        Equation: bias_ts = sum_r q'_tr k'_sr + c_t. The softmax cancels the number c_t, which is equal for all keys.
        Shapes: q' [B or 1, H or 1, T, R] and k' [B or 1, H or 1, S, R], in float32 or wider.

        `bias` must still return the whole bias. The attention appends the factors to queries and keys as additional channels if
        this is faster.
        """
        return None

    def mask(self, ctx: AttentionContext) -> Tensor:
        """Return bool [B or 1, H or 1, T, S], True if a query may attend to a key. A query without allowed keys has output 0."""
        raise NotImplementedError

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        """Return a term [B, H, T, D] that is added to the outputs of heads, from weights [B, H, T, S] and values [B, H, S, D]."""
        raise NotImplementedError

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the outputs of the heads [B, H, T, D].

        The method then computes scale, scores, masks, softmax and the sum of values itself.
        """
        raise NotImplementedError

    # -- helpers of methods with parameters --------------------------------------------------------------------------

    def parameter_table(self, *shape: int, share: str) -> nn.Parameter:
        """Return a zero parameter [L or 1, H or 1, *shape].

        `share` is the dimension along which the table is shared: none, heads, layers or all.
        """
        return nn.Parameter(torch.zeros(*owners(share, self.dims), *shape))

    def of_layer(self, parameter: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the part of a parameter that this layer uses: [L or 1, ...] -> [...]."""
        return parameter[ctx.layer if parameter.size(0) > 1 else 0]
