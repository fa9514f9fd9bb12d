"""Seed variance in tables: intervals, tests and conclusions, from the runs of the table and from --seed-variance."""

import csv
import io
import json
import re
import shutil

import numpy as np
import pytest
import scipy.stats

from fairseq_posenc.evaluation.report.comparison import Difference, Row, _column
from fairseq_posenc.evaluation.report.tables import difference_text, p_text
from fairseq_posenc.evaluation.scoring.record import PartScores, Record
from fairseq_posenc.registry.spec import parse
from tests.report import runs
from tests.report.test_report import as_json


@pytest.fixture
def study(tmp_path):
    """Return a function that writes runs into a second folder. The runs of the table are in another folder.

    The function returns the second folder.
    """

    def write_study(*records):
        for number, record in enumerate(records):
            folder = tmp_path / "study" / str(number)
            folder.mkdir(parents=True)
            (folder / "score.json").write_text(json.dumps(record))
        return tmp_path / "study"

    return write_study


def seeds(rates, spec="t5", **fields):
    return [runs.run(spec, seed, rate, **fields) for seed, rate in enumerate(rates, 1)]


def bleu(records):
    return [record["parts"]["test"]["bleu"] for record in records]


def score(table, method, metric="bleu"):
    return next(row for row in table["rows"] if row["method"] == method)["scores"]["test"][metric]


def pooled_note(table):
    return " ".join(line for line in table["notes"] if line.startswith("rows with fewer than 3 seeds"))


KNOWN = [0.28, 0.29, 0.3, 0.31, 0.295]  # probabilities of wrong words


def test_runs_of_another_folder_say_how_much_one_seed_varies(posenc, write, study):
    known = seeds(KNOWN)
    folder = study(*known)
    found = write(runs.run("none", rate=0.3), runs.run("rope", rate=0.28), runs.run("learned", rate=0.4))
    table = as_json(posenc, found, "--baseline", "none", "--seed-variance", folder, "--samples", 20)
    deviation = np.std(bleu(known), ddof=1)
    error = deviation * 2**0.5
    wanted = {name: score(table, name)["mean"] - score(table, "none")["mean"] for name in ("rope", "learned")}
    p = {name: 2 * scipy.stats.t.sf(abs(difference) / error, 4) for name, difference in wanted.items()}
    for name, difference in wanted.items():
        assert score(table, name)["difference"]["p"] == pytest.approx(p[name])
        assert score(table, name)["difference"]["low"] == pytest.approx(difference - scipy.stats.t.ppf(0.975, 4) * error)
    assert score(table, "learned")["difference"]["holm_p"] == pytest.approx(2 * p["learned"]) and 2 * p["learned"] < 0.05
    assert score(table, "rope")["low"] == pytest.approx(score(table, "rope")["mean"] - scipy.stats.t.ppf(0.975, 4) * deviation)
    assert f"pooled over t5 in {folder}, 5 runs" in pooled_note(table)
    assert f"test: standard deviation {deviation:.1f} BLEU, 4 degrees of freedom" in pooled_note(table)
    assert re.fullmatch(
        r"test BLEU: learned \(-\d+\.\d BLEU, 95 % interval -\d+\.\d to -\d+\.\d, corrected p [=<] \.\d+, 1 seed each\) "
        r"differs from none; 1 row is not distinguishable from it with 1 seed each\.",
        table["conclusions"][0],
    )


def test_a_report_reads_no_other_folder_unless_told_so(posenc, write, study, monkeypatch):
    folder = study(*seeds(KNOWN))
    (folder.parent / "results").mkdir()
    folder.rename(folder.parent / "results" / "chance")
    monkeypatch.chdir(folder.parent)
    table = as_json(posenc, write(runs.run("none", rate=0.3), runs.run("rope", rate=0.9)))
    assert score(table, "rope")["difference"]["p"] is None and not pooled_note(table)
    assert table["conclusions"][0] == "test BLEU: the seed variance is not known, so no row can be compared with none."


