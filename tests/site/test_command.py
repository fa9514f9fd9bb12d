"""posenc site: its messages about wrong input. A broken reference is an error."""

import shutil
from pathlib import Path

import pytest

from fairseq_posenc.cli import main
from fairseq_posenc.site import build, pages

ROOT = Path(__file__).parents[2]


def refusal(capsys, *arguments):
    assert main(["site", *map(str, arguments)]) == 2
    out, error = capsys.readouterr()
    lines = [line for line in error.splitlines() if not line.startswith("[")]  # without the progress line
    assert out == "" and len(lines) == 1
    return lines[0]


def test_a_folder_of_something_else_is_left_alone(capsys, tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    assert "the folder contains other files than a site" in refusal(capsys, tmp_path)
    assert "is a file" in refusal(capsys, tmp_path / "thesis.tex")


def test_a_folder_that_is_no_checkout(capsys, tmp_path):
    assert "README.md is missing. Expected a checkout" in refusal(capsys, tmp_path / "out", "--root", tmp_path)


def test_a_machine_without_sphinx(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'fairseq_posenc[site]'" in refusal(capsys, tmp_path / "out")


@pytest.mark.slow
def test_a_broken_reference_is_an_error(capsys, tmp_path, monkeypatch):
    root = tmp_path / "checkout"
    for name in ("docs", "recipes", "results", "data-bin"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("*.json", "__pycache__"))
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "CITATION.cff"):
        shutil.copy(ROOT / name, root / name)
    with (root / "docs" / "howto/decode_longer_sentences.md").open("a") as file:
        file.write("\n[nowhere](no_such_page.md)\n")
    monkeypatch.setattr(build.registry, "names", lambda: ["none", "shaw"])
    found = refusal(capsys, tmp_path / "out", "--root", root)
    assert "broken references" in found and "decode_longer_sentences.md" in found and "no_such_page" in found


def test_the_choice_holds_every_method_with_its_facts():
    page = pages.choose(pages.Costs(ROOT))
    assert page.count("<tr data-") == len(pages.registry.names())
    assert 'data-site="encoder decoder cross" data-reference="relative"' in page


def test_text_of_docstrings_is_no_markup():
    assert pages._text("a*b |s-t| `code *x*` [B] $x_{ts}$") == "a\\*b &#124;s-t&#124; `code *x*` \\[B\\] $x_{ts}$"
