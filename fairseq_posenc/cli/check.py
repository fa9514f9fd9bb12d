"""posenc check: whether methods can be built and differ, before anything is trained with them."""

from __future__ import annotations

import argparse

from .. import registry
from ..architectures import MODEL, SIZES, Architecture, architectures
from ..core import SITES, Dims, PositionError
from ..spec import build, parse
from . import positive

ALL = "all"
PREFIX = "posenc_"
SELF_ATTENTION = ("encoder", "decoder")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check that each method can be built at the encoder and the decoder, and that no two are the same model. "
        "Prints one line for each: its name, and the spec at every site, separated by tabs."
    )
    parser.add_argument(
        "methods",
        nargs="+",
        metavar="SPEC",
        help=f"a spec, for encoder and decoder; {PREFIX}NAME, an architecture; or {ALL}, the architectures of all methods",
    )
    parser.add_argument("--size", choices=("tiny", "small", "base", "big"), default="base", help="(default: %(default)s)")
    parser.add_argument("--length", type=positive, default=1024, metavar="N", help="positions (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    size = SIZES["" if args.size == "base" else f"_{args.size}"]
    dims = Dims(size.embed_dim, size.heads, size.layers, args.length, args.length)
    for name, specs in check(args.methods, dims).items():
        print(name, *(f"{site} {spec}" for site, spec in specs.items()), sep="\t")
    return 0


def check(methods: list[str], dims: Dims) -> dict[str, dict[str, str]]:
    """The spec at every site of each method; raises one PositionError that lists what is wrong with any of them."""
    from ..attention.site_positions import SitePositions

    checked: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    models: dict[tuple, str] = {}  # what makes a model -> the method that has it
    for name, from_all in _expand(methods):
        try:
            specs = specs_of(name)
            for site, spec in specs.items():
                SitePositions(build(spec, dims.at(site), site), dims.at(site), site)
        except PositionError as error:
            problems.append(str(error))
            continue
        model = (_beside_specs(name), *(parse(spec, site).signature for site, spec in specs.items()))
        other = models.setdefault(model, name)
        if other == name and name not in checked:
            checked[name] = specs
        elif other == name:
            problems.append(f"{name} is given twice")
        elif not from_all:
            problems.append(f"{name} is the same model as {other}; give one of them")
    if problems:
        raise PositionError("; ".join(dict.fromkeys(problems)))
    return checked


def specs_of(name: str) -> dict[str, str]:
    """The spec at every site: of an architecture posenc_NAME, or of a spec that stands for encoder and decoder."""
    if name.startswith(PREFIX):
        return dict(_architecture(name).specs)
    return {site: name if site in SELF_ATTENTION else "none" for site in SITES}


def _architecture(name: str) -> Architecture:
    """An architecture without a size whose specs are no options; raises PositionError with the nearest name."""
    found = dict(architectures()).get(name)
    if found is None or name == MODEL or any(suffix and name.endswith(suffix) for suffix in SIZES):
        try:
            registry.card(name[len(PREFIX) :])
        except PositionError as error:
            raise PositionError(f"architecture {name!r}: {error}; give it as {PREFIX}NAME, without a size") from None
    return found


def _expand(methods: list[str]) -> list[tuple[str, bool]]:
    """Each method, and whether `all` stands for it."""
    return [
        (name, method == ALL)
        for method in methods
        for name in ([PREFIX + name for name in registry.names()] if method == ALL else [method])
    ]


def _beside_specs(name: str) -> tuple:
    """What makes a model beside its specs and its size."""
    architecture = _architecture(name) if name.startswith(PREFIX) else Architecture({}, SIZES[""])
    return architecture.tied_layers, architecture.model, *architecture.options.items()
