"""The contract between a position method and the Transformer that hosts it: the whole of it, on one page (torch only).

Letters used in every shape: B sentences, T queries, S keys, H heads, D channels of a head, C = H * D model width, L layers.
A distance is always key position minus query position.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, ClassVar, Optional

import torch
from torch import Tensor, nn

SITES = ("encoder", "decoder", "cross")


class PositionError(ValueError):
    """A wrong spec, option, site or length: the message says what was given, what is allowed and what to do next."""


def option(default: Any, help: str, *, minimum: float | None = None, maximum: float | None = None) -> Any:
    """Declares one option of a method: its default, its help and its range, here and nowhere else."""
    return dataclasses.field(default=default, metadata={"help": help, "minimum": minimum, "maximum": maximum})


@dataclass(frozen=True)
class Options:
    """The options that every method takes."""

    layers: Optional[tuple[int, ...]] = option(  # Optional: read at run time, also by Python 3.9
        None, "layers that use the method, from 0, as in layers=0 or layers=0/2 or layers=0-3"
    )


@dataclass(frozen=True)
class Dims:
    """The sizes of the stack of layers that a method serves."""

    embed_dim: int
    num_heads: int
    num_layers: int = 1
    max_positions: int = 1024
    max_key_positions: int = 1024
    padding_idx: int = 1
    vocab_size: int = 0
    words: Mapping[str, int] = dataclasses.field(default_factory=dict, repr=False, compare=False)  # the dictionary, if any

    @property
    def head_dim(self) -> int:
        return self.embed_dim // self.num_heads

    @property
    def max_distance(self) -> int:
        """The largest distance between two positions."""
        return max(self.max_positions, self.max_key_positions) - 1


@dataclass(frozen=True)
class MethodCard:
    """What is known about a method; every claim here is tested, and all tables are generated from here.

    `count(options, dims, site)` is the number of trainable scalars of one stack, `parameters` the same as a formula.
    `beyond` is what happens past the trained or tabulated range: it "runs", it "clips" (far positions tie), or it is an "error".
    `stacks` are the specs of the architecture `posenc_<name>` where they are not simply the method at its self-attention sites,
    and with `tied_layers` all layers of its encoder are one, and all of its decoder.
    """

    name: str
    title: str
    citation: str
    equation: str
    survey: str
    reference: str  # "absolute", "relative", "both" or "none"
    injection: str  # "APE" (with the embeddings), "MAM" (in the attention matrix), "other" or "none"
    learnable: bool
    recurring: bool
    beyond: str  # "runs", "clips" or "error"
    evidence: str  # "peer", "paper" or "reconstruction"
    sites: tuple[str, ...]
    our_sites: tuple[str, ...] = ()
    parameters: str = "0"
    count: Callable[[Any, Dims, str], int] = lambda options, dims, site: 0
    survey_parameters: str = ""
    deviations: tuple[str, ...] = ()
    stacks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tied_layers: bool = False

    @property
    def unbound(self) -> bool:
        """Whether positions of any length stay distinct (the survey's column; clipping counts as bounded)."""
        return self.beyond == "runs"

    @property
    def all_sites(self) -> tuple[str, ...]:
        return tuple(site for site in SITES if site in self.sites + self.our_sites)


@dataclass(frozen=True)
class Positions:
    """Position ids of one side of an attention: [B or 1, T], integers or floats, pad-free and from 0.

    `start` is set where every row counts start, start + 1, ...: only then can a Toeplitz matrix be made from one vector.
    """

    ids: Tensor
    start: int | None = None

    @classmethod
    def counted(cls, start: int, length: int, device: torch.device | None = None) -> Positions:
        return cls(torch.arange(start, start + length, device=device).unsqueeze(0), start)

    @property
    def last(self) -> int:
        """The largest id, without waiting for the device where the ids are counted."""
        return self.start + self.ids.size(1) - 1 if self.start is not None else int(self.ids.max())


class State:
    """What decoding remembers between steps, kept in fairseq's incremental_state.

    `keep` is for tensors of the rows of the batch, batch first: they follow every beam reordering. `fix` is for tensors that
    belong to no sentence. A view `of_source` keeps one row for all beams of a source sentence; cross-attention has this one.
    """

    def __init__(self, store: dict, scope: str = "", kind: str = "rows"):
        self._store, self._scope, self._kind = store, scope, kind

    def within(self, scope: str) -> State:
        return State(self._store, f"{self._scope}{scope}.", self._kind)

    def of_source(self) -> State:
        return State(self._store, self._scope, "sources")

    def get(self, name: str) -> Tensor | None:
        kept = self._tensors(self._kind).get(self._scope + name)
        return kept if kept is not None else self._tensors("fixed").get(self._scope + name)

    def keep(self, name: str, tensor: Tensor) -> Tensor:
        self._tensors(self._kind)[self._scope + name] = tensor
        return tensor

    def fix(self, name: str, tensor: Tensor) -> Tensor:
        self._tensors("fixed")[self._scope + name] = tensor
        return tensor

    def reorder(self, order: Tensor, beam: int = 1) -> None:
        """Selects rows, and for tensors of the source the sentence that each group of `beam` rows belongs to."""
        self._select("rows", order)
        self._select("sources", order if beam == 1 else order.view(-1, beam)[:, 0] // beam)

    def _select(self, kind: str, order: Tensor) -> None:
        kept = self._tensors(kind)
        names = [name for name in kept if name.startswith(self._scope)]
        same = torch.equal(order, torch.arange(len(order), device=order.device))
        if not same or any(kept[name].size(0) != len(order) for name in names):
            for name in names:  # one at a time: the next one takes the memory that the last one leaves
                kept[name] = kept[name].index_select(0, order)

    def _tensors(self, kind: str) -> dict:
        return self._store.setdefault(f"posenc.{kind}", {})


@dataclass(frozen=True)
class AttentionContext:
    """All that a hook may know about where it is: position ids, never lengths or columns.

    `causal` says that a mask will hide the keys after each query: what scores are made for these means nothing.
    `inputs` are the queries' and keys' hidden states [B, T, C], [B, S, C] inside an attention and None before it.
    `state` is set while decoding step by step; keys then run over all steps so far and queries over the new ones.
    """

    site: str
    queries: Positions
    keys: Positions
    layer: int = 0
    causal: bool = False
    key_padding: Tensor | None = None  # bool [B, S], True at padding
    inputs: tuple[Tensor, Tensor] | None = None
    tokens: Tensor | None = None  # [B, S], those of the keys, where the host has tokens
    project: Callable[[str, Tensor], Tensor] | None = None  # ("query" or "key", [..., T, C]) -> [..., H, T, D], as this attention
    state: State | None = None
    structure: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)  # side information, e.g. trees
    drawn: Mapping[Any, Any] = dataclasses.field(default_factory=dict)  # method -> what its `draw` gave this forward

    def at(self, **changes: Any) -> AttentionContext:
        return dataclasses.replace(self, **changes)


class PositionMethod(nn.Module):
    """A position method of one stack of layers at one site; subclasses are leaves and override only what their paper changes.

    One instance serves all layers of its stack: what the layers share is one tensor, what they do not share carries a leading
    layer axis and is read with `of_layer`. A hook that is not overridden costs nothing.
    """

    card: ClassVar[MethodCard]
    Options: ClassVar[type] = Options
    HOOKS: ClassVar[tuple[str, ...]] = (
        "positions", "draw", "embed", "before_layer", "query_input", "key_input", "value_input", "rotate_query", "rotate_key",
        "bias", "content_scores", "rescale", "mask", "content_values", "attend", "scale",
    )  # fmt: skip
    #: projections of the attention that the method uses; others are not built
    projections: frozenset[str] = frozenset({"query", "key", "value"})
    #: whether `bias` and `mask` differ between layers; where they do not, they are made once per forward
    per_layer: bool = False
    #: whether `bias` reads more than positions (ctx.inputs, ctx.tokens, ctx.structure), so that decoding cannot make it ahead
    reads_words: bool = False
    #: what `rescale` is: a "factor" of positions, a function of the "scores", or one of queries and keys as well ("content")
    rescales: str = "factor"
    #: whether `key_input` gives other keys than one for every position
    compresses: bool = False
    #: whether decoding keeps projected keys and values; a method whose `attend` keeps its own sums needs none
    keeps_keys: bool = True

    _overridden: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        cls._overridden = frozenset(hook for hook in cls.HOOKS if getattr(cls, hook) is not getattr(PositionMethod, hook))

    def __init__(self, options: Any, dims: Dims, site: str):
        super().__init__()
        self.options, self.dims, self.site = options, dims, site

    # -- what the host asks ------------------------------------------------------------------------------------------

    @property
    def hooks(self) -> frozenset[str]:
        """The hooks in use, read off the class; a method whose options switch one off narrows this."""
        return self._overridden

    @property
    def limit(self) -> int | None:
        """The number of query positions that the method can tell apart, where more is an error."""
        return self.dims.max_positions if self.card.beyond == "error" else None

    @property
    def key_limit(self) -> int | None:
        """The same for key positions; differs in cross-attention alone."""
        return self.dims.max_key_positions if self.card.beyond == "error" else None

    # -- hooks -------------------------------------------------------------------------------------------------------

    def positions(self, ids: Tensor) -> Tensor:
        """[B, T] -> same, may become float; drawn once per batch in training, the identity in evaluation (of [1, T])."""
        return ids

    def draw(self, ctx: AttentionContext) -> Any:
        """-> anything that the hooks of this forward share, such as noise; once, before the layers; read as ctx.drawn[self]."""
        raise NotImplementedError

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        """[B, T, C], [B, T] -> [B, T, C]; once, where tokens become vectors; sentences start in the first column."""
        return x

    def before_layer(self, x: Tensor, ctx: AttentionContext) -> Tensor:
        """[B, T, C] -> [B, T, C]; before every layer."""
        return x

    def query_input(self, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """[B, T, C] -> [B, T, C]; before the query projection."""
        return x

    def key_input(self, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """[B, S, C] -> [B, S', C]; before the key projection, once per key (the result is cached while decoding)."""
        return x

    def value_input(self, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """[B, S, C] -> [B, S', C]; before the value projection, once per key."""
        return x

    def rotate_query(self, q: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """[B, H, T, D] -> [B, H, T, D']."""
        return q

    def rotate_key(self, k: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """[B, H, S, D] -> [B, H, S, D']; once per key."""
        return k

    def scale(self, head_dim: int) -> float:
        """The factor of the product of queries and keys."""
        return head_dim**-0.5

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        """[B, H, T, S] -> [B, H, T, S]; changes the scaled product of queries and keys before anything is added to it."""
        return scores

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        """-> [B, H, T, S], added to the scaled product; may depend on queries and keys."""
        raise NotImplementedError

    def bias(self, ctx: AttentionContext) -> Tensor | None:
        """-> [B or 1, H or 1, T, S] in float32, added to the scaled product, or None for nothing; see `reads_words`."""
        raise NotImplementedError

    def mask(self, ctx: AttentionContext) -> Tensor:
        """-> bool [1, H or 1, T, S], True where a query may look; a query that may look nowhere gets zeros."""
        raise NotImplementedError

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        """[B, H, T, S], [B, H, S, D] -> [B, H, T, D], added to the heads' outputs."""
        raise NotImplementedError

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        """-> [B, H, T, D]; replaces the whole kernel: scale, scores, masks, softmax and values."""
        raise NotImplementedError

    # -- helpers of methods with parameters --------------------------------------------------------------------------

    def parameter_table(self, *shape: int, share: str) -> nn.Parameter:
        """A zero parameter [L or 1, H or 1, *shape]; `share` names who has it in common: none, heads, layers, all."""
        return nn.Parameter(torch.zeros(*_owners(share, self.dims), *shape))

    def of_layer(self, parameter: Tensor, ctx: AttentionContext) -> Tensor:
        """[L or 1, ...] -> [...]: the part of a parameter that this layer uses."""
        return parameter[ctx.layer if parameter.size(0) > 1 else 0]

    @staticmethod
    def table_count(share: str, dims: Dims, size: int) -> int:
        """The number of scalars of `parameter_table` with `size` scalars a row."""
        layers, heads = _owners(share, dims)
        return layers * heads * size


def across_layers(share: str) -> bool:
    """Whether layers have in common what is shared so."""
    return share in ("layers", "all")


def _owners(share: str, dims: Dims) -> tuple[int, int]:
    layers, heads = dims.num_layers, dims.num_heads
    return {"none": (layers, heads), "heads": (layers, 1), "layers": (1, heads), "all": (1, 1)}[share]
