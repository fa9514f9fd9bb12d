"""posenc report: its numbers, the conditions under which it shows them, and its errors."""

import copy
import json
import re
import statistics

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from fairseq_posenc.data.side.reorder import ORACLE
from fairseq_posenc.evaluation.report.comparison import BEST, make_report
from fairseq_posenc.evaluation.report.options import Options
from fairseq_posenc.evaluation.report.sentences import bleu_by_length, bucket_name, buckets_up_to, sentence_test
from fairseq_posenc.evaluation.scoring.record import read
from fairseq_posenc.evaluation.scoring.sentences import SentenceStatistics, count
from fairseq_posenc.registry.spec import parse
from tests.report import runs

PUBLISHED = {"source": "A paper", "metric": "bleu", "part": "test", "figures": {"none": 18.59, "t5": 36.3}}


@pytest.fixture(scope="module")
def two():
    """Return references and the hypotheses of two similar systems, so that p-values are not the smallest possible ones."""
    references = runs.texts(100)
    return references, runs.spoilt(references, 0.32, 1), runs.spoilt(references, 0.3, 2)


def p_value(metric, stored, test, samples):
    one, other = (np.array(getattr(system, metric)) for system in stored)
    return sentence_test(metric, one, other, test, samples)


@pytest.mark.parametrize("samples", [300, 2500])
def test_p_values_are_those_of_sacrebleu_on_the_text(two, samples):
    references, one, other = two
    _, results = PairedTest([("a", one), ("b", other)], {"b": BLEU(), "c": CHRF()}, [references], "ar", samples)()
    stored = [SentenceStatistics.unpack(count(system, references).pack()) for system in (one, other)]
    found = {metric: p_value(metric, stored, "ar", samples) for metric in ("bleu", "chrf")}
    assert found == {"bleu": results["BLEU"][1].p_value, "chrf": results["chrF2"][1].p_value}
    assert 0.002 < found["bleu"] < 1


def test_the_bootstrap_takes_differences_in_both_directions(two):
    """sacreBLEU's bootstrap takes absolute differences before it centres them.

    The p-value of sacreBLEU is about half of the p-value of this project.
    """
    references, one, other = two
    stored = [count(system, references) for system in (one, other)]
    _, results = PairedTest([("a", one), ("b", other)], {"b": BLEU()}, [references], "bs", 1000)()
    p, randomized = p_value("bleu", stored, "bs", 1000), p_value("bleu", stored, "ar", 1000)
    assert abs(p - randomized) < 0.05 and p > results["BLEU"][1].p_value + 0.1


def test_seed_0_of_sacrebleu_is_a_seed(two, monkeypatch):
    """sacreBLEU interprets SACREBLEU_SEED=0 as no seed. This project uses 0 as a seed."""
    references, one, other = two
    stored = [count(system, references) for system in (one, other)]
    monkeypatch.setenv("SACREBLEU_SEED", "0")
    assert len({p_value("bleu", stored, "ar", 500) for _ in range(3)}) == 1


def test_stored_statistics_hold_no_words_and_come_back_as_they_were(two):
    references, one, _ = two
    counted = count(one, references, [len(line.split()) for line in references])
    assert SentenceStatistics.unpack(counted.pack()) == counted
    assert all(isinstance(number, int) for row in counted.bleu + counted.chrf for number in row)


def test_bleu_by_length_is_sacrebleus_of_these_sentences(two):
    references, one, _ = two
    words = [len(line.split()) for line in references]
    inside = [i for i, number in enumerate(words) if 10 <= number <= 19]
    expected = BLEU(force=True).corpus_score([one[i] for i in inside], [[references[i] for i in inside]]).score
    buckets = bleu_by_length(count(one, references, words), buckets_up_to(max(words)))
    assert buckets[1] == (len(inside), pytest.approx(expected, abs=1e-9))
    assert sum(number for number, _ in buckets) == len(references) and buckets[-1] == (0, None)
    assert bleu_by_length(count(one, references), buckets_up_to(60)) == []


@pytest.mark.parametrize(
    "longest, ends", [(8, ["50-59", "60+"]), (69, ["50-59", "60+"]), (70, ["60-69", "70-79"]), (80, ["70-79", "80-89"])]
)
def test_long_sentences_have_buckets_of_their_own(longest, ends):
    names = [bucket_name(bucket) for bucket in buckets_up_to(longest)]
    assert names[:3] == ["1-9", "10-19", "20-29"] and names[-2:] == ends


