"""Equations as MathML."""

import re
import xml.dom.minidom

import pytest

from fairseq_posenc import registry
from fairseq_posenc.registry import catalog
from fairseq_posenc.site.equations import to_html

_ENTITY = re.compile(r"&(?!amp;|lt;|gt;|quot;|#)\w+;")


@pytest.mark.parametrize("name", registry.names())
def test_every_equation_is_well_formed_and_complete(name):
    text = catalog.describe(name).sections["Equation"]
    html = to_html(text)
    xml.dom.minidom.parseString(f"<p>{_ENTITY.sub('g', html)}</p>")
    assert "<math>" in html
    for word in re.findall(r"[A-Z][a-z]+ et al\.|equations? \d+|section \d", text):  # prose stays prose
        assert word in html


@pytest.mark.parametrize(
    "text, html",
    [
        ("q_t", "<math><msub><mi>q</mi><mi>t</mi></msub></math>"),
        ("A_ts = 2", "<math><msub><mi>A</mi><mrow><mi>t</mi><mi>s</mi></mrow></msub><mo>=</mo><mn>2</mn></math>"),
        ("sqrt(d_h)", "<math><msqrt><mrow><msub><mi>d</mi><mi>h</mi></msub></mrow></msqrt></math>"),
        ("x^(t-1)", "<math><msup><mi>x</mi><mrow><mi>t</mi><mo>&minus;</mo><mn>1</mn></mrow></msup></math>"),
        ("theta_i", "<math><msub><mi>&theta;</mi><mi>i</mi></msub></math>"),
        ("scale=code divides", "scale=code divides"),
        ("Press et al. (2022), section 3", "Press et al. (2022), section 3"),
        ("a < b & more", "<math><mi>a</mi><mo>&lt;</mo><mi>b</mi></math> &amp; more"),
    ],
)
def test_equations(text, html):
    assert to_html(text) == html
