"""`posenc check`: run all checks on one method, and describe each failed check as the problem that a user would observe."""

from __future__ import annotations

import contextlib
import re
import traceback
import unittest.mock
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from .. import registry
from ..attention import site_positions
from ..common.messages import join, shorten
from ..core import PositionError
from ..registry import external
from ..registry.catalog import describe
from ..registry.citations import entries
from ..registry.declarations import name_files, named_files
from ..registry.spec import option_rows
from . import oracle
from .cases import Case, NotApplicable, only_positions, specs
from .contract import CONTRACT

_SECTIONS = ("Equation", "Shapes", "Source", "Deviations", "Cost")
#: number of tasks that a process receives at once
_CHUNK = 4


@dataclass(frozen=True)
class Finding:
    """One failed check: the problem that a user would observe, the case, and the message of the check."""

    goes_wrong: str
    where: str
    seen: str


@dataclass(frozen=True)
class Report:
    """The failed checks, and the number of pairs of a check and a case that were run."""

    findings: tuple[Finding, ...]
    checks: int

    def lines(self) -> list[str]:
        """Return one line per problem, with the cases in which it occurs."""
        grouped: dict[str, list[Finding]] = {}
        for finding in self.findings:
            grouped.setdefault(finding.goes_wrong, []).append(finding)
        same: dict[str, list[str]] = {}  # text of an error -> lines. One mistake can stop many checks with the same error
        for goes_wrong, found in grouped.items():
            line = f"{goes_wrong} (at {join([finding.where for finding in found])}; {shorten(found[0].seen, 160)})"
            same.setdefault(found[0].seen, []).append(line)
        shown = []
        for lines in same.values():
            shown += lines if len(lines) < 3 else [f"{lines[0]}. {len(lines) - 1} other checks end with the same error"]
        return shown


def check_method(name: str, processes: int = 1) -> Report:
    """Run all checks on a method at every site of its card. Most checks also run with changed options."""
    if not __debug__:
        raise PositionError("posenc check: Python runs without assertions. Remove python -O and PYTHONOPTIMIZE.")
    findings = list(_of_declaration(name))
    tasks = [] if findings else _tasks(name)
    if processes > 1 and tasks:
        with ProcessPoolExecutor(processes, initializer=_begin, initargs=(named_files(),)) as pool:
            found = list(pool.map(_run, tasks, chunksize=_CHUNK))
    else:
        found = list(map(_run, tasks))
    findings += [*_of_prose(name), *_of_oracle(name), *filter(None, found)]
    return Report(tuple(findings), len(tasks))


def _begin(files: str | None) -> None:
    """Initialise a worker process."""
    torch.set_num_threads(1)
    name_files(files)


def _tasks(name: str) -> list[tuple[int, Case]]:
    """Return (index of a check, case) for all checks that apply to a case. Cases with default options are first.

    The cases have the specs of `specs`, and the specs of the oracle of a method outside this package.
    """
    cases = [Case(spec, site) for site in registry.card(name).all_sites for spec in specs(name, site)]
    with contextlib.suppress(Exception):  # `_of_oracle` reports an oracle that cannot be run
        tested = [Case(oracle.spec_of(name, options), site) for _, options, site in _oracle_cases(name)]
        cases += [case for case in tested if not only_positions(case.spec, case.site)]
    return [
        (number, case)
        for case in sorted(dict.fromkeys(cases), key=lambda case: case.spec != name)
        for number, check in enumerate(CONTRACT)
        if (check.variants or case.spec == name) and check.applies(case)
    ]


def _run(task: tuple[int, Case]) -> Finding | None:
    check, case = CONTRACT[task[0]], task[1]
    where = " ".join([case.site, *case.spec.split(":")[1:]])
    try:
        # Decoding computes a bias in advance for this number of steps. The number must be smaller than the length of sentences
        # in checks.
        with unittest.mock.patch.object(site_positions, "_WORDS_AHEAD", 4):
            check.run(case)
    except NotApplicable:
        return None
    except Exception as error:
        return Finding(check.goes_wrong, where, _seen(error, case.name))
    return None


