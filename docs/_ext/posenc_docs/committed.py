"""Write the generated parts of the documentation that are committed.

These parts are committed because documents on GitHub link to them.
"""

from __future__ import annotations

from pathlib import Path

from fairseq_posenc import registry
from fairseq_posenc.common.files import read_text
from fairseq_posenc.plotting import figures, panels

from . import claims, commands, coverage, overview, pages

#: number of positions in docs/atlas.png
_LENGTH = 32


def renew(root: Path) -> None:
    """Write the generated pages, the results section of README with its plot, and the picture of all methods."""
    for path, text in generated(root).items():
        (root / path).write_text(text, encoding="utf-8")
    overview.write(root)
    renew_atlas(root / "docs" / "atlas.png")


def generated(root: Path) -> dict[str, str]:
    """Return the text of each page by its path in the checkout."""
    return {
        "docs/methods.md": pages.index_of_sources(),
        "docs/claims.md": claims.page(read_text(root / claims.BENCHMARK)),
        "docs/coverage.md": coverage.page(coverage.rows()),
        "docs/reference/commands.md": commands.page(),
    }


def renew_atlas(path: Path) -> None:
    """Draw the picture of all methods again if its methods are not the current methods. If there is no picture, do nothing."""
    if path.exists() and sorted(figures.methods_of_atlas(path)) != registry.names():
        figures.write_atlas(panels.atlas(_LENGTH), path)
