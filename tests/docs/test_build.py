"""The build of docs/: a broken reference is an error. The earlier commands posenc site and posenc docs still work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_posenc.cli import docs, main
from fairseq_posenc.cli import site as command
from posenc_docs import pages

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_broken_reference_is_an_error(built):
    """The build reports the two broken references of one page, and no other error."""
    status, errors = json.loads((built / "build.json").read_text())
    lines = [line for line in errors.splitlines() if line.strip()]
    assert status == 1 and len(lines) == 2, errors
    for problem in ("no_such_page", "unheard"):
        assert any("broken_references.md" in line and "WARNING: " in line and problem in line for line in lines), errors


@pytest.mark.parametrize("arguments", [["site", "out", "--root"], ["docs"]])
def test_an_installed_package_has_no_documentation(capsys, tmp_path, arguments):
    assert main([*arguments, str(tmp_path)]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1
    assert error.startswith(f"posenc: {tmp_path}: docs/conf.py is missing. Expected the folder of a checkout of the source code.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["site", "out"], ["-m", "sphinx", "-W", "--keep-going", str(ROOT / "docs"), "out"]),
        (["docs", str(ROOT)], [str(ROOT / "docs" / "renew.py")]),
    ],
)
def test_the_earlier_commands_call_the_new_ones(capsys, monkeypatch, arguments, words):
    calls = []
    monkeypatch.setattr(docs.subprocess, "run", lambda call: calls.append(call) or subprocess.CompletedProcess(call, 3))
    assert main(arguments) == 3
    assert calls == [[sys.executable, *words]]
    notice = f"posenc {arguments[0]}: replaced by python {' '.join(words)}. The old name works in this version.\n"
    assert capsys.readouterr() == ("", notice)


def test_a_machine_without_sphinx(capsys, monkeypatch):
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    assert main(["site", "out"]) == 2
    assert "pip install 'fairseq_posenc[site]'" in capsys.readouterr().err


def test_the_choice_holds_every_method_with_its_facts():
    page = pages.choose(pages.Costs(ROOT))
    assert page.count("<tr data-") == len(pages.registry.names())
    assert 'data-site="encoder decoder cross" data-reference="relative"' in page


def test_text_of_docstrings_is_no_markup():
    assert pages._text("a*b |s-t| `code *x*` [B] $x_{ts}$") == "a\\*b &#124;s-t&#124; `code *x*` \\[B\\] $x_{ts}$"