@pytest.mark.parametrize(
    "change",
    [
        {"data": "other"},
        {"settings": {"lr": [0.1], "cpu": True}},
        *({"settings": {"lr": [0.003], "cpu": True, name: value}} for name, value in (
            ("label_smoothing", 0.2), ("optimizer", "sgd"), ("clip_norm", 1.0), ("weight_decay", 0.1), ("attention_dropout", 0.1),
        )),
    ],
    ids=str,
)  # fmt: skip
def test_runs_of_another_training_are_not_used(posenc, write, study, change):
    table = as_json(posenc, write(runs.run("none"), runs.run("rope")), "--seed-variance", study(*seeds(KNOWN, **change)))
    assert score(table, "rope")["difference"]["p"] is None
    assert any(line.startswith("seed variance: ") and line.endswith("has no run of this task") for line in table["notes"])


@pytest.mark.parametrize(
    "change",
    [
        {"decoding": {"beam": 5}}, {"reference": "xyz"}, {"source": "xyz"}, {"bleu_signature": "tok:none"},
        {"asked": {"source": "reference", "ratio": 1.0, "unit": "token", "end": "free"}},
    ],
    ids=str,
)  # fmt: skip
def test_runs_that_were_decoded_or_scored_differently_are_not_used(posenc, write, study, change):
    others = seeds(KNOWN)
    for record in others:
        record["parts"]["test"].update(change)
    table = as_json(posenc, write(runs.run("none"), runs.run("rope")), "--seed-variance", study(*others))
    assert score(table, "rope")["difference"]["p"] is None


def test_other_versions_have_the_same_seed_variance(posenc, write, study):
    others = seeds(KNOWN, versions={"posenc": "0.0.9", "sacrebleu": "2.6.0"})
    table = as_json(posenc, write(runs.run("none"), runs.run("rope")), "--seed-variance", study(*others))
    assert score(table, "rope")["difference"]["p"] is not None


def test_more_seeds_of_a_row_belong_to_its_variance_and_count_once(posenc, write, study):
    """The table has seeds 1 and 2 of t5. The other folder has seed 3, and another run of seed 1 that is not used."""
    rates = {1: 0.28, 2: 0.3, 3: 0.31}
    table = as_json(
        posenc, write(runs.run("none", rate=0.32), *(runs.run("t5", seed, rates[seed]) for seed in (1, 2))), "--seed-variance",
        study(runs.run("t5", 1, 0.5), runs.run("t5", 3, rates[3])),
    )  # fmt: skip
    wanted = np.std(bleu([runs.run("t5", seed, rate) for seed, rate in rates.items()]), ddof=1)
    assert f"standard deviation {wanted:.1f} BLEU, 2 degrees of freedom" in pooled_note(table)
    assert score(table, "t5")["by_seed"].keys() == {"1", "2"}


def test_a_copy_of_a_run_counts_once(posenc, write, study, tmp_path):
    """A folder of --seed-variance can contain copies of its runs, also of another version of posenc."""
    found, folder = write(runs.run("none"), runs.run("rope")), study(*seeds(KNOWN))
    alone = as_json(posenc, found, "--seed-variance", folder)
    shutil.copytree(folder, folder / "backup")
    other = {**runs.run("t5", 1, KNOWN[0]), "versions": {"posenc": "0.0.9", "sacrebleu": "2.6.0"}}
    (folder / "other").mkdir()
    (folder / "other" / "score.json").write_text(json.dumps(other))
    assert as_json(posenc, found, "--seed-variance", folder) == alone
    assert f"pooled over t5 in {folder}, 5 runs" in pooled_note(alone)


def test_different_runs_of_one_seed_in_the_other_folder_are_one_line(posenc, write, study):
    folder = study(*seeds(KNOWN), runs.run("t5", 2, 0.4))
    status, out, error = posenc("report", write(runs.run("none"), runs.run("rope")), "--seed-variance", folder)
    assert status == 2 and not out and error.count("\n") == 1
    assert f"{folder / '5' / 'score.json'}: t5 with seed 2, as in {folder / '1' / 'score.json'}, but with another score" in error


