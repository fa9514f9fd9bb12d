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
from .sentence import Sentence


def default_scale(head_dim: int) -> float:
    """Return the default factor of the product of queries and keys."""
    return head_dim**-0.5


class PositionMethod(nn.Module):
    """Base class of position methods. A method overrides the hooks that its paper changes.

    All layers of a stack use one instance. A parameter that layers do not share has a leading layer axis, from which `of_layer`
    selects the layer. Hooks that are not overridden have no cost. `hooks.py` defines when each hook is called, and how the
    results of several methods are combined.
    """

    card: ClassVar[MethodCard]
    Options: ClassVar[type[MethodOptions]] = MethodOptions
    #: projections of the attention that the method uses; other projections are not built
    projections: frozenset[str] = frozenset({"query", "key", "value"})
    #: whether `bias` and `mask` differ between layers; if not, they are computed once per forward pass
    per_layer: bool = False
    #: whether `bias` or `rotate` reads ctx.inputs, ctx.tokens or ctx.side; decoding can then not compute the bias in advance
    content_dependent: bool = False
    #: input of `rescale`: "positions", "scores", "content" (scores, queries and keys), or "vectors" (only queries and keys).
    #: With "positions", `rescale` multiplies the scores by a factor that depends only on positions. With "vectors", the product
    #: of queries and keys is not computed, and `rescale` receives an empty tensor as scores. "weights": `rescale` returns
    #: logarithms of attention weights. Then no method in the same layer can add terms to the scores
    rescale_reads: Literal["positions", "scores", "content", "vectors", "weights"] = "positions"
    #: "integer": hooks need integer positions, for example as row numbers of a table. "fractional": `positions` returns fractions
    #: in training
    position_type: Literal["any", "integer", "fractional"] = "any"
    #: whether the method computes positions from the tokens. The hook `positions` of another method would then have no effect
    counts_tokens: bool = False
    #: whether every forward pass reads a value from the accelerator, such as the number of different paths
    waits: bool = False

    __prepare_scriptable__ = refuse_script
    _overridden: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        cls._overridden = frozenset(hook for hook in HOOKS if getattr(cls, hook) is not getattr(PositionMethod, hook))

    def __init__(self, options: Any, dims: Dims):
        super().__init__()
        self.options, self.dims = options, dims

    # -- called in the data loader processes, without an instance of the method ----------------------------------------

    @classmethod
    def side_values(cls, sentence: Sentence, options: Any) -> Mapping[str, np.ndarray]:
        """Return the side inputs of one sentence by name.

        Shapes: [], [S] or [S, S] with S tokens. Axes of fixed size may follow.
        """
        raise NotImplementedError

    # -- properties that the model reads -----------------------------------------------------------------------------

    @property
    def hooks(self) -> frozenset[str]:
        """Return the names of the overridden hooks. Override this property if an option can disable a hook."""
        return self._overridden

    @property
    def draws(self) -> bool:
        """Return whether `prepare` draws random numbers with these options."""
        return self.card.stochastic and "prepare" in self.hooks

    @classmethod
    def projections_of(cls, hook: str) -> frozenset[str]:
        """Return the projections that this hook changes or reads, as given by `acts_on` or by the table of hooks."""
        return getattr(getattr(cls, hook), "projections", HOOKS[hook].projections)

    @property
    def mixes_keys(self) -> bool:
        """Return whether `project_input` changes the number of keys, or returns keys that depend on several positions."""
        return "project_input" in self.hooks and getattr(type(self).project_input, "mixes_positions", False)

    @property
    def caches_keys(self) -> bool:
        """Return whether decoding caches projected keys and values for `attend`."""
        return not getattr(type(self).attend, "recurrent", False)

    @property
    def limit(self) -> int | None:
        """Return the maximum number of query positions, or None without a limit."""
        return self.dims.max_positions if self.card.extrapolation == "error" else None

    @property
    def key_limit(self) -> int | None:
        """Return the maximum number of key positions, or None. It differs from `limit` only in cross-attention."""
        return self.dims.max_key_positions if self.card.extrapolation == "error" else None

    def reach(self, positions: int) -> float:
        """Return the number of positions that other methods at the site must support.

        After the hook `positions`, the positions of all tokens are below this number. The argument `positions` is the number of
        positions of the sentence before the hook `positions` is called.
        """
        return positions

    # -- hooks, in the order of a forward pass -----------------------------------------------------------------------

    def positions(self, ids: Tensor, ctx: AttentionContext) -> Tensor:
        """Change position ids: [B, T] -> same shape, integers or floats.

        In evaluation, ids are [1, T], and the hook must not draw random numbers.
        """
        return ids

    def prepare(self, ctx: AttentionContext) -> Any:
        """Return values that the hooks of one forward pass share, such as random numbers or tensors with a gradient.

        The hook is called once per forward pass, before the layers. Other hooks read the result as ctx.prepared[self].
        """
        raise NotImplementedError

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        """Change the embeddings: [B, T, C], tokens [B, T] -> [B, T, C]. Padding is on the right."""
        return x

    def before_layer(self, x: Tensor, ctx: AttentionContext) -> Tensor:
        """Change the input of each layer: [B, T, C] -> [B, T, C]."""
        return x

    def project_input(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """Change the input of the query, key or value projection.

        Shapes: queries [B, T, C] -> same. Keys and values [B, S, C] -> [B, S', C].

        Incremental decoding calls this hook only once for each key, and caches the result. `acts_on` names the projections that
        the method changes.
        """
        return x

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """Change projected queries or keys: [B, H, T, D] -> [B, H, T, D'].

        In decoding, the model calls this hook only once for each key, and caches the result. `which` is never "value".
        """
        return x

    def scale(self, ctx: AttentionContext) -> float | Tensor:
        """Return the factor of the product of queries and keys: a float, or a tensor [B or 1, H or 1, T, 1] of query factors.

        A float replaces 1/sqrt(d_h) and depends only on options and sizes. All methods of a layer that return a float must
        return the same float. Hooks read this float as ctx.scale. A tensor contains an additional factor per query. The
        tensor is computed from the positions in every forward pass, and multiplies the queries after `rotate`. Tensors of
        several methods are multiplied. When a model is built, the model also calls the hook once per layer. In this call, the
        context contains a single position and no inputs.
        """
        return default_scale(self.dims.head_dim)

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        """Change the scaled product of queries and keys, before other terms are added: [B, H, T, S] -> [B, H, T, S]."""
        return scores

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        """Return a term [B, H, T, S] that is added to the scaled product. It may depend on queries and keys."""
        raise NotImplementedError

    def bias(self, ctx: AttentionContext) -> Tensor | None:
        """Return a term [B or 1, H or 1, T, S] in float32 that is added to the scaled product, or None for no term.

        Set `content_dependent` if the bias depends on more than positions.
        """
        raise NotImplementedError

    def bias_factors(self, ctx: AttentionContext) -> tuple[Tensor, Tensor] | None:
        """Return two factors of `bias` for all queries and keys, or None if the bias has no factors.

        Equation: bias_ts = sum_r q'_tr k'_sr + c_t. The number c_t is equal for all keys, so it does not change the softmax.
        Shapes: q' [B or 1, H or 1, T or 1, R] and k' [B or 1, H or 1, S, R]. Factors of one or two channels are in float32 or
            wider.

        In causal attention, the equation must hold only for keys up to the query. `bias` must still return the whole bias. The
        attention appends the factors to queries and keys as additional channels if this is faster.
        """
        return None

    def mask(self, ctx: AttentionContext) -> Tensor:
        """Return bool [B or 1, H or 1, T, S], True if a query may attend to a key. The output of a query without keys is 0."""
        raise NotImplementedError

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        """Return a term [B, H, T, D] of the outputs of the heads, from attention weights [B, H, T, S] and values [B, H, S, D]."""
        raise NotImplementedError

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the outputs of the heads [B, H, T, D].

        This hook replaces the scale, scores, masks, softmax and sum of values of the attention.
        """
        raise NotImplementedError

    # -- helpers of methods with parameters --------------------------------------------------------------------------

    def parameter_table(self, *shape: int, share: str) -> nn.Parameter:
        """Return a parameter of zeros [L or 1, H or 1, *shape].

        `share` is the axis along which the parameter is shared: none, heads, layers or all.
        """
        return nn.Parameter(torch.zeros(*owners(share, self.dims), *shape))

    def of_layer(self, parameter: Tensor, ctx: AttentionContext, *, float32: bool = False) -> Tensor:
        """Return the part of a parameter that this layer uses: [L or 1, ...] -> [...].

        Args:
            float32: whether to convert half precision to float32. All layers use the result of one conversion.
        """
        dtype = torch.promote_types(parameter.dtype, torch.float32) if float32 else parameter.dtype
        if parameter.size(0) == 1:
            return parameter[0].to(dtype)
        # With one `unbind` for all layers, the backward pass combines the gradients of all layers once. Without it, the backward
        # pass would compute a gradient of the whole parameter for every layer. Results under torch.no_grad are stored separately,
        # because activation checkpointing can compute a layer first without gradients, and then with gradients.
        key = (parameter, dtype, torch.is_grad_enabled())
        return ctx.once(key, lambda: parameter.to(dtype).unbind(0))[ctx.layer]
