"""Settings of one benchmark, and their validation."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import registry
from ..common.option_types import positive, read_number
from ..common.versions import versions
from ..core import SITES, PositionError
from ..registry.architectures import PREFIX, SIZES

_SIZES = {size.lstrip("_") or "base": size for size in SIZES}


@dataclass(frozen=True)
class Settings:
    specs: list[str]
    sites: list[str]
    shapes: list[tuple[int, int]]
    lengths: list[int]
    steps: int
    rounds: int
    size: str
    device: torch.device
    dtype: torch.dtype
    threads: int
    profile: bool
    output: Path | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Settings:
        """Return the settings of a command line. Raise PositionError for wrong values. Set the number of threads of PyTorch."""
        specs = list(args.specs)
        if args.size not in _SIZES:
            raise PositionError(f"--size {args.size}: unknown. Expected one of {', '.join(_SIZES)}.")
        if args.device == "cuda" and not torch.cuda.is_available():
            raise PositionError("--device cuda: torch found no GPU. To measure on the CPU, remove --device.")
        if args.steps < 3:
            raise PositionError(f"--steps {args.steps}: too few. Expected at least 3.")
        settings = cls(
            sites=_values("sites", args.sites, specs, _site),
            shapes=_values("shapes", args.shapes, specs, _shape),
            lengths=_values("lengths", args.lengths, specs, _length),
            specs=specs,
            steps=args.steps,
            rounds=args.rounds,
            size=_SIZES[args.size],
            device=torch.device(args.device),
            dtype=getattr(torch, args.dtype),
            threads=args.threads,
            profile=args.profile,
            output=args.output,
        )
        torch.set_num_threads(args.threads)
        return settings

    @property
    def width(self) -> int:
        return SIZES[self.size].embed_dim

    @property
    def heads(self) -> int:
        return SIZES[self.size].heads

    def record(self) -> dict[str, Any]:
        """Return the settings that must be equal before rows of two runs can be in one table."""
        device = torch.cuda.get_device_name() if self.device.type == "cuda" else processor()
        return {
            "device": device,
            "size": self.size.lstrip("_") or "base",
            "dtype": str(self.dtype).removeprefix("torch."),
            "threads": self.threads,
            "rounds": self.rounds,
            "steps": self.steps,
            "shapes": [f"{batch}x{length}" for batch, length in self.shapes],
            "lengths": self.lengths,
            "profile": self.profile,
            "versions": versions(),
        }


def _values(option: str, given: list[str], specs: list[str], read: Callable[[str], Any]) -> list[Any]:
    """Return the values of an option.

    On the command line, values are separated by commas or blanks. `given` contains the values, and possibly specs after the
    values. These specs are appended to `specs`.
    """
    values: list[Any] = []
    for number, text in enumerate(given):
        if values and _is_spec(text):
            specs += given[number:]
            break
        values += [read(part) for part in text.split(",") if part]
    if not values:
        raise PositionError(f"--{option}: no value. Expected at least one.")
    return values


def _is_spec(text: str) -> bool:
    return text.startswith(PREFIX) or text.partition(":")[0].partition("+")[0] in registry.names()


def _site(text: str) -> str:
    if text not in ("model", *SITES):
        raise PositionError(f"--sites {text!r}: not a site. Expected model, {', '.join(SITES)}.")
    return text


def _shape(text: str) -> tuple[int, int]:
    try:
        batch, length = map(read_number, text.split("x"))
    except ValueError:
        batch = length = 0
    if batch < 1 or length <= 5:
        raise PositionError(
            f"--shapes {text!r}: not a shape. Expected sentences x tokens, such as 32x32, with at least 6 tokens."
        )
    return batch, length


def _length(text: str) -> int:
    try:
        return positive(text)
    except argparse.ArgumentTypeError:
        raise PositionError(
            f"--lengths {text!r}: not a length. Expected numbers of tokens, such as 128,512. Put methods before this option."
        ) from None


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "CPU"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")
