"""Description of a method: card and options (no torch)."""

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
    """Declare one option of a method: default, help text and range. Other files do not repeat these values."""
    return dataclasses.field(default=default, metadata={"help": help, "minimum": minimum, "maximum": maximum})


@dataclass(frozen=True)
class MethodOptions:
    """Options of every method."""

    layers: tuple[int, ...] | None = option(
        None, "layers that use the method, from 0, as in layers=0 or layers=0/2 or layers=0-3"
    )


@dataclass(frozen=True)
class HeadOptions(MethodOptions):
    """Options of methods that can be used by a subset of the heads."""

    heads: tuple[int, ...] | None = option(None, "heads that use the method, from 0, as in heads=0 or heads=0/2 or heads=0-3")


@dataclass(frozen=True)
class MethodCard:
    """Describe the properties of a method as plain data.

    Tests check every property. All tables of methods are generated from cards.

    The docstring of the class gives the equation and the deviations from the paper.

    parameters: the number of trainable scalars of one stack, in the letters of `core.formula`.
    extrapolation: beyond the trained length: "runs", "clips" (distances beyond the table share one entry), or "error".
    directional: False if a reversed sentence has the same scores. A causal mask is not considered.
    stochastic: the scores may be random. Their mean then equals the equation.
    losses: the names of the terms that the method adds to the training loss with ctx.add_loss. Training then needs this plugin's
    criterion.
    default_specs: the specs of the architecture `posenc_<name>`. Empty if the architecture uses only this method, at all of its
    self-attention sites.
    documents: the method reads the sentences of a document. The dictionaries must contain the separator of sentences.
    local: the method's mask restricts attention to a sentence. The options --*-global-layers add an attention without this mask.
    tied_layers: in `posenc_<name>`, all layers of the encoder share their parameters, and all layers of the decoder as well.
    """

    name: str
    title: str
    citations: tuple[str, ...]  # keys of references.bib
    survey: str  # the section of the survey of Dufter, Schmitt and Schütze (2022)
    reference: Literal["absolute", "relative", "both", "none"]
    injection: Literal["APE", "MAM", "other", "none"]  # "APE": added to the embeddings. "MAM": in the attention matrix
    learnable: bool
    recurring: bool
    extrapolation: Literal["runs", "clips", "error"]
    evidence: Literal["peer", "paper", "reconstruction"]
    sites: tuple[str, ...]
    extended_sites: tuple[str, ...] = ()  # sites that this project adds; the authors do not define the method there
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
        """Return whether all positions stay distinct at any length, as in the survey.

        A method that clips distances is bounded.
        """
        return self.extrapolation == "runs"

    @property
    def all_sites(self) -> tuple[str, ...]:
        """Return the sites of the authors and of this project, in the order of `SITES`."""
        return tuple(site for site in SITES if site in self.sites + self.extended_sites)

    @property
    def specs(self) -> dict[str, str]:
        """Return the spec of every site of posenc_<name>.

        By default, it is the method itself at all self-attention sites where the method is defined.
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
