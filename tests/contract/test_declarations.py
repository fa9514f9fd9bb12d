"""The package reads facts from a method file without running the file. These facts equal the facts of the imported module."""

import dataclasses
from types import SimpleNamespace

import pytest

import fairseq_posenc as posenc
from fairseq_posenc.registry import declaration
from fairseq_posenc.registry.catalog import describe
from fairseq_posenc.registry.citations import entries
from fairseq_posenc.registry.declarations import declarations

#: the families: the names of the folders of methods/
FAMILIES = {"absolute", "recurrent", "bias", "relative", "rotary", "kernel", "length", "structure", "documents"}


@pytest.mark.parametrize("name", posenc.names())
def test_declared_as_it_runs(name):
    found = declaration(name)
    cls = found.load()
    assert found.card == cls.card
    assert found.docstring.split() == (cls.__doc__ or "").split()
    own, read = (
        [(field.name, field.default, dict(field.metadata)) for field in dataclasses.fields(options)]
        for options in (cls.Options, found.options)
    )
    assert own == read
    assert cls.__module__ == found.module and found.family in FAMILIES and f".{found.family}." in found.module


def test_every_family_has_methods_and_every_method_a_family():
    assert {found.family for found in declarations().values()} == FAMILIES


def test_every_method_with_a_card_is_declared():
    """A method whose card is not found in the source file could not be used."""
    from fairseq_posenc.core import PositionMethod

    for found in declarations().values():
        found.load()
    pending, seen = [PositionMethod], set()
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if "card" in vars(cls) and cls.__module__.startswith("fairseq_posenc."):
            seen.add(cls.card.name)
    assert seen == set(posenc.names())


def test_every_citation_is_an_entry_and_every_entry_is_cited():
    cited = {key for name in posenc.names() for key in posenc.card(name).citations}
    assert cited == set(entries())


@pytest.mark.parametrize("name", posenc.names())
def test_docstrings_have_their_sections(name):
    description = describe(name)
    labels = list(description.sections)
    assert labels in (
        ["Equation", "Shapes", "Source", "Deviations", "Cost"],
        ["Equation", "Shapes", "Source", "Deviations", "Cost", "Raises"],
    )
    assert description.summary.endswith(".") and all(text.strip() for text in description.sections.values())


@pytest.mark.parametrize("label", ["Raises", "Errors"])
def test_sections_of_own_files_may_have_other_labels(label, monkeypatch):
    """Method files of users may still use the label `Errors` of earlier versions, instead of `Raises`."""
    text = f"Summary.\n\nEquation: none.\nDeviations:\n    * One.\n{label}: PositionError for\n    long sentences."
    monkeypatch.setattr("fairseq_posenc.registry.catalog.lookup.declaration", lambda name: SimpleNamespace(docstring=text))
    assert describe("mine").sections == {"Equation": "none.", "Deviations": "* One.", label: "PositionError for long sentences."}