def full(posenc, folder, *options):
    status, out, error = posenc("report", folder, "--full", "--samples", 50, *options)
    assert status == 0 and not error
    titles = [block.splitlines()[0] for block in ("\n" + out).split("\n## ")[1:]]
    tables = [[line for line in block.splitlines() if line.startswith("|")] for block in ("\n" + out).split("\n## ")[1:]]
    rows = [[[cell.strip() for cell in line.strip("|").split("|")] for line in table if "|:-" not in line] for table in tables]
    return dict(zip(titles, rows)), out


def test_the_full_report(posenc, write):
    folder = write(*(runs.run(spec, seed, rate) for spec, rate in (("none", 0.5), ("t5", 0.2)) for seed in (1, 2)))
    tables, out = full(posenc, folder, "--methods", "none", "t5", "rope", "--order", "given")
    assert list(tables) == [
        "Scores", "Difference to none", "Tests over sentences", "Training", "BLEU by source length: test",
    ]  # fmt: skip
    difference = tables["Difference to none"]
    assert difference[1][1:] == ["baseline"] * 2 and difference[3][1:] == ["not run"] * 2
    assert re.fullmatch(r"\+\d+\.\d \[\+\d+\.\d, \+\d+\.\d\], p [=<] \.\d+", difference[2][1])
    assert tables["Tests over sentences"][2][1:] == ["p = .020, p = .020"] * 2
    training = dict(zip(tables["Training"][0], tables["Training"][2]))
    assert training["parameters"] == "1,020" and training["added to none"] == "-20"
    assert training["training time"] == "1:02:05" and training["peak memory"] == "0.70 GiB"
    assert training["validation loss"] == "2.230 ± 0.014"
    assert tables["Training"][3][1:] == ["not run"] * 6
    assert (
        "two-sided paired approximate randomization (50 trials, random seed 12345)" in out
        and "beam 4" in out
        and "device: CPU" in out
        and "do not compare" not in out
    )


def test_devices_and_kinds_of_memory_that_do_not_compare(posenc, write):
    on_gpu = {"device": "NVIDIA H100", "peak_memory": {"of": "GPU", "gib": 3.0}}
    _, out = full(posenc, write(runs.run("none"), runs.run("t5", **on_gpu)))
    assert "device: CPU, NVIDIA H100; speed and time of different devices do not compare" in out
    kinds = "allocated on the GPU, at the logged updates, resident in the training process"
    assert f"{kinds}; these two do not compare" in out


def as_json(posenc, folder, *options):
    """Return the parsed JSON of the report. Check that nothing else is printed."""
    status, out, error = posenc("report", folder, "--json", *options)
    assert status == 0 and not error
    return json.loads(out)


def test_the_report_as_json(posenc, write, tmp_path):
    records = {(spec, seed): runs.run(spec, seed, rate) for spec, rate in (("none", 0.5), ("t5", 0.2)) for seed in (1, 2)}
    (tmp_path / "published.json").write_text(json.dumps(PUBLISHED))
    folder = write(*records.values())
    methods = ["--methods", "none", "t5", "rope", "--order", "given"]
    options = ["--full", "--samples", 50, *methods, "--published", tmp_path / "published.json"]
    found = as_json(posenc, folder, *options)
    assert found["parts"] == ["test"] and found["baseline"] == "none" and (found["test"], found["samples"]) == ("ar", 50)
    none, t5, rope = found["rows"]
    assert [row["method"] for row in found["rows"]] == ["none", "t5", "rope"] and t5["seeds"] == [1, 2]
    ours = {str(seed): records["t5", seed]["parts"]["test"]["bleu"] for seed in (1, 2)}  # with all digits
    score = t5["scores"]["test"]["bleu"]
    assert score["by_seed"] == ours and score["mean"] == statistics.fmean(ours.values()) and score["published"] == 36.3
    assert score["sd"] == statistics.stdev(ours.values())
    difference = score["difference"]
    assert difference["mean"] == pytest.approx(score["mean"] - none["scores"]["test"]["bleu"]["mean"])
    assert 0 < difference["low"] < difference["mean"] < difference["high"] and difference["test"] == "pooled"
    assert difference["holm_p"] == difference["p"] < 0.05 and difference["sentences_holm_p"] == {"1": 1 / 51, "2": 1 / 51}
    assert found["conclusions"][0].startswith("test BLEU: t5 (+")
    assert none["scores"]["test"]["bleu"]["difference"] is None
    assert (t5["parameters"], t5["parameters_added"], t5["peak_memory_gib"]) == (1020, -20, 0.7)
    assert t5["training_seconds"]["by_seed"] == {"1": 3725.0, "2": 3725.0}
    assert t5["bleu_by_length"]["test"][0]["words"] == "1-9" and t5["bleu_by_length"]["test"][0]["bleu"] is None  # too few
    assert rope["seeds"] == [] and rope["scores"]["test"]["bleu"] is None and rope["parameters"] is None


