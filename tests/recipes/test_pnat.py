"""The study of PNAT: its commands, its helper programs, and one small complete run."""

import csv
import json
import re
import runpy
import shlex
import shutil
import subprocess

import pytest
from scipy import stats

from fairseq_posenc.evaluation.scoring import archive
from tests.recipes.process import ROOT, SMALL, Process, environment, programs

RECIPE = ROOT / "recipes" / "studies" / "pnat"
LIB = ROOT / "recipes" / "lib"


def commands(*stages, **options):
    """Return every command that the recipe would run, as lists of words without redirections."""
    shown = subprocess.run(
        [RECIPE, *stages], env=environment(DRY_RUN="1", OUT="runs/x", **options), capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    lines = [re.sub(r" >>? \S+\s*$", "", line) for line in shown.stdout.splitlines() if not line.startswith("#")]
    return [shlex.split(line) for line in lines]


def of(tool, found):
    return [words for words in found if any(word.rpartition("/")[2] == tool for word in words[:4])]


def value(words, option):
    return words[len(words) - words[::-1].index(option)]


def test_rows_differ_in_their_positions_alone():
    train = of("fairseq-train", commands("train", ROWS="nat nat_absolute nat_deep pnat pnat_pointer", SEEDS="1"))
    rows = ("nat", "nat_absolute", "nat_deep", "pnat", "pnat_pointer")
    assert [value(words, "--save-dir") for words in train] == [f"runs/x/{row}/seed1" for row in rows]
    nat, absolute, deep, pnat, pointer = (" ".join(words).replace(value(words, "--save-dir"), "*") for words in train)
    assert "--bridge-states encoder --position-search none" in nat
    assert absolute == nat.replace("--position-search none", "--position-search none --decoder-position sinusoidal")
    assert deep == nat.replace("--position-search none", "--position-search none --decoder-layers 4")
    assert pnat == nat.replace("--position-search none", "--search-score words --search-loss-weight 1")
    assert pointer == pnat.replace("--search-loss-weight 1", "--search-loss-weight 1 --position-predictor pointer")
    assert all(words[words.index("--arch") - 1] == "runs/x/distilled/data" for words in train)


def test_every_row_is_trained_with_every_seed():
    train = of("fairseq-train", commands("train"))
    found = [(value(words, "--save-dir"), value(words, "--seed")) for words in train]
    rows = ("nat_deep", "nat", "nat_absolute", "pnat")
    assert found == [(f"runs/x/{row}/seed{seed}", seed) for row in rows for seed in "123"]


def test_students_learn_from_the_teacher_and_are_decoded_in_four_ways():
    found = commands(ROWS="pnat", SEEDS="1", POSENC_BIN="bin")
    train = of("fairseq-train", found)
    assert [value(words, "--arch") for words in train] == ["posenc_sinusoidal_tiny", "posenc_pnat_tiny"]
    generate = of("fairseq-generate", found)
    assert [value(words, "--gen-subset") for words in generate] == ["train", *["test"] * 7]
    assert [value(words, "--path").count(":") for words in generate] == [0, 0, 0, 0, 0, 1, 0, 0]
    assert value(generate[5], "--path") == "runs/x/pnat/seed1/checkpoint_last.pt:runs/x/teacher/checkpoint_last.pt"
    assert value(generate[7], "--decode-positions") == "reference"
    (validate,) = of("fairseq-validate", found)
    assert value(validate, "--valid-subset") == "test"
    assert found[-1][1:] == ["recipes/lib/pnat_table.py", "runs/x", "pnat"]


def test_rows_can_learn_from_the_references():
    found = commands(ROWS="nat", SEEDS="1", LEARN_FROM="reference")
    assert not any("distilled" in word for words in found for word in words)
    assert len(of("fairseq-train", found)) == 2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"LEARN_FROM": "nobody"}, "LEARN_FROM=nobody: not allowed. Expected one of: teacher reference"),
        (
            {"ROWS": "nat rnn"},
            "ROWS=nat rnn: not allowed. Expected a list in which each value is one of: nat nat_absolute nat_deep pnat "
            "pnat_pointer pnat_relative",
        ),
        ({"DATA": "wmt"}, "DATA=wmt: not allowed. Expected one of: language multi30k"),
        ({"LENGTH_BEAM": "1"}, "LENGTH_BEAM=1: not allowed. Expected a whole number from 3 to"),
        ({"UPDATES": "none"}, "UPDATES=none: not allowed. Expected a whole number from 1 to"),
    ],
)
def test_wrong_options_are_refused(options, message):
    done = subprocess.run([RECIPE], env=environment(DRY_RUN="1", **options), capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1


def helper(name, *arguments, status=0):
    done = subprocess.run([f"{programs()}/python", LIB / name, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_hypotheses_stand_beside_their_sources(tmp_path):
    out, sources = tmp_path / "out", tmp_path / "sources"
    out.write_text("S-2\tc\nH-2\t-0.1\tC C\nH-2\t-0.3\tsecond best\nD-2\t-0.1\tC C\nH-0\t-0.5\tA\nH-1\t-0.2\t\n")
    sources.write_text("a\nb\nc\nd\n")
    shown = helper("hypotheses.py", out, sources, tmp_path / "s", tmp_path / "t")
    assert shown == "2 of 4 sentences have a translation\n"
    assert ((tmp_path / "s").read_text(), (tmp_path / "t").read_text()) == ("a\nc\n", "A\nC C\n")


@pytest.mark.parametrize("text", ["nothing", "H-9\t0\twords\n"])
def test_an_output_of_other_sources_is_refused(tmp_path, text):
    out, sources = tmp_path / "out", tmp_path / "sources"
    out.write_text(text)
    sources.write_text("a\n")
    assert "translations are missing. Expected 1, one per line" in helper("hypotheses.py", out, sources, out, out, status=1)


def test_the_table_needs_scores(tmp_path):
    assert "score.json: no such file. Run the stage score first." in helper("pnat_table.py", tmp_path, "nat", status=1)


def test_a_row_is_the_mean_over_its_seeds(tmp_path):
    committed, out = ROOT / "results" / "pnat" / "language", tmp_path / "out"
    places = {"teacher": "teacher", "nat/seed1": "nat/seed2", "nat/seed2": "nat/seed10"}  # run -> its place in this archive
    records = archive.read(committed)
    out.mkdir()
    archive.write(out, {place: records[run] for run, place in places.items()})
    for place, speed in (("nat/seed2", "70.5"), ("nat/seed10", "80.5")):
        folder = out / place
        folder.mkdir(parents=True)
        (folder / "speed.out").write_text(
            f"Translated 300 sentences (4,461 tokens) in 1.8s ({speed} sentences/s, 2452.77 tokens/s)\n"
        )
        (folder / "accuracy.out").write_text("valid on 'test' subset | order_accuracy 93.18 | position_accuracy 81.45 | wps 0\n")
    helper("pnat_table.py", out, "nat")
    with (out / "table.csv").open() as file:
        _, nat = csv.DictReader(file)
    expected = sum(records[run].parts["test"].bleu for run in ("nat/seed1", "nat/seed2")) / 2
    assert float(nat["BLEU"]) == pytest.approx(expected, abs=0.006)
    assert (nat["sentences/s"], nat["position %"], nat["of near pairs %"]) == ("75.5", "81.45", "")
    shutil.rmtree(out / "nat")
    before = (out / "table.csv").read_text()
    helper("pnat_table.py", out, "nat")  # works without the folder of a run. The archive and measured.json have all values
    assert (out / "table.csv").read_text() == before


def test_seeds_of_a_row_have_equal_settings(tmp_path):
    records = archive.read(ROOT / "results" / "pnat" / "language")
    longer = records["nat/seed2"].model_copy(update={"updates": 7})
    archive.write(tmp_path, {"teacher": records["teacher"], "nat/seed1": records["nat/seed1"], "nat/seed2": longer})
    error = helper("pnat_table.py", tmp_path, "nat", status=1)
    assert "differ in updates (" in error and "Expected differences only in method and seed" in error


def test_a_row_of_fewer_seeds_than_others_is_named(tmp_path):
    out, records = tmp_path / "out", archive.read(ROOT / "results" / "pnat" / "language")
    out.mkdir()
    finished = ["teacher", "nat/seed1", "nat/seed2", "pnat/seed1"]
    archive.write(out, {run: records[run] for run in finished})
    helper("pnat_table.py", out, "nat", "pnat")
    expected = "300 test sentences, means over the seeds 1, 2. Rows with fewer seeds: pnat (seed 1).\n"
    assert expected in (out / "table.md").read_text()
    with (out / "table.csv").open() as file:
        assert [(row["model"], row["seeds"]) for row in csv.DictReader(file)] == [("teacher", "1"), ("nat", "2"), ("pnat", "1")]
    (out / "pnat" / "seed2").mkdir(parents=True)  # this seed has begun, and is not finished
    before = (out / "table.csv").read_text()
    error = helper("pnat_table.py", out, "nat", "pnat", status=1)
    assert "pnat/seed2/score.json: no such file. Run the stage score first." in error
    assert (out / "table.csv").read_text() == before


def test_rows_of_three_seeds_have_intervals_and_tests():
    over_seeds = runpy.run_path(str(LIB / "pnat_table.py"))["over_seeds"]
    first, second, third = [80.0, 81.0, 83.5], [86.0, 85.0, 88.0, 87.0], [82.0, 79.0, 85.5]
    found = over_seeds([first, second, third])
    mean, error = sum(first) / 3, stats.sem(first)
    limits = stats.t.interval(0.95, 2, mean, error)
    assert (found[0]["BLEU low"], found[0]["BLEU high"]) == pytest.approx(limits, abs=1e-4)
    assert "corrected p" not in found[0]
    tests = [stats.ttest_ind(row, first, equal_var=False) for row in (second, third)]
    small, large = sorted(test.pvalue for test in tests)
    holm = [min(1.0, 2 * small), max(min(1.0, 2 * small), large)]
    assert [row["corrected p"] for row in found[1:]] == pytest.approx(holm, abs=1e-4)
    for row, test in zip(found[1:], tests):
        interval = test.confidence_interval(0.95)
        assert (row["difference low"], row["difference high"]) == pytest.approx((interval.low, interval.high), abs=1e-4)
    assert over_seeds([[80.0], [82.0, 83.0]]) == [{"difference": 0.0}, {"difference": 2.5}]


@pytest.mark.parametrize("data", ["language", "multi30k_en-de"])
def test_the_committed_table_is_that_of_its_scores(tmp_path, data):
    committed = ROOT / "results" / "pnat" / data
    shutil.copytree(committed, tmp_path / "out")
    for name in ("table.md", "table.csv"):
        (tmp_path / "out" / name).unlink()
    helper("pnat_table.py", tmp_path / "out", "nat_deep", "nat", "nat_absolute", "pnat")
    for name in ("table.md", "table.csv"):
        assert (tmp_path / "out" / name).read_text() == (committed / name).read_text()


def test_the_results_page_states_the_numbers_of_the_table():
    with (ROOT / "results" / "pnat" / "language" / "table.csv").open() as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    page = " ".join((ROOT / "results" / "README.md").read_text().split())
    section = page[page.index("## pnat/language") : page.index("## pnat/multi30k_en-de")]

    def below(row):
        number = {column: float(rows[row][column]) for column in rows[row] if rows[row][column] and column != "model"}
        low, high = -number["difference high"], -number["difference low"]
        p = f"p = {number['corrected p']:.3f}".replace("0.", ".") if number["corrected p"] >= 0.001 else "p < .001"
        return f"{-number['difference']:.1f} BLEU below `nat_deep` (95 % interval {low:.1f} to {high:.1f}, corrected {p})"

    for row in ("pnat", "nat", "nat_absolute"):
        assert below(row) in section, row
    pnat = rows["pnat"]
    assert f"{float(pnat['reference positions']):.1f} BLEU" in section
    assert f"{float(rows['teacher']['BLEU']):.1f} BLEU" in section
    assert f"{float(pnat['position %']):.0f} % of the positions correctly" in section
    assert f"{float(pnat['times the teacher']):.1f} times as fast" in section


@pytest.mark.slow
def test_killed_in_every_stage_a_small_study_ends_with_its_table(tmp_path):
    small = {"SENTENCES": "30", "TEST": "2", "VOCABULARY": "200", "TEACHER_UPDATES": "2", "UPDATES": "2", "BEAM": "1"}
    study = Process(RECIPE, tmp_path / "out", ROWS="pnat", SEEDS="2", LENGTH_BEAM="3", TRAIN_OPTIONS=SMALL, **small)
    study.kill_in_every_stage()
    assert "| teacher" in study.run()
    with (study.out / "table.csv").open() as file:
        teacher, pnat = csv.DictReader(file)
    assert (teacher["model"], pnat["model"], teacher["times the teacher"]) == ("teacher", "pnat", "1.0")
    parts = json.loads((study.out / "pnat" / "seed2" / "score.json").read_text())["parts"]
    assert set(parts) == {"test", "lengths", "rescored", "reference"}
    over_seeds = {"BLEU low", "BLEU high", "difference low", "difference high", "corrected p"}  # unknown for one seed
    assert {column for column in pnat if pnat[column] == ""} == over_seeds
    before = study.files()
    study.run("train", "decode", "score")
    assert study.files() == before  # all stages were complete before
