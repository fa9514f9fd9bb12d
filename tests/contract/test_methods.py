"""Run the checks that every method must pass, at every site of its card and with every option changed."""

import pytest

from fairseq_posenc.testing.contract import CONTRACT
from tests.contract.cases import all_cases, defaults, marked

#: specs for which the check of gradients is skipped. The message of pytest.skip states the reason
STRAIGHT = {"fire:hidden=10"}
#: a case whose option has no effect, because a decoder always attends to the left. The project accepts this option without an
#: error
SAID_TWICE = {"disan:directions=forward@decoder"}
#: specs whose option does not change the output of short sentences. With trained=3, scaling=llama3 divides all frequencies, as
#: scaling=linear does. A window with the default width of 32 hides no key in a sentence of 12 words
EQUAL_NUMBERS = {"rope_scaled:trained=3,scaling=llama3", "rope_scaled:scaling=llama3,trained=3", "window:heads=0-1"}
#: specs whose option changes only the accuracy and the cost
EXACTNESS = {"floater:adjoint=true", "floater:substeps=3"}


def changes_numbers(case) -> bool:
    return case.spec != case.name and str(case) not in SAID_TWICE and case.spec not in EXACTNESS | EQUAL_NUMBERS


@pytest.mark.parametrize(
    "check, case",
    [
        pytest.param(check, *case.values, id=f"{check.name}-{case.id}", marks=case.marks)
        for check in CONTRACT
        for case in marked([case for case in (all_cases() if check.variants else defaults()) if check.applies(case)])
        if check.name != "options" or changes_numbers(*case.values)
    ],
)
def test_contract(check, case):
    if check.name == "gradients" and case.spec in STRAIGHT:
        pytest.skip("no unit of the network bends within a short sentence, and what all keys have in common has no gradient")
    check.run(case)
