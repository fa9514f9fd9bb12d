"""The quickstart: its commands, and its continuation after it is killed."""

import itertools
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from fairseq_posenc import registry
from tests.recipes.process import ROOT, SMALL, Process, environment, programs

RECIPE = ROOT / "recipes" / "quickstart"
ANALYSES = ROOT / "recipes" / "studies" / "analyses"
MICRO = {"SENTENCES": "400", "UPDATES": "60", "SAVE_EVERY": "15", "TEST": "6", "TEST_LONG": "2", "TRAIN_OPTIONS": SMALL}


def commands(**options):
    """Return every command that the quickstart would run, as lists of words without redirections."""
    shown = subprocess.run([RECIPE], env=environment(DRY_RUN="1", **options), capture_output=True, text=True, check=True).stdout
    lines = [re.sub(r" >>? \S+\s*$", "", line) for line in shown.splitlines() if not line.startswith("#")]
    return [shlex.split(line) for line in lines]


def of(tool, folder, found):
    return [
        words for words in found if any(Path(word).name == tool for word in words[:4]) and any(folder in word for word in words)
    ]


@pytest.fixture(scope="module")
def shown():
    return commands(METHODS="none sinusoidal t5", OUT="runs/x")


def test_dry_run_changes_nothing(tmp_path):
    commands(OUT=str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["none", "sinusoidal", "t5"])
def test_every_method_is_trained_decoded_and_scored(shown, method):
    (train,) = of("fairseq-train", f"/{method}/", shown)
    assert train[train.index("--encoder-position") + 1] == train[train.index("--decoder-position") + 1] == method
    generate = of("fairseq-generate", f"/{method}/", shown)
    assert [words[words.index("--gen-subset") + 1] for words in generate] == ["test", "test1"]
    for words in [train, *generate]:
        assert words[words.index("--user-dir") + 1] == "fairseq_posenc"
        assert words[words.index("--required-batch-size-multiple") + 1] == "1"
    (score,) = of("score", f"/{method}/", shown)
    assert [word.split("=")[0] for word in score[-2:]] == ["test", "test_long"]


def test_commands_of_two_methods_differ_in_the_spec_alone(shown):
    def without(method):
        mine = [words for words in shown if any(f"/{method}/" in word for word in words)]
        return [
            [word.replace(f"/{method}/", "/*/") if "/" in word else re.sub(f"^{method}$", "*", word) for word in w] for w in mine
        ]

    assert without("none") == without("sinusoidal") == without("t5") != []


def test_the_last_command_makes_the_table_of_all_methods(shown):
    assert shown[-1][-8:] == ["report", "runs/x", "--seed-variance", "results/chance", "--methods", "none", "sinusoidal", "t5"]


def test_setup_runs_first_unless_an_installation_is_named(shown):
    assert shown[0] == ["recipes/setup"]
    named = commands(POSENC_BIN="/opt/posenc/bin")
    assert ["recipes/setup"] not in named
    assert all(words[0].startswith("/opt/posenc/bin/") for words in named if words[0] not in ("mkdir", "rm"))


def test_options_reach_the_commands():
    found = commands(METHODS="shaw:max_distance=8+t5", SEED="5", SENTENCES="77", UPDATES="33", OUT="runs/x")
    (train,) = of("fairseq-train", "", found)
    assert train[train.index("--encoder-position") + 1] == "shaw:max_distance=8+t5"
    assert train[train.index("--max-update") + 1] == train[train.index("--total-num-update") + 1] == "33"
    folder = train[train.index("--save-dir") + 1]
    # fairseq would interpret a colon in --path as a separator of two models
    assert folder.endswith("/seed5") and ":" not in folder
    (language,) = [words for words in found if "language" in words]
    assert language[language.index("--train") + 1] == "77"


def test_a_row_may_have_specs_of_its_own_at_every_site():
    found = commands(METHODS="encoder=t5:buckets=9;cross=shaw", OUT="runs/x")
    (train,) = of("fairseq-train", "", found)
    given = dict(itertools.pairwise(train))  # if an option occurs several times, the last value counts
    assert [given[f"--{site}-position"] for site in ("encoder", "decoder", "cross")] == ["t5:buckets=9", "none", "shaw"]
    assert given["--save-dir"] == "runs/x/encoder=t5_buckets=9_cross=shaw/seed1"
    assert found[-1][-1] == "encoder=t5:buckets=9;cross=shaw"


def test_seeds_share_a_table():
    found = commands(METHODS="none t5", SEEDS="1 2", OUT="runs/x")
    trained = [
        (words[words.index("--seed") + 1], words[words.index("--save-dir") + 1]) for words in of("fairseq-train", "", found)
    ]
    assert trained == [(seed, f"runs/x/{method}/seed{seed}") for seed in "12" for method in ("none", "t5")]
    assert [words[-2:] for words in found if "report" in words] == [["none", "t5"]]


