"""The study of output lengths: its commands, and a complete run on a small language."""

import csv
import shlex
import subprocess

import pytest

from fairseq_posenc.cli import main
from tests.recipes.process import ROOT, SMALL, Process, environment, programs

RECIPE = ROOT / "recipes" / "studies" / "lengths"


def run(*stages, **options) -> subprocess.CompletedProcess:
    return subprocess.run([RECIPE, *stages], env=environment(POSENC_BIN=programs(), **options), capture_output=True, text=True)


def commands(tool, **options) -> list:
    done = run(DRY_RUN="1", **options)
    assert done.returncode == 0, done.stderr
    lines = [shlex.split(line) for line in done.stdout.splitlines() if not line.startswith("#")]
    return [words for words in lines if any(word.endswith(tool) for word in words[:4])]


def value(words, option) -> str:
    return words[words.index(option) + 1]


def test_rows_differ_in_the_decoder_and_in_noise():
    found = commands("fairseq-train", OUT="runs/x")
    assert [(value(words, "--decoder-position"), value(words, "--length-noise")) for words in found] == [
        *((method, "0") for method in ("none", "sinusoidal", "ldpe", "lrpe", "ldpe+sinusoidal", "lrpe+sinusoidal")),
        *((method, noise) for method in ("ldpe", "lrpe") for noise in ("2", "4", "8")),
    ]
    own = {"--decoder-position", "--length-noise", "--save-dir", "--tensorboard-logdir"}
    plain = [[w for w, before in zip(words, ["", *words]) if before not in own and ">" not in before] for words in found]
    assert all(words[:-1] == plain[0][:-1] for words in plain)


def test_every_row_is_asked_for_every_length():
    found = commands("fairseq-generate", OUT="runs/x", METHODS="ldpe", NOISES="")
    asked = [(value(words, "--length-from"), value(words, "--length-ratio")) for words in found]
    ratios = ("0.7", "0.8", "0.9", "1.0", "1.1", "1.2", "1.3")
    assert asked == [*(("reference", ratio) for ratio in ratios), ("source", "1.0"), ("predictor", "1.0")]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"DATA": "news"}, ["DATA=news", "language multi30k"]),
        ({"RATIOS": "1.0 much"}, ["RATIOS=1.0 much", "a decimal number"]),
        ({"NOISES": "-1"}, ["NOISES=-1"]),
    ],
    ids=str,
)
def test_options_that_are_wrong(options, words):
    done = run(DRY_RUN="1", **options)
    assert done.returncode != 0 and all(word in done.stderr for word in words), done.stderr


def test_a_method_of_the_user_that_was_edited_is_not_done_before(tmp_path):
    assert main(["new", "slope", "--folder", str(tmp_path)]) == 0
    stamp = tmp_path / "out" / "slope" / "seed1" / ".train.done"
    stamp.parent.mkdir(parents=True)
    stamp.write_text("METHOD_CODE=00000000\n")
    options = {"METHODS": "slope", "NOISES": "", "POSENC_METHODS": str(tmp_path / "slope.py")}
    assert "created with other settings (code of the method=00000000, now" in Process(RECIPE, tmp_path / "out", **options).fails(
        "train"
    )


@pytest.mark.slow
def test_killed_in_every_stage_it_ends_with_a_row_for_every_training(tmp_path):
    """The run uses a small language and few updates."""
    options = {
        "SENTENCES": "200",
        "TEST": "6",
        "UPDATES": "3",
        "RATIOS": "0.8",
        "BEAM": "1",
        "METHODS": "sinusoidal ldpe",
        "NOISES": "2",
        "TRAIN_OPTIONS": SMALL,
    }
    study = Process(RECIPE, tmp_path / "out", **options)
    study.kill_in_every_stage(METHODS="ldpe", NOISES="")
    study.run()
    rows = list(csv.DictReader((tmp_path / "out/report/lengths.csv").open()))
    whole = [(row["decoder"], row["part"]) for row in rows if row["source_words"] == "all"]
    parts = ("predictor_1.0", "reference_0.8", "source_1.0")
    assert sorted(whole) == [(row, part) for row in ("ldpe", "ldpe:min_remaining=-2, noise 2", "sinusoidal") for part in parts]
