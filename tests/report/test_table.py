"""posenc report: from score.json files to one table, or to an error."""

import csv
import json
from copy import deepcopy

import pytest

from fairseq_posenc.cli import main
from fairseq_posenc.evaluation.report.formats import markdown, show
from fairseq_posenc.evaluation.report.tables import Table


def record(spec, seed=1, bleu=40.0, parts=("test", "test_long"), **fields):
    scores = {
        "sentences": 300,
        "bleu": bleu,
        "bleu_signature": "nrefs:1|tok:13a",
        "chrf": 60.0,
        "chrf_signature": "nc:6",
        "reference": "abc",
        "decoding": {"beam": 4},
    }
    return {
        "arch": f"posenc_{spec}_tiny",
        "method": {"encoder": spec, "decoder": spec, "cross": "none"},
        "signature": {"encoder": f"{spec}:layers=none"},
        "seed": seed,
        "updates": 800,
        "settings": {"lr": [0.003], "dropout": 0.0},
        "data": "9f3c",
        "versions": {"posenc": "0.1.0", "torch": "2.13.0"},
        "parameters": 968704,
        "tokens_per_second": 12345,
        "parts": {part: deepcopy(scores) for part in parts},
        **fields,
    }


@pytest.fixture
def report(tmp_path, capsys):
    """Return a function that writes each record into the score.json file of a run, and then calls posenc report.

    The function returns (status, printed lines, error).
    """

    def make(*records, methods=()):
        for number, entry in enumerate(records):
            folder = tmp_path / "runs" / str(number)
            folder.mkdir(parents=True)
            (folder / "score.json").write_text(json.dumps(entry))
        given = ["--methods", *methods, "--order", "given"] if methods else []
        status = main(["report", str(tmp_path / "runs"), *given])
        out, error = capsys.readouterr()
        return status, out.splitlines(), error

    return make


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_one_row_a_method_in_the_order_asked_for(report):
    status, lines, error = report(record("t5", bleu=71.26), record("none", bleu=10.8), methods=["none", "t5", "rope"])
    assert status == 0 and not error
    assert cells(lines[0]) == ["method", "test BLEU", "test chrF", "test_long BLEU", "test_long chrF"]
    assert cells(lines[2]) == ["none", "10.8", "**60.0**", "10.8", "**60.0**"]
    assert cells(lines[3])[:2] == ["t5", "**71.3**"]
    assert cells(lines[4]) == ["rope"] + ["not run"] * 4


def test_signatures_data_and_versions_stand_below(report):
    _, lines, _ = report(record("t5"), record("none"))
    below = [line for line in lines if line.startswith("* ")]
    assert (
        "data 9f3c" in below[0] and "test 300 sentences" in below[0] and "800 updates" in below[0] and "torch 2.13.0" in below[0]
    )
    assert below[1:] == ["* BLEU nrefs:1|tok:13a", "* chrF nc:6", "* bold: the best"]


def test_a_missing_part_is_not_scored(report):
    status, lines, _ = report(record("none"), record("t5", parts=["test"]))
    assert status == 0
    assert cells(lines[3]) == ["t5", "**40.0**", "**60.0**", "not scored", "not scored"]  # equal to the best
    assert cells(lines[2])[1:3] == ["**40.0**", "**60.0**"]


def test_several_seeds_are_one_row_with_mean_and_interval(report):
    runs = [record("t5", seed, bleu) for seed, bleu in ((2, 41), (1, 40), (3, 42))]
    status, lines, _ = report(*runs, methods=["t5", "rope"])
    assert status == 0
    assert [cells(line)[:3] for line in lines[2:4]] == [["t5", "3", "41.0 [38.5, 43.5]"], ["rope", "not run", "not run"]]
    assert any("mean over seeds (1, 2, 3 in the table) [95 % interval of the mean" in line for line in lines)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ({"encoder": "disan", "decoder": "none", "cross": "none"}, "encoder disan"),
        ({"encoder": "none", "decoder": "none", "cross": "none"}, "none"),
        ({"encoder": "t5", "decoder": "rope", "cross": "none"}, "encoder t5, decoder rope"),
        ({"encoder": "t5", "decoder": "t5", "cross": "alibi"}, "encoder t5, decoder t5, cross alibi"),
        ({}, "posenc_t5_tiny"),
    ],
)
def test_the_name_of_a_row_is_its_specs(report, method, name):
    _, lines, _ = report(record("t5", method=method))
    assert cells(lines[2])[0] == name


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"updates": 900}, "updates (800 and 900)"),
        ({"data": "77aa"}, "data (9f3c and 77aa)"),
        ({"settings": {"lr": [0.1], "dropout": 0.0}}, "settings.lr ([0.003] and [0.1])"),
        ({"settings": {"lr": [0.003], "dropout": 0.0, "clip_norm": 1}}, "settings.clip_norm (None and 1)"),
        ({"versions": {"posenc": "0.2.0", "torch": "2.13.0"}}, "versions.posenc (0.1.0 and 0.2.0)"),
    ],
)
def test_rows_that_differ_in_more_than_method_and_seed_are_refused(report, change, named):
    status, lines, error = report(record("none"), record("t5", seed=5, **change))
    assert status == 2 and not lines
    assert error == (
        f"posenc: none and t5 differ in {named}. Expected differences only in method and seed. "
        f"Compare such runs separately{', or name the setting with posenc score --row' if 'settings' in change else ''}.\n"
    )


