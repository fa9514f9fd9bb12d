"""A corpus of a few hundred short sentences in the format of Multi30K, and the recipe multi30k_uk on this corpus."""

import gzip
import random
import shlex
import shutil
import subprocess
from pathlib import Path

import torch

import fairseq_posenc.host.plugin  # noqa: F401  registers the architectures
from tests.recipes.process import ROOT, Process, environment

RECIPE = ROOT / "recipes" / "multi30k_uk" / "run"
PARTS = {"train": 300, "val": 24, "test_2016_flickr": 16}
MICRO = {
    "VOCABULARY": "60", "BATCH": "256", "UNITS": "2", "EPOCHS": "3", "WARMUP": "10", "BEAM": "2", "SAVE_UPDATES": "4",
    "TRAIN_OPTIONS": "--encoder-layers 1 --decoder-layers 1 --log-interval 1",
}  # fmt: skip


def write_corpus(folder: Path, languages=("en", "uk"), parts=PARTS, most=8) -> None:
    """Write sentences of 3 to `most` words.

    The second language has the words of the first in reverse order, with reversed letters.
    """
    draw = random.Random(1)
    syllables = [first + second for first in "bdgkmst" for second in "aiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(40)]
    folder.mkdir()
    for part, count in parts.items():
        sentences = [draw.choices(words, k=draw.randint(3, most)) for _ in range(count)]
        turned = [[word[::-1] for word in reversed(sentence)] for sentence in sentences]
        for language, text in zip(languages, (sentences, turned)):
            lines = "".join(" ".join(sentence).capitalize() + ".\n" for sentence in text)
            (folder / f"{part}.{language}.gz").write_bytes(gzip.compress(lines.encode()))


def commands(*stages, **options):
    """Return the commands that the recipe would run, each as a list of words."""
    environ = environment(DRY_RUN="1", **{"POSENC_BIN": "/opt/bin", "OUT": "runs/x", **options})
    shown = subprocess.run([RECIPE, *stages], env=environ, capture_output=True, text=True, check=True).stdout
    return [shlex.split(line) for line in shown.splitlines() if not line.startswith("#")]


def of(tool, found):
    return [words for words in found if any(Path(word).name == tool for word in words)]


def value(words, option):
    return words[words.index(option) + 1]


class Recipe(Process):
    """The recipe multi30k_uk with a corpus."""

    def __init__(self, corpus, out, **options):
        super().__init__(RECIPE, out, **{**MICRO, **options})
        self.corpus = corpus

    def start(self, *stages, limit=None, **options):
        return super().start(*stages, limit=limit, **{"DATA_FROM": str(self.corpus), **options})

    def log(self, method="none", seed=1):
        path = self.out / method / f"seed{seed}" / "train.log"
        return path.read_text() if path.exists() else ""

    def checkpoint(self, name="checkpoint_last.pt", method="none", seed=1):
        return self.out / method / f"seed{seed}" / name

    def state(self, **place):
        return torch.load(self.checkpoint(**place), weights_only=True)

    def beside(self, out, **options):
        """Copy the prepared data into another output folder. Return a recipe with this folder."""
        out.mkdir()
        for name in ("text", "data"):
            shutil.copytree(self.out / name, out / name)
        return Recipe(self.corpus, out, **{**self.options, **options})


def assert_same_parameters(one, other, **tolerance):
    assert one["optimizer_history"][-1]["num_updates"] == other["optimizer_history"][-1]["num_updates"]
    assert one["model"].keys() == other["model"].keys()
    for name, tensor in one["model"].items():
        torch.testing.assert_close(other["model"][name], tensor, msg=name, **tolerance)
