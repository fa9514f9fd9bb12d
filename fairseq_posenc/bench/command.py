"""posenc bench: runs the measurements, shows how far it is, and writes what it has found after every group."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import torch

from .. import registry
from ..contract import SITES, PositionError
from ..report.score import versions
from ..transformer.architectures import SIZES
from . import actions, counting, models, output
from .models import STOCK, Variant
from .timing import interleaved, ratios

#: methods of the quick mode: of each cost one
_QUICK = ("sinusoidal", "t5", "rope", "shaw", "tupe_rel", "diet_abs")
#: models that are alive at a time
_GROUP = 6
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "What methods cost in time and memory, as ratios to stock fairseq's Transformer: all variants take turns in one process."
    )
    parser.add_argument("specs", nargs="*", metavar="SPEC", help="methods (default: all)")
    parser.add_argument("--quick", action="store_true", help=f"two minutes: {', '.join(_QUICK)}, one shape, few rounds")
    parser.add_argument(
        "--sites",
        nargs="+",
        default=["model"],
        choices=("model", *SITES),
        help="a method's architecture, or one site (%(default)s)",
    )
    parser.add_argument("--shapes", nargs="+", default=["32x32", "8x128", "2x512"], metavar="BxT", help="(%(default)s)")
    parser.add_argument(
        "--lengths", nargs="+", type=int, default=[32, 128, 512, 2048], metavar="T", help="of one attention alone"
    )
    parser.add_argument("--steps", type=int, default=40, help="of decoding (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="(%(default)s)")
    parser.add_argument("--size", default="small", choices=[size.lstrip("_") or "base" for size in SIZES], help="(%(default)s)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="(%(default)s)")
    parser.add_argument("--dtype", default="float32", choices=list(_DTYPES), help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU; one is timed by its own clock (%(default)s)")
    parser.add_argument("--profile", action="store_true", help="also show the operators whose time differs most from stock's")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="write bench.json, bench.csv, bench.md and plots there; go on with what is there",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.quick:
        args.specs, args.rounds = args.specs or list(_QUICK), min(args.rounds, 5)
        args.shapes, args.lengths, args.steps = ["8x128"], [length for length in args.lengths if length <= 512], 20
    device = _device(args)
    shapes = [_shape(text) for text in args.shapes]
    variants = {site: _variants(args.specs or registry.names(), site) for site in args.sites}
    results: dict[str, Any] = {"settings": _settings(args, device), "rows": []}
    if args.output:
        _make(args.output)
        results["rows"] = output.finished(args.output, results["settings"])
    done = {(row["method"], row["site"]) for row in results["rows"]}
    tell = _progress()
    for site, listed in variants.items():
        remaining = [v for v in listed if (v.name, site) not in done]
        for group in (remaining[i : i + _GROUP] for i in range(0, len(remaining), _GROUP)):
            rows: dict[str, dict[str, Any]] = {v.name: {"site": site} for v in group}
            for what, found in _measure(group, args, site, shapes, device, tell):
                for name in rows:
                    rows[name][what] = found[name]
            results["rows"] += [{"method": name, **row} for name, row in rows.items()]
            if args.output:  # an interruption loses no finished group
                output.write(results, args.output)
    tell("")
    print(output.markdown(results), end="")
    return 0


def _measure(
    group: list[Variant], args: argparse.Namespace, site: str, shapes: list, device: torch.device, tell: Callable
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is measured, and its value for every variant of a group."""
    together = [Variant(STOCK, None), *group]
    size, dtype = {"base": ""}.get(args.size, f"_{args.size}"), _DTYPES[args.dtype]
    positions = max([*(length for _, length in shapes), args.steps + 2, actions.DECODED[1]])
    built = {v.name: models.build(v, size, positions, device, dtype) for v in together}

    def measured(title: str, made: dict[str, actions.Action]) -> dict[str, dict[str, Any]]:
        seconds = interleaved(made, args.rounds, device, lambda where: tell(f"{site}, {title}: {where}"))
        tell(f"{site}, {title}: operations and bytes")
        counts = {name: counting.counted(action, device) for name, action in made.items()}
        stock = counts[STOCK]
        found = {
            name: {
                **vars(ratio),
                "seconds": sorted(seconds[name])[len(seconds[name]) // 2],
                **vars(counts[name]),
                "memory": counts[name].mib / stock.mib,
                "operations": counts[name].gflop / stock.gflop,
                "bytes": counts[name].gib / stock.gib,
            }
            for name, ratio in ratios(seconds, STOCK).items()
        }
        if args.profile:
            tell(f"{site}, {title}: operators")
            taken = {name: counting.operators(action, device) for name, action in made.items()}
            for name in made:
                found[name]["operators"] = output.differences(taken[name], taken[STOCK])
        return found

    for batch, length in shapes:
        source, target = actions.sentences(batch, length, device)
        steps = {name: actions.training(model, source, target) for name, model in built.items()}
        found = measured(f"training {batch}x{length}", steps)
        yield f"training {batch}x{length}", found
        yield f"memory {batch}x{length}", {name: {"ratio": x["memory"]} for name, x in found.items()}
        forwards = {name: actions.inference(model, source, target) for name, model in built.items()}
        yield f"inference {batch}x{length}", measured(f"inference {batch}x{length}", forwards)
    source, _ = actions.sentences(*actions.DECODED, device)
    searches = {name: actions.decoding(model, source, args.steps) for name, model in built.items()}
    yield "decoding", measured("decoding", searches)
    if site in ("model", "encoder"):
        _, width, heads, *_ = SIZES[size]
        serving = [v for v in together if v.specs is None or v.specs["encoder"] != "none"]
        for length in args.lengths:
            made = {v.name: actions.attention(v, width, heads, length, device, dtype) for v in serving}
            found = measured(f"one attention over {length}", made)
            yield f"attention {length}", {v.name: found.get(v.name) for v in together}


def _variants(specs: list[str], site: str) -> list[Variant]:
    """Those that can stand at the site; a spec that is wrong anywhere stops everything before it begins."""
    found, problems = [], []
    for spec in specs:
        try:
            name = registry.parse(spec).parts[0].name
            if site != "model" and site not in registry.card(name).all_sites:
                continue
            if site != "model":
                registry.parse(spec, site)
            found.append(Variant.of(spec, site))
        except PositionError as error:
            problems.append(str(error))
    if problems:
        raise PositionError("; ".join(problems))
    if not found:
        raise PositionError(f"none of these methods stands at {site}: {', '.join(specs)}")
    return found


def _device(args: argparse.Namespace) -> torch.device:
    if args.device == "cuda" and not torch.cuda.is_available():
        raise PositionError("--device cuda: torch sees no GPU here; leave it out to measure on the CPU")
    if args.rounds < 1 or args.threads < 1 or args.steps < 3:
        raise PositionError("--rounds and --threads are at least 1, and --steps at least 3")
    torch.set_num_threads(args.threads)
    return torch.device(args.device)


def _shape(text: str) -> tuple[int, int]:
    batch, cross, length = text.partition("x")
    if not (cross and batch.isdigit() and length.isdigit() and int(batch) and int(length) > 5):
        raise PositionError(f"--shapes {text!r} is no shape; give sentences x words, such as 32x32, with more than 5 words")
    return int(batch), int(length)


def _settings(args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device.type == "cuda" else _processor()
    kept = ("size", "dtype", "threads", "rounds", "steps", "shapes", "lengths", "profile")
    return {"device": name, **{key: getattr(args, key) for key in kept}, "versions": versions()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "CPU"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PositionError(f"the benchmark cannot be written into {folder}: {error.strerror}") from None


def _progress() -> Callable[[str], None]:
    """One line on a terminal that is written over, and a line every 20 seconds elsewhere."""
    begun, last = time.monotonic(), [-20.0]

    def tell(text: str) -> None:
        now = time.monotonic() - begun
        stamp = f"[{int(now // 60):2d}:{int(now % 60):02d}] {text}"
        if sys.stderr.isatty():
            print(f"\r\033[K{stamp if text else ''}", end="", file=sys.stderr, flush=True)
        elif text and now - last[0] >= 20:
            last[0] = now
            print(stamp, file=sys.stderr, flush=True)

    return tell
