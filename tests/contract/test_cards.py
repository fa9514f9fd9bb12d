"""The claims on a card that can be tested without a model: citations, evidence, sites, and the formula of the parameters."""

import ast
import re
import typing
from pathlib import Path

import pytest

import fairseq_posenc as posenc
from fairseq_posenc.core import SITES, Dims, MethodCard
from fairseq_posenc.registry import catalog
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.registry.citations import entries, fields
from tests.contract.cases import SMALL, builds


@pytest.fixture(params=posenc.names())
def card(request):
    return posenc.card(request.param)


def test_complete(card):
    assert re.fullmatch(r"[a-z][a-z0-9_]*", card.name)
    for field in ("title", "survey", "parameters"):
        assert getattr(card, field).strip(), field
    hints = typing.get_type_hints(MethodCard)
    for field in ("reference", "injection", "extrapolation", "evidence"):
        assert getattr(card, field) in typing.get_args(hints[field]), field
    assert card.citations and isinstance(card.citations, tuple)
    ast.literal_eval(repr((card.sites, card.extended_sites, dict(card.default_specs))))  # plain data


@pytest.mark.parametrize("entry", entries().values(), ids=list(entries()))
def test_bibliography(entry):
    assert re.match(r"@(inproceedings|article)\{[^,\s]+,\n", entry)
    assert entry.count("{") == entry.count("}") and entry.endswith("}")
    found = fields(entry)
    assert {"title", "author", "year"} <= set(found) and {"booktitle", "journal"} & set(found), found
    assert re.fullmatch(r"(19|20)\d\d", found["year"])
    assert all(", " in author for author in re.split(r"\s+and\s+", found["author"])), found["author"]
    assert found["year"] in entry.split(",")[0]


@pytest.mark.parametrize("entry", entries().values(), ids=list(entries()))
def test_every_paper_has_a_doi_or_an_address(entry):
    found = fields(entry)
    assert {"doi", "url"} & set(found)
    if "doi" in found:
        assert re.fullmatch(r"10\.\d{4,9}/\S+", found["doi"])
    if "url" in found:
        arxiv = r"https://arxiv\.org/abs/\d{4}\.\d{4,5}"
        assert re.fullmatch(arxiv if "arxiv" in found["url"].lower() else r"https://[\w.-]+/\S+", found["url"])
    if found.get("journal", "").startswith("arXiv:"):
        assert found["url"] == "https://arxiv.org/abs/" + found["journal"].removeprefix("arXiv:")


def test_fields_of_an_entry():
    """Braces and commas inside a field do not end the field."""
    entry = "@article{x-2020,\n  title = {The {A}, and {{\\c{S}}}},\n  author = {B, C and D, E}, year = {2020}}"
    assert fields(entry) == {"title": "The {A}, and {{\\c{S}}}", "author": "B, C and D, E", "year": "2020"}


def test_no_two_papers_have_the_same_doi_or_address():
    found = [value for entry in entries().values() for name, value in fields(entry).items() if name in {"doi", "url"}]
    assert len(found) == len(set(found))


def test_sites(card):
    assert set(card.sites) | set(card.extended_sites) <= set(SITES) and not set(card.sites) & set(card.extended_sites)
    assert card.sites and card.all_sites == tuple(site for site in SITES if site in card.sites + card.extended_sites)
    for site, spec in card.specs.items():
        assert builds(spec, site), f"posenc_{card.name} cannot be built: {spec} at {site}"


def test_the_help_of_share_names_what_is_allowed(card):
    rows = {name: (allowed, meaning) for name, allowed, _, meaning in parsing.option_rows(card.name)}
    allowed, meaning = rows.get("share", ("all", ""))
    assert "all" in allowed or "both" not in meaning


def test_the_source_of_each_equation_is_documented():
    """docs/background/differences_from_papers.md lists the source of the equation for each method with evidence `paper`."""
    page = (Path(__file__).parents[2] / "docs" / "background" / "differences_from_papers.md").read_text()
    table = page.partition("| source of the equation |")[2].partition("\n\n")[0]
    listed = re.findall(r"`(\w+)`", table)
    assert sorted(listed) == sorted(name for name in posenc.names() if posenc.card(name).evidence == "paper")


def test_reconstructions_say_what_could_not_be_read(card):
    sections = catalog.describe(card.name).sections
    text = f"{sections['Source']} {sections.get('Deviations', '')}"
    words = ("reconstruct", "not be read", "not read", "unverified", "adaptation", "survey", "not public", "leaves open")
    assert card.evidence != "reconstruction" or any(word in text.lower() for word in words), text


def test_noise_and_prediction_of_lengths_are_cited():
    for name in ("ldpe", "lrpe"):
        assert "oka-etal-2020-incorporating" in posenc.card(name).citations


def test_a_table_of_words_is_counted_in_the_list():
    assert catalog.number(posenc.card("complex"), Dims(512, 8, 6, vocab_size=catalog.VOCABULARY)) == 32000 * 256


def test_count(card):
    options = parsing.parse(card.name).methods[0].options
    counts = {site: card.count(options, SMALL.at(site)) for site in card.all_sites}
    # at a site that this project adds to the sites of the paper, a method may have no parameters
    own = [count for site, count in counts.items() if count or site in card.sites]
    assert all((count > 0) == card.learnable for count in own), "a learnable method has parameters, another has none"
