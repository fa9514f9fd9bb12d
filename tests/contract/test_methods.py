"""Run the checks that every method must pass, at every site of its card and with every option changed."""

import functools
import traceback

import pytest

from fairseq_posenc.testing.contract import CONTRACT
from tests.conftest import SKIPPED
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


@functools.cache
def checks_of_cases() -> list[tuple]:
    """Return (check, parameter of the case) for every check and every case to which it applies."""
    return [
        (check, case)
        for check in CONTRACT
        for case in marked([case for case in (all_cases() if check.variants else defaults()) if check.applies(case)])
        if check.name != "options" or changes_numbers(*case.values)
    ]


def is_skipped(check, case) -> bool:
    return f"tests/contract/test_methods.py::test_contract[{check.name}-{case.id}]" in SKIPPED


def grouped() -> list:
    """Return one parameter per case: the case, and all its checks that are not skipped.

    A test of one check takes a few milliseconds, and pytest needs as long again for each test.
    """
    found: dict[str, tuple] = {}
    for check, case in checks_of_cases():
        if not is_skipped(check, case):
            marks = [pytest.mark.variant] if case.marks else []
            found.setdefault(f"{case.id}{' variant' if marks else ''}", (case, [], marks))[1].append(check)
    return [pytest.param(*case.values, checks, id=name, marks=marks) for name, (case, checks, marks) in found.items()]


@pytest.mark.parametrize("case, checks", grouped())
def test_all_checks(case, checks):
    failed = {}
    for check in checks:
        try:
            check.run(case)
        except Exception:
            failed[check.name] = traceback.format_exc()
    assert not failed, "\n".join(f"{name}: {check}" for name, check in failed.items())


@pytest.mark.parametrize(
    "check, case",
    [
        pytest.param(check, *case.values, id=f"{check.name}-{case.id}", marks=case.marks)
        for check, case in checks_of_cases()
        if is_skipped(check, case)
    ],
)
def test_contract(check, case):
    """Run the checks that do not apply. Each check states the reason when it skips the test (see tests/skipped.txt)."""
    if check.name == "gradients" and case.spec in STRAIGHT:
        pytest.skip("no unit of the network bends within a short sentence, and what all keys have in common has no gradient")
    check.run(case)
