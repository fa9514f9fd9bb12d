"""Convert the TeX formulas of docstrings to plain text for terminals. pylatexenc is imported at first use."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

#: a TeX formula between dollar signs
FORMULA = re.compile(r"\$([^$]+)\$")


def plain(text: str) -> str:
    """Convert all formulas in a text to plain text, for example `$A_{ts} = q_t \\cdot k_s$` to `A_ts = q_t · k_s`."""
    return FORMULA.sub(lambda formula: _converter()(formula[1]), text)


@functools.cache
def _converter() -> Callable[[str], str]:
    from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec, get_default_latex_context_db

    class Converter(LatexNodes2Text):
        """Write groups with parentheses, and keep spaces: x_{t-1} -> x_(t-1), q \\cdot \\tanh(k) -> q · tanh(k)."""

        def group_node_to_text(self, node):
            inside = self.nodelist_to_text(node.nodelist)
            return inside if inside.isalnum() or len(inside) < 2 else f"({inside})"

        def macro_node_to_text(self, node):
            return super().macro_node_to_text(node) + node.macro_post_space

    commands = get_default_latex_context_db()
    # \operatorname{NAME} becomes NAME. Unknown commands are not converted
    commands.add_context_category("fairseq_posenc", macros=[MacroTextSpec("operatorname", "")], prepend=True)
    commands.set_unknown_macro_spec(MacroTextSpec("", simplify_repl=lambda node: f"\\{node.macroname}"))
    return Converter(latex_context=commands, strict_latex_spaces=True).latex_to_text
