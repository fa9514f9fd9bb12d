"""The claims on a card that need no model: citation, evidence, sites, formula."""

import re

import pytest

import fairseq_posenc as posenc
from fairseq_posenc import registry
from fairseq_posenc.contract import SITES
from fairseq_posenc.transformer.architectures import stacks
from tests.contract.cases import SMALL, builds


@pytest.fixture(params=posenc.names())
def card(request):
    return posenc.card(request.param)


def test_complete(card):
    assert re.fullmatch(r"[a-z][a-z0-9_]*", card.name)
    for field in ("title", "equation", "survey", "parameters"):
        assert getattr(card, field).strip(), field
    assert card.evidence in ("peer", "paper", "reconstruction")
    assert card.reference in ("absolute", "relative", "both", "none")
    assert card.injection in ("APE", "MAM", "other", "none")
    assert card.beyond in ("runs", "clips", "error")
    assert (card.evidence == "reconstruction") == any("reconstructed" in text for text in card.deviations)


def test_citation(card):
    text = card.citation
    assert re.match(r"@(inproceedings|article)\{[^,\s]+,\n", text)
    assert text.count("{") == text.count("}") and text.endswith("}")
    fields = dict(re.findall(r"(\w+) = \{(.*?)\}(?=,\s|\})", text, re.DOTALL))
    assert {"title", "author", "year"} <= set(fields) and {"booktitle", "journal"} & set(fields), fields
    assert re.fullmatch(r"(19|20)\d\d", fields["year"])
    assert all(", " in author for author in re.split(r"\s+and\s+", fields["author"])), fields["author"]
    assert fields["year"] in text.split(",")[0]


def test_sites(card):
    assert set(card.sites) | set(card.our_sites) <= set(SITES) and not set(card.sites) & set(card.our_sites)
    assert card.sites and card.all_sites == tuple(site for site in SITES if site in card.sites + card.our_sites)
    for site, spec in stacks(card).items():
        assert builds(spec, site), f"posenc_{card.name} cannot be built: {spec} at {site}"
    if card.our_sites:
        assert card.deviations, "sites of ours are deviations"


def test_docstring_and_count(card):
    method = registry.method_class(card.name)
    for word in ("Equation:", "Shapes:", "Source:", "Deviations:", "Cost:"):
        assert word in method.__doc__, word
    counts = [card.count(registry.parse(card.name).parts[0].options, SMALL, site) for site in card.all_sites]
    assert all((count > 0) == card.learnable for count in counts), "a learnable method has parameters, another has none"
