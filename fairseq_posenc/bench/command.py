"""Command line of `posenc bench`. PyTorch and fairseq are imported only when the command runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..common.messages import join
from ..common.option_types import positive
from ..core.errors import PositionError
from ..registry.completion import specs_and_architectures

#: methods with different kinds of cost
_QUICK_METHODS = ("sinusoidal", "t5", "rope", "shaw", "tupe_rel", "diet_abs")
#: default settings of a full benchmark. The next dictionaries contain the defaults of --quick, of --peers, of --count, and of
#: --count with --quick
_FULL = {
    "shapes": ["32x32", "8x128", "2x512"],
    "lengths": ["32", "128", "512", "2048"],
    "steps": 40,
    "rounds": 7,
    "size": "small",
    "dtype": "float32",
    "sites": ["model"],
    "device": "cpu",
    "threads": 1,
}
_QUICK = {**_FULL, "shapes": ["8x128"], "lengths": ["32", "512"], "steps": 10, "rounds": 3, "size": "tiny"}
_PEERS = {**_FULL, "rounds": 31}
_COUNT = {**_FULL, "shapes": ["64x64", "8x512", "2x2048"], "size": "base", "dtype": "bfloat16"}
_QUICK_COUNT = {**_COUNT, "shapes": ["2x8"], "size": "tiny"}
#: options without effect in a mode
_UNUSED = {
    "count": ("sites", "lengths", "steps", "rounds", "device", "threads"),
    "peers": ("sites", "lengths", "steps", "profile"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure the time and memory of methods. Print ratios to the Transformer of stock fairseq. All models run in one "
        "process. Separate several values of an option by commas or spaces, for example --lengths 32,512."
    )
    parser.add_argument(
        "specs", nargs="*", metavar="SPEC", help="spec or architecture posenc_NAME (default: all methods)"
    ).completer = specs_and_architectures
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--quick",
        action="store_true",
        help=f"benchmark of about a minute, with one shape and tiny models of {', '.join(_QUICK_METHODS)}; with --count, tiny "
        "models of all methods",
    )
    kind.add_argument("--peers", action="store_true", help="comparison of one attention module with other installed libraries")
    parser.add_argument(
        "--count",
        action="store_true",
        help="counts for a GPU instead of times: kernel launches, synchronisations, bytes read and written, and peak "
        "memory. The command does not require a GPU",
    )
    parser.add_argument(
        "--sites",
        nargs="+",
        metavar="SITE",
        help="sites that use the method: model (the sites of posenc_NAME), encoder, decoder or cross (default: model)",
    )
    parser.add_argument("--shapes", nargs="+", metavar="BxT", help=_help("batch shapes: sentences x tokens", "shapes"))
    parser.add_argument(
        "--lengths", nargs="+", metavar="T", help=_help("sequence lengths for the benchmark of one attention module", "lengths")
    )
    parser.add_argument("--steps", type=positive, metavar="N", help=_help("decoding steps", "steps"))
    parser.add_argument("--rounds", type=positive, metavar="N", help=_help("measurements per model", "rounds"))
    parser.add_argument("--size", help=_help("model size: tiny, small, base or big", "size"))
    parser.add_argument("--device", choices=("cpu", "cuda"), help=_help("device", "device"))
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help=_help("data type", "dtype"))
    parser.add_argument(
        "--threads",
        type=positive,
        metavar="N",
        help=_help(
            "number of CPU threads. With one thread on a CPU, CPU time is measured. Otherwise, wall-clock time is measured",
            "threads",
        ),
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="operators whose time differs most from stock fairseq; with --count, cost of every function",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="folder for JSON, CSV, Markdown and plots; an interrupted benchmark resumes"
    )
    parser.set_defaults(run=run)


def _help(text: str, name: str) -> str:
    value = _FULL[name]
    return f"{text} (default: {','.join(value) if isinstance(value, list) else value})"


def run(args: argparse.Namespace) -> int:
    from ..host import plugin  # noqa: F401  (registers the models that are measured)
    from . import benchmark, comparison, counts
    from .settings import Settings

    if args.count and args.peers:
        raise PositionError("--count --peers: cannot be combined. Expected one of the two. Remove one of them.")
    if args.peers and args.dtype not in (None, "float32"):
        raise PositionError(
            f"--peers --dtype {args.dtype}: not available, because some of the other libraries compute only in float32. "
            "Expected float32. Remove --dtype."
        )
    _require_effect(args)
    settings = Settings.of(with_defaults(args))
    if args.count:
        return counts.run(settings)
    if args.peers:
        return comparison.run(settings)
    return benchmark.run(settings, settings.specs or (list(_QUICK_METHODS) if args.quick else []))


def _require_effect(args: argparse.Namespace) -> None:
    """Raise PositionError if an option is given that has no effect in the mode of the command."""
    for mode, names in _UNUSED.items():
        given = [f"--{name}" for name in names if getattr(args, mode) and getattr(args, name) not in (None, False)]
        if given:
            raise PositionError(
                f"{' '.join(given)}: no effect with --{mode}. Expected options of --{mode}. Remove {join(given)}."
            )


def with_defaults(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments. Missing arguments have the defaults of the mode."""
    if args.count:
        defaults = _QUICK_COUNT if args.quick else _COUNT
    else:
        defaults = _QUICK if args.quick else _PEERS if args.peers else _FULL
    given = {name: value for name, value in vars(args).items() if value is not None or name not in defaults}
    return argparse.Namespace(**{**defaults, **given})
