"""TER and the scores of other programs in tables, plots and tests, next to BLEU and chrF."""

import csv
import json
import re
import statistics

import numpy as np
import pytest
from sacrebleu.metrics import TER
from sacrebleu.significance import PairedTest

from fairseq_posenc.evaluation.report.sentences import SCORES
from fairseq_posenc.evaluation.scoring import others
from tests.report import runs

TEXTS = runs.texts()


def segment_scores(values, smaller_is_better=False):
    mean = statistics.fmean(values)
    packed = others.pack([[value] for value in values])
    return {"score": mean, "metric": "m, mean over sentences", "statistics": packed, "smaller_is_better": smaller_is_better}


def scored(spec, seed=1, rate=0.3, **more):
    """Return a run with TER and other scores."""
    record = runs.run(spec, seed, rate)
    ter = others.ter(runs.spoilt(TEXTS, rate, seed), [TEXTS])
    record["parts"]["test"]["others"] = {"ter": ter, **more}
    return record


def rows(posenc, folder, *options):
    """Return the cells of all tables by title and row, and the printed report."""
    status, out, error = posenc("report", folder, "--full", "--samples", 200, *options)
    assert status == 0, error
    tables = {}
    for block in ("\n" + out).split("\n## ")[1:]:
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines() if line.startswith("|")]
        tables[block.splitlines()[0]] = {line[0]: dict(zip(lines[0], line)) for line in lines[2:]}
    return tables, out


def test_the_smallest_ter_is_the_best(posenc, write):
    records = [scored(spec, seed, rate) for spec, rate in (("none", 0.5), ("t5", 0.2)) for seed in (1, 2)]
    tables, out = rows(posenc, write(*records))
    means = {spec: statistics.fmean(record["parts"]["test"]["others"]["ter"]["score"] for record in records[at : at + 2])
             for at, spec in ((0, "none"), (2, "t5"))}  # fmt: skip
    assert means["t5"] < means["none"]
    assert tables["Scores"]["t5"]["test TER"].startswith(f"**{means['t5']:.1f} [")
    assert tables["Scores"]["none"]["test TER"].startswith(f"{means['none']:.1f} [")
    assert tables["Difference to none"]["t5"]["test TER"].startswith(f"{means['t5'] - means['none']:+.1f} [")
    assert re.search(r"^test TER: t5 \(-\d+\.\d TER, .*\) differs from none\.$", out, re.MULTILINE)
    assert "* smaller is better: TER\n" in out and "* TER nrefs:1|case:lc|tok:tercom" in out
    assert re.search(r"test: standard deviation \d+\.\d TER, 2 degrees of freedom", out)


def test_ter_has_no_upper_limit(posenc, write):
    """A hypothesis that is longer than the reference can have more edits than the reference has words."""
    records = [scored(spec, seed) for spec in ("none", "t5") for seed in (1, 2, 3)]
    for record, ter in zip(records, (118, 131, 124, 98, 104, 101)):
        record["parts"]["test"]["others"]["ter"]["score"] = ter
    tables, _ = rows(posenc, write(*records))
    assert tables["Scores"]["none"]["test TER"].startswith("124.3 [108.2, 140.5]")
    assert tables["Scores"]["t5"]["test TER"].endswith("101.0 [93.5, 108.5]**")


def test_a_score_with_the_name_lengths_hides_no_requested_lengths(posenc, write):
    records = [scored(spec, lengths=segment_scores([0.5] * len(TEXTS))) for spec in ("none", "t5")]
    for record, ratio in zip(records, (1.0, 0.8)):
        asked = {"source": "reference", "ratio": ratio, "unit": "token", "end": "free"}
        record["parts"]["test"]["asked"] = asked
    status, _, error = posenc("report", write(*records))
    assert status == 2 and "differ in parts.test.asked.ratio (1.0 and 0.8)" in error


def test_ter_of_summed_counts_is_that_of_sacrebleu():
    hypotheses = runs.spoilt(TEXTS, 0.4)
    rows = np.array(others.unpack(others.ter(hypotheses, [TEXTS])["statistics"]))
    for first in range(0, len(TEXTS), 40):
        inside = slice(first, first + 40)
        expected = TER().corpus_score(hypotheses[inside], [TEXTS[inside]]).score
        assert SCORES["ter"](rows[inside].sum(0, keepdims=True)) == pytest.approx(expected)
    assert SCORES["ter"](np.array([[0.0, 0.0], [2.0, 0.0]])).tolist() == [0.0, 100.0]  # empty references


@pytest.mark.parametrize("test", ["ar", "bs"])
def test_ter_is_tested_over_sentences_as_by_sacrebleu(posenc, write, test):
    """sacreBLEU counts a sample if its difference is larger than the observed difference.

    This project also counts samples whose difference equals the observed difference.
    """
    tables, _ = rows(posenc, write(scored("none", 1, 0.32), scored("t5", 1, 0.31)), "--test", test)
    cell = tables["Tests over sentences"]["t5"]["test TER"]
    systems = [(spec, runs.spoilt(TEXTS, rate, 1)) for spec, rate in (("none", 0.32), ("t5", 0.31))]
    _, results = PairedTest(systems, {"t": TER()}, [TEXTS], "ar", 200)()
    expected = results["TER"][1].p_value
    assert 0.1 < expected < 0.9 and abs(float(cell.removeprefix("p = ")) - expected) < 0.1


