"""Builds the site: a folder of Markdown like the checkout, given to Sphinx."""

from __future__ import annotations

import io
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import registry
from ..core import PositionError
from ..plotting import figures, panels
from ..version import __version__
from . import pages

_STATIC = Path(__file__).with_name("static")
#: what documents link to beside each other
_FILES = ("LICENSE", "CITATION.cff")
_DOCUMENTS = {"docs": ("*.md", "*.png"), "results": ("*.md", "*.svg"), "recipes": ("*",), "data-bin": ("*.md",)}
_LENGTH = 32  # positions of a picture
_DRAW_SEED = 1
#: colours of a terminal
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def build(root: Path, output: Path, progress: Any) -> int:
    """Writes the site of the checkout `root` and returns its number of pages; a broken link or reference is an error."""
    try:
        from sphinx.application import Sphinx
        from sphinx.errors import SphinxError
    except ImportError:
        raise PositionError("the site needs Sphinx; install it with: pip install 'fairseq_posenc[site]'") from None
    _require_checkout(root)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        write_source(root, source, progress)
        progress.show("pages")
        warnings = io.StringIO()
        try:
            app = Sphinx(source, None, output, Path(folder) / "doctrees", "html", _settings(), status=None, warning=warnings)
            app.connect("autodoc-process-docstring", _as_plain_text)
            app.build(force_all=True)
        except (SphinxError, OSError) as error:
            raise PositionError(f"the site cannot be built: {str(error).splitlines()[0]}") from None
    problems = [_ESCAPES.sub("", line).replace(f"{source}/", "") for line in warnings.getvalue().splitlines() if line]
    if problems:
        raise PositionError(f"the site has {len(problems)} broken references or docstrings, the first: {problems[0]}")
    return sum(1 for _ in output.rglob("*.html"))


def _require_checkout(root: Path) -> None:
    missing = [name for name in ("README.md", "docs", "recipes", "results") if not (root / name).exists()]
    if missing:
        raise PositionError(f"{root} is no checkout: it has no {missing[0]}; name one, as in: posenc site OUT --root CHECKOUT")


def write_source(root: Path, source: Path, progress: Any) -> None:
    """The documents of the checkout where they stand there, and the pages made from cards, results and docstrings."""
    source.mkdir()
    costs = pages.Costs(root)
    for path in [*_documents(root), *(root / name for name in _FILES if (root / name).is_file())]:
        copy = source / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    readme = (root / "README.md").read_text(encoding="utf-8")
    _write(source / "index.md", pages.start(readme))
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
    """Markdown, and the pictures and recipes that it names."""
    yield from root.glob("*.md")
    for folder, patterns in _DOCUMENTS.items():
        for path in (path for pattern in patterns for path in (root / folder).rglob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def _reports(source: Path) -> list[Path]:
    return sorted(path for path in (source / "results").rglob("*.md") if path != source / "results/README.md")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _settings() -> dict[str, Any]:
    return {
        "project": "fairseq_posenc",
        "version": __version__,
        "release": __version__,
        "html_title": "fairseq_posenc",
        "copyright": "the authors of fairseq_posenc",
        "root_doc": "index",
        "extensions": ["myst_parser", "sphinx.ext.autodoc"],
        "myst_heading_anchors": 4,
        "myst_enable_extensions": ["colon_fence"],
        "suppress_warnings": ["misc.highlighting_failure", "toc.not_included"],
        "html_theme": "furo",
        "html_static_path": [str(_STATIC)],
        "html_css_files": ["site.css"],
        "html_js_files": ["site.js"],
        "html_copy_source": False,
        "html_show_sphinx": False,
        "autodoc_typehints": "none",
        "smartquotes": False,
        "highlight_language": "text",
        "language": "en",
    }


def _as_plain_text(app: Any, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: an equation holds what reStructuredText would take for markup."""
    found: list[str] = []
    for line in lines:
        if re.match(r"[A-Z][a-z]+: ", line):  # "Equation: ..." and what follows are paragraphs of their own
            found.append("")
        pieces = line.split("`")
        if len(pieces) % 2:
            pieces[::2] = [re.sub(r"([\\*_|<>])", r"\\\1", piece) for piece in pieces[::2]]
        found.append("``".join(pieces) if len(pieces) % 2 else line.replace("`", "'"))
    lines[:] = found