def test_a_wrong_installation_is_one_line(tmp_path):
    options = environment(POSENC_BIN=str(tmp_path), OUT=str(tmp_path / "out"))
    done = subprocess.run([RECIPE], env=options, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "no fairseq-train in this folder" in done.stderr


def quickstart(out, **options):
    """Return the quickstart with two small training runs. It is not started."""
    return Process(RECIPE, out, **{"METHODS": "none t5", **MICRO, **options})


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    recipe = quickstart(tmp_path_factory.mktemp("quickstart") / "out")
    return recipe, recipe.run()


@pytest.mark.slow
def test_it_ends_with_the_table_and_shows_its_progress(uninterrupted):
    recipe, printed = uninterrupted
    lines = printed.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in table] == [
        "method",
        ":" + "-" * (len(table[1].split("|")[1]) - 1),
        "none",
        "t5",
    ]
    assert "not run" not in printed and re.search(r"\[ ?\d+:\d\d\]   update 50 of \d+, loss ", printed)
    assert {record["updates"] for record in recipe.scores().values()} == {60}


@pytest.mark.slow
def test_tensorboard_gets_the_curves(uninterrupted):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recipe, _ = uninterrupted
    for curve, tag in (("train_inner", "loss"), ("valid", "loss")):
        events = EventAccumulator(str(recipe.out / "t5" / "seed1" / "tensorboard" / curve)).Reload()
        assert events.Scalars(tag)


@pytest.mark.slow
def test_started_again_it_does_nothing_twice(uninterrupted):
    recipe, printed = uninterrupted
    before = recipe.files()
    again = recipe.run()
    assert before == recipe.files()
    assert again.count("done before") == 11 and again.splitlines()[-6:] == printed.splitlines()[-6:]


@pytest.mark.slow
def test_stopped_again_and_again_it_goes_on_to_the_same_numbers(uninterrupted, tmp_path):
    recipe = quickstart(tmp_path / "out")
    stops = ("none", 15, signal.SIGINT), ("none", 30, signal.SIGTERM), ("t5", 15, signal.SIGKILL)
    for nth, (method, updates, how) in enumerate(stops):
        folder = recipe.out / method / "seed1"
        recipe.start().wait_until(lambda: list(folder.glob(f"checkpoint_*_{updates}.pt")))  # noqa: B023
        if how == signal.SIGKILL:
            os.killpg(recipe.process.pid, how)
            (folder / "checkpoint_last.pt").write_bytes(b"half a copy")
        else:
            recipe.process.send_signal(how)  # the signal goes only to the recipe, and the recipe must end its command
        printed = recipe.process.communicate(timeout=60)[0]
        assert recipe.process.returncode != 0 and "|" not in printed.splitlines()[-1]
        assert [number >= 15 for number in recipe.resumed(printed)] == [True] * (nth > 0)
    assert [number >= 15 for number in recipe.resumed(recipe.run())] == [True]
    assert recipe.scores() == uninterrupted[0].scores()


@pytest.mark.slow
def test_killed_in_every_stage_and_before_its_stamp_it_ends_the_same(uninterrupted, tmp_path):
    recipe = quickstart(tmp_path / "out", METHODS="none")
    recipe.kill_in_every_stage()
    recipe.run()
    (run, scored), *_ = recipe.scores().items()
    assert scored == uninterrupted[0].scores()[run]


@pytest.mark.slow
def test_killed_while_it_makes_trees_it_makes_them_the_same(tmp_path):
    killed, whole = (quickstart(tmp_path / name, METHODS="posenc_tpe", SENTENCES="60") for name in ("killed", "whole"))
    killed.kill_in_every_stage("prepare")
    made = []
    for recipe in (killed, whole):
        recipe.run("prepare")
        made.append({path.name: path.read_bytes() for path in (recipe.out / "data").iterdir() if path.suffix != ".log"})
    assert made[0] == made[1]


@pytest.mark.slow
def test_analyses_of_its_runs_are_killed_in_every_stage(tmp_path):
    runs = quickstart(tmp_path / "runs", METHODS="sinusoidal", UPDATES="2")
    runs.run()
    recipe = Process(ANALYSES, tmp_path / "out", RUNS=str(runs.out), UPDATES="2")
    recipe.kill_in_every_stage()
    recipe.run()
    assert {path.stem for path in recipe.out.glob("*.csv")} >= {"vectors", "identical", "sinusoids", "lengths", "moved"}


