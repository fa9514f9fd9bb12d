"""posenc check with the methods of broken.py.

Every broken method is found and described for users. A correct method has no findings.
"""

import concurrent.futures
import functools
import multiprocessing
from multiprocessing import forkserver

import pytest

from fairseq_posenc import registry
from fairseq_posenc.cli import main
from fairseq_posenc.core import PositionMethod
from fairseq_posenc.registry.declarations import declarations
from fairseq_posenc.testing import runner
from fairseq_posenc.testing.models import fixed
from tests.contract import broken
from tests.contract.cases import registered

SOUND = {"sound", "own_kernel", "running_sum", "says_that_it_reads_content"}
METHODS = {cls.card.name: cls for cls in vars(broken).values() if isinstance(cls, type) and issubclass(cls, PositionMethod)
           and cls.__module__ == broken.__name__}  # fmt: skip


@pytest.fixture(autouse=True)
def fresh():
    """Clear the cache of models after each test, because another class can have the same name."""
    yield
    fixed.cache_clear()


def findings(name):
    yield from runner._of_declaration(name)
    yield from filter(None, map(runner._run, runner._tasks(name)))


@pytest.mark.parametrize("name", sorted(set(METHODS) - SOUND))
def test_every_broken_method_is_found(name):
    with registered(METHODS[name]):
        found = next(findings(name), None)
    assert found is not None and found.goes_wrong and found.seen.strip() and "\n" not in found.seen


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SOUND))
def test_nothing_is_found_in_a_sound_one(name):
    with registered(METHODS[name]):
        assert [found for found in findings(name) if (name, found.goes_wrong) not in ALLOWED] == []


#: pairs (correct method, problem) that the checks may report. The set is empty: the checks must not report any problem
ALLOWED = set()


@pytest.fixture
def file(tmp_path, monkeypatch, capsys):
    """Write a method file with posenc new. Return its path. The process forgets the method after the test."""
    monkeypatch.setenv("POSENC_METHODS", "")
    assert main(["new", "slope", "--folder", str(tmp_path)]) == 0
    capsys.readouterr()
    yield tmp_path / "slope.py"
    monkeypatch.undo()
    declarations.cache_clear()


def check(capsys, file, change=lambda text: text, oracle=lambda text: text):
    for path, how in ((file, change), (file.with_name(f"oracle_{file.name}"), oracle)):
        path.write_text(how(path.read_text(encoding="utf-8")), encoding="utf-8")
    code = main(["check", str(file)])
    return code, capsys.readouterr().out.splitlines()


def test_what_new_writes_passes(capsys, file):
    assert check(capsys, file) == (0, [])


@pytest.fixture
def fork_server(monkeypatch):
    """Start processes with a fork server, as Python 3.14 does.

    The server keeps the environment variables that were set when the server started.
    """
    forkserver.ensure_running()
    server = functools.partial(concurrent.futures.ProcessPoolExecutor, mp_context=multiprocessing.get_context("forkserver"))
    monkeypatch.setattr(runner, "ProcessPoolExecutor", server)


@pytest.mark.slow
def test_each_finding_is_one_line_that_says_what_goes_wrong(capsys, fork_server, file):
    code, lines = check(capsys, file, lambda text: text.replace("(ctx.keys.ids.unsqueeze(-2)", "(2 + ctx.keys.ids.unsqueeze(-2)"))
    assert code == 1 and all(line.startswith("slope: ") for line in lines)
    assert any("the method does not compute its equation (at encoder, decoder" in line for line in lines)
    assert any("the card claims a wrong value of directional (at encoder; " in line for line in lines)


@pytest.mark.parametrize(
    "change, oracle, says",
    [
        (lambda text: text.replace("    Cost: h parameters per stack.\n", ""), str, "posenc show cannot explain the method"),
        (lambda text: text.replace("citations=()", 'citations=("me",)'), str, "references.bib in the same folder has no me"),
        (str, lambda text: text.replace("abs(s - t)", "(s - t)"), "the method does not compute its equation"),
        (str, lambda text: text.replace(', ({"start": 2.0}, "encoder")', ""), "missing: start"),
        (str, lambda text: text.replace("ORACLES", "ORACLE"), "the oracle cannot be run (at oracle_slope.py; AttributeError"),
        (
            lambda text: text.replace("torch.full((", "torch.ful(("),
            str,
            "the method cannot be built (at encoder, decoder;",
        ),
    ],
    ids=["docstring", "citation", "oracle", "case", "no oracles", "building"],
)
def test_what_is_beside_the_contract_is_found_too(capsys, monkeypatch, file, change, oracle, says):
    monkeypatch.setattr(runner, "_tasks", lambda name: [])
    code, lines = check(capsys, file, change, oracle)
    assert code == 1 and any(says in line for line in lines), lines


def test_a_missing_oracle_is_found(capsys, monkeypatch, file):
    monkeypatch.setattr(runner, "_tasks", lambda name: [])
    file.with_name("oracle_slope.py").unlink()
    assert main(["check", str(file)]) == 1
    assert "oracle_slope.py is missing in the same folder" in capsys.readouterr().out


def test_methods_of_this_package_are_checked_by_name(capsys, monkeypatch):
    monkeypatch.setattr(runner, "_tasks", lambda name: [])
    assert main(["check", "--contract", "t5", "shaw"]) == 0
    assert capsys.readouterr().err.count("nothing found by 0 checks") == 2
    assert main(["check", "--contract", "shw"]) == 2
    assert "Did you mean 'shaw'" in capsys.readouterr().err


def test_a_plan_of_checks_has_every_site_and_option():
    planned = {str(case) for _, case in runner._tasks("rope")}
    assert {f"rope@{site}" for site in registry.card("rope").all_sites} < planned
    assert any("rope:" in text for text in planned)


@pytest.mark.parametrize("oracle, specs", [("", {"slope", "slope:start=2.0"}), ("del ORACLES", {"slope"})])
def test_a_plan_of_checks_has_the_cases_of_the_oracle(file, monkeypatch, oracle, specs):
    """`start` is a number with a fraction. Without the oracle, the checks would use only its default value."""
    path = file.with_name("oracle_slope.py")
    path.write_text(f"{path.read_text()}\n{oracle}\n")
    monkeypatch.setenv("POSENC_METHODS", str(file))
    declarations.cache_clear()
    assert {case.spec for _, case in runner._tasks("slope")} == specs


def test_an_error_of_many_checks_is_one_line():
    found = [
        runner.Finding(goes_wrong, "encoder", seen)
        for goes_wrong, seen in zip("abcd", ("KeyError: 1", "other", *["KeyError: 1"] * 2))
    ]
    assert runner.Report(tuple(found), 4).lines() == [
        "a (at encoder; KeyError: 1). 2 other checks end with the same error", "b (at encoder; other)",
    ]  # fmt: skip
