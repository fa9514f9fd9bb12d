"""Sphinx extension that generates pages from cards, docstrings, parsers and results.

Documents link to each other as on GitHub, also to documents outside docs/. The extension therefore copies all documents into one
folder with the layout of the checkout, and adds the generated pages. Sphinx reads this folder instead of docs/.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

from . import source

_LOG = logging.getLogger(__name__)


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (typeset, None), (typeset, None))
    app.connect("config-inited", read_all_documents)
    app.connect("doctree-read", in_no_contents)
    app.connect("autodoc-process-docstring", as_plain_text)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def read_all_documents(app: Any, config: Any) -> None:
    """Write the source folder, and let Sphinx read it."""
    folder = Path(app.doctreedir) / "source"
    source.write(Path(app.confdir).parent, folder)
    app.srcdir = type(app.srcdir)(folder)  # before version 10, Sphinx requires its own subclass of Path


def typeset(translator: Any, node: Any) -> None:
    """Convert TeX to MathML, which browsers display without a script. An unknown TeX command is a warning."""
    try:
        translator.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    except MathError as error:
        _LOG.warning("%s: %s", node.astext(), error, location=node)
    raise nodes.SkipNode


def as_plain_text(app: Any, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Escape docstrings. They are plain text, but their equations contain characters of reStructuredText markup."""
    found: list[str] = []
    for line in lines:
        if re.match(r"[A-Z][a-z]+: ", line):  # every section such as "Equation: ..." is a paragraph
            found.append("")
        pieces = line.split("`")
        if len(pieces) % 2:
            pieces[::2] = [re.sub(r"([\\*_|<>])", r"\\\1", piece) for piece in pieces[::2]]
        found.append("``".join(pieces) if len(pieces) % 2 else line.replace("`", "'"))
    lines[:] = found


def in_no_contents(app: Any, doctree: Any) -> None:
    """Mark every page as an orphan. Sphinx 7 cannot suppress its warning about pages that are not in a toctree."""
    app.env.metadata[app.env.docname]["orphan"] = True
