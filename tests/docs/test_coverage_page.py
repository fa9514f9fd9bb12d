"""docs/coverage.md lists every method of the project. All specs and citations on the page exist in the project.

If a method on the page is missing in this project, the page states the reason.
"""

import re

import pytest

from fairseq_posenc import registry
from fairseq_posenc.core import SITES, PositionError
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.registry.citations import entries
from posenc_docs import coverage

ROWS = coverage.rows()


def methods(row) -> set:
    return {method.name for spec in row["specs"] for method in parsing.parse(spec).methods}


def test_every_method_and_every_citation_is_on_the_page():
    assert {name for row in ROWS for name in methods(row)} == set(registry.names())
    for name in registry.names():
        for citation in registry.card(name).citations:
            found = [row for row in ROWS if row.get("citation") == citation]
            assert any(name in methods(row) for row in found), f"{citation} does not lead to {name}"


@pytest.mark.parametrize("row", ROWS, ids=[row["method"] for row in ROWS])
def test_a_line(row):
    assert set(row) <= {"method", "citation", "authors", "year", "venue", "url", "code", "specs", "reason", "unchecked"}
    assert set(row.get("unchecked", ())) <= {"code"}, "the page marks no other field"
    assert row["specs"] or row["reason"], "a method that is missing needs a reason"
    assert all(re.fullmatch(r"[A-Z].*\.", text, re.DOTALL) for text in [row["reason"]] if text), "sentences"
    if "citation" in row:
        assert row["citation"] in entries() and not {"authors", "year", "venue", "url"} & set(row)
    else:
        assert 2015 < row["year"] < 2030 and (row["url"].startswith("https://") or row["authors"])
    for spec in row["specs"]:
        assert any(_builds(spec, site) for site in SITES), spec


def _builds(spec: str, site: str) -> bool:
    try:
        parsing.parse(spec, site)
    except PositionError:
        return False
    return True


def test_names_and_lines_are_unique():
    names = [row["method"] for row in ROWS]
    assert len(set(names)) == len(names) and names == sorted(names, key=str.lower)


def test_what_was_left_out_on_purpose():
    """These encodings do not have a separate method. The page states a reason for each encoding."""
    by_name = {row["method"]: row for row in ROWS}
    for name in ("TAPE", "HoPE, high-frequency", "HoPE, hyperbolic", "Toeplitz neural network (TNN)", "LongRoPE"):
        assert by_name[name]["reason"]
    assert by_name["GRAPE, multiplicative"]["reason"]


def test_names_without_latex(monkeypatch):
    """The page names authors in Unicode. references.bib writes them in LaTeX."""
    entry = "@article{x,\n  author = {Sch{\\\"u}tze, Hinrich and Veli{\\v c}kovi\\'c, Petar},\n  year = {2020}}"
    monkeypatch.setattr(coverage, "entries", lambda: {"x": entry})
    assert coverage._paper({"citation": "x"}) == "Schütze and Veličković, 2020"


@pytest.mark.parametrize(
    ("address", "link"),
    [
        ("doi = {10.1609/aaai.v35i16.17654}", "https://doi.org/10.1609/aaai.v35i16.17654"),
        ("url = {https://arxiv.org/abs/2104.09864}", "https://arxiv.org/abs/2104.09864"),
        ("doi = {10.1/x},\n  url = {https://arxiv.org/abs/2104.09864}", "https://doi.org/10.1/x"),
    ],
)
def test_a_paper_links_to_its_doi_or_its_address(monkeypatch, address, link):
    entry = f"@article{{x,\n  author = {{Su, Jianlin}},\n  journal = {{AAAI}}, year = {{2021}},\n  {address}}}"
    monkeypatch.setattr(coverage, "entries", lambda: {"x": entry})
    assert coverage._paper({"citation": "x"}) == f"[Su, AAAI 2021]({link})"
