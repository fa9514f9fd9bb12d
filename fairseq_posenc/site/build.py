"""Write a folder of Markdown with the layout of the checkout, and convert it to HTML with Sphinx."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import registry
from ..core import PositionError
from ..plotting import figures, panels
from . import pages

_HERE = Path(__file__).parent
#: files without Markdown to which documents link
_FILES = ("LICENSE", "CITATION.cff")
_DOCUMENTS = {"docs": ("*.md", "*.png"), "results": ("*.md", "*.png"), "recipes": ("*",), "data-bin": ("*.md",)}
_LENGTH = 32  # number of positions in a picture
_DRAW_SEED = 1


def build(root: Path, output: Path, progress: Any) -> int:
    """Write the site of the checkout `root` and return its number of pages. Broken links and references are errors."""
    if importlib.util.find_spec("sphinx") is None:
        raise PositionError("posenc site: Sphinx is not installed. Install it with pip install 'fairseq_posenc[site]'.")
    _require_checkout(root)
    with tempfile.TemporaryDirectory() as folder:
        source, warnings = Path(folder) / "source", Path(folder) / "warnings"
        write_source(root, source, progress)
        progress.show("pages")
        options = ["-E", "-q", "-N", "-b", "html", "-c", _HERE, "-d", Path(folder) / "doctrees", "-w", warnings]
        # in a new process, because Sphinx changes imported modules
        path = os.pathsep.join(filter(None, [str(_HERE.parents[1]), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "sphinx", *map(str, [*options, source, output])]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        found = warnings.read_text(encoding="utf-8") if warnings.is_file() else ""
        problems = [line.replace(f"{source}/", "") for line in found.splitlines() if line.strip()]
    if problems:
        raise PositionError(
            f"posenc site: {len(problems)} broken references or docstrings. Expected none. Correct the first: {problems[0]}"
        )
    if done.returncode:
        raise PositionError(f"posenc site: Sphinx failed: {(done.stderr.strip() or 'no error message').splitlines()[-1]}")
    return sum(1 for _ in output.rglob("*.html"))


def _require_checkout(root: Path) -> None:
    missing = [name for name in ("README.md", "docs", "recipes", "results") if not (root / name).exists()]
    if missing:
        raise PositionError(
            f"{root}: {missing[0]} is missing. Expected a checkout of the source code. Use posenc site OUT --root CHECKOUT."
        )


def write_source(root: Path, source: Path, progress: Any) -> None:
    """Write the documents of the checkout, and the pages generated from cards, results and docstrings."""
    source.mkdir()
    costs = pages.Costs(root)
    for path in [*_documents(root), *(root / name for name in _FILES if (root / name).is_file())]:
        copy = source / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    readme = (root / "README.md").read_text(encoding="utf-8")
    _write(source / "index.md", pages.start(readme, source))
    (source / "README.md").unlink()
    _write(source / "choose.md", pages.choose(costs))
    _write(source / "docs/methods.md", pages.methods())
    _write(source / "docs/api.md", pages.api())
    reports = [str(path.relative_to(source / "results")) for path in _reports(source)]
    with (source / "results/README.md").open("a", encoding="utf-8") as file:
        file.write(pages.results(reports))
    (source / "docs/methods").mkdir()
    for number, name in enumerate(registry.names(), 1):
        progress.show(f"picture {number} of {len(registry.names())}: {name}")
        found = panels.of_sources([name], _LENGTH, seed=_DRAW_SEED)
        figures.save(figures.draw(found, curves=True), source / f"docs/methods/{name}.png")
        _write(source / f"docs/methods/{name}.md", pages.method(name, costs, f"{name}.png"))


def _documents(root: Path) -> Iterator[Path]:
    """Yield Markdown files, and the pictures and recipes to which they link."""
    yield from root.glob("*.md")
    for folder, patterns in _DOCUMENTS.items():
        for path in (path for pattern in patterns for path in (root / folder).rglob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def _reports(source: Path) -> list[Path]:
    return sorted(path for path in (source / "results").rglob("*.md") if path != source / "results/README.md")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