def test_scores_of_seeds_may_come_from_a_file(posenc, write, tmp_path):
    rows = [[40.1, 41.0, 40.4, 39.9], [38.0, 39.2]]
    file = tmp_path / "seeds.json"
    file.write_text(json.dumps({"source": "our earlier runs", "scores": {"test": {"bleu": rows}}}))
    table = as_json(posenc, write(runs.run("none", rate=0.3), runs.run("rope", rate=0.3)), "--seed-variance", file)
    deviation = ((3 * np.var(rows[0], ddof=1) + np.var(rows[1], ddof=1)) / 4) ** 0.5
    assert score(table, "none")["high"] - score(table, "none")["mean"] == pytest.approx(scipy.stats.t.ppf(0.975, 4) * deviation)
    assert "our earlier runs in our earlier runs" not in pooled_note(table) and "our earlier runs" in pooled_note(table)
    assert score(table, "none", "chrf")["low"] is None


def test_scores_of_seeds_of_other_metrics_may_be_negative(posenc, write, tmp_path):
    file = tmp_path / "seeds.json"
    file.write_text(
        json.dumps({"source": "our runs", "scores": {"test": {"comet": [[-0.2, -0.1, 0.1]], "bleu": [[40, 41, 42]]}}})
    )
    assert score(as_json(posenc, write(runs.run("none", rate=0.3)), "--seed-variance", file), "none")["low"] is not None


def test_seeds_of_one_row_have_the_reorderings_of_one_origin(posenc, write):
    """Rows of other methods may read other reorderings."""
    records = [*seeds([0.1, 0.2, 0.3], "xl_pe"), runs.run("none")]
    for record, origin in zip(records, ("A", "A", "B")):
        record["settings"] = {**record["settings"], "order_source": origin}
    status, _, error = posenc("report", write(*records))
    assert status == 2 and "differ in origin of the reorderings (A and B)" in error


def test_seeds_of_one_row_have_the_same_side_files(posenc, write, study):
    """Rows of other methods may read other trees."""
    records = [*seeds([0.1, 0.2, 0.3], "spr_rel"), runs.run("none"), runs.run("structure")]
    for record, heads in zip(records, "AABxC"):
        record["settings"] = {**record["settings"], "side_files": {"text": "T", "heads": heads}}
    del records[3]["settings"]["side_files"]
    status, _, error = posenc("report", write(*records))
    assert status == 2 and "spr_rel and spr_rel differ in side_files.heads (A and B)" in error
    records[2]["settings"]["side_files"]["heads"] = "A"
    status, _, error = posenc("report", study(*records))
    assert status == 0, error


def test_intervals_of_percentages_are_percentages(posenc, write):
    found = score(as_json(posenc, write(*seeds([0.0, 0.001, 0.2]), runs.run("none", rate=0.1))), "t5")
    assert found["high"] == 100 and 0 < found["low"] < found["mean"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "--seed-variance .*: no such file or folder"),
        ("{", "seeds.json: not JSON"),
        ("{}", r"seeds.json: no scores of seeds. Expected"),
        ('{"source": "x", "scores": {"test": {"bleu": [[140]]}}}', "no scores of seeds"),
    ],
)
def test_wrong_files_are_one_line(posenc, write, tmp_path, content, message):
    if content is not None:
        (tmp_path / "seeds.json").write_text(content)
    status, out, error = posenc("report", write(runs.run("none")), "--seed-variance", tmp_path / "seeds.json")
    assert status == 2 and not out and re.search(message, error) and error.count("\n") == 1


