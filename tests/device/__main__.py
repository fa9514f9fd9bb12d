"""Check all methods on a GPU, and write one JSON file. Without a GPU, run the checks that do not need a GPU.

    recipes/test gpu [FILE] [SPEC ...]

FILE is runs/device.json by default. A method is not checked again if FILE contains its results without a finding, and if the
GPU, the versions and the commit have not changed. Each finding is printed as one line. The exit status is 1 if there are
findings.

On a GPU, several methods are checked at a time. The benchmark runs afterwards, when nothing else runs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from fairseq_posenc import cli, registry
from fairseq_posenc.common.files import replace_file
from fairseq_posenc.common.progress import Progress
from fairseq_posenc.common.versions import commit, versions
from tests.device import method

FILE = Path("runs/device.json")
NO_GPU = "No GPU was found. Numbers are computed on the CPU. The branches for a GPU run on the meta device, without numbers."
#: arguments of `posenc bench`, which runs after the checks on a GPU
BENCHMARK = ("--dtype", "bfloat16", "--size", "base", "--shapes", "64x64", "8x512", "--steps", "10", "--rounds", "5")
#: maximum number of methods that are checked on a GPU at a time. Each needs about 1 GB of the GPU, and one CPU core
AT_A_TIME = 12


def write(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda made: made.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8"))


def checked(specs: list[str], device: torch.device) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the results of each method, on a GPU in the order in which the checks end."""
    if device.type == "cpu":
        yield from ((spec, method.check_here(spec)) for spec in specs)
        return
    threads = ThreadPoolExecutor(min(AT_A_TIME, os.cpu_count() or 1))
    try:
        started = {threads.submit(method.check_apart, spec): spec for spec in specs}
        for ended in as_completed(started):
            yield started[ended], ended.result()
    finally:  # after an interruption, do not start the remaining checks
        threads.shutdown(cancel_futures=True)


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
    device = method.place()
    name = torch.cuda.get_device_name() if device.type == "cuda" else "none"
    if device.type == "cpu":
        print(NO_GPU)
    head = {"gpu": name, "versions": versions(), "commit": commit()}
    results: dict[str, Any] = {**head, "methods": {}}
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if {key: before.get(key) for key in head} == head:
            results["methods"] = {spec: found for spec, found in before["methods"].items() if not findings({spec: found})}
    progress = Progress()
    remaining = [spec for spec in specs if spec not in results["methods"]]
    progress.show(f"checks of {len(remaining)} methods")
    for number, (spec, found) in enumerate(checked(remaining, device), 1):
        results["methods"][spec] = found
        write(path, results)
        progress.show(f"{spec} ({number} of {len(remaining)})")
    progress.end()
    results["methods"] = {spec: results["methods"][spec] for spec in sorted(results["methods"])}
    if device.type == "cuda":
        results["bench"] = benchmark(specs, device, path.with_suffix(".bench"), *BENCHMARK)
    write(path, results)
    lines = findings(results["methods"])
    print("\n".join([*lines, f"{len(results['methods'])} methods, {len(lines)} findings: {path}"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
