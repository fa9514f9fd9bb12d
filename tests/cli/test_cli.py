"""The posenc command in this process: its output, and its messages about wrong input."""

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq.models.transformer import TransformerModel
from fairseq.tasks.translation import TranslationTask

import fairseq_posenc as posenc
from fairseq_posenc.cli import COMMANDS, main
from fairseq_posenc.host.models.pnat.model import PNATModel
from fairseq_posenc.host.models.transformer.model import PositionTransformer
from fairseq_posenc.host.tasks.translation import PositionTranslation
from fairseq_posenc.registry import catalog
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.registry.citations import bibtex
from fairseq_posenc.registry.plain_text import plain

ROOT = Path(__file__).parents[2]


def test_path_is_the_folder_for_user_dir(capsys):
    assert main(["path"]) == 0
    assert Path(capsys.readouterr().out.strip()) == ROOT / "fairseq_posenc"


def table(out: str) -> list[dict]:
    head, *rows = (line.split("\t") for line in out.splitlines())
    return [dict(zip(head, row)) for row in rows]


def test_list_has_every_method_with_its_number_of_parameters(capsys):
    sizes = ["--embed-dim", "256", "--heads", "4", "--layers", "2", "--max-positions", "100"]
    assert main(["list", "--format", "tsv", *sizes]) == 0
    numbers = {row["method"]: row["number"] for row in table(capsys.readouterr().out)}
    assert list(numbers) == posenc.names()
    assert numbers["learned"] == str(102 * 256) and numbers["shaw"] == str(2 * 33 * 64 * 2) and numbers["rope"] == "0"
    # each number is the number of parameters that the methods have in one stack of the architecture posenc_NAME.
    # posenc_dufter_abs uses its method in one layer. For posenc_cope, this stack is the decoder. posenc_window combines window
    # with learned positions
    assert (
        numbers["dufter_abs"] == str(4 * 100 * 100)
        and numbers["cope"] == str(2 * 64 * 64)
        and numbers["window"] == str(102 * 256)
    )


def test_list_fits_a_terminal(capsys):
    main(["list"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_list_shows_the_columns_that_are_asked_for(capsys):
    main(["list", "--format", "tsv", "--columns", "method,parameters"])
    found = {row["method"]: row["parameters"] for row in table(capsys.readouterr().out)}
    assert found["t5"] == "tables buckets" and found["xpos"] == "0"
    main(["list", "--format", "tsv", "--columns", "all"])
    assert set(table(capsys.readouterr().out)[0]) == set(catalog.COLUMNS)


def as_json(capsys, *arguments):
    """Return the parsed JSON output of a command. The command must not print anything else."""
    assert main([*arguments, "--json"]) == 0
    out, error = capsys.readouterr()
    assert error == ""
    return json.loads(out)


def test_list_as_json_has_every_column_of_every_method(capsys):
    found = as_json(capsys, "list")
    assert [row["method"] for row in found] == posenc.names()
    assert all(list(row) == list(catalog.COLUMNS) for row in found)
    shaw, alibi = (next(row for row in found if row["method"] == name) for name in ("shaw", "alibi"))
    assert shaw["number"] == 2 * 33 * 64 * 6 and shaw["learnable"] is True and alibi["learnable"] is False
    assert shaw["sites"] == {"encoder": "authors", "decoder": "authors", "cross": "extended"}
    assert next(row for row in found if row["method"] == "none")["survey"] is None
    none = as_json(capsys, "list", "--columns", "method,number", "--reference", "none")
    assert none == [{"method": name, "number": 0} for name in ("log_length", "none")]
    assert as_json(capsys, "list", "--reference", "none", "--learnable", "yes") == []


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
    for wanted in (card.title, bibtex(card.citations), *(row[3] for row in parsing.option_rows(name))):
        assert wanted in page
    for label, text in catalog.describe(name).sections.items():
        assert " ".join(f"- {label}: {plain(text)}".split()) in " ".join(page.split())


@pytest.mark.parametrize("name", ["shaw", "tpe", "tupe_abs", "rope_scaled"])
def test_show_as_json_says_what_the_page_says(capsys, name):
    (found,) = as_json(capsys, "show", name)
    card, description = posenc.card(name), catalog.describe(name)
    assert (found["method"], found["title"], found["summary"]) == (name, card.title, description.summary)
    assert found["sections"] == dict(description.sections) and found["specs"] == dict(card.specs)
    assert [tuple(option.values()) for option in found["options"]] == parsing.option_rows(name)
    assert list(found["options"][0]) == ["option", "allowed", "default", "meaning"]
    assert found["citations"] == list(card.citations) and found["bibtex"] == bibtex(card.citations)
    assert [side["name"] for side in found["side_inputs"]] == [side.name for side in card.side_inputs]
    assert found["extrapolation"] == card.extrapolation


def test_show_as_json_is_an_array_in_the_order_asked_for(capsys):
    assert [found["method"] for found in as_json(capsys, "show", "t5", "rope")] == ["t5", "rope"]


def test_show_bibtex_has_each_citation_once(capsys):
    main(["show", "--bibtex", "tupe_abs", "tupe_rel", "t5"])
    out = capsys.readouterr().out
    assert out.count("@inproceedings{ke-etal-2021") == 1 and out.count("@") == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "shw"], "Did you mean 'shaw'"),
        (["check", "encoder:rope"], "method 'encoder': unknown. A spec for one site has the form encoder=SPEC. For all methods"),
        (["show", "kerple"], "method 'kerple': this is a group of methods. Expected one of kerple_log, kerple_power."),
        (["list", "--heads", "7"], "not divisible by --heads 7"),
        (["list", "--columns", "method,evidenc"], "Did you mean 'evidence'"),
        (["docs", "nowhere"], "Expected the folder of a checkout of the source code."),
    ],
)
def test_wrong_input_is_one_line(capsys, arguments, says):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out and says in err and len(err.splitlines()) == 1