def test_all_seeds_of_the_baseline_are_used(posenc, write):
    """If a row has one seed, the comparison still uses all seeds of the baseline."""
    records = [*seeds([0.3, 0.28, 0.32, 0.29, 0.33], "sinusoidal"), runs.run("learned", 1, 0.34)]
    table = as_json(posenc, write(*records))
    found = score(table, "learned")["difference"]
    assert found["mean"] == pytest.approx(score(table, "learned")["mean"] - np.mean(bleu(records[:5])))
    error = np.std(bleu(records[:5]), ddof=1) * (1 + 1 / 5) ** 0.5
    assert found["p"] == pytest.approx(2 * scipy.stats.t.sf(abs(found["mean"]) / error, 4))


def test_a_second_folder_may_have_more_seeds(posenc, write, study):
    """A run that is in both folders counts once."""
    baseline = seeds(KNOWN, "sinusoidal")
    status, out, _ = posenc("report", write(baseline[0], runs.run("t5")), study(*baseline), "--json")
    assert status == 0
    assert {row["method"]: row["seeds"] for row in json.loads(out)["rows"]} == {"sinusoidal": [1, 2, 3, 4, 5], "t5": [1]}


def test_different_runs_of_one_seed_in_two_folders_are_one_line(posenc, write, study):
    status, _, error = posenc("report", write(runs.run("t5")), study(runs.run("t5", rate=0.7)))
    assert status == 2 and "t5 with seed 1, as in " in error and error.count("\n") == 1


def test_rows_with_three_seeds_are_compared_by_their_own_variance(posenc, write):
    ours, base = seeds([0.2, 0.22, 0.21]), seeds([0.3, 0.25, 0.28, 0.31], "none")
    table = as_json(posenc, write(*ours, *base))
    wanted = scipy.stats.ttest_ind(bleu(ours), bleu(base), equal_var=False)
    found = score(table, "t5")["difference"]
    assert found["test"] == "Welch" and found["p"] == pytest.approx(wanted.pvalue)
    assert "rows with 3 seeds or more: Welch's t test, each row with its own variance" in table["notes"]
    assert re.search(r"t5 \(\+\d.* corrected p [=<] \.\d+, 3 and 4 seeds\) differs from none\.", table["conclusions"][0])


def test_paired_seeds(posenc, write):
    rates = [0.3, 0.25, 0.28, 0.31]
    ours, base = seeds([rate - 0.02 for rate in rates]), seeds(rates, "none")
    table = as_json(posenc, write(*ours, *base, runs.run("rope", 9)), "--seed-test", "paired")
    found = score(table, "t5")["difference"]
    assert found["test"] == "paired" and found["p"] == pytest.approx(scipy.stats.ttest_rel(bleu(ours), bleu(base)).pvalue)
    assert any("in pairs" in line for line in table["notes"])


def test_paired_seeds_change_only_the_test(posenc, write):
    """Means, intervals and ranks use all seeds of a row, also if the row lacks seeds of the baseline."""
    base, ours = seeds([0.3, 0.25, 0.28], "none"), seeds([0.28, 0.23, 0.26])
    found = write(*base, *ours, runs.run("rope", 4, 0.2), runs.run("shaw", 1, 0.22), runs.run("shaw", 2, 0.24))
    plain, paired = (as_json(posenc, found, "--baseline", "none", "--seed-test", test) for test in ("welch", "paired"))
    for method in ("none", "t5", "rope", "shaw"):
        for field in ("mean", "low", "high"):
            assert score(paired, method)[field] == score(plain, method)[field], (method, field)
    assert score(paired, "t5")["difference"]["test"] == "paired"
    for method in ("rope", "shaw"):
        assert score(paired, method)["difference"]["p"] is None
        assert score(paired, method)["difference"]["mean"] == score(plain, method)["difference"]["mean"]
    assert "2 cannot be compared, because the rows lack seeds of none" in paired["conclusions"][0]
    assert "intervals that assume the same variance over seeds in all rows" in pooled_note(paired)