def best(spec, updates, seed=1, **fields):
    return record(spec, seed, updates=updates, best_checkpoint=True, **{"ended": True, **fields})


def test_best_checkpoints_may_have_other_numbers_of_updates(posenc, write):
    folder = write(best("none", 700), best("t5", 800), best("rope", 100, ended=False))
    status, printed, _ = posenc("report", folder)
    assert status == 0 and "; best checkpoints, of 700 to 800 updates; " in printed
    assert "* training runs that did not end are left out: rope with seed 1 (100 updates)\n" in printed


def test_best_and_last_checkpoints_are_not_compared(report):
    status, _, error = report(best("none", 800), record("t5"))
    assert status == 2 and "none and t5 differ in updates (of the best checkpoint and 800)." in error


def test_seeds_with_different_random_structure_are_one_row(report):
    status, lines, _ = report(*(record("t5", seed, settings={"random_structure": seed}) for seed in (1, 2)))
    assert status == 0 and cells(lines[2])[:2] == ["t5 (random structure)", "2"]


def test_rows_of_two_commits_of_a_version_are_comparable(report):
    assert report(record("none", commit="1f2e"), record("t5", commit="77aa"))[0] == 0


ASKED = {"source": "reference", "ratio": 1.0, "unit": "token", "end": "free"}


def asked(spec, **changes):
    changed = record(spec)
    changed["parts"]["test"]["asked"] = {**ASKED, **changes}
    return changed


def test_rows_that_were_told_output_lengths_stand_beside_others_and_are_marked(report):
    status, lines, _ = report(record("none"), asked("ldpe"))
    assert status == 0 and [cells(line)[0] for line in lines[2:4]] == ["ldpe ‡", "none"]
    assert "* ‡: decoding requested output lengths (reference); rows without this mark had no requested lengths" in lines