def test_the_report_as_json_computes_no_more_than_that_on_the_screen(posenc, write):
    folder = write(runs.run("none", rate=0.5), runs.run("t5", rate=0.2))
    short = as_json(posenc, folder)
    assert short["baseline"] == "none" and short["test"] is short["samples"] is None
    assert (
        short["rows"][1]["bleu_by_length"] == {} == short["rows"][0]["scores"]["test"]["chrf"]["difference"]["sentences_holm_p"]
    )
    compared = as_json(posenc, folder, "--baseline", "t5", "--samples", 20)
    assert compared["baseline"] == "t5" and compared["rows"][1]["scores"]["test"]["chrf"]["difference"]["mean"] < 0


def test_few_sentences_of_a_length_get_no_bleu(posenc, write):
    references = [" ".join(["word"] * 5)] * 60 + [" ".join(["word"] * 12)] * 49
    tables, _ = full(posenc, write(runs.run("none", references=references), runs.run("t5", references=references)))
    assert tables["BLEU by source length: test"][0][1:] == ["1-9 words (n = 60)", "10-19 words (n = 49)"]
    assert [row[2] for row in tables["BLEU by source length: test"][1:]] == ["n < 50"] * 2


def test_the_baseline_is_sinusoidal_or_the_one_asked_for(posenc, write):
    folder = write(runs.run("learned"), runs.run("sinusoidal"), runs.run("t5"))
    assert "Difference to sinusoidal" in full(posenc, folder)[0]
    assert "Difference to t5" in full(posenc, folder, "--baseline", "t5")[0]
    status, out, _ = posenc("report", folder, "--baseline", "t5", "--samples", 20)
    assert status == 0 and "## Difference to t5" in out and "## Training" not in out


def test_a_difference_is_that_of_the_means_which_the_table_shows(posenc, write):
    """Each mean uses all seeds of its row. Sentences are compared only for seeds that both rows have."""
    records = [runs.run("none", 1, 0.5), runs.run("none", 2, 0.4), runs.run("t5", 2, 0.3), runs.run("rope", 3, 0.2)]
    tables, _ = full(posenc, write(*records), "--decimals", 4)
    score = {row[0]: float(row[2].strip("*").split()[0]) for row in tables["Scores"][1:]}
    difference = {row[0]: row[1] for row in tables["Difference to none"][1:]}
    for name in ("t5", "rope"):
        assert float(difference[name].split()[0]) == pytest.approx(score[name] - score["none"], abs=2e-4)
    tested = {row[0]: row[1] for row in tables["Tests over sentences"][1:]}
    assert tested["rope"] == "not tested" and tested["t5"].startswith("p = ")


def test_a_run_scored_before_is_shown_without_what_it_lacks(posenc, write):
    old = runs.run("t5")
    for key in ("learning_curve", "training_seconds", "peak_memory", "device"):
        del old[key]
    del old["parts"]["test"]["statistics"]
    tables, _ = full(posenc, write(runs.run("none"), old))
    assert tables["Training"][2][4:] == ["not measured"] * 3
    assert "Tests over sentences" not in tables


def test_a_run_that_diverged_is_named(posenc, write):
    diverged = [[200, 5.0], [400, None], [800, None]]
    none = [runs.run("none", 1), runs.run("none", 2, learning_curve=diverged), runs.run("none", 3)]
    folder = write(*none, runs.run("t5", learning_curve=diverged), runs.run("rope", learning_curve=None))
    note = "* validation loss NaN or infinite: t5 with seed 1 (first at update 400), none with seed 2 (first at update 400)\n"
    assert note in posenc("report", folder)[1]
    tables, out = full(posenc, folder)
    loss = {row[0]: row[-1] for row in tables["Training"]}
    assert note in out and "nan" not in out
    assert loss["none"].endswith(" (n = 2)") and loss["t5"] == "not finite" and loss["rope"] == "not measured"
    row = next(row for row in as_json(posenc, folder)["rows"] if row["method"] == "t5")
    assert row["validation_loss"] is None