def test_scores_of_other_programs_are_tested_over_sentences(posenc, write):
    low = [0.5 + 0.3 * (n % 2) for n in range(len(TEXTS))]
    high = [value + 0.01 for value in low]
    folder = write(
        scored("none", comet=segment_scores(low), metricx=segment_scores(high, True)),
        scored("t5", comet=segment_scores(high), metricx=segment_scores(low, True)),
    )
    tables, out = rows(posenc, folder)
    assert tables["Scores"]["t5"]["test comet"] == "**0.660**" and tables["Scores"]["none"]["test comet"] == "0.650"
    assert tables["Scores"]["t5"]["test metricx"] == "**0.650**"
    assert tables["Difference to none"]["t5"]["test comet"] == "+0.010"
    # Every sentence of t5 has a better score than in none. With 200 samples, p is therefore 1 / 201.
    assert tables["Tests over sentences"]["t5"]["test comet"] == "p = .005"
    assert tables["Tests over sentences"]["t5"]["test metricx"] == "p = .005"
    assert list(tables["Scores"]["t5"])[1:] == [f"test {name}" for name in ("BLEU", "chrF", "TER", "comet", "metricx")]
    assert "* smaller is better: TER, metricx\n" in out and "* m, mean over sentences\n" in out


def test_small_scores_have_a_seed_variance(posenc, write):
    """Rows with small scores of other programs, such as COMET, are included in the pooled seed variance.

    Rows with BLEU near 0 are excluded, because BLEU near 0 has little variance.
    """
    records = [
        scored(spec, seed, comet=segment_scores([base + seed / 100] * len(TEXTS)))
        for spec, base in (("none", 0.1), ("t5", 0.8))
        for seed in (1, 2)
    ]
    tables, out = rows(posenc, write(*records))
    assert re.fullmatch(r"\+0\.700 \[\+0\.670, \+0\.730\], p < \.001", tables["Difference to none"]["t5"]["test comet"])
    assert "standard deviation 0.007 comet, 2 degrees of freedom" in out


def test_runs_without_other_scores_are_shown_without_them(posenc, write):
    records = [scored("none"), scored("t5"), runs.run("rope")]
    folder = write(*records)
    tables, _ = rows(posenc, folder)
    assert tables["Scores"]["rope"]["test TER"] == tables["Difference to none"]["rope"]["test TER"] == "not scored"
    assert tables["Tests over sentences"]["rope"]["test TER"] == "not tested"


def test_all_formats_have_all_scores(posenc, write, tmp_path):
    second = runs.run("t5", part="web")["parts"]["web"]
    records = [scored(spec, human=segment_scores([50.0] * len(TEXTS))) for spec in ("none", "t5")]
    for record in records:
        record["parts"]["web"] = second  # a test set with two scores, in addition to a test set with four scores
    status, _, error = posenc("report", write(*records), "--output", tmp_path / "out", "--samples", 20)
    assert status == 0, error
    for name in ("report.md", "report.tex", "report.html"):
        text = (tmp_path / "out" / name).read_text()
        assert "test TER" in text and "test human" in text and "web TER" not in text
    (none, t5) = csv.DictReader((tmp_path / "out" / "report.csv").read_text().splitlines())
    ter = records[0]["parts"]["test"]["others"]["ter"]["score"]
    assert float(none["test_ter_mean"]) == pytest.approx(ter, abs=1e-4)
    assert t5["test_human_sentences_holm_p"] == "1" and "web_ter_mean" not in none
    picture = (tmp_path / "out" / "scores.svg").read_text()
    assert "test: TER (smaller is better)" in picture and "test: human<" in picture and "web: TER" not in picture
    status, out, _ = posenc("report", tmp_path / "runs", "--json", "--full", "--samples", 20)
    found = json.loads(out)
    assert found["smaller_is_better"] == ["ter"]
    assert found["rows"][0]["scores"]["test"]["ter"]["mean"] == pytest.approx(ter)


def test_scores_of_one_name_have_one_direction(posenc, write):
    """A score from --segment-scores and a score from --segment-errors are different metrics."""
    values = [0.5] * len(TEXTS)
    folder = write(scored("none", comet=segment_scores(values)), scored("t5", comet=segment_scores(values, True)))
    status, out, error = posenc("report", folder)
    assert status == 2 and not out and error.count("\n") == 1
    assert "none and t5 differ in parts.test.comet.smaller_is_better (False and True)" in error


@pytest.mark.parametrize(
    "name, rows_of", [("ter", [[1.0]]), ("ter", [[1.0, 2.0]]), ("comet", [[1.0, 2.0]] * 120), ("comet", "AAAA")]
)
def test_damaged_statistics_are_one_line(posenc, write, name, rows_of):
    record = scored("t5", comet=segment_scores([0.5] * len(TEXTS)))
    packed = rows_of if isinstance(rows_of, str) else others.pack(rows_of)
    record["parts"]["test"]["others"][name]["statistics"] = packed
    status, _, error = posenc("report", write(scored("none"), record), "--full", "--samples", 20)
    assert status == 2 and error.count("\n") == 1
    assert "t5, seed 1, test set test: the sentence statistics are damaged" in error
