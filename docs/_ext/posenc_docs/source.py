"""Write the source folder of Sphinx: documents with the layout of the checkout, and the generated pages."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from sphinx.util.display import status_iterator

import fairseq_posenc
from fairseq_posenc import registry
from fairseq_posenc.plotting import figures, panels

from . import committed, pages

#: documents, and files to which documents link
_DOCUMENTS = (
    "*.md", "docs/**/*.md", "docs/**/*.png", "results/**/*.md", "results/**/*.png", "recipes/**/*", "data-bin/*.md", "LICENSE",
    "CITATION.cff", "fairseq_posenc/methods/*/*.py", "tests/oracles/oracle_*.py",
)  # fmt: skip
_LENGTH = 32  # number of positions in a picture
_DRAW_SEED = 1


def write(root: Path, folder: Path) -> None:
    """Write the source folder. Unchanged files keep their time, so that Sphinx reads only changed documents again."""
    wanted = {path.relative_to(root): path.read_bytes() for path in _documents(root)}
    wanted |= {path: text.encode() for path, text in _generated(root, wanted).items()}
    del wanted[Path("README.md")]  # index.md contains its text
    for path, content in wanted.items():
        copy = folder / path
        if not copy.is_file() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
    pictures = set(_draw(folder / "docs/methods"))
    for path in folder.rglob("*"):
        if path.is_file() and path not in pictures and path.relative_to(folder) not in wanted:
            path.unlink()


def _documents(root: Path) -> Iterator[Path]:
    for path in (path for pattern in _DOCUMENTS for path in root.glob(pattern)):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def _generated(root: Path, documents: dict[Path, bytes]) -> dict[Path, str]:
    """Return the generated pages by path."""
    costs, scores, results = pages.Costs(root), pages.Scores(root), documents[Path("results/README.md")].decode()
    oracles = _oracles(root)
    reports = sorted(str(path.relative_to("results")) for path in documents if path.match("results/*/**/*.md"))
    generated = {
        "choose.md": pages.choose(costs),
        **committed.generated(root),
        "docs/methods.md": pages.methods(),
        "docs/api.md": pages.api(),
        "results/README.md": results + pages.results(reports),
        **{f"docs/methods/{name}.md": pages.method(name, costs, scores, oracles[name]) for name in registry.names()},
    }
    found = {Path(path): text for path, text in generated.items()}
    names = {str(path.with_suffix("")) for path in (*documents, *found) if path.suffix == ".md"}
    return {**found, Path("index.md"): pages.start(documents[Path("README.md")].decode(), names)}


def _oracles(root: Path) -> dict[str, str]:
    """Return the file with the oracle of each method."""
    found: dict[str, str] = {}
    for path in sorted(root.glob("tests/oracles/oracle_*.py")):
        for oracle in importlib.import_module(f"tests.oracles.{path.stem}").ORACLES:
            found.setdefault(oracle.name, path.name)
    return found


def _draw(folder: Path) -> Iterator[Path]:
    """Draw the picture of each method, unless it is newer than the package."""
    newest = max(path.stat().st_mtime for path in Path(fairseq_posenc.__file__).parent.rglob("*.py"))
    for name in status_iterator(registry.names(), "drawing pictures... ", length=len(registry.names())):
        path = folder / f"{name}.png"
        if not path.is_file() or path.stat().st_mtime < newest:
            figures.save(figures.draw(panels.of_sources([name], _LENGTH, seed=_DRAW_SEED), curves=True), path)
        yield path
