"""posenc check: build methods without training, and check that no two methods build the same model.

With --contract, run the checks that every method must pass instead. Also run these checks if SPEC is a Python file or a folder.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from .. import registry
from ..common.option_types import positive
from ..core import Dims, PositionError
from ..data.side.files import KINDS
from ..registry import external
from ..registry.architectures import PREFIX, SIZES, Architecture, architecture
from ..registry.completion import specs_and_architectures
from ..registry.declarations import include
from ..registry.spec import MethodSpec, build, parse, sites_of

ALL = "all"
#: number of relations between words, as in a treebank, for methods with one table row per relation
_RELATIONS = 50
#: suffix of a control: the same method with random trees, graphs or reorderings
RANDOM = "@random"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Build each method at its sites, without training, and check that no two methods build the same model. "
        "Print one line per method, with these fields separated by tabs: name, spec of every site, side files if it can read "
        "them, and for methods of your own a checksum of their files. "
        "For a Python file, or with --contract, run the checks that every method of this project passes, "
        "and print one line per problem."
    )
    parser.add_argument(
        "methods",
        nargs="+",
        metavar="SPEC",
        help="spec for encoder and decoder, such as rope, or encoder=SPEC;cross=SPEC for single sites. An architecture is "
        f"{PREFIX}NAME or {PREFIX}NAME:OPTIONS. {PREFIX}NAME{RANDOM} has random trees or graphs. FILE.py or a folder contains "
        f"your own methods. '{ALL}' means the architectures of all methods except methods that need a separator of sentences",
    ).completer = specs_and_architectures
    parser.add_argument("--contract", action="store_true", help="full checks of the named methods")
    parser.add_argument(
        "--size", choices=("tiny", "small", "base", "big"), default="base", help="model size (default: %(default)s)"
    )
    parser.add_argument(
        "--side-files", nargs="*", choices=KINDS, metavar="KIND",
        help=f"kinds of side files that you have: {', '.join(KINDS)} (default: all kinds). With SPEC "
        f"'{ALL}', methods that need other kinds are left out",
    )  # fmt: skip
    parser.add_argument(
        "--cards-only",
        action="store_true",
        help="check the specs and the cards (the lists of facts about the methods), without building the methods",
    )
    parser.add_argument("--only-readers", action="store_true", help=f"with SPEC '{ALL}': only methods that read side files")
    parser.add_argument(
        "--length", type=positive, default=1024, metavar="N", help="maximum sentence length in tokens (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    if args.contract or any(map(_is_path, args.methods)):
        return _keep_contract(args.methods)
    suffix = "" if args.size == "base" else f"_{args.size}"
    size = SIZES[suffix]
    dims = Dims(size.embed_dim, size.heads, size.layers, args.length, args.length, relations=_RELATIONS)
    kinds = KINDS if args.side_files is None else args.side_files
    for name, specs in check(args.methods, None if args.cards_only else dims, kinds, args.only_readers, suffix).items():
        inputs = any(registry.card(method.name).side_inputs for method in methods_of(specs))
        read = [f"side {' '.join(sorted(side_files(specs))) or 'none'}"] if inputs else []
        print(name, *(f"{site} {spec}" for site, spec in specs.items()), *read, *_code(specs), sep="\t")
    return 0


def check(
    methods: list[str], dims: Dims | None, kinds: Sequence[str] = KINDS, only_readers: bool = False, size: str = ""
) -> dict[str, dict[str, str]]:
    """Return the spec at every site of each method. Raise one PositionError with all problems.

    `dims` contains the sizes of the model. If `dims` is None, no method is built. `kinds` contains the available kinds of side
    files. With `only_readers`, the name "all" includes only methods that read a side file. `size` is a key of `SIZES`.
    """
    checked: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    models: dict[tuple, str] = {}  # signature of a model -> name of the first method with this signature
    for name, from_all in _expand(methods):
        plain = name.removesuffix(RANDOM)
        try:
            specs = specs_of(plain, size)
            read = side_files(specs)
            if only_readers and from_all and not read:
                continue
            if not read <= set(kinds):
                if not from_all:
                    problems.append(
                        f"{plain}: the data has no side files of the required kinds ({', '.join(sorted(read))}). "
                        "Create them with posenc side."
                    )
                continue
            if name != plain and not read:
                if not from_all:
                    problems.append(f"{name}: {plain} does not read the structure of sentences. Remove {RANDOM}.")
                continue
            if dims is not None:
                _build(specs, dims)
        except PositionError as error:
            problems.append(str(error))
            continue
        model = (name != plain, _beside_specs(plain), *(parse(spec, site).signature for site, spec in specs.items()))
        other = models.setdefault(model, name)
        if other == name and name not in checked:
            checked[name] = specs
        elif other == name:
            problems.append(f"{name}: given twice. Expected each method once. Remove one of the two.")
        elif not from_all:
            problems.append(f"{name}: this is the same model as {other}. Expected different models. Remove one of the two.")
    if problems:
        raise PositionError(" ".join(dict.fromkeys(problems)))
    return checked


def _build(specs: dict[str, str], dims: Dims) -> None:
    """Build the methods of all sites. If possible, the tensors contain no values, because large tables would take seconds."""
    import torch

    from ..attention.site_positions import SitePositions

    def build_sites() -> None:
        for site, spec in specs.items():
            SitePositions(build(spec, dims.at(site), site), dims.at(site), site)

    try:
        with torch.device("meta"):
            build_sites()
    except PositionError:
        raise
    except Exception:  # some methods read the values of a tensor
        build_sites()


def _is_path(text: str) -> bool:
    """Return whether this is a file or a folder. A spec can also contain slashes, but only in its options: t5:layers=0/2."""
    return text.endswith(".py") or os.sep in re.split("[:=]", text)[0] or (os.sep in text and Path(text).exists())


def _keep_contract(methods: list[str]) -> int:
    """Run all checks on the given methods. Return 1 if a check fails.

    methods: names of methods, and paths of method files or folders. A path stands for all methods that it contains.
    """
    names = []
    for given in methods:
        found = include(Path(given)) if _is_path(given) else [registry.card(given).name]
        if not found:
            raise PositionError(f"{given}: no method found. Expected a class with a card. Create one with posenc new NAME.")
        names += found
    from ..testing.runner import check_method

    wrong = False
    for name in dict.fromkeys(names):
        begin = time.monotonic()
        report = check_method(name, processes=min(2, os.cpu_count() or 1))
        wrong |= bool(report.findings)
        for line in report.lines():
            print(f"{name}: {line}")
        print(
            f"{name}: {len(report.lines()) or 'nothing'} found by {report.checks} checks "
            f"at {', '.join(registry.card(name).all_sites)} in {time.monotonic() - begin:.0f} s",
            file=sys.stderr,
        )
    return int(wrong)


def methods_of(specs: dict[str, str]) -> list[MethodSpec]:
    return [method for site, spec in specs.items() for method in parse(spec, site).methods]


def _code(specs: dict[str, str]) -> list[str]:
    """Return `code CHECKSUM` of the files of the methods outside this package, or an empty list."""
    sources = (registry.declaration(method.name).source for method in methods_of(specs))
    texts = sorted({path.read_bytes() for source in sources if source is not None for path in external.files(source)})
    return [f"code {zlib.crc32(b''.join(texts)):08x}"] if texts else []


def side_files(specs: dict[str, str]) -> set[str]:
    """Return the kinds of side files that the methods of these specs read."""
    return {kind for method in methods_of(specs) for kind in registry.card(method.name).side_files(method.options)}


def specs_of(name: str, size: str = "") -> dict[str, str]:
    """Return the spec at every site.

    `name` is a spec, specs of single sites (encoder=SPEC;cross=SPEC), or an architecture posenc_NAME or posenc_NAME:OPTIONS.
    `size` is a key of `SIZES`. The specs of some architectures name layers, and therefore depend on the size.
    """
    if not name.startswith(PREFIX):
        return sites_of(name)
    plain, colon, options = name.partition(":")
    found, own = dict(architecture(plain, size).specs), plain.removeprefix(PREFIX)
    if not colon:
        return found
    pieces = {site: spec.split("+") for site, spec in found.items()}
    if not any(own in spec for spec in pieces.values()):
        raise PositionError(
            f"{name!r}: the architecture {plain} has no options in its name, because it is not only the method {own}. "
            f"Expected {plain}, or a spec."
        )
    return {site: "+".join(f"{own}:{options}" if piece == own else piece for piece in spec) for site, spec in pieces.items()}


def _expand(methods: list[str]) -> list[tuple[str, bool]]:
    """Replace the name `all` by the names from `_all`. Return each name, and whether the name comes from `_all`."""
    return [(name, method == ALL) for method in methods for name in (_all() if method == ALL else [method])]


def _all() -> list[str]:
    """Return the architecture of every method for single sentences, each followed by its control with random structure.

    `check` removes the controls of methods that read no side file.
    """
    names = [name for name in registry.names() if not registry.card(name).documents]
    return [PREFIX + name + ending for name in names for ending in ("", RANDOM)]


def _beside_specs(name: str) -> tuple:
    """Return the properties of a model other than its specs and its size."""
    found = architecture(name.partition(":")[0]) if name.startswith(PREFIX) else Architecture({}, SIZES[""])
    return found.tied_layers, found.model, *found.options.items()
