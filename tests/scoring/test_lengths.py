"""Output lengths in score.json, and the tables and plots of `posenc lengths`."""

import csv
import io
import json
import re
import shutil

import pytest

from fairseq_posenc.cli import main
from fairseq_posenc.core import PositionError
from fairseq_posenc.evaluation.scoring import lengths
from fairseq_posenc.evaluation.scoring.lengths import Lengths
from fairseq_posenc.evaluation.scoring.score import score_part
from tests.report.runs import run as made_up

HEADER = "2026 | INFO | fairseq_posenc.host.generation.lengths | output lengths: reference, ratio 0.8, unit {}, end free"
#: two batches, whose sentences are ordered by length
OUTPUT = """{}
2026 | INFO | fairseq_posenc.host.generation.lengths | asked: 2:4 0:3
S-2\tx
H-2\t-0.5\t▁ab c
D-2\t-0.5\tabc
P-2\t-0.1 -0.1 -0.1
D-2\t-0.9\tab
P-2\t-0.1
P-0\t-0.1 -0.1 -0.1 -0.1
2026 | INFO | fairseq_posenc.host.generation.lengths | asked: 1:7
P-1\t-0.1 -0.1 -0.1 -0.1 -0.1 -0.1
"""
HYPOTHESES = ["one two", "", "abc"]


def test_asked_and_given_tokens():
    found = lengths.parse(OUTPUT.format(HEADER.format("token")), HYPOTHESES, "test.out")
    assert found["asked"] == {"source": "reference", "ratio": 0.8, "unit": "token", "end": "free"}
    assert Lengths.unpack(found["lengths"]) == Lengths([3, 7, 4], [3, 5, 2])


def test_given_characters():
    """The length in characters counts one space for every word."""
    found = lengths.parse(OUTPUT.format(HEADER.format("char")), HYPOTHESES, "test.out")
    assert Lengths.unpack(found["lengths"]).got == [8, 0, 4]


def test_score_json_says_what_was_asked(tmp_path):
    (tmp_path / "test.out").write_text(OUTPUT.format(HEADER.format("token")) + "D-0\t-0.5\tx\nD-1\t-0.5\ty\n")
    (tmp_path / "test.de").write_text("x\ny\nz\n")
    scores, _ = score_part(tmp_path / "test.out", tmp_path / "test.de")
    assert scores["asked"]["ratio"] == 0.8 and Lengths.unpack(scores["lengths"]).got == [3, 5, 2]


def test_nothing_was_asked_for():
    assert lengths.parse("S-0\tx\nP-0\t-0.1 -0.1\n", ["x"], "test.out") == {}


def test_a_sentence_without_an_asked_length():
    with pytest.raises(PositionError, match=r"test\.out: requested lengths for 3 of 4 sentences"):
        lengths.parse(OUTPUT.format(HEADER.format("token")), [*HYPOTHESES, "more"], "test.out")


def test_a_sentence_without_scores_of_tokens():
    text = OUTPUT.format(HEADER.format("token")).replace("P-1", "X-1")
    with pytest.raises(PositionError, match=r"test\.out: scores of tokens \(P- lines\) for 2 of 3 sentences\. Expected one line"):
        lengths.parse(text, HYPOTHESES, "test.out")


def test_a_ratio_that_is_no_number_is_not_read():
    assert lengths.parse(OUTPUT.format(HEADER.format("token").replace("0.8", "abc")), HYPOTHESES, "test.out") == {}


def test_metrics_by_hand():
    found = Lengths(asked=[10, 20, 40, 5], got=[10, 21, 38, 10]).metrics()
    assert found["variance"] == (0 + 1 + 4 + 25) / 4
    assert found["mean_absolute_difference"] == (0 + 1 + 2 + 5) / 4
    assert [found[f"within_{n}"] for n in (0, 1, 2, 5)] == [0.25, 0.5, 0.75, 1.0]
    assert found["within_5_percent"] == 0.75  # differences of 0 at length 10, 1 at 20, and 2 at 40
    assert (found["mean_asked"], found["mean_got"]) == (18.75, 19.75)


@pytest.mark.parametrize("text", ["", "AAAA", "eJyLNtQx0jHWMdUx0gEADQcCVQ=="])
def test_damaged_lengths(text):
    with pytest.raises(ValueError):
        Lengths.unpack(text)


# --- posenc lengths ---


