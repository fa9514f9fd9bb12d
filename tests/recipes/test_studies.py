"""Studies that only list rows. The recipe quickstart or multi30k_uk trains these rows.

The file tests the rows, the data and the choice of the recipe.
"""

import itertools
import shlex
import subprocess

import pytest

from fairseq_posenc.cli.check import check, specs_of
from fairseq_posenc.core import Dims
from fairseq_posenc.registry.spec import parse
from tests.recipes.captions import of, value
from tests.recipes.process import ROOT, environment, programs

STUDIES = ROOT / "recipes" / "studies"
ROWS = sorted((STUDIES / "rows").glob("*.txt"))


def commands(study, *stages, **options):
    environ = environment(DRY_RUN="1", **{"POSENC_BIN": "/opt/bin", **options})
    shown = subprocess.run([STUDIES / study, *stages], env=environ, capture_output=True, text=True, check=True).stdout
    return [shlex.split(line) for line in shown.splitlines() if not line.startswith("#")]


def rows_of(path):
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("path", ROWS, ids=lambda path: path.stem)
def test_every_row_can_be_built_and_no_two_are_one_model(path):
    length = 758 if path.stem.endswith("_multi30k") else 256
    assert list(check(rows_of(path), Dims(128, 4, 2, length, length))) == rows_of(path)


@pytest.mark.parametrize("study", ["clipping", "diet", "blocks", "chance"])
@pytest.mark.parametrize("data", ["language", "multi30k"])
def test_a_study_trains_its_rows(study, data):
    found = commands(study, "train", "table", DATA=data)
    path = STUDIES / "rows" / f"{study}_{data}.txt"
    rows = rows_of(path if path.exists() else STUDIES / "rows" / f"{study}.txt")
    # if a command repeats an option, the last value counts
    trained = [dict(itertools.pairwise(words)) for words in of("fairseq-train", found)]
    expected = [
        {f"--{site}-position": spec for site, spec in specs_of(row).items() if spec != "none" or site != "cross"} for row in rows
    ]
    seeds = 5 if study == "chance" else 1
    given = [{key: text for key, text in words.items() if key.endswith("-position")} for words in trained]
    assert given == expected * seeds
    assert found[-1][found[-1].index("--methods") + 1 :][: len(rows)] == rows
    out = f"runs/{study}" if data == "language" else f"runs/{study}_multi30k_en-de"
    assert all(words["--save-dir"].startswith(f"{out}/") for words in trained)


def test_other_options_are_those_of_the_engine():
    found = commands("diet", "train", METHODS="t5", UPDATES="33", SEEDS="7")
    (words,) = of("fairseq-train", found)
    assert value(words, "--max-update") == "33" and value(words, "--save-dir") == "runs/diet_UPDATES=33/t5/seed7"
    (words,) = of("fairseq-train", commands("chance", "train", DATA="multi30k", TARGET="uk", SEEDS="1", OUT="runs/x"))
    assert words[words.index("--task") - 1] == "sinusoidal" and value(words, "--save-dir") == "runs/x/sinusoidal/seed1"


def test_clipping_is_of_the_distances_of_the_paper_and_of_all_that_there_are():
    none, sinusoidal, *rows = rows_of(STUDIES / "rows" / "clipping.txt")
    assert (none, sinusoidal) == ("none", "sinusoidal")
    reached = {}
    for method in (parse(row).methods[0] for row in rows):
        reached.setdefault(method.name, []).append(method.options.max_distance or 255)
    assert list(reached) == ["huang1", "huang2", "huang3", "huang4", "shaw"]
    assert all(distances == [4, 8, 16, 32, 255] for distances in reached.values())


def test_an_output_folder_has_one_kind_of_data(tmp_path):
    (tmp_path / "text").mkdir()
    stamp = tmp_path / "text" / ".subwords.done"  # as if the stage of the artificial language had ended
    stamp.write_text("DATA=language\nDATA_SEED=1\n")
    options = {"OUT": str(tmp_path), "POSENC_BIN": programs(), "DATA": "multi30k"}
    done = subprocess.run([STUDIES / "diet", "prepare"], env=environment(**options), capture_output=True, text=True)
    assert done.returncode == 1 and "created with other settings (DATA=language, now multi30k)" in done.stderr


@pytest.mark.parametrize(
    "options, line",
    [
        ({"DATA": "wmt"}, "recipes/studies/diet: DATA=wmt: not allowed. Expected one of: language multi30k"),
        ({"UPDATES": "0"}, "recipes/studies/diet: UPDATES=0: not allowed. Expected a whole number from 1"),
        ({"DATA": "multi30k", "EPOCHS": "x"}, "recipes/studies/diet: EPOCHS=x: not allowed. Expected a whole number from 1"),
        ({"stage": "fetch"}, "recipes/studies/diet: stage 'fetch': unknown. Expected prepare"),
    ],
    ids=str,
)
def test_wrong_options_are_one_line(options, line):
    stages = [options["stage"]] if "stage" in options else []
    done = subprocess.run([STUDIES / "diet", *stages], env=environment(**options), capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(line)
