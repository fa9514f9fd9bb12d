"""Check one method on a GPU if there is one, otherwise without a GPU, and print the results as JSON.

    python -m tests.device.method SPEC

`recipes/test gpu` checks each method in a process of its own. An error on a GPU can affect all later work of a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fairseq_posenc.bench.models import Variant
from tests.device import checks

#: maximum number of seconds for the checks of one method. Most of the time is compilation
SECONDS = 900


def place() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


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


def check_here(spec: str) -> dict[str, Any]:
    """Check a method in this process, on a GPU if there is one."""
    # with TF32, products in float32 would have a lower precision
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = place()
    return check(Variant.of(spec, "model"), checks.ON_DEVICE if device.type == "cuda" else checks.WITHOUT_GPU, device)


def check_apart(spec: str, seconds: float = SECONDS) -> dict[str, Any]:
    """Check a method in a new process. A process that fails or does not end is a finding."""
    command = [sys.executable, "-m", "tests.device.method", spec]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"process": {"finding": f"the checks did not end within {seconds:g} seconds"}}
    if ended.returncode:
        last = (ended.stderr.strip() or "no message").splitlines()[-1]
        return {"process": {"finding": f"the process of the checks ended with status {ended.returncode}: {last}"}}
    return json.loads(ended.stdout.splitlines()[-1])


if __name__ == "__main__":
    print(json.dumps(check_here(sys.argv[1])))
