"""Settings of the web site. Build it with: python -m sphinx -W --keep-going docs OUT"""

import sys
from pathlib import Path

_DOCS = Path(__file__).parent
sys.path[:0] = [str(_DOCS.parent), str(_DOCS / "_ext")]

from fairseq_posenc.version import __version__  # noqa: E402

project = html_title = "fairseq_posenc"
version = release = __version__
copyright = "the authors of fairseq_posenc"
language = "en"
root_doc = "index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "posenc_docs"]
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
suppress_warnings = ["misc.highlighting_failure"]
autodoc_typehints = "none"
smartquotes = False
highlight_language = "text"

html_theme = "furo"
html_static_path = ["_static"]
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_math_renderer = "mathml"
html_copy_source = html_show_sphinx = False
