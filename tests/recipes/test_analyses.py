"""recipes/studies/analyses: its commands, its errors, and a run with small models."""

import os
import shlex
import subprocess

import pytest

from fairseq_posenc.evaluation.analysis.command import ANALYSES
from tests.recipes.process import ROOT, Process, environment, programs

RECIPE = ROOT / "recipes" / "studies" / "analyses"


def commands(*stages, **options):
    shown = subprocess.run([RECIPE, *stages], env=environment(DRY_RUN="1", **options), capture_output=True, text=True, check=True)
    lines = [shlex.split(line) for line in shown.stdout.splitlines() if not line.startswith("#")]
    return [line[line.index("analyse") + 1 :] for line in lines if "analyse" in line]


@pytest.fixture
def runs(tmp_path):
    for name in ("rope", "t5"):
        (tmp_path / name / "seed1").mkdir(parents=True)
        (tmp_path / name / "seed1" / "score.json").touch()
    return tmp_path


def test_every_analysis_is_run_over_every_run(runs):
    found = commands(RUNS=str(runs), SEEN="40", DATA="data", SUBSETS="test test1", UPDATES="7")
    assert [words[0] for words in found] == [
        *(name for name in ("vectors", "identical", "sinusoids", "lengths", "moved")),
        *["reordering"] * 2,
    ]
    assert {words[0] for words in found} == set(ANALYSES)
    folders = [str(runs / name / "seed1") for name in ("rope", "t5")]
    for words in found:
        assert words[0] == "sinusoids" or words[1:3] == folders
        assert words[words.index("--output") + 1] == f"{runs}/analyses"
        assert ("--data" in words) == (words[0] not in ("sinusoids", "lengths"))
    by_name = {words[0]: words for words in found}
    assert by_name["lengths"][-6:-4] == ["--seen", "40"] or "--seen" in by_name["lengths"]
    assert by_name["moved"][by_name["moved"].index("--subsets") + 1 :][:2] == ["test", "test1"]
    assert [words[words.index("--mode") + 1] for words in found if words[0] == "reordering"] == ["frozen", "scratch"]


def test_some_analyses_alone(runs):
    assert [words[0] for words in commands("vectors", "frozen", RUNS=str(runs))] == ["vectors", "reordering"]


@pytest.mark.parametrize(
    "options, says",
    [
        ({"RUNS": "{}/nowhere"}, "no such folder. Expected the output folder of a recipe"),
        ({"RUNS": "{}/empty"}, "no score.json in this folder. Run the stage score"),
        ({"RUNS": "{}/empty", "UPDATES": "0"}, "UPDATES=0: not allowed. Expected a whole number from 1"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, options, says):
    (tmp_path / "empty").mkdir()
    given = {name: value.format(tmp_path) for name, value in options.items()}
    done = subprocess.run([RECIPE], env={**os.environ, "POSENC_BIN": programs(), **given}, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and says in done.stderr


def test_what_is_done_is_not_done_again(tmp_path):
    """The stage `sinusoids` is tested, because it does not need a trained model."""
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "score.json").touch()
    recipe = Process(RECIPE, tmp_path / "out", RUNS=str(tmp_path / "runs"))
    recipe.run("sinusoids")
    assert (tmp_path / "out" / "sinusoids.csv").is_file()
    assert "sinusoids: done before" in recipe.run("sinusoids")
    assert "created with other settings (SEED=1, now 2)" in recipe.fails("sinusoids", SEED="2")


def test_tables_of_runs_that_were_trained_again_are_not_kept(runs, tmp_path):
    score = runs / "t5" / "seed1" / "score.json"
    recipe = Process(RECIPE, tmp_path / "out", RUNS=str(runs))
    printed = subprocess.run(["bash", "-c", f"cat {runs}/*/seed1/score.json | cksum"], capture_output=True, text=True).stdout
    (tmp_path / "out").mkdir()
    stamp = tmp_path / "out" / ".vectors.done"  # as if the stage had ended
    stamp.write_text(f"RUNS={runs}\nSEED=1\nDATA=\nFOUND=rope/seed1 t5/seed1\nSCORES={printed.split()[0]}\n")
    assert "vectors: done before" in recipe.run("vectors")
    score.write_text("{}")
    assert "(checksum of score.json of all runs=" in recipe.fails("vectors")
