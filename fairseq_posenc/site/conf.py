"""Sphinx settings of the site. `posenc site` runs Sphinx on the pages that it has written."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from fairseq_posenc.version import __version__

project = html_title = "fairseq_posenc"
version = release = __version__
copyright = "the authors of fairseq_posenc"
language = "en"
root_doc = "index"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_copy_source = html_show_sphinx = False
autodoc_typehints = "none"
smartquotes = False
highlight_language = "text"


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
    """Mark every page as an orphan. Sphinx 7 cannot suppress its warning about pages that are only linked."""
    app.env.metadata[app.env.docname]["orphan"] = True


def typeset(translator: Any, node: Any) -> None:
    """Convert TeX to MathML, which browsers display without a script. An unknown TeX command raises an error."""
    block = isinstance(node, nodes.math_block)
    translator.body.append(tex2mathml(node.astext(), as_block=block))
    raise nodes.SkipNode


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (typeset, None), (typeset, None))
    app.connect("doctree-read", in_no_contents)
    app.connect("autodoc-process-docstring", as_plain_text)