def test_published_figures_stand_beside_ours_and_change_nothing(posenc, write, tmp_path):
    (tmp_path / "published.json").write_text(json.dumps(PUBLISHED))
    folder = write(runs.run("none"), runs.run("learned"))
    before = posenc("report", folder)[1].splitlines()
    status, out, _ = posenc("report", folder, "--published", tmp_path / "published.json")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines() if line.startswith("|")]
    assert status == 0 and rows[0][2] == "published test BLEU"
    assert {row[0]: row[2] for row in rows[2:]} == {"none": "18.59", "learned": ""}
    plain = [[cell.strip() for cell in line.strip("|").split("|")] for line in before if line.startswith("|")]
    assert [row[:2] + row[3:] for row in rows if "-:" not in row[1]] == [row for row in plain if "-:" not in row[1]]
    assert "published test BLEU: A paper. Its data and settings are not the same as in this table" in out


def test_rows_that_differ_in_a_later_part_are_refused(posenc, write):
    long = [runs.run(spec)["parts"]["test"] for spec in ("t5", "rope")]
    long[1]["decoding"] = {"beam": 5}
    records = [runs.run("none"), runs.run("t5"), runs.run("rope")]
    for record, part in zip(records[1:], long):
        record["parts"]["long"] = part
    status, _, error = posenc("report", write(*records))
    assert status == 2 and "t5 and rope differ" in error and "parts.long.decoding.beam (4 and 5)" in error


def test_what_a_method_reads_beside_the_words_may_differ(posenc, write):
    settings = {**runs.run("none")["settings"], "task": "posenc_translation"}
    read = {**settings, "relations": 40, "order_source": "a preorderer", "random_structure": 1}
    records = [runs.run(spec, settings=given) for spec, given in (("none", settings), ("xl_pe", read))]
    status, out, error = posenc("report", write(*records))
    assert status == 0 and "xl_pe" in out, error


@pytest.mark.parametrize(("source", "noted"), [(ORACLE, True), ("a preorderer", False)])
def test_a_reordering_from_the_target_has_a_note(posenc, write, source, noted):
    settings = {**runs.run("none")["settings"], "task": "posenc_translation"}
    records = [runs.run("none", settings=settings), runs.run("xl_pe", settings={**settings, "order_source": source})]
    status, out, error = posenc("report", write(*records))
    assert status == 0, error
    assert (f"reorderings of xl_pe: {ORACLE}" in out) == noted
    assert ("not compared: decoding read other properties of the references" in out) == noted


def asked(source, *given, **fields):
    """Return the record of a run whose decoding used requested output lengths from this source."""
    found = runs.run(*given, **fields)
    found["parts"]["test"]["asked"] = {"source": source, "ratio": 1.0, "unit": "token", "end": "free"}
    return found


@pytest.mark.parametrize("source", ["reference", "source", "predictor"])
def test_only_rows_with_the_lengths_of_the_references_are_not_compared(posenc, write, source):
    rates = (("sinusoidal", 0.4), ("t5", 0.3), ("rope", 0.2))
    records = [runs.run(spec, seed, rate) for spec, rate in rates for seed in (1, 2, 3)]
    told = [asked(source, "ldpe", seed, 0.1) for seed in (1, 2, 3)]
    folder = write(*records)
    report = lambda: make_report([read(path) for path in sorted(folder.glob("*/score.json"))], Options(sentences=True))  # noqa: E731
    alone = report()
    for number, content in enumerate(told):
        (folder / f"ldpe{number}").mkdir()
        (folder / f"ldpe{number}" / "score.json").write_text(json.dumps(content))
    beside = report()
    of_ldpe = beside.score("ldpe", "test", "bleu")
    if source == "reference":
        assert of_ldpe.difference is None and of_ldpe.rank == "" and ("ldpe", "test", "bleu") not in beside.sentence_tests
        assert beside.score("rope", "test", "bleu").rank == BEST
        for spec in ("t5", "rope"):  # the same p-values, corrected for the same number of rows
            assert beside.score(spec, "test", "bleu").difference == alone.score(spec, "test", "bleu").difference
    else:
        assert of_ldpe.difference.differs and of_ldpe.rank == BEST