def test_published_scores_of_equivalent_specs(posenc, write, tmp_path):
    file = tmp_path / "published.json"
    content = {"source": "a paper", "metric": "bleu", "part": "test", "figures": {"t5:buckets=32": 41.5, "other system": 40}}
    file.write_text(json.dumps(content))
    record = runs.run("t5", signature={site: parse(spec).signature for site, spec in runs.run("t5")["method"].items()})
    shown = posenc("report", write(record, runs.run("none")), "--published", file)[1]
    (line,) = [line for line in shown.splitlines() if line.startswith("| t5 ")]
    assert "41.5" in line
    assert "* published scores without a row in this table: other system\n" in shown
    assert (
        posenc("report", tmp_path / "runs", "--published", file, "--methods", "t5", "none", "rope", "--output", tmp_path)[0] == 0
    )
    rows = {row["method"]: row for row in csv.DictReader((tmp_path / "report.csv").read_text().splitlines())}
    assert [rows[name]["test_bleu_published"] for name in ("t5", "none")] == ["41.5", ""]
    content["figures"] = {"rope": 34}
    file.write_text(json.dumps(content))
    table = as_json(posenc, tmp_path / "runs", "--published", file, "--methods", "t5", "none", "rope")
    assert score(table, "rope") == {"published": 34}


def test_two_published_scores_of_one_row_are_one_line(posenc, write, tmp_path):
    file = tmp_path / "published.json"
    file.write_text(json.dumps({"source": "a", "metric": "bleu", "part": "test", "figures": {"t5": 41, "t5:buckets=32": 42}}))
    record = runs.run("t5", signature={site: parse(spec).signature for site, spec in runs.run("t5")["method"].items()})
    status, _, error = posenc("report", write(record), "--published", file)
    assert status == 2 and "t5 and t5:buckets=32 are the same row. Expected one score per row." in error


def scored(seed, number):
    """Return a run with a BLEU of `number`."""
    part = PartScores.model_construct(bleu=number, asked=None, others={})
    return Record.model_construct(
        seed=seed, parts={"test": part}, settings={}, signature={}, method={}, arch="a", versions={}, row=[]
    )


@pytest.mark.parametrize(("rows", "seeds"), [(9, 5), (26, 3)])
def test_few_tables_of_equal_methods_mark_a_row_as_worse_than_the_best(rows, seeds):
    """The best row is chosen by its scores. A correction for a fixed baseline leads to 8 to 13 % of tables."""
    numbers = np.random.default_rng(rows).normal(40, 1, (200, rows, seeds))
    wrong = 0
    for table in numbers:
        found = [Row(f"m{i}", [scored(seed, number) for seed, number in enumerate(scores, 1)]) for i, scores in enumerate(table)]
        column = _column(found, "test", "bleu", found[0], [], "welch")
        wrong += any(not score.rank for score in column.scores.values())
    assert wrong / len(numbers) <= 0.06


def test_a_test_set_that_the_baseline_lacks(posenc, write):
    both, texts = runs.run("none", part="test"), runs.run("rope", part="test")
    texts["parts"]["web"] = texts["parts"]["test"]
    shown = posenc("report", write(both, texts), "--full", "--samples", 20)[1]
    assert "web BLEU: none has no score, so no row can be compared with it." in shown
    assert "no score of the baseline" in shown


def test_the_seed_variance_may_be_zero(posenc, write):
    rows = [{**runs.run(spec, rate=rate), "seed": seed} for spec, rate in (("none", 0.3), ("rope", 0.2)) for seed in (1, 2, 3)]
    table = as_json(posenc, write(*rows))
    assert table["conclusions"][0] == "test BLEU: the seed variance is zero, so no row can be compared with none."


@pytest.mark.parametrize("content", [{}, {"valid": {"bleu": [[30, 31, 32]]}}, {"test": {"comet": [[1, 2, 3]]}}])
def test_a_file_without_scores_of_this_task_is_named(posenc, write, tmp_path, content):
    """A note says that this file contains no run of this task. The note on the pooled variance does not name this file."""
    file = tmp_path / "variance.json"
    file.write_text(json.dumps({"source": "my runs", "scores": content}))
    table = as_json(posenc, write(*seeds([0.3, 0.31]), runs.run("rope", rate=0.2)), "--seed-variance", file)
    assert "seed variance: my runs has no run of this task" in table["notes"]
    assert "my runs" not in pooled_note(table)


