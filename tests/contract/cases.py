"""Functions for the tests of the contract. `marked` passes the cases of the contract to a test.

`registered` registers method classes that are defined in these tests.

A case is a spec at a site.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest

from fairseq_posenc.registry.declarations import Declaration, declarations
from fairseq_posenc.testing.cases import SMALL, Case, all_cases, builds, defaults, specs, standalone

__all__ = ["SMALL", "Case", "all_cases", "builds", "defaults", "marked", "registered", "specs", "standalone"]


def marked(cases: list[Case]) -> list:
    """Return the cases as parameters of a test.

    The quick tier runs one case per method: the first case in `cases` with default options. If no case of a method has default
    options, the quick tier runs the first case of this method.
    """
    first = {}
    for case in sorted(cases, key=lambda case: case.spec != case.name):
        first.setdefault(case.name, case)
    return [pytest.param(case, id=str(case), marks=[] if case is first[case.name] else [pytest.mark.variant]) for case in cases]


@dataclasses.dataclass(frozen=True)
class _Registered(Declaration):
    """The declaration of a method class that a test defines. `load` returns this class."""

    cls: type = None

    def load(self) -> type:
        return self.cls


@contextlib.contextmanager
def registered(*classes: type) -> Iterator[None]:
    """Return a context in which the registry contains these classes, as if their source files were in methods/."""
    table = declarations()
    names = [cls.card.name for cls in classes]
    assert not set(names) & set(table), names
    table.update(
        {cls.card.name: _Registered(cls.card, cls.Options, cls.__doc__ or "", "tests", "", "", None, cls) for cls in classes}
    )
    try:
        yield
    finally:
        for name in names:
            del table[name]
