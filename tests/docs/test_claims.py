"""docs/claims.md: tables of other papers, compared with the cards."""

import re
from pathlib import Path

import pytest

from fairseq_posenc.core import PositionError
from posenc_docs import claims, committed

ROOT = Path(__file__).parents[2]


def rows(title, text):
    lines = text.split(f"{title}\n")[1].split("\n#")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|") and ":--" not in line]


def test_contradictions_are_marked():
    text = claims.page((ROOT / claims.BENCHMARK).read_text())
    _, *table = rows("(2024), Table 1", text)
    assert {row[0] for row in table} == {f"{claim.title} ({claim.method})" for claim in claims.CLAIMS}
    for row in table:
        for paper, project in (row[1:3], row[3:5], row[5:7]):
            assert project == (paper if paper == project else f"{'-' if paper == '+' else '+'} ≠")
    marked = sum(cell.endswith("≠") for row in table for cell in row)
    assert f"{marked} of the 18 signs of the paper contradict this project" in text


def test_without_a_benchmark_costs_are_not_measured():
    _, *table = rows("(2024), Table 1", claims.page('{"rows": []}'))
    assert {cell for row in table for cell in row[-2:]} == {"not measured"}


def test_parameters_are_those_of_the_papers_formulas():
    """Compare numbers of parameters with the formulas of the papers, for L layers, h heads of width d, and n positions.

    The formula of huang1 is h L n. The formula of huang2 is h L (2n - 1). The formula of huang3, huang4 and shaw is
    d h L (2n - 1).
    """
    table = {row[0]: int(row[2].replace(",", "")) for row in rows("(2020), Table 1", claims.page('{"rows": []}'))[1:]}
    layers, heads, positions, width = 12, 12, 512, 64
    scalars = layers * heads * (2 * positions - 1)
    assert table["huang1"] == layers * heads * positions and table["huang2"] == scalars == 147312
    assert table["huang3"] == table["huang4"] == table["shaw:max_distance=511,values=false,share=none"] == scalars * width
    assert table["learned"] == (positions + 2) * 768
    clipped = {row[0]: row[1:] for row in rows("clipping distance", claims.page('{"rows": []}'))[1:]}
    assert [int(re.sub(",", "", cell)) for cell in clipped["huang2"]] == [8 * (2 * k + 1) for k in (4, 8, 16, 32, 757)]


def test_a_checkout_without_results_is_one_line(tmp_path):
    with pytest.raises(PositionError, match=r"^[^\n]*bench\.json: cannot be read \(No such file or directory\)\. [^\n]*$"):
        committed.generated(tmp_path)