def test_numbers_for_programs_say_which_rows_were_told_output_lengths(report, tmp_path, capsys):
    report(record("none"), asked("ldpe"))
    assert main(["report", str(tmp_path / "runs"), "--output", str(tmp_path / "out")]) == 0
    with open(tmp_path / "out" / "report.csv", encoding="utf-8", newline="") as file:
        assert {row["method"]: row["asked_lengths"] for row in csv.DictReader(file)} == {"ldpe": "reference", "none": ""}
    capsys.readouterr()
    assert main(["report", str(tmp_path / "runs"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["method"]: row["asked_lengths"] for row in rows} == {"ldpe": ["reference"], "none": []}


def test_rows_that_were_told_different_output_lengths_are_refused(report):
    status, _, error = report(record("none"), asked("ldpe"), asked("lrpe", ratio=0.8))
    assert status == 2 and "differ in parts.test.asked.ratio (1.0 and 0.8). Expected differences only in method and seed" in error


@pytest.mark.parametrize("part", ["test", "lengths", "device"])  # runs may differ in fields that have the last two names
@pytest.mark.parametrize("key", ["sentences", "reference", "bleu_signature", "decoding"])
def test_parts_must_have_been_decoded_and_scored_alike(report, key, part):
    parts = (part, "test_long")
    other = record("t5", parts=parts)
    other["parts"][part][key] = {"beam": 5} if key == "decoding" else "other"
    status, _, error = report(record("none", parts=parts), other)
    assert status == 2 and f"parts.{part}.{key}" in error and "test_long" not in error


def test_all_differences_are_named_at_once(report):
    _, _, error = report(record("none"), record("t5", updates=1, data="x"))
    assert "updates" in error and "data" in error


def test_a_folder_without_runs_is_one_line(report, tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    assert report()[::2] == (
        2,
        f"posenc: {tmp_path / 'runs'}: no score.json below this folder. Expected scored runs. Run posenc score first.\n",
    )
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"posenc: {tmp_path / 'nowhere'}: no such folder. Expected a folder of scored runs.\n"


def test_halting_and_the_complex_transformer_belong_to_the_row_and_its_name(report):
    plain = {"lr": [0.003], "encoder_layers": 2, "decoder_layers": 2}
    halting = {**plain, "encoder_layers": 4, "encoder_halting": "continue"}
    status, lines, error = report(
        record("universal", settings=plain),
        record("universal", settings=halting),
        record("universal", settings={**halting, "encoder_halting": "copy"}),
        record("complex", settings=plain),
        record("complex", arch="posenc_complex_transformer_tiny", settings=plain),
    )
    assert status == 0 and not error
    assert [line.split("|")[1].strip() for line in lines if line.startswith(("| universal", "| complex"))][:5] == [
        "complex", "complex (complex Transformer)", "universal", "universal (encoder halting=continue, up to 4 layers)",
        "universal (encoder halting=copy, up to 4 layers)",
    ]  # fmt: skip


def test_only_halting_excuses_another_number_of_layers(report):
    plain = {"lr": [0.003], "encoder_layers": 2, "decoder_layers": 2}
    halting = {**plain, "decoder_layers": 4, "encoder_halting": "continue"}
    status, _, error = report(record("none", settings=plain), record("universal", settings=halting))
    assert status == 2 and "settings.decoder_layers (2 and 4)" in error and "encoder_layers" not in error


def test_tied_layers_belong_to_the_row_and_its_name(report):
    tied = {"lr": [0.003], "dropout": 0.0, "tie_encoder_layers": True, "tie_decoder_layers": True}
    untied = {**tied, "tie_encoder_layers": False, "tie_decoder_layers": False}
    status, lines, error = report(
        record("none", settings=untied), record("universal", settings=untied), record("universal", settings=tied)
    )
    assert status == 0 and not error
    assert {line.split("|")[1].strip() for line in lines if "| universal" in line} == {
        "universal", "universal (tied encoder and decoder layers)",
    }  # fmt: skip


def test_global_layers_belong_to_the_row_and_its_name(report):
    plain = {"lr": [0.003]}
    status, lines, error = report(
        record("none", settings=plain), record("group", settings=plain),
        record("group", settings={**plain, "encoder_global_layers": 2, "cross_global_layers": 1}),
    )  # fmt: skip
    assert status == 0 and not error
    assert {line.split("|")[1].strip() for line in lines if "| group" in line} == {
        "group", "group (encoder global layers=2) (cross global layers=1)",
    }  # fmt: skip


def spelled(spec, *, buckets=32, **fields):
    """Return a run of t5 with all its options in the signature."""
    options = f"t5:layers=all,buckets={buckets},max_distance=128,share=layers"
    return record(spec, signature={"encoder": options, "decoder": options, "cross": "none:layers=all"}, **fields)


def test_one_method_is_one_row_however_its_options_were_written(report):
    status, lines, _ = report(spelled("t5", seed=1), spelled("t5:buckets=32", seed=2), spelled("t5:buckets=8", buckets=8))
    assert status == 0 and [cells(line)[:2] for line in lines[2:4]] == [["t5", "2"], ["t5:buckets=8", "1"]]
    assert not lines[4]


def test_one_name_for_two_methods_is_refused(report):
    status, _, error = report(spelled("t5", seed=1), spelled("t5", seed=2, buckets=8))
    assert status == 2 and "t5: runs with different options (signature)" in error and error.count("\n") == 1


def test_methods_find_their_row_however_their_options_are_written(report):
    methods = ["t5:buckets=32", "t5", "t5:max_distance=128,buckets=32", "t5:buckets=9", "t5:buckets=9,max_distance=128"]
    status, lines, _ = report(spelled("t5"), methods=methods)
    assert status == 0 and [cells(line)[:2] for line in lines[2:4]] == [["t5", "40.0"], ["t5:buckets=9", "not run"]]
    assert not lines[4]


@pytest.mark.parametrize(
    ("method", "message"),
    [("shw", "Did you mean 'shaw'?"), ("t5:bucket=8", "Did you mean 'buckets'?"), ("", "unknown.")],
)
def test_a_wrong_method_is_an_error_and_not_a_row(report, method, message):
    status, lines, error = report(record("t5"), methods=["t5", method])
    assert status == 2 and not lines and message in error and error.count("\n") == 1


def test_rows_of_reconstructions_carry_their_mark(report):
    status, lines, _ = report(record("at5"), record("t5"), methods=["at5:buckets=8", "at5", "t5"])
    assert status == 0 and [cells(line)[0] for line in lines[2:5]] == ["at5:buckets=8 †", "at5 †", "t5"]
    assert sum("†: a reconstruction" in line for line in lines) == 1


def test_other_rows_carry_no_mark(report):
    assert not any("†" in line for line in report(record("t5"), methods=["shaw"])[1])


def test_a_long_list_of_differences_is_cut(report):
    settings = {f"setting{number}": "x" * 500 for number in range(50)}
    status, _, error = report(record("none"), record("t5", settings=settings))
    assert status == 2 and "and 48 more" in error and len(error) < 600


def test_tables_are_no_wider_than_the_terminal():
    long = "encoder kerple_power:sides=apart, decoder kerple_power"
    table = Table("Scores", ["method", *(f"test_{n} BLEU" for n in range(9))], [[long, *"123456789"], ["t5", *"987654321"]])
    for width in (40, 80, 132):
        lines = show([table], ["a note " * 40], width).splitlines()
        assert max(map(len, lines)) <= width
        found = [cells(line) for line in lines if line.startswith("| t5")]
        assert [cell for row in found for cell in row[1:]] == [*"987654321"]
    assert show([table], ["a note"], None) == markdown([table], ["a note"])


def test_trainings_that_stop_early_may_have_other_numbers_of_updates(posenc, write):
    def stopped(updates):
        found = record("t5" if updates > 800 else "none")
        return {**found, "updates": updates, "settings": {"patience": 10, "max_update": 8000}}

    status, printed, _ = posenc("report", write(stopped(700), stopped(900)))
    assert status == 0 and "700 to 900 updates, until 10 validations without a smaller loss or 8000 updates" in printed


def unfinished(spec, seed=1, ended=False, **fields):
    return record(spec, seed, updates=300, ended=ended, settings={"patience": 10, "max_update": 8000}, **fields)


def test_a_run_that_did_not_end_is_not_run(posenc, write):
    done = [{**unfinished(spec, seed, ended), "updates": 700} for spec, seed, ended in (("none", 1, True), ("none", 2, None))]
    folder = write(*done, unfinished("none", 3, bleu=1.0), unfinished("t5", bleu=2.0))
    status, printed, _ = posenc("report", folder)
    rows = {cells(line)[0]: cells(line)[1:3] for line in printed.splitlines() if line.startswith("|")}
    assert status == 0 and rows["none"] == ["2", "40.0"] and rows["t5"] == ["not run", "not run"]
    assert "; 700 updates, until 10 validations" in printed
    names = "none with seed 3 (300 updates), t5 with seed 1 (300 updates)"
    assert f"* training runs that did not end are left out: {names}\n" in printed


def test_runs_that_did_not_end_have_no_report(posenc, write):
    status, _, error = posenc("report", write(unfinished("none"), unfinished("t5")))
    assert status == 2 and error.startswith("posenc: none with seed 1 (300 updates), t5 with seed 1 (300 updates): ")
    assert "training did not end. Expected at least one training run that has ended." in error and error.count("\n") == 1


def test_only_runs_with_patience_must_have_ended(posenc, write):
    """The numbers of updates of all other runs must be equal, and the report contains this number."""
    status, printed, _ = posenc("report", write(record("none", ended=False), record("t5", ended=True)))
    assert status == 0 and "not run" not in printed


def test_rows_may_name_sites(posenc, write):
    """The report prints the rows in the given order. A row without training runs is named like a row with training runs."""
    mixed = {**record("t5"), "method": {"encoder": "t5", "decoder": "none", "cross": "none"}, "signature": {}}
    rows = ["decoder=rope;cross=t5", "encoder=t5", "none"]
    status, printed, _ = posenc("report", write(record("none"), mixed), "--methods", *rows, "--order", "given")
    assert status == 0
    assert [line.split("|")[1].strip() for line in printed.splitlines()[2:5]] == ["decoder rope, cross t5", "encoder t5", "none"]