def test_inputs_are_compared_for_each_test_set(posenc, write):
    """In this table, only t5 knows the lengths of the references of `test`, and only sinusoidal those of `web`."""
    records = []
    for spec, told, rate in (("sinusoidal", "web", 0.3), ("t5", "test", 0.1), ("rope", "", 0.2)):
        for seed in (1, 2, 3):
            records.append(runs.run(spec, seed, rate))
            parts = records[-1]["parts"]
            parts["web"] = copy.deepcopy(parts["test"])
            for part in {told} - {""}:
                parts[part]["asked"] = {"source": "reference", "ratio": 1.0, "unit": "token", "end": "free"}
    folder = write(*records)
    found = make_report([read(path) for path in sorted(folder.glob("*/score.json"))], Options(sentences=False))
    compared = {
        (row, part): found.score(row, part, "bleu").difference is not None for row in ("t5", "rope") for part in ("test", "web")
    }
    assert compared == {("t5", "test"): False, ("rope", "test"): True, ("t5", "web"): False, ("rope", "web"): False}
    assert found.not_compared("test") == ["t5"] and {*found.not_compared("web")} == {"t5", "rope"}


def test_seeds_of_one_row_have_the_same_requested_lengths(posenc, write):
    folder = write(runs.run("t5"), asked("reference", "t5", 2), asked("reference", "t5", 3), runs.run("none"))
    status, out, error = posenc("report", folder)
    assert status == 2 and not out
    assert "t5, test set test: output lengths were requested for seed 2, 3, but not for seed 1. Expected the same" in error


def test_rows_that_all_know_the_lengths_of_the_references_are_compared(posenc, write):
    folder = write(*(asked("reference", spec, seed, rate) for spec, rate in (("ldpe", 0.1), ("lrpe", 0.4)) for seed in (1, 2, 3)))
    status, out, error = posenc("report", folder, "--full")
    assert status == 0 and "not compared" not in out and "lrpe (" in out, (out, error)


@pytest.mark.parametrize(
    ("specs", "fields", "wanted", "found"),
    [
        (["learned", "sinusoidal:layout=halves"], {}, None, "sinusoidal:layout=halves"),
        (["learned", "sinusoidal:layout=interleaved"], {}, None, "sinusoidal:layout=interleaved"),
        (["learned", "sinusoidal:layout=interleaved", "sinusoidal"], {}, None, "sinusoidal"),
        (["learned", "sinusoidal"], {"row": ["lr"]}, None, "sinusoidal (lr=0.003)"),
        (["learned", "sinusoidal", "t5"], {"row": ["lr"]}, "t5", "t5 (lr=0.003)"),
        (["learned", "sinusoidal", "t5"], {"row": ["lr"]}, "t5:buckets=32", "t5 (lr=0.003)"),
        (["learned", "sinusoidal+t5"], {}, None, "learned"),
        (["learned", "sinusoidal:origin=zero", "sinusoidal:layout=interleaved"], {}, None, "learned"),
    ],
    ids=str,
)
def test_the_baseline_is_found_by_its_method(posenc, write, specs, fields, wanted, found):
    """By default, the baseline is the only row of sinusoidal, or the row with the default options."""
    records = [runs.run(spec, **fields) for spec in specs]
    for record in records:
        record["signature"] = {site: parse(spec).signature for site, spec in record["method"].items()}
    assert as_json(posenc, write(*records), *(["--baseline", wanted] if wanted else []))["baseline"] == found


def test_a_baseline_with_several_rows_is_one_line(posenc, write):
    settings = [{"lr": [rate], "cpu": True} for rate in (0.1, 0.2)]
    signature = {site: parse("sinusoidal").signature for site in ("encoder", "decoder")} | {"cross": parse("none").signature}
    records = [runs.run("sinusoidal", settings=found, row=["lr"], signature=signature) for found in settings]
    folder = write(*(runs.run("none", settings=found, row=["lr"]) for found in settings), *records)
    status, out, error = posenc("report", folder, "--baseline", "sinusoidal")
    assert status == 2 and not out and error.count("\n") == 1
    assert error == (
        "posenc: --baseline sinusoidal: several rows of this method. Expected one of sinusoidal (lr=0.1), sinusoidal (lr=0.2).\n"
    )
    assert as_json(posenc, folder)["baseline"] == "none (lr=0.1)"
    assert as_json(posenc, folder, "--baseline", "sinusoidal (lr=0.2)")["baseline"] == "sinusoidal (lr=0.2)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--test", "bs"], "--test: no effect without --full, --output or --baseline. Add one of them, or remove --test."),
        (["--samples", "20"], "--samples: no effect without --full, --output or --baseline. Add one of them, or remove"),
        (["--json", "--test", "bs"], "--test: no effect without"),
        (["--name", "table2"], "--name: no effect without --output. Add --output, or remove --name."),
        (["--full", "--name", "table2"], "--name: no effect without"),
        (["--view", "lengths", "--name", "table2"], "--name: no effect without"),
    ],
)
def test_options_without_effect_are_refused(posenc, write, options, message):
    status, out, error = posenc("report", write(runs.run("none"), runs.run("t5")), *options)
    assert status == 2 and not out and error.startswith(f"posenc: {message}") and error.count("\n") == 1


