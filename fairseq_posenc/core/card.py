"""Description of a method: card and options. This module does not import torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .dims import Dims
from .formula import evaluate
from .side import SideInput

#: attention modules that use position methods: self-attention of the encoder, self-attention of the decoder, cross-attention
SITES = ("encoder", "decoder", "cross")


def option(default: Any, help: str, *, minimum: float | None = None, maximum: float | None = None) -> Any:
    """Declare one option of a method: default value, help text and allowed range."""
    return dataclasses.field(default=default, metadata={"help": help, "minimum": minimum, "maximum": maximum})


@dataclass(frozen=True)
class MethodOptions:
    """Options of every method."""

    layers: tuple[int, ...] | None = option(
        None, "layers that use the method, from 0, as in layers=0 or layers=0/2 or layers=0-3"
    )


@dataclass(frozen=True)
class HeadOptions(MethodOptions):
    """Options of methods that can be restricted to some of the heads."""

    heads: tuple[int, ...] | None = option(None, "heads that use the method, from 0, as in heads=0 or heads=0/2 or heads=0-3")


@dataclass(frozen=True)
class MethodCard:
    """Describe the properties of a method as plain data.

    Tests check every property. All tables of methods are generated from cards.

    The docstring of the method's class contains the equation and the deviations from the paper.

    parameters: a formula for the number of trainable scalars of one stack. `core/formula.py` defines its letters.
    extrapolation: result for sentences longer than in training: "runs", "clips" (distances or positions beyond a limit have
    the same effect), or "error".
    directional: False if the method does not distinguish left from right. The output of a reversed sentence is then the
    reversed output of the sentence. A causal mask is not considered.
    stochastic: the scores may be random. The equation then describes their mean.
    losses: names of the loss terms that the method adds with ctx.add_loss. Training then requires this plugin's criterion.
    default_specs: the specs of the architecture `posenc_<name>`, by site. Encoder and decoder without an entry use the method
    if the method supports the site. Otherwise, they have the spec none. Cross-attention without an entry has the spec none.
    documents: the method reads documents. The dictionaries must contain the token that separates sentences.
    local: the method's mask restricts attention to one sentence. The options --SITE-global-layers
    add a second attention without this mask.
    tied_layers: in `posenc_<name>`, all encoder layers share one set of parameters, and all decoder layers share another set.
    """

    name: str
    title: str
    citations: tuple[str, ...]  # keys of references.bib
    survey: str  # the section about this method in the survey of Dufter, Schmitt and Schütze (2022)
    reference: Literal["absolute", "relative", "both", "none"]
    injection: Literal["APE", "MAM", "other", "none"]  # "APE": added to the embeddings. "MAM": in the attention matrix
    learnable: bool
    recurring: bool
    extrapolation: Literal["runs", "clips", "error"]
    evidence: Literal["peer", "paper", "reconstruction"]
    sites: tuple[str, ...]
    extended_sites: tuple[str, ...] = ()  # sites that this project adds; the authors do not define the method for them
    parameters: str = "0"
    survey_parameters: str = ""
    directional: bool = True
    stochastic: bool = False
    side_inputs: tuple[SideInput, ...] = ()
    losses: tuple[str, ...] = ()
    default_specs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    documents: bool = False
    local: bool = False
    tied_layers: bool = False

    @property
    def unbound(self) -> bool:
        """Return whether the method runs at any length and does not clip distances ("unbound" in the survey)."""
        return self.extrapolation == "runs"

    @property
    def all_sites(self) -> tuple[str, ...]:
        """Return all supported sites, `sites` and `extended_sites`, in the order of `SITES`."""
        return tuple(site for site in SITES if site in self.sites + self.extended_sites)

    @property
    def specs(self) -> dict[str, str]:
        """Return the spec of every site of the architecture posenc_<name>.

        By default, the architecture uses the method at all self-attention sites that the method supports.
        """
        chosen = {site: self.name if site in self.all_sites else "none" for site in ("encoder", "decoder")}
        return {**chosen, "cross": "none", **self.default_specs}

    def side_files(self, options: Any) -> set[str]:
        """Return the kinds of side files that the method reads with these options."""
        kinds = {kind for side in self.side_inputs for kind in side.files}
        return {"edges"} if kinds and getattr(options, "graph", "") == "edges" else kinds

    def count(self, options: Any, dims: Dims) -> int:
        """Return the number of trainable scalars of one stack with these options."""
        return evaluate(self.parameters, options, dims)
