"""The text of a spec: parsing, writing, comparing specs, and messages about wrong specs."""

import dataclasses
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_posenc import registry
from fairseq_posenc.core import SITES, PositionError
from fairseq_posenc.registry import spec as parsing
from tests.contract.cases import SMALL, all_cases


def texts() -> list:
    return sorted({case.spec for case in all_cases()})


def problem(text: str, site=None) -> str:
    with pytest.raises(PositionError) as found:
        parsing.parse(text, site)
    return str(found.value)


@pytest.mark.parametrize("text", texts())
def test_round_trip(text):
    spec = parsing.parse(text)
    assert parsing.parse(str(spec)) == spec
    assert parsing.parse(spec.signature) == spec


@pytest.mark.parametrize("name", registry.names())
def test_signature_tells_every_option(name):
    plain = parsing.parse(name).signature
    found = {plain}
    for text in [text for text in texts() if text.split(":")[0] == name] + [f"{name}:layers=0", f"{name}:layers=0-2"]:
        found.add(parsing.parse(text).signature)
    assert len(found) == len({text for text in texts() if text.split(":")[0] == name}) + 2
    fields = dataclasses.fields(registry.declaration(name).options)
    assert all(f"{field.name}=" in plain for field in fields)


def values(hint, metadata) -> st.SearchStrategy:
    """Return a Hypothesis strategy for the values that an option allows."""
    low, high = metadata["minimum"], metadata["maximum"]
    if type(None) in typing.get_args(hint):
        return st.none() | values(next(a for a in typing.get_args(hint) if a is not type(None)), metadata)
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from(typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return st.sets(st.integers(0, 40), min_size=1, max_size=4).map(lambda found: tuple(sorted(found)))
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(int(0 if low is None else low), int(10**6 if high is None else high))
    if hint is str:
        return st.text("abc</>_", min_size=1, max_size=5)
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


@st.composite
def specs(draw) -> parsing.Spec:
    parts = []
    for name in draw(st.lists(st.sampled_from(registry.names()), min_size=1, max_size=3)):
        options = registry.declaration(name).options
        hints = typing.get_type_hints(options)
        given_ = {f.name: draw(values(hints[f.name], f.metadata)) for f in dataclasses.fields(options) if draw(st.booleans())}
        try:
            parts.append(parsing.MethodSpec(name, options(**given_)))
        except PositionError:
            parts.append(parsing.MethodSpec(name, options()))
    return parsing.Spec(tuple(parts))


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(specs())
def test_every_spec_round_trips(spec):
    assert parsing.parse(str(spec)) == spec
    assert parsing.parse(spec.signature) == spec
    assert parsing.parse(str(spec)).signature == spec.signature


@pytest.mark.parametrize("name", registry.names())
def test_misspelt_names_and_options(name):
    message = problem(name + "x")
    assert f"'{name}x'" in message and f"Did you mean '{name}'?" in message
    for option, allowed, default, words in parsing.option_rows(name):
        message = problem(f"{name}:{option}x=1")
        assert f"'{option}x'" in message and f"Did you mean '{option}'?" in message
        assert allowed and default and words
        wrong = "" if allowed.endswith("text") else "@"
        message = problem(f"{name}:{option}={wrong}")
        assert f"{option}={wrong!r}" in message and allowed in message, message


@pytest.mark.parametrize(
    "text, site, wanted",
    [
        (
            "shaw:max_distnce=8,values=maybe,tie=true,tie=false",
            None,
            ["max_distance", "values='maybe'", "option tie is given twice"],
        ),
        ("shawx+ropex", None, ["'shaw'", "'rope'"]),
        ("shawx+learned", "cross", ["'shaw'", "learned: not defined at site cross"]),
        (
            "learned:layer=0+shaw:max_distance=-1",
            "cross",
            ["'layers'", "max_distance='-1'", "learned: not defined at site cross"],
        ),
        ("shawx+at5:max_distance=3", None, ["'shaw'", "max_distance=3.0 is too small"]),
        ("rope", "encodr", ["'encodr'", *SITES]),
        ("", None, ["''"]),
        ("shaw:layers=2-1", None, ["layers='2-1'"]),
        ("shaw:layers=0/3-1", None, ["layers='0/3-1'"]),
        ("shaw:layers=0/0", None, ["layers='0/0'"]),
        ("rope:base=nan", None, ["base='nan'"]),
        ("rope:base=inf", None, ["base='inf'"]),
        ("shaw:keys", None, ["keys=''"]),
    ],
)
def test_all_problems_at_once(text, site, wanted):
    message = problem(text, site)
    assert all(part in message for part in wanted), message


@pytest.mark.parametrize("name", registry.names())
def test_site_that_the_card_does_not_allow(name):
    refused = [site for site in SITES if site not in registry.card(name).all_sites]
    for site in refused:
        message = problem(name, site)
        assert f"{name}: not defined at site {site}" in message
        assert all(allowed in message for allowed in registry.card(name).all_sites)
    assert len(refused) + len(registry.card(name).all_sites) == len(SITES)


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("t5:layers=0-99999999", "layers='0-99999999'"),
        ("shaw:max_distance=1000000000000", "max_distance='1000000000000'"),
        ("shaw:max_distance=1_6", "max_distance='1_6'"),
        ("shaw:max_distance=\u0661\u0666", "max_distance="),  # Arabic digits, which Python would read as 16
        ("rope:base=1_0.5", "base='1_0.5'"),
        ("+".join(["sinusoidal"] * 500), "500 methods"),
        ("+".join(["shww"] * 12), "6 more problems."),
    ],
)
def test_bombs_are_one_short_line(text, wanted):
    message = problem(text)
    assert wanted in message and "\n" not in message and len(message) < 1000


def test_tables_that_no_machine_holds_are_refused_before_they_are_made():
    huge = dataclasses.replace(SMALL, num_heads=16, num_layers=6, max_positions=65536, max_key_positions=65536)
    with pytest.raises(PositionError, match=r"shaw_abs.*need .* GiB"):
        parsing.build("shaw_abs", huge, "encoder")


@pytest.mark.parametrize("text", ["rope:base=1e4", "rope:base=10000", "rope:base=1e-0", "rope:base=10000.", "rope:base=2.5E3"])
def test_numbers_are_written_as_usual(text):
    assert parsing.parse(text)
