"""Read and run the commands of a document as they are printed.

A test runs every block that is marked ``bash``. A block that is marked ``text`` is not run: it shows the form of a command, or
an output.
"""

import os
import random
import re
import subprocess
from pathlib import Path

import torch

from tests import forked

ROOT = Path(__file__).parents[1]
LETTERS = "abcdefgh"


def documents() -> list[str]:
    """Return the hand-written documents, relative to the checkout."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return sorted(str(page.relative_to(ROOT)) for page in pages)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def section(page: str, title: str) -> str:
    """Return the section with this title, up to the next title of its level."""
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", read(page), re.MULTILINE | re.DOTALL)[1]


def blocks(text: str, language: str = "bash") -> list[str]:
    """Return the fenced blocks in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def write_text(folder: Path, source: str = "en", target: str = "de", seed: int = 1) -> None:
    """Write a tiny language pair: train, valid and test. The target is the source in reverse order."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(LETTERS, k=draw.randint(2, 4))) for _ in range(20)]
    folder.mkdir(parents=True, exist_ok=True)
    for part, size in (("train", 60), ("valid", 8), ("test", 8)):
        lines = [draw.choices(words, k=draw.randint(2, 6)) for _ in range(size)]
        (folder / f"{part}.{source}").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{part}.{target}").write_text("".join(" ".join(reversed(line)) + "\n" for line in lines))


class Reader:
    """Paste commands into a shell like a reader, in a folder with a virtual environment `.venv`.

    By default, the programs start with the plugin of the checkout already imported. If `imports` is true, each program imports
    the plugin itself. Set `imports` if the programs use other method files, or another path of the plugin.
    """

    def __init__(self, folder: Path, imports: bool = False):
        self.folder = folder
        self.programs = forked.folder(None if imports else ROOT / "fairseq_posenc")
        self.environment: dict[str, str] = {}
        (folder / ".venv" / "bin").mkdir(parents=True)
        (folder / ".venv" / "bin" / "activate").write_text(f"PATH={self.programs}:$PATH\n")

    def link_recipes(self) -> None:
        """Create links so that the folder looks like a checkout whose recipes use the environment of the tests."""
        for name in ("recipes", "fairseq_posenc"):
            (self.folder / name).symlink_to(ROOT / name)
        self.environment["POSENC_BIN"] = self.programs

    def paste(self, *texts: str, **settings: object) -> str:
        """Run the texts in one shell, and return the output. For each setting NAME, replace the
        value of the first `NAME=VALUE` in the texts.
        """
        text = "\n".join(texts)
        for name, value in settings.items():
            text, found = re.subn(rf"(^|\s){name}=\S*", rf"\g<1>{name}={value}", text, count=1)
            assert found, f"{name}= is not in the text"
        script = f"set -euo pipefail\nsource .venv/bin/activate\n{text}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **self.environment}
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-4000:]}"
        return done.stdout

    def state(self, path: str) -> dict:
        """Return the content of a checkpoint."""
        import fairseq_posenc.host.plugin  # noqa: F401  prepares the safe loader

        return torch.load(self.folder / path, weights_only=True)
