"""The posenc command, in this process: what it prints, and what it says to wrong input."""

import shutil
from pathlib import Path

import pytest

import fairseq_posenc as posenc
from fairseq_posenc import catalog, registry
from fairseq_posenc.cli import main

ROOT = Path(__file__).parents[2]


def test_path_is_the_folder_for_user_dir(capsys):
    assert main(["path"]) == 0
    assert Path(capsys.readouterr().out.strip()) == ROOT / "fairseq_posenc"


def test_list_has_every_method_with_its_number_of_parameters(capsys):
    assert main(["list", "--format", "tsv", "--embed-dim", "256", "--heads", "4", "--layers", "2", "--max-positions", "100"]) == 0
    head, *rows = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    head = [cell.strip() for cell in head]
    numbers = {row[0].strip(): row[head.index("number")].strip() for row in rows}
    assert list(numbers) == posenc.names()
    assert numbers["learned"] == f"{102 * 256:,}" and numbers["shaw"] == f"{2 * 33 * 64 * 2:,}" and numbers["rope"] == "0"


@pytest.mark.parametrize(
    ("filters", "agrees"),
    [
        (["--site", "cross"], lambda card: "cross" in card.all_sites),
        (["--reference", "absolute"], lambda card: card.reference == "absolute"),
        (["--learnable", "no", "--recurring", "yes"], lambda card: not card.learnable and card.recurring),
        (["--unbound", "no"], lambda card: not card.unbound),
        (["--injection", "MAM"], lambda card: card.injection == "MAM"),
    ],
)
def test_list_filters(capsys, filters, agrees):
    main(["list", "--format", "tsv", *filters])
    found = [line.split("\t")[0].strip() for line in capsys.readouterr().out.splitlines()[1:]]
    assert found == [name for name in posenc.names() if agrees(posenc.card(name))] and found


@pytest.mark.parametrize("name", posenc.names())
def test_show_says_everything(capsys, name):
    assert main(["show", name]) == 0
    page, card = capsys.readouterr().out, posenc.card(name)
    for wanted in (card.title, card.citation, *card.deviations, *(row[3] for row in registry.option_rows(name))):
        assert wanted in page
    for label in ("Equation:", "Shapes:", "Source:", "Cost:"):
        assert f"- {label}" in page, f"the docstring of {name} lacks {label}"
    assert "Deviations:" in (registry.method_class(name).__doc__ or "")


def test_show_bibtex_has_each_citation_once(capsys):
    main(["show", "--bibtex", "tupe_abs", "tupe_rel", "t5"])
    out = capsys.readouterr().out
    assert out.count("@inproceedings{ke-etal-2021") == 1 and out.count("@") == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "shw"], "did you mean 'shaw'"),
        (["list", "--heads", "7"], "must be divisible"),
    ],
)
def test_wrong_input_is_one_line(capsys, arguments, says):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out and says in err and len(err.splitlines()) == 1


def test_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["lst"])
    assert stopped.value.code == 2 and "list" in capsys.readouterr().err


def test_docs_are_those_of_the_code(tmp_path):
    """Renew with: posenc docs ."""
    shutil.copy(ROOT / "README.md", tmp_path)
    (tmp_path / "docs").mkdir()
    catalog.write_docs(tmp_path / "README.md", tmp_path / "docs" / "methods.md")
    for file in ("README.md", "docs/methods.md"):
        assert (tmp_path / file).read_text(encoding="utf-8") == (ROOT / file).read_text(encoding="utf-8"), file
