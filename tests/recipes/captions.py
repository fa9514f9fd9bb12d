"""A corpus of a few hundred short sentences in the format of Multi30K, and the recipe multi30k_uk run on it."""

import fcntl
import gzip
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

import fairseq_posenc  # noqa: F401  what its checkpoints hold

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "multi30k_uk" / "run"
BIN = Path(sys.executable).parent
PARTS = {"train": 300, "val": 24, "test_2016_flickr": 16}
MICRO = {
    "VOCABULARY": "60", "BATCH": "256", "UNITS": "2", "EPOCHS": "3", "WARMUP": "10", "BEAM": "2", "SAVE_UPDATES": "4",
    "TRAIN_OPTIONS": "--encoder-layers 1 --decoder-layers 1 --log-interval 1", "POSENC_BIN": str(BIN),
}  # fmt: skip


def write_corpus(folder: Path, languages=("en", "uk")) -> None:
    """The second language has the words of the first in reverse order, each turned round."""
    draw = random.Random(1)
    syllables = [first + second for first in "bdgkmst" for second in "aiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(40)]
    folder.mkdir()
    for part, count in PARTS.items():
        sentences = [draw.choices(words, k=draw.randint(3, 8)) for _ in range(count)]
        turned = [[word[::-1] for word in reversed(sentence)] for sentence in sentences]
        for language, text in zip(languages, (sentences, turned)):
            lines = "".join(" ".join(sentence).capitalize() + ".\n" for sentence in text)
            (folder / f"{part}.{language}.gz").write_bytes(gzip.compress(lines.encode()))


def environment(**options):
    return {**os.environ, "OMP_NUM_THREADS": "1", **options}


def commands(*stages, **options):
    """What the recipe would run, every command a list of words."""
    environ = environment(DRY_RUN="1", **{"POSENC_BIN": "/opt/bin", "OUT": "runs/x", **options})
    shown = subprocess.run([RECIPE, *stages], env=environ, capture_output=True, text=True, check=True).stdout
    return [shlex.split(line) for line in shown.splitlines() if not line.startswith("#")]


def of(tool, found):
    return [words for words in found if any(Path(word).name == tool for word in words)]


def value(words, option):
    return words[words.index(option) + 1]


class Recipe:
    """The recipe in one output folder, in a process group of its own."""

    def __init__(self, corpus, out, **options):
        self.corpus, self.out, self.options = corpus, out, {**MICRO, **options}
        self.process = None

    def start(self, *stages, limit=None, **options):
        environ = environment(OUT=str(self.out), DATA_FROM=str(self.corpus), **{**self.options, **options})
        command = [str(word) for word in (RECIPE, *stages)]
        if limit:  # of every file, in kilobytes
            command = ["bash", "-c", f'ulimit -f {limit}; exec "$@"', "bash", *command]
        self.process = subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        return self

    def finish(self, status=0):
        printed = self.process.communicate(timeout=600)[0]
        assert self.process.returncode == status, printed
        return printed

    def run(self, *stages, **options):
        return self.start(*stages, **options).finish()

    def fails(self, *stages, **options):
        """With one line that says why, the last one, and no traceback."""
        printed = self.start(*stages, **options).finish(status=1)
        assert "Traceback" not in printed, printed
        return printed.splitlines()[-1]

    def wait_until(self, reached):
        while not reached():
            assert self.process.poll() is None, self.process.communicate()[0]
            time.sleep(0.01)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=60)
        with (self.out / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # its commands are gone as well

    def log(self, method="none", seed=1):
        path = self.out / method / f"seed{seed}" / "train.log"
        return path.read_text() if path.exists() else ""

    def checkpoint(self, name="checkpoint_last.pt", method="none", seed=1):
        return self.out / method / f"seed{seed}" / name

    def state(self, **place):
        return torch.load(self.checkpoint(**place), weights_only=True)

    def beside(self, out, **options):
        """Another output folder with the same prepared data."""
        out.mkdir()
        for name in ("text", "data"):
            shutil.copytree(self.out / name, out / name)
        return Recipe(self.corpus, out, **{**self.options, **options})


def assert_same_parameters(one, other, **tolerance):
    assert one["optimizer_history"][-1]["num_updates"] == other["optimizer_history"][-1]["num_updates"]
    assert one["model"].keys() == other["model"].keys()
    for name, tensor in one["model"].items():
        torch.testing.assert_close(other["model"][name], tensor, msg=name, **tolerance)
