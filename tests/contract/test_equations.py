"""Equations of docstrings are TeX between dollar signs. One library converts them for the website, and another
library converts them for terminals."""

import html
import re

import pytest
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml

import fairseq_posenc as posenc
from fairseq_posenc.registry import catalog
from fairseq_posenc.registry.plain_text import FORMULA, plain

#: characters for subscripts, superscripts, parentheses and roots, and the invisible character for function application. MathML
#: and plain text write these parts of a formula differently. Therefore, the comparison ignores these characters
_NOTATION = re.compile(r"[\s_^(){}√\u2061]")
_SAME = str.maketrans({"\N{MINUS SIGN}": "-", "\N{PRIME}": "'", "\N{DOT OPERATOR}": "·", "\N{DIVIDES}": "|"})


def text_of_mathml(formula):
    return html.unescape(re.sub(r"<[^>]*>", "", tex2mathml(formula)))


def symbols(text):
    return _NOTATION.sub("", text.translate(_SAME))


def equation(name):
    return catalog.describe(name).sections["Equation"]


def formulas(name):
    """Return the formulas of all sections."""
    return FORMULA.findall(" ".join(catalog.describe(name).sections.values()))


@pytest.mark.parametrize("name", posenc.names())
def test_every_formula_is_read_alike_for_the_site_and_for_terminals(name):
    assert FORMULA.search(equation(name))
    for formula in formulas(name):
        assert symbols(text_of_mathml(formula)) == symbols(plain(f"${formula}$")), formula


@pytest.mark.parametrize("name", posenc.names())
def test_scripts_of_several_characters_are_in_braces(name):
    """TeX reads A_ts as A_t s, and x^-1 as x^- 1."""
    for formula in formulas(name):
        assert not re.search(r"[_^](?!\{|\\|\w(?!\w))", formula), formula


@pytest.mark.parametrize("name", posenc.names())
def test_no_tex_is_left_in_a_terminal(name):
    page = catalog.page(name).partition("```bibtex")[0]
    assert not re.search(r"[\\$]|operatorname|mathrm|mathbb", page)


@pytest.mark.parametrize("name", posenc.names())
def test_symbols_are_in_formulas(name):
    """Subscripts, powers and operators outside formulas would be printed as they are typed."""
    prose = re.sub(r"`[^`]*`", "", FORMULA.sub("", equation(name)))
    assert not re.findall(r"\w*[_^\\{}=<>|]\w*", prose)


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"A_{ts} = q_t \cdot k_s / \sqrt{d_h}", "A_ts = q_t · k_s / √(d_h)"),
        (r"\sum_{j=s+1}^{t} \ln \operatorname{sigmoid}(w \cdot x_j)", "∑_(j=s+1)^t ln sigmoid(w · x_j)"),
        (r"w_k = 10000^{-2k/d}", "w_k = 10000^(-2k/d)"),
        (
            r"E \in \mathbb{R}^{n \times d}, \theta'_{t-1} \le \infty",
            "E ∈ \N{DOUBLE-STRUCK CAPITAL R}^(n \N{MULTIPLICATION SIGN} d), θ'_(t-1) ≤ ∞",
        ),
        (r"\{0, \ldots, N\}", "{0, …, N}"),
        (r"\unheard x", r"\unheard x"),
    ],
)
def test_formulas_as_plain_text(tex, text):
    assert plain(f"a ${tex}$ costs 5 %") == f"a {text} costs 5 %"


def test_one_dollar_sign_is_not_a_formula():
    assert plain("5 $ for a_b") == "5 $ for a_b"


def test_an_unknown_command_is_an_error_on_the_site():
    with pytest.raises(MathError, match="unheard"):
        tex2mathml(r"\unheard{x}")
