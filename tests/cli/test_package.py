"""What is installed is what the checkout holds: modules, and the files that they read."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_an_installation_has_every_file_of_the_package(tmp_path):
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build",
        "--build-base",
        str(tmp_path / "build"),
        "--build-lib",
        str(tmp_path / "lib"),
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    package = [path for path in (ROOT / "fairseq_posenc").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert package and [path for path in package if not (tmp_path / "lib" / path.relative_to(ROOT)).is_file()] == []
