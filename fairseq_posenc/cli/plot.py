"""posenc plot: plot the attention scores of methods and trained models."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..common.option_types import not_negative, positive
from ..core import SITES, PositionError
from ..registry.completion import specs

#: maximum number of positions in a picture
_LONGEST = 512


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Plot the attention scores of methods. All positions have the same content, so that only the position encoding matters. "
        "For methods that add vectors to the embeddings, plot the cosine similarity of the vectors. "
        "For methods without softmax over scores, plot the attention weights."
    )
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="SPEC|RUN",
        help="spec, checkpoint of this plugin, or folder with checkpoint_best.pt or checkpoint_last.pt (the first that exists)",
    ).completer = specs
    parser.add_argument("--atlas", action="store_true", help="one picture of all methods")
    parser.add_argument(
        "--site",
        choices=SITES,
        help="site. Default for a spec: the first site at which the authors define the method. Default for a run: all sites",
    )
    parser.add_argument("--length", type=positive, default=32, metavar="N", help="number of positions (default: %(default)s)")
    parser.add_argument("--layer", type=not_negative, default=0, metavar="N", help="layer, from 0 (default: %(default)s)")
    heads = parser.add_mutually_exclusive_group()
    heads.add_argument("--head", type=not_negative, metavar="N", help="head, from 0 (default: mean over all heads)")
    heads.add_argument("--heads", action="store_true", help="one plot per head")
    parser.add_argument("--curves", action="store_true", help="additional plots: scores of one query, and mean by distance")
    parser.add_argument(
        "--query", type=not_negative, metavar="N", help="query of --curves, from 0 (default: the middle position)"
    )
    parser.add_argument(
        "--seed",
        type=not_negative,
        metavar="N",
        help="seed of random parameters for specs. Random parameters replace initial parameters that have no effect "
        "(default: no random parameters)",
    )
    parser.add_argument(
        "--data", metavar="FOLDER", help="folder of the prepared data of a run (default: the data folder of the training run)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("positions.png"),
        metavar="FILE",
        help="picture in PNG, SVG or PDF format (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    if args.atlas == bool(args.sources):
        raise PositionError("plot: wrong arguments. Expected specs, runs, or --atlas. Example: posenc plot rope t5.")
    if not 2 <= args.length <= _LONGEST:
        raise PositionError(f"--length {args.length}: out of range. Expected a number from 2 to {_LONGEST}.")
    if args.query is not None and not (args.curves and args.query < args.length):
        raise PositionError(f"--query {args.query}: not allowed. Expected --curves and a number from 0 to {args.length - 1}.")
    if args.atlas:
        _refuse_for_atlas(args)
    from ..plotting import figures, panels, sources  # imported here, because it imports torch

    runs = sum(map(sources.is_run, args.sources))
    if args.data is not None and not (args.atlas or runs):
        raise PositionError("--data: not allowed for specs. Expected a run. Leave --data out.")
    if args.seed is not None and runs and runs == len(args.sources):
        raise PositionError("--seed: not allowed for runs. Expected a spec. Leave --seed out.")
    figures.require_writable(args.output)
    if args.atlas:
        figures.write_atlas(panels.atlas(args.length), args.output)
    else:
        found = panels.of_sources(
            args.sources, args.length, site=args.site, layer=args.layer, head=args.head,
            every_head=args.heads, seed=args.seed, data=args.data,
        )  # fmt: skip
        figures.save(figures.draw(found, args.curves, args.query), args.output)
    print(f"wrote {args.output}")


def _refuse_for_atlas(args: argparse.Namespace) -> None:
    """Raise PositionError for an option that has no effect on the atlas."""
    given = {
        "--site": args.site is not None, "--layer": args.layer > 0, "--head": args.head is not None, "--heads": args.heads,
        "--curves": args.curves, "--seed": args.seed is not None, "--data": args.data is not None,
    }  # fmt: skip
    for option, is_given in given.items():
        if is_given:
            raise PositionError(f"{option}: not allowed with --atlas. Expected --length and --output. Leave {option} out.")
