"""Text in the files of an analysis, such as names of methods.

Spreadsheets do not evaluate this text as a formula. Browsers do not execute this text.
"""

import csv
import io

import pytest

from fairseq_posenc.common.cells import csv_cell, markdown_cell, markdown_text
from fairseq_posenc.evaluation.analysis import results

EVIL = "=cmd|' /C calc'!A0"
SCRIPT = "<script>alert(1)</script>"


@pytest.mark.parametrize("text", [EVIL, "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=", "+a"])
def test_formulas_begin_with_an_apostrophe(text):
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-0.5", "+1e-05", "3", "", "-", "rope", "a=b", 1, -1.5, None, "0.01 0.02"])
def test_numbers_and_other_text_stay(value):
    assert csv_cell(value) == value


def test_markdown_has_no_tags_and_no_links():
    assert markdown_text("a <script> b < 3 and </p>, <!-- x") == "a &lt;script> b < 3 and &lt;/p>, &lt;!-- x"
    assert markdown_text("[x](javascript:alert)") == "[x]\\(javascript:alert)"
    assert markdown_cell("a|<b>") == "a\\|&lt;b>"


def test_the_files_of_an_analysis(tmp_path):
    found = results.Result(
        "evil", "title", ("method", "value"), [(EVIL, 1.0), (SCRIPT, -2.0)], [f"a note of {SCRIPT}"], lambda: None
    )
    results.write(found, tmp_path)
    rows = list(csv.reader(io.StringIO((tmp_path / "evil.csv").read_text())))
    assert rows[1:] == [[f"'{EVIL}", "1"], [SCRIPT, "-2"]]
    assert "<script>" not in (tmp_path / "evil.md").read_text()