def record(spec, shift, **fields):
    """Return a run with outputs for two length ratios. Each output is `shift` tokens longer than requested."""
    found = made_up(spec, **fields)
    plain = found["parts"].pop("test")
    for ratio in (0.8, 1.0):
        asked = [int(ratio * n) for n in range(10, 130)]
        packed = Lengths(asked, [n + shift for n in asked]).pack()
        source = {"source": "reference", "ratio": ratio, "unit": "token", "end": "free"}
        found["parts"][f"reference_{ratio}"] = {**plain, "asked": source, "lengths": packed}
    return found


@pytest.fixture
def runs(tmp_path):
    def write(*records):
        for number, found in enumerate(records):
            folder = tmp_path / "runs" / str(number)
            folder.mkdir(parents=True)
            (folder / "score.json").write_text(json.dumps(found))
        return tmp_path / "runs"

    return write


def test_tables_on_the_screen(runs, capsys):
    settings = {"lr": [0.003], "cpu": True}
    noisy = record("lrpe", 1, settings={**settings, "length_noise": 4})
    assert main(["lengths", str(runs(record("ldpe", 0), record("sinusoidal", 3), noisy))]) == 0
    shown = capsys.readouterr().out
    first = shown.split("##")[1]
    assert "Mean absolute difference between produced and requested length, in tokens" in first
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in first.splitlines() if line.startswith("|")]
    assert cells[0] == ["decoder", "0.8 reference", "reference"]
    assert cells[2:] == [["ldpe", "0.00", "0.00"], ["sinusoidal", "3.00", "3.00"], ["lrpe, noise 4", "1.00", "1.00"]]


def test_a_run_in_two_folders_counts_once(runs, tmp_path, capsys):
    folder = runs(record("ldpe", 0))
    shutil.copytree(folder, tmp_path / "copy")
    assert main(["report", str(folder), str(tmp_path / "copy"), "--view", "lengths"]) == 0
    assert capsys.readouterr().out.split("##")[1].count("ldpe") == 1


def test_rows_that_differ_in_a_setting_or_in_the_test_set(runs, capsys):
    settings = [{"lr": [rate], "cpu": True} for rate in (0.1, 0.2)]
    both = [record("ldpe", shift, settings=found, row=["lr"]) for shift, found in enumerate(settings)]
    assert main(["report", str(runs(*both)), "--view", "lengths"]) == 0
    shown = capsys.readouterr().out
    assert "ldpe (lr=0.1)" in shown and "ldpe (lr=0.2)" in shown


def test_two_test_sets_with_the_same_requested_lengths(runs, capsys):
    found = record("ldpe", 0)
    other = record("ldpe", 5)["parts"]
    found["parts"] |= {f"web_{name}": scores for name, scores in other.items()}
    assert main(["report", str(runs(found)), "--view", "lengths"]) == 0
    first = capsys.readouterr().out.split("##")[1]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in first.splitlines() if line.startswith("|")][2:]
    names = [name for name, *_ in rows]
    assert names == ["ldpe, reference_0.8", "ldpe, reference_1.0", "ldpe, web_reference_0.8", "ldpe, web_reference_1.0"]
    assert [cells for _, *cells in rows] == [["0.00", ""], ["", "0.00"], ["5.00", ""], ["", "5.00"]]


def test_every_test_set_has_its_own_table_by_source_length(runs, capsys):
    """The second test set has longer sentences than the first."""
    found = record("ldpe", 0)
    long = record("ldpe", 5, references=[" ".join(["word"] * (20 + n % 30)) for n in range(120)])["parts"]
    found["parts"] |= {f"web_{name}": scores for name, scores in long.items()}
    assert main(["report", str(runs(found)), "--view", "lengths"]) == 0
    tables = [text for text in capsys.readouterr().out.split("##") if "by source length" in text]
    assert [text.splitlines()[0].split(", ")[1] for text in tables] == ["reference_1.0", "web_reference_1.0"]
    for text, difference in zip(tables, ("0.00", "5.00")):
        head, _, row = [line.split("|")[2:-1] for line in text.splitlines() if line.startswith("|")]
        assert sum(int(re.search(r"n = (\d+)", cell)[1]) for cell in head) == 120
        assert {cell.strip() for cell in row} == {difference}
    assert "20-29 words" in tables[1] and "1-9 words" not in tables[1]


