"""A method outside this package in a recipe, a benchmark and a report, as in the tutorial on adding a method."""

import json
import re
import subprocess

import pytest

from fairseq_posenc.cli import main
from tests.recipes.process import ROOT, environment, programs
from tests.recipes.test_quickstart import commands, of, quickstart


@pytest.fixture(scope="module")
def slope(tmp_path_factory):
    folder = tmp_path_factory.mktemp("methods")
    assert main(["new", "slope", "--folder", str(folder)]) == 0
    return folder / "slope.py"


def posenc(*arguments, **options):
    """Return (output, errors) of a command that succeeds."""
    command = [f"{programs(None)}/posenc", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment(**options), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_a_recipe_would_train_it_as_a_spec_and_as_an_architecture(slope):
    found = commands(
        METHODS="slope:start=2+rope posenc_slope",
        OUT="runs/x",
        POSENC_METHODS=str(slope),
        POSENC_BIN=programs(None),
    )
    specs, architecture = of("fairseq-train", "/slope", found), of("fairseq-train", "/posenc_slope/", found)
    assert specs[0][specs[0].index("--decoder-position") + 1] == "slope:start=2+rope"
    assert architecture[0][architecture[0].index("--arch") + 1] == "posenc_slope_tiny"
    assert found[-1][-5:] == ["runs/x", "--seed-variance", "results/chance", "--methods", "slope:start=2+rope"]


def test_all_methods_include_it(slope):
    found = commands(METHODS="all", OUT="runs/x", POSENC_METHODS=str(slope), POSENC_BIN=programs(None))
    assert len(of("fairseq-train", "/posenc_slope/", found)) == 1


@pytest.mark.slow
def test_a_recipe_trains_it_and_ends_with_its_row(slope, tmp_path):
    recipe = quickstart(tmp_path / "out", METHODS="none slope", POSENC_METHODS=str(slope), UPDATES="3", SAVE_EVERY="3")
    table = [line for line in recipe.run().splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in table[2:]] == ["none", "slope"]
    assert {run.parts[0] for run in recipe.scores()} == {"none", "slope"}

    printed, _ = posenc("report", recipe.out, "--json", "--baseline", "none", "--samples", 10, POSENC_METHODS=str(slope))
    _, own = json.loads(printed)["rows"]
    assert own["method"] == "slope" and own["parameters_added"] == 2 * 4  # one factor per head and stack
    difference = own["scores"]["test"]["chrf"]["difference"]
    assert difference["p"] is None  # one seed: only the significance test over sentences is possible
    assert 0 < difference["sentences_holm_p"]["1"] <= 1
    printed, _ = posenc("report", recipe.out, POSENC_METHODS="")  # as on a machine without the file of the method
    assert "| slope" in printed

    assert recipe.run().count("done before") == 11
    changed = tmp_path / "slope.py"  # the equation has changed, but not the name of the file and of the method
    changed.write_text(slope.read_text() + "\n# another equation\n")
    error = recipe.fails(POSENC_METHODS=str(changed))
    folder = recipe.out / "slope" / "seed1"
    assert re.search(rf"{folder}: created with other settings \(code of the method=\w{{8}}, now \w{{8}}\). Use another", error)
    recipe.run("train", METHODS="none", POSENC_METHODS=str(changed))  # rows without this method are as before


@pytest.mark.slow
def test_the_benchmark_measures_it(slope, tmp_path):
    options = "--size tiny --rounds 1 --shapes 2x8 --lengths 8 --steps 3".split()
    given = ["slope:start=2", "posenc_slope", "t5", *options, "--output", tmp_path / "out"]
    posenc("bench", *given, POSENC_METHODS=str(slope))
    rows = json.loads((tmp_path / "out" / "bench.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["slope:start=2", "posenc_slope", "t5"]
    assert all({"training 2x8", "decoding", "attention 8"} < set(row) for row in rows)