def test_unknown_command_is_refused(capsys):
    assert main(["lst"]) == 2
    error = capsys.readouterr().err
    assert (
        "'lst'" in error
        and "list" in error
        and error.endswith(" For all options, run posenc --help.\n")
        and error.count("\n") == 1
    )


@pytest.mark.parametrize("given", ["-1", "0", "two", "1_000"])
def test_counts_are_positive_whole_numbers(capsys, given):
    assert main(["list", "--layers", given]) == 2
    error = (
        f"posenc: list: argument --layers: {given!r} is not a positive whole number. For all options, run posenc list --help.\n"
    )
    assert capsys.readouterr().err == error


def parsers(parser) -> list:
    """Return a parser and the parsers of all subcommands."""
    chosen = [action.choices.values() for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [parser, *(found for choices in chosen for command in choices for found in parsers(command))]


def takes_words(action) -> bool:
    """Return whether the type of an option accepts a word. No number type accepts words."""
    try:
        return action.type("word") == "word"
    except (argparse.ArgumentTypeError, ValueError):
        return False


def options_that_take_numbers() -> list:
    """Return every option, of every command, that takes a number according to its type or its default."""
    found = []
    for name, (module, _) in COMMANDS.items():
        command = argparse.ArgumentParser(prog=f"posenc {name}")
        importlib.import_module(f"fairseq_posenc.{module}").configure(command)
        for parser in parsers(command):
            for action in parser._actions:
                typed = action.type not in (None, str, Path) and not takes_words(action)
                if action.nargs != 0 and (typed or isinstance(action.default, (int, float))):
                    found.append(pytest.param(action, id=f"{parser.prog} {'/'.join(action.option_strings) or action.dest}"))
    return found


def options_of_fairseq_train() -> list:
    """Return the numeric options that this plugin's models and task add to fairseq-train."""
    pairs = [(PositionTransformer, TransformerModel), (PNATModel, TransformerModel), (PositionTranslation, TranslationTask)]
    found = {}
    for ours, stock in pairs:
        here, there = argparse.ArgumentParser(), argparse.ArgumentParser()
        ours.add_args(here)
        stock.add_args(there)
        for action in here._actions:
            if not set(action.option_strings) & set(there._option_string_actions) and action.type not in (None, str):
                found[action.option_strings[0]] = action
    assert {"--length-noise", "--length-ratio", "--random-structure"} < set(found) and len(found) > 11
    return [pytest.param(action, id=f"fairseq-train {name}") for name, action in found.items()]


@pytest.mark.parametrize("action", [*options_that_take_numbers(), *options_of_fairseq_train()])
def test_numbers_are_written_in_decimal_digits(action):
    """The types int and float of Python also accept 1_6 and digits of other scripts. Therefore, no option uses these types."""
    for text in ("1_6", "\uff11\uff16", "٣", "0_1.5", " 7", "7 ", "+7", ""):
        with pytest.raises((argparse.ArgumentTypeError, ValueError)):
            action.type(text)


def test_architectures_that_are_more_than_a_method_are_named(capsys):
    assert main(["list"]) == 0
    assert "  posenc_pnat\n" in capsys.readouterr().out
    assert main(["list", "--site", "cross"]) == 0
    assert "posenc_pnat" not in capsys.readouterr().out
    for name in ("pnat", "posenc_pnat"):
        assert main(["show", name]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"posenc: {name}: this is an architecture") and error.endswith("--arch posenc_pnat.\n")


def test_a_terminal_that_cannot_show_a_character_is_one_line():
    given = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "fairseq_posenc.cli", "show", "rope"], env=given, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "characters that the encoding ascii lacks. Expected UTF-8. Set PYTHONIOENCODING=utf-8." in done.stderr