def test_runs_of_other_data_or_settings_are_refused(runs, capsys):
    """The value of --length-noise and the requested lengths may differ. Other conditions must be equal, as in other reports."""
    noisy = record("lrpe", 1, settings={"lr": [0.003], "cpu": True, "length_noise": 4})
    other = record("sinusoidal", 3, data="other", settings={"lr": [0.1], "cpu": True})
    assert main(["report", str(runs(record("ldpe", 0), noisy, other)), "--view", "lengths"]) == 2
    out, error = capsys.readouterr()
    assert not out and error.count("\n") == 1
    assert "ldpe and sinusoidal differ in data (9f3c and other), settings.lr ([0.003] and [0.1]). Expected" in error


def test_a_row_of_a_run_that_did_not_end_is_named(runs, capsys):
    settings = {"lr": [0.003], "cpu": True, "patience": 10}
    both = [record("ldpe", 0, settings=settings, ended=False), record("lrpe", 1, settings=settings, ended=True)]
    assert main(["report", str(runs(*both)), "--view", "lengths"]) == 0
    first = capsys.readouterr().out.split("##")[1]
    rows = [line.split("|")[1].strip() for line in first.splitlines() if line.startswith("|")][2:]
    assert rows == ["ldpe (training did not end)", "lrpe"]


def test_runs_without_requested_lengths_may_have_other_settings(runs):
    assert main(["report", str(runs(record("ldpe", 0), made_up("t5", data="other"))), "--view", "lengths"]) == 0


def test_other_test_sets_with_the_same_requested_lengths_are_other_rows(runs, capsys):
    """Two runs can have test sets with different references. The names of their rows then contain the test set."""
    web = record("sinusoidal", 3)
    web["parts"] = {f"web_{name}": {**scores, "reference": "xyz"} for name, scores in web["parts"].items()}
    assert main(["report", str(runs(record("ldpe", 0), web)), "--view", "lengths"]) == 0
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.split("##")[1].splitlines() if line.startswith("|")]
    assert rows[2:] == [f"{name}_{ratio}" for name in ("ldpe, reference", "sinusoidal, web_reference") for ratio in (0.8, 1.0)]


def test_runs_of_one_name_are_not_mixed(runs, capsys):
    assert main(["report", str(runs(record("ldpe", 0), record("ldpe", 1))), "--view", "lengths"]) == 2
    assert "ldpe, reference_0.8: several runs with the same name" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--json"], ["--decimals", "3"], ["--baseline", "t5"]])
def test_options_of_other_tables_are_refused(runs, capsys, option):
    assert main(["report", str(runs(record("ldpe", 0))), "--view", "lengths", *option]) == 2
    assert f"{option[0]}: no effect with --view lengths" in capsys.readouterr().err


def test_files(runs, tmp_path):
    folder = runs(record("ldpe", 0), record("sinusoidal", 3))
    assert main(["lengths", str(folder / "0"), str(folder / "1"), "--output", str(tmp_path / "report")]) == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report/lengths.csv").read_text())))
    whole = [row for row in rows if row["source_words"] == "all"]
    assert [(row["decoder"], row["ratio"], float(row["variance"])) for row in whole] == [
        ("ldpe", "0.8", 0.0), ("ldpe", "1.0", 0.0), ("sinusoidal", "0.8", 9.0), ("sinusoidal", "1.0", 9.0)
    ]  # fmt: skip
    assert sum(int(row["sentences"]) for row in rows) == 2 * sum(int(row["sentences"]) for row in whole)
    assert "lengths.png" in (tmp_path / "report/lengths.md").read_text()
    assert (tmp_path / "report/lengths.svg").read_text().startswith("<?xml")


def test_runs_that_were_asked_for_nothing(runs, capsys):
    assert main(["lengths", str(runs(made_up("t5")))]) == 2
    assert "no output lengths were requested in these runs" in capsys.readouterr().err


def test_no_runs(tmp_path, capsys):
    assert main(["lengths", str(tmp_path)]) == 2
    assert "no score.json in this folder" in capsys.readouterr().err


def test_units_that_differ(runs, capsys):
    other = record("lrpe", 1)
    for part in other["parts"].values():
        part["asked"]["unit"] = "char"
    assert main(["lengths", str(runs(record("ldpe", 0), other))]) == 2
    assert "different units (char and token)" in capsys.readouterr().err