@pytest.mark.slow
def test_a_few_updates_are_enough(uninterrupted, tmp_path):
    """The number of updates is smaller than the interval of the log."""
    recipe = quickstart(tmp_path / "out", METHODS="none", UPDATES="3", SAVE_EVERY="2")
    printed = recipe.run()
    assert "update 3 of 3, loss" in printed and [record["updates"] for record in recipe.scores().values()] == [3]


def test_architectures_and_all_of_them():
    some = commands(METHODS="posenc_xpos t5", OUT="runs/x", TRAIN_OPTIONS="--bf16", POSENC_BIN=programs())
    (xpos,), (t5,) = of("fairseq-train", "/posenc_xpos/", some), of("fairseq-train", "/t5/", some)
    assert xpos[xpos.index("--arch") + 1] == "posenc_xpos_tiny" and "--encoder-position" not in xpos
    assert t5[t5.index("--arch") + 1] == "posenc_transformer_tiny" and "--bf16" in t5 and "--bf16" in xpos
    (report,) = [words for words in some if "report" in words]
    assert report[-2:] == ["--methods", "t5"]  # the row of posenc_xpos has another name in the report
    trained = of("fairseq-train", "/posenc_", commands(METHODS="all", OUT="runs/x", POSENC_BIN=programs()))
    assert [words[words.index("--arch") + 1] for words in trained] == [
        f"posenc_{name}_tiny"
        for name in registry.names()
        if name != "alibi_symmetric"  # the model equals the model of alibi
        and not registry.card(name).documents
        for _ in range(1 + any(side.files for side in registry.card(name).side_inputs))  # also with random trees
    ]
    random = [words for words in trained if "--random-structure" in words]
    assert len(trained) - len({words[words.index("--arch") + 1] for words in trained}) == len(random) > 0


@pytest.mark.parametrize(
    "options, line",
    [
        ({"UPDATES": "abc"}, "UPDATES=abc: not allowed. Expected a whole number from 1 to 999999999"),
        ({"UPDATES": "0"}, "UPDATES=0: not allowed. Expected a whole number from 1 to 999999999"),
        ({"TEST": "0"}, "TEST=0: not allowed. Expected a whole number from 1 to 999999999"),
        ({"SEED": "one"}, "SEED=one: not allowed. Expected a whole number from 0 to 999999999"),
        ({"METHODS": "t5 shw"}, "method 'shw': unknown. Did you mean 'shaw'?"),
        ({"METHODS": "t5 posenc_t5_tiny"}, "architecture 'posenc_t5_tiny': the name contains a size. Expected posenc_t5."),
        ({"METHODS": "t5:layers=2"}, "there is no layer 2. Expected layers 0 to 1."),
        ({"stage": "fetch"}, "stage 'fetch': unknown. Expected prepare train decode score table"),
    ],
    ids=str,
)
def test_wrong_options_are_one_line_before_anything_is_made(options, line, tmp_path):
    stages = [options["stage"]] if "stage" in options else []
    environ = environment(POSENC_BIN=programs(), OUT=str(tmp_path / "out"), **options)
    done = subprocess.run([RECIPE, *stages], env=environ, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and line in done.stderr
    assert not (tmp_path / "out").exists()


def test_other_options_have_another_folder():
    """Runs with the defaults and runs with 1500 updates have different folders, so that both can exist."""

    def folder(**options):
        return commands(METHODS="none", **options)[-1][-5]

    assert folder() == folder(SEED="2", SAVE_EVERY="10") == "runs/quickstart"
    assert folder(UPDATES="1500") == "runs/quickstart_UPDATES=1500"
    assert folder(UPDATES="1500", TRAIN_OPTIONS="--bf16") == "runs/quickstart_UPDATES=1500_TRAIN_OPTIONS=--bf16"
    assert folder(UPDATES="1500", OUT="runs/x") == "runs/x"


@pytest.mark.slow
def test_other_settings_are_refused_and_named(uninterrupted):
    recipe, _ = uninterrupted
    line = recipe.fails(SENTENCES="500")
    assert f"{recipe.out}/text: created with other settings (SENTENCES=400, now 500). Use another folder (OUT)" in line
    line = recipe.fails(UPDATES="80")  # the text does not depend on this option
    assert f"{recipe.out}/none/seed1: created with other settings (UPDATES=60, now 80)" in line


@pytest.mark.slow
def test_two_at_once_in_one_folder_are_refused(tmp_path):
    first, second = quickstart(tmp_path / "out"), quickstart(tmp_path / "out")
    first.start().wait_until((tmp_path / "out" / "text").exists)
    assert ": in use" in second.fails()
    first.kill()
