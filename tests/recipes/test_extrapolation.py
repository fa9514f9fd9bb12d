"""The study of extrapolation: its commands, and a complete run on little data."""

import re
import shlex
import subprocess

import pytest

from tests.recipes.process import ROOT, SMALL, Process, environment

RECIPE = ROOT / "recipes" / "studies" / "extrapolation"
MICRO = {
    "SENTENCES": "300", "UPDATES": "4", "LONGEST": "15", "TEST": "120", "FARTHEST": "35", "TEST_LONG": "12", "LENGTH": "100",
    "TRAIN_OPTIONS": SMALL,
}  # fmt: skip


def shown(**options) -> list:
    found = subprocess.run([RECIPE], env=environment(DRY_RUN="1", **options), capture_output=True, text=True, check=True).stdout
    return [shlex.split(re.sub(r" >>? \S+\s*$", "", line)) for line in found.splitlines() if not line.startswith("#")]


def test_training_is_short_and_the_test_is_long():
    found = shown(METHODS="none rope", LONGEST="15", FARTHEST="50", OUT="runs/x")
    (language,) = [words for words in found if "language" in words]
    assert language[language.index("--words") + 1 :][:2] == ["4", "15"]
    assert language[language.index("--long-words") + 1 :][:2] == ["16", "50"]
    generate = [words for words in found if words[0].endswith("fairseq-generate")]
    assert [words[words.index("--gen-subset") + 1] for words in generate] == ["test", "test1"] * 2
    assert [words[3] for words in found[-2:]] == ["report"] * 2 and found[-1][-2:] == ["--output", "runs/x/report"]


@pytest.mark.parametrize("given", [{"LONGEST": "3"}, {"LONGEST": "20", "FARTHEST": "20"}, {"UPDATES": "0"}])
def test_options_that_cannot_be_are_one_line(given, tmp_path):
    line = Process(RECIPE, tmp_path / "out", **given).fails()
    option = list(given)[-1]
    assert f"{option}={given[option]}: not allowed. Expected a whole number from" in line


@pytest.mark.slow
def test_killed_in_every_stage_it_compares_lengths_within_and_beyond_training(tmp_path):
    recipe = Process(RECIPE, tmp_path / "out", METHODS="none cape", **MICRO)
    recipe.kill_in_every_stage(METHODS="none")
    printed = recipe.run()
    tables = (recipe.out / "report" / "report.md").read_text(encoding="utf-8")
    for words in ("BLEU by source length: test\n", "BLEU by source length: test_long", "20-29 words", "30-39 words"):
        assert words in tables
    assert "BLEU by source length: test_long" in printed and (recipe.out / "report" / "length.svg").exists()