def _seen(error: Exception, name: str) -> str:
    """Return the message of a failed check in one line. For an exception in code of the method, add the line number."""
    frames, text = traceback.extract_tb(error.__traceback__), str(error)
    if isinstance(error, AssertionError):
        difference = re.search(r"(?:Greatest|Max) absolute difference(?: among violations)?: (\S+)", text)
        if difference:
            return f"numbers differ by up to {difference[1]}"
        return " ".join(text.split()) or f"this condition is false: {frames[-1].line.removeprefix('assert ')}"
    source = registry.declaration(name).source
    own = [frame for frame in frames if source is not None and frame.filename == str(source.path)]
    at = f", line {own[-1].lineno} of {source.path.name}" if own else ""
    return f"{type(error).__name__}: {' '.join(text.split())}{at}"


# -- checks of the file, the docstring and the oracle --------------------------------------------------------------------


def _of_declaration(name: str) -> Iterator[Finding]:
    """Check that the method can be built.

    Also check that the card and the options are the same in the file and in the imported class.
    """
    declared = registry.declaration(name)
    try:
        cls = declared.load()
    except PositionError as error:
        yield Finding("the file cannot be imported", "the file", str(error))
        return
    for what, read, runs in (
        ("card", declared.card, cls.card),
        ("options", _described(declared.options), _described(cls.Options)),
    ):
        if read != runs:
            yield Finding(
                "posenc list and posenc show print wrong facts",
                "the file",
                f"the {what} differs between the text of the file and the imported class",
            )
    for site in declared.card.all_sites:
        try:
            Case(name, site).method()
        except Exception as error:
            yield Finding("the method cannot be built", site, _seen(error, name))


def _described(options: type) -> list[tuple]:
    return [(field.name, field.default, dict(field.metadata)) for field in fields(options)]


def _of_prose(name: str) -> Iterator[Finding]:
    """Check that the docstring has all sections, and that the citations exist."""
    missing = [section for section in _SECTIONS if section not in describe(name).sections]
    if missing:
        yield Finding("posenc show cannot explain the method", "docstring", f"missing sections: {', '.join(missing)}")
    unknown = [key for key in registry.card(name).citations if key not in entries()]
    if unknown:
        yield Finding(
            "posenc show --bibtex leaves citations out", "card", f"references.bib in the same folder has no {join(unknown)}"
        )


def oracle_file(name: str) -> Path | None:
    """Return the path of the oracle of a method outside this package. For methods of this package, return None.

    The oracles of this package are in tests/oracles.
    """
    source = registry.declaration(name).source
    return None if source is None else source.path.with_name(f"oracle_{source.path.stem}.py")


def _oracle_cases(name: str) -> list[tuple[oracle.Oracle, dict, str]]:
    """Return (oracle, options, site) for the cases of a method outside this package, or [] without an oracle."""
    file = oracle_file(name)
    if file is None or not file.is_file():
        return []
    (source,) = external.of_path(file)
    oracles = [own for own in external.load(source).ORACLES if own.name == name]
    return [(own, options, site) for own in oracles for options, sites in own.cases for site in sites.split()]


def _of_oracle(name: str) -> Iterator[Finding]:
    """Compare a method outside this package with its oracle, which must have cases for all sites and options."""
    file = oracle_file(name)
    if file is None:
        return
    if not file.is_file():
        yield Finding("the equation cannot be tested", "oracle", f"{file.name} is missing in the same folder")
        return
    try:
        cases = _oracle_cases(name)
    except Exception as error:
        yield Finding("the oracle cannot be run", file.name, f"{type(error).__name__}: {error}")
        return
    wanted = {*registry.card(name).all_sites, *(row[0] for row in option_rows(name))} - {"layers"}
    left_out = sorted(wanted - {word for _, options, site in cases for word in (site, *options)})
    if left_out:
        yield Finding("the oracle does not test all sites and options", file.name, f"missing: {join(left_out)}")
    for own, options, site in cases:
        try:
            oracle.compare(own, options, site)
        except Exception as error:
            where = " ".join([site, *oracle.spec_of(name, options).split(":")[1:]])
            yield Finding("the method does not compute its equation", where, _seen(error, name))