def test_a_folder_with_runs_of_the_table_is_not_named(posenc, write, study):
    table = as_json(posenc, write(*(known := seeds([0.3, 0.31, 0.32]))), "--seed-variance", study(*known))
    assert not any("has no run of this task" in note for note in table["notes"])


def test_rows_that_all_know_the_lengths_of_a_test_set_that_the_baseline_lacks(posenc, write):
    """The rows have the same inputs on this test set, so the best of them is marked."""
    asked = {"source": "reference", "ratio": 1.0, "unit": "token", "end": "free"}
    rows = [*seeds([0.2, 0.22, 0.21], "ldpe"), *seeds([0.215, 0.2, 0.225], "lrpe"), *seeds([0.3, 0.31, 0.32], "none")]
    for row in rows[:6]:
        row["parts"]["web"] = {**row["parts"]["test"], "asked": asked}
    table = as_json(posenc, write(*rows), "--baseline", "none")
    ranks = [found["rank"] for row in table["rows"] if (found := row["scores"]["web"]["bleu"])]
    assert sorted(ranks) == ["best", "not distinguishable from the best"]


def test_rows_far_apart_are_pooled_on_the_logit_scale(posenc, write):
    table = as_json(posenc, write(*seeds([0.2, 0.22, 0.21]), *seeds([0.7, 0.71, 0.72], "none"), runs.run("rope", rate=0.4)))
    assert re.search(r"standard deviation 0\.\d\d logit\(BLEU/100\), 4 degrees of freedom, Bartlett p = ", pooled_note(table))
    found = score(table, "rope")
    assert 0 < found["low"] < found["mean"] < found["high"] < 100


def test_the_best_and_those_not_distinguishable_from_it_are_marked(posenc, write):
    records = [*seeds([0.2, 0.22, 0.21]), *seeds([0.215, 0.2, 0.225], "rope"), *seeds([0.4, 0.42, 0.41], "none")]
    folder = write(*records)
    table = as_json(posenc, folder)
    order = [row["method"] for row in table["rows"]]
    means = [score(table, name)["mean"] for name in order]
    assert means == sorted(means, reverse=True) and order[-1] == "none"
    assert [score(table, name)["rank"] for name in order] == ["best", "not distinguishable from the best", None]
    _, out, _ = posenc("report", folder)
    cells = [line.split("|")[3].strip() for line in out.splitlines() if line.startswith("| ")][1:]
    assert [cell.count("*") for cell in cells] == [4, 2, 0]
    assert (
        "* bold: the best; italic: not distinguishable from the best (p > .05, corrected by Holm over all pairs of rows)" in out
    )


def test_a_row_that_was_not_compared_with_the_best_is_named(posenc, write):
    """Without a mark, this row would look worse than the best row."""
    records = [*seeds([0.2, 0.22, 0.21]), *seeds([0.215, 0.2, 0.225], "rope"), *seeds([0.23, 0.235], "none")]
    table = as_json(posenc, write(*records), "--seed-test", "paired", "--baseline", "t5")
    ranks = {row["method"]: score(table, row["method"])["rank"] for row in table["rows"]}
    assert ranks == {"rope": "best", "t5": "not distinguishable from the best", "none": "not compared with the best"}
    assert "not compared with the best by a test in at least one column: none" in table["notes"]


def test_two_seeds_that_are_alike_by_accident_make_no_difference_large(posenc, write):
    table = as_json(posenc, write(runs.run("none", rate=0.3), runs.run("rope", rate=0.9), *seeds([0.2, 0.2001])))
    assert score(table, "rope")["difference"]["p"] is None