def test_decimals_of_conclusions_in_json(posenc, write):
    records = [runs.run(spec, seed, rate) for spec, rate in (("none", 0.5), ("t5", 0.2)) for seed in (1, 2, 3)]
    table = as_json(posenc, write(*records), "--decimals", "3")
    assert re.search(r"t5 \(\+\d+\.\d{3} BLEU, 95 % interval \d+\.\d{3} to ", table["conclusions"][0])


def twice(record):
    return [record, record]


def spoilt_statistics(record):
    record["parts"]["test"]["statistics"] = "AAAA"
    return [record]


@pytest.mark.parametrize(
    ("spoil", "options", "message"),
    [
        (twice, [], "none with seed 1, as in .*Expected each seed once"),
        (spoilt_statistics, ["--full"], "none, seed 1, test set test: the sentence statistics are damaged"),
        (lambda record: [{**record, "seed": "1"}], [], r"score.json: wrong fields \(seed\)"),
        (lambda record: [[1]], [], "wrong fields"),
        (None, ["--baseline", "t5"], "--baseline t5: no run of this method. Expected one of none"),
        (None, ["--samples", "-1"], "--samples: '-1' is not a positive whole number"),
        (None, ["--published", "{tmp}/nowhere.json"], r"nowhere.json: cannot be read \(No such file"),
        (None, ["--published", "{tmp}/half.json"], "half.json: not JSON"),
        (None, ["--published", "{tmp}/list.json"], "list.json: no published figures. Expected"),
        (None, ["--published", "{tmp}/long.json"], "the scores are of test set long. Expected one of test"),
        (None, ["--samples", "20", "--output", "{tmp}/half.json"], "half.json: cannot be written"),
    ],
)
def test_every_error_is_one_line(posenc, write, tmp_path, spoil, options, message):
    (tmp_path / "half.json").write_text('{"source": ')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "long.json").write_text(json.dumps({**PUBLISHED, "part": "long"}))
    records = spoil(runs.run("none")) if spoil else [runs.run("none")]
    status, out, error = posenc("report", write(*records), *(option.replace("{tmp}", str(tmp_path)) for option in options))
    assert status == 2 and not out
    assert error.startswith("posenc: ") and error.count("\n") == 1 and re.search(message, error)


def test_a_wrong_seed_of_sacrebleu_is_one_line(posenc, write, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "abc")
    status, _, error = posenc("report", write(runs.run("none"), runs.run("t5")), "--full")
    assert (status, error) == (2, "posenc: SACREBLEU_SEED='abc': not a seed. Expected a number of at least 0, or none.\n")


def test_messages_have_a_readable_length(posenc, write):
    plain, specs = runs.run("none"), [f"t5:buckets={number}" for number in range(2, 60)]
    folder = write(*({**plain, "method": {"encoder": spec, "decoder": spec, "cross": "none"}} for spec in specs))
    for options in (["--baseline", "rope"], ["--baseline", "x" * 3000]):
        status, _, error = posenc("report", folder, *options)
        assert status == 2 and len(error) < 400 and "more" in error and error.count("\n") == 1


def test_a_full_disk_is_one_line_and_leaves_no_partial_file(posenc, write, tmp_path, small_files):
    folder = write(runs.run("none"))
    with small_files(10):
        status, _, error = posenc("report", folder, "--output", tmp_path / "out", "--samples", "10")
    assert status == 2 and "cannot be written (File too large" in error and error.count("\n") == 1
    assert not list((tmp_path / "out").iterdir())


def test_the_last_loss_after_a_million_updates(posenc, write):
    """fairseq's log contains 1234567 as 1.23457e+06."""
    record = runs.run("t5", updates=1234567, learning_curve=[[1220000, 5.0], [1234570, 4.2]])
    status, out, _ = posenc("report", write(record), "--json")
    (row,) = json.loads(out)["rows"]
    assert status == 0 and row["validation_loss"]["mean"] == 4.2
