"""posenc checkpoint: convert checkpoints."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..common.files import replace_file
from ..common.option_types import positive
from ..core import PositionError
from ..registry.architectures import PREFIX
from ..registry.completion import specs_and_architectures
from .check import ALL, check

_RESIZE = (
    "Write a copy of a checkpoint whose model accepts longer sentences. Trained rows of position tables are copied. "
    "New rows have initial values and need further training."
)
_START = (
    "Write a checkpoint with another position encoding. All other parameters are copied from CHECKPOINT. CHECKPOINT may "
    "also be a checkpoint of stock fairseq's transformer. Parameters of the new position encoding have initial values. "
    "Start the training run with: fairseq-train ... --finetune-from-model OUT."
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Convert a checkpoint to longer sentences or to another method."
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    resize = actions.add_parser("resize-positions", help="longer maximum lengths", description=_RESIZE)
    start = actions.add_parser("start-from", help="another position encoding", description=_START)
    for action in (resize, start):
        action.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="checkpoint to read")
        action.add_argument("out", type=Path, metavar="OUT", help="checkpoint to write")
        action.add_argument(
            "--data",
            type=Path,
            metavar="FOLDER",
            help="folder of the dictionaries (default: the data folder of the training run)",
        )
    for side in ("source", "target"):
        resize.add_argument(
            f"--max-{side}-positions", type=positive, required=True, metavar="N", help=f"new maximum {side} length in tokens"
        )
    start.add_argument(
        "--method",
        required=True,
        metavar="SPEC",
        help="spec for encoder and decoder, or encoder=SPEC;cross=SPEC for single sites, or an architecture posenc_NAME",
    ).completer = specs_and_architectures


def run(args: argparse.Namespace) -> None:
    for path in (args.checkpoint, args.data):
        if path is not None and not path.exists():
            raise PositionError(f"{path}: no such file or folder. Expected a checkpoint and a data folder that exist.")
    if args.out.resolve() == args.checkpoint.resolve():
        raise PositionError(f"{args.out}: this is the checkpoint to read. Expected another name for the checkpoint to write.")
    if not args.out.parent.is_dir():
        raise PositionError(f"{args.out}: there is no folder {args.out.parent}. Expected an existing folder. Create it first.")
    start = args.action == "start-from"
    if start and args.method == ALL:
        raise PositionError(f"--method {ALL}: not allowed. Expected one spec or architecture.")
    if start:
        check([args.method], None)  # before torch is imported
    import torch

    from ..host.checkpoints import convert

    if not start:
        limits = args.max_source_positions, args.max_target_positions
        state, names = convert.resize_positions(args.checkpoint, *limits, args.data)
        done = f"maximum lengths {limits[0]} (source) and {limits[1]} (target)"
        new = f"train on before you decode longer sentences: new rows have initial values in {', '.join(names)}"
    else:
        arch = args.method if args.method.startswith(PREFIX) else None
        (method,) = check([args.method], None, size=convert.size_of(args.checkpoint) if arch else "").values()
        state, names = convert.start_from(args.checkpoint, method, args.data, arch)
        done = ", ".join(f"{site} {spec}" for site, spec in method.items())
        new = f"parameters with initial values: {', '.join(names)}"
    replace_file(args.out, lambda partial: torch.save(state, partial))
    print(f"wrote {args.out}: {done}")
    if names:
        print(new)
