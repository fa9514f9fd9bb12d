"""What every method must do, at every site of its card and with every option flipped."""

import pytest

from tests.contract import checks_attention, checks_decoding, checks_geometry, checks_numerics, checks_parameters
from tests.contract.cases import all_cases, defaults, marked, standalone

EVERY = [
    *checks_decoding.RUNNING,
    checks_geometry.check_order,
    checks_geometry.check_uncounted,
    checks_parameters.check_count,
    checks_parameters.check_gradients,
    checks_parameters.check_effect,
    checks_numerics.check_repeatable,
    checks_attention.check_kernels,
    checks_attention.check_weights,
    checks_attention.check_attention_padding,
    checks_attention.check_scores,
]
DEFAULT = [
    checks_decoding.check_beams,
    checks_geometry.check_length,
    checks_geometry.check_far,
    checks_parameters.check_flags,
    checks_parameters.check_state_dict,
    checks_numerics.check_half,
    checks_numerics.check_checkpointing,
]

#: what an attention alone can serve
ALONE = [case for case in all_cases() if standalone(case)]


def named(check) -> str:
    return check.__name__.removeprefix("check_")


STRAIGHT = {"fire:hidden=10"}


@pytest.mark.parametrize(
    "check, case",
    [
        pytest.param(check, case, id=f"{named(check)}-{case}", marks=[pytest.mark.variant] * (case.spec != case.name))
        for check in EVERY
        for case in (ALONE if check.__module__ == checks_attention.__name__ else all_cases())
    ],
)
def test_every_variant(check, case):
    if check is checks_parameters.check_gradients and case.spec in STRAIGHT:
        pytest.skip("no unit of the network bends within a short sentence, and what all keys have in common has no gradient")
    check(case)


@pytest.mark.parametrize("case", defaults(), ids=str)
@pytest.mark.parametrize("check", DEFAULT, ids=named)
def test_default(check, case):
    check(case)


#: an absolute place in a tree is no number that can be moved
PLACED = [
    case for case in all_cases() if not (checks_geometry.reads_sentences(case) and case.card.reference in ("absolute", "both"))
]


@pytest.mark.parametrize("case", marked(PLACED))
def test_shift(case):
    checks_geometry.check_shift(case)


@pytest.mark.parametrize("case", marked([case for case in all_cases() if checks_geometry.reads_sentences(case)]))
def test_structure(case):
    checks_geometry.check_structure(case)


@pytest.mark.parametrize("case", [case for case in defaults() if case.site == "encoder"], ids=str)
def test_direction(case):
    checks_geometry.check_direction(case)


#: the decoder always looks to the left, and saying so is no error
SAID_TWICE = {"disan:directions=forward@decoder"}
#: how exact numbers are, and at what cost
EXACTNESS = {"floater:adjoint=true", "floater:substeps=3"}


def changes_numbers(case) -> bool:
    return case.spec != case.name and str(case) not in SAID_TWICE and case.spec not in EXACTNESS


@pytest.mark.parametrize("case", marked([case for case in all_cases() if changes_numbers(case)]))
def test_options(case):
    checks_parameters.check_options(case)


@pytest.mark.parametrize("case", marked([case for case in ALONE if case.method().hooks & {"mask", "attend"}]))
def test_fully_masked(case):
    checks_attention.check_fully_masked(case)


@pytest.mark.parametrize("case", defaults(), ids=str)
def test_tied_layers(case):
    checks_decoding.check_incremental(case, tie_encoder_layers=True, tie_decoder_layers=True)


@pytest.mark.parametrize("case", marked([case for case in ALONE if case.site != "encoder"]))
def test_attention_steps(case):
    checks_attention.check_attention_steps(case)