def test_of_many_differences_the_number_is_said(posenc, write, study):
    rows = [runs.run(f"t5:buckets={buckets}", rate=0.9) for buckets in range(4, 22, 2)]
    table = as_json(
        posenc, write(runs.run("none", rate=0.3), *rows), "--seed-variance", study(*seeds(KNOWN)), "--baseline", "none"
    )
    assert table["conclusions"][0] == "test BLEU: 9 of 9 rows differ from none, 0 higher and 9 lower."


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0.0004, "p < .001"),
        (0.0123, "p = .012"),
        (0.0496, "p = .0496"),
        (0.0504, "p = .0504"),
        (0.05, "p = .050"),
        (0.1, "p = .10"),
        (0.349, "p = .35"),
        (0.999, "p = 1"),
        (1.0, "p = 1"),
    ],
)
def test_p_values_as_text(p, text):
    assert p_text(p) == text


def test_differences_as_text():
    assert difference_text(Difference(-1.26, (1, 5), -2.44, -0.04, 0.01, 0.04)) == "-1.3 [-2.4, -0.0], p = .040"
    assert difference_text(Difference(1.26, (1, 5)), 2) == "+1.26"


def test_options_of_the_table(posenc, write, tmp_path):
    folder = write(runs.run("t5", rate=0.2), runs.run("none", rate=0.5))
    _, out, _ = posenc("report", folder, "--order", "given", "--decimals", "3")
    rows = [line.split("|")[1:3] for line in out.splitlines() if line.startswith("| ")][1:]
    assert [row[0].strip() for row in rows] == ["none", "t5"] and re.fullmatch(r"\*\*\d+\.\d{3}\*\*", rows[1][1].strip())
    status, _, _ = posenc("report", folder, "--output", tmp_path / "out", "--name", "table2", "--samples", 20)
    assert status == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"table2.md", "table2.tex", "table2.csv", "table2_scores.svg"}
    assert "(table2_scores.png)" in (tmp_path / "out" / "table2.md").read_text()
    assert r"\label{tab:table2-scores}" in (tmp_path / "out" / "table2.tex").read_text()
    for wrong in (("--name", "../x"), ("--name", ".x"), ("--decimals", "7"), ("--decimals", "-1"), ("--order", "name")):
        assert posenc("report", folder, *wrong)[0] == 2


def test_cells_that_a_spreadsheet_would_compute(posenc, write, tmp_path):
    strange = {**runs.run("t5"), "method": {}, "arch": "=cmd|' /C calc'!A0"}
    status, _, _ = posenc("report", write(runs.run("none"), strange), "--output", tmp_path / "out", "--samples", 20)
    assert status == 0 and "'=cmd" in (tmp_path / "out" / "report.csv").read_text()
    assert "\n=cmd" not in (tmp_path / "out" / "report.csv").read_text()


@pytest.mark.parametrize("where", ["arch", "part"])
def test_names_are_neither_tags_nor_links_nor_formulas(posenc, write, tmp_path, where):
    """The names of a model and of a test set both come from score.json."""
    name = "=[a](javascript:b)<script>|c"
    changes = {"method": {}, "arch": name} if where == "arch" else {"part": name}
    others = {"part": name} if where == "part" else {}
    folder = write(runs.run("none", **others), runs.run("t5", **changes))
    assert posenc("report", folder, "--output", tmp_path / "out", "--samples", 20)[0] == 0
    markdown = re.sub(r"^!\[.*\]\(\w+\.png\)$", "", (tmp_path / "out" / "report.md").read_text(), flags=re.MULTILINE)
    assert "javascript" in markdown and "](" not in markdown and "<script" not in markdown
    assert "<script" not in (tmp_path / "out" / "report.html").read_text()
    cells = [cell for row in csv.reader(io.StringIO((tmp_path / "out" / "report.csv").read_text())) for cell in row]
    assert any("javascript" in cell for cell in cells) and not any(cell.startswith("=") for cell in cells)
