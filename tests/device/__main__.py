"""Check all methods on a GPU, and write one JSON file. Without a GPU, run the checks that do not need a GPU.

    recipes/test gpu [FILE] [SPEC ...]

FILE is runs/device.json by default. A method is not checked again if FILE contains its results without a finding, and if the
GPU, the versions and the commit have not changed. Each finding is printed as one line. The exit status is 1 if there are
findings.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fairseq_posenc import cli, registry
from fairseq_posenc.bench.models import Variant
from fairseq_posenc.common.files import replace_file
from fairseq_posenc.common.progress import Progress
from fairseq_posenc.common.versions import commit, versions
from tests.device import checks

FILE = Path("runs/device.json")
NO_GPU = "No GPU was found. Numbers are computed on the CPU. The branches for a GPU run on the meta device, without numbers."
#: arguments of `posenc bench`, which runs after the checks on a GPU
BENCHMARK = ("--dtype", "bfloat16", "--size", "base", "--shapes", "64x64", "8x512")


def place() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def write(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda made: made.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8"))


def check(variant: Variant, chosen: dict[str, Callable[..., dict[str, Any]]], device: torch.device) -> dict[str, Any]:
    """Run the checks of a method. For each check, return the measured values or the error message."""
    found: dict[str, Any] = {}
    for name, run in chosen.items():
        try:
            found[name] = run(variant, device)
        except checks.Finding as finding:
            found[name] = {"finding": str(finding)}
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            line = str(error).splitlines()[0] if str(error) else ""
            found[name] = {"finding": f"{type(error).__name__}: {line} ({Path(at.filename).name}:{at.lineno})"}
    return found


def benchmark(specs: list[str], device: torch.device, folder: Path, *options: str) -> dict[str, Any]:
    """Run `posenc bench`, and return the content of bench.json.

    The command continues an interrupted benchmark in the folder.
    """
    status = cli.main(["bench", *specs, "--device", device.type, "--output", str(folder), *options])
    if status:
        raise SystemExit(status)
    return json.loads((folder / "bench.json").read_text(encoding="utf-8"))


def findings(methods: dict[str, Any]) -> list[str]:
    """Return one line for each finding."""
    return [
        f"{method}, {name}: {found['finding']}"
        for method, checked in methods.items()
        for name, found in checked.items()
        if "finding" in found
    ]


def main(arguments: list[str]) -> int:
    path = Path(arguments[0]) if arguments else FILE
    specs = arguments[1:] or registry.names()
    device = place()
    # with TF32, products in float32 would have a lower precision
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if device.type == "cuda":
        chosen, name = checks.ON_DEVICE, torch.cuda.get_device_name()
    else:
        chosen, name = checks.WITHOUT_GPU, "none"
        print(NO_GPU)
    head = {"gpu": name, "versions": versions(), "commit": commit()}
    results: dict[str, Any] = {**head, "methods": {}}
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if {key: before.get(key) for key in head} == head:
            results["methods"] = {spec: found for spec, found in before["methods"].items() if not findings({spec: found})}
    progress = Progress()
    for number, spec in enumerate(specs, 1):
        if spec in results["methods"]:
            continue
        progress.show(f"{spec} ({number} of {len(specs)})")
        results["methods"][spec] = check(Variant.of(spec, "model"), chosen, device)
        write(path, results)
    progress.end()
    if device.type == "cuda":
        results["bench"] = benchmark(specs, device, path.with_suffix(".bench"), *BENCHMARK)
        write(path, results)
    lines = findings(results["methods"])
    print("\n".join([*lines, f"{len(results['methods'])} methods, {len(lines)} findings: {path}"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
