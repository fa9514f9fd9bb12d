"""Run real fairseq commands on a tiny language pair, whose target is the source backwards."""

import contextlib
import dataclasses
import os
import pickle
import random
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from posenc_docs.pages import training_command
from tests import forked

HERE = Path(__file__).parent
USER_DIR = HERE.parents[1] / "fairseq_posenc"
LETTERS = "abcdefghijkl"
#: data set -> number of letters of each of its sentences. The sets valid1 and test1 each contain two long sentences
PARTS = {
    "train": [12, *(2 + i % 8 for i in range(47))],
    "valid": [2, 3, 4, 5, 6, 7, 8, 9],
    "valid1": [25, 3, 30, 5],
    "test": [5, 6, 7, 2, 1, 8],
    "test1": [4, 25, 30, 6, 2, 3],
}
TINY = (
    "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16 --decoder-embed-dim 16 --encoder-ffn-embed-dim 16 "
    "--decoder-ffn-embed-dim 16 --encoder-attention-heads 2 --decoder-attention-heads 2"
)
TRAINING = (
    "--optimizer adam --lr 0.01 --batch-size 8 --max-update 2 --cpu --num-workers 0 --ignore-unused-valid-subsets "
    "--disable-validation --required-batch-size-multiple 1 --no-progress-bar --seed 3 --no-epoch-checkpoints"
)


@dataclasses.dataclass(frozen=True)
class Result:
    status: int
    output: str

    def succeeded(self) -> str:
        assert self.status == 0, self.output[-4000:]
        return self.output

    def refusal(self) -> str:
        """Return the plugin's error line. Check that the command failed with exactly one such line and without a traceback."""
        assert self.status != 0, self.output[-4000:]
        assert "Traceback" not in self.output, self.output[-4000:]
        lines = [line for line in self.output.splitlines() if line.startswith("fairseq_posenc: ")]
        assert len(lines) == 1, self.output[-4000:]
        return lines[0]


@dataclasses.dataclass(frozen=True)
class Running:
    process: subprocess.Popen
    folder: Path

    def finish(self, seconds: float = 180) -> Result:
        """Wait for the end of the process, at most `seconds` seconds. Return its result."""
        return Result(self.process.wait(seconds), self.output())

    def output(self) -> str:
        """Return the standard output, followed by the log and the errors."""
        return "\n".join((self.folder / name).read_text() for name in ("output", "errors"))


@dataclasses.dataclass
class Fairseq:
    """Start fairseq's commands. Each command has its own process and folder.

    All commands except fairseq-preprocess have the plugin's folder as --user-dir. A process is forked from a server that has
    already imported the plugin. If `environment` contains POSENC_METHODS, the server has not imported the plugin. The command
    then imports the plugin through --user-dir.

    Tests in test_compat.py and test_training.py start fairseq's programs as users do.
    """

    folder: Path
    data: Path
    tiny: list[str] = dataclasses.field(default_factory=TINY.split)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    started: int = 0
    composed: dict[tuple[str, ...], Path] = dataclasses.field(default_factory=dict)

    def start(self, command: str, *arguments, input: str = "") -> Running:
        self.started += 1
        folder = self.folder / f"{self.started}-{command}"
        folder.mkdir()
        (folder / "input").write_text(input)
        if command != "fairseq-preprocess":
            arguments = [*arguments, "--user-dir", USER_DIR]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        programs = forked.folder() if "POSENC_METHODS" in self.environment else forked.folder(USER_DIR)
        with contextlib.ExitStack() as files:
            modes = {"input": "r", "output": "w", "errors": "w"}
            stdin, stdout, stderr = (files.enter_context((folder / name).open(mode)) for name, mode in modes.items())
            process = subprocess.Popen(
                [os.path.join(programs, command), *map(str, arguments)], cwd=folder,
                env={**environment, "OMP_NUM_THREADS": "1", **self.environment}, stdin=stdin, stdout=stdout, stderr=stderr,
            )  # fmt: skip
        return Running(process, folder)

    def run(self, command: str, *arguments, input: str = "") -> Result:
        return self.start(command, *arguments, input=input).finish()

    def training(self, arch: str, save_dir: Path, *options) -> list[str]:
        return ["fairseq-train", self.data, "--arch", arch, *self.tiny, *TRAINING.split(), "--save-dir", save_dir, *options]

    def train(self, arch: str, save_dir: Path, *options) -> Result:
        """Train for two updates without validation. Later options override earlier options."""
        return self.run(*self.training(arch, save_dir, *options))

    def train_as_on_its_page(self, method: str, save_dir: Path, *options) -> Result:
        """Run the command of the method's page on this data, with a small model and few updates."""
        text = training_command(method).replace("$(posenc path)", str(USER_DIR)).replace("\\\n", "")
        command, _, *arguments = shlex.split(text)
        small = [*self.tiny, *TRAINING.split(), "--warmup-updates", 2, "--save-dir", save_dir]
        return self.run(command, self.data, *arguments, *small, *options)

    def generate(self, path, *options) -> Result:
        """Decode the whole test set.

        By default, the PyPI package fairseq-fixed drops a last batch whose size is not a multiple of 8. The plugin keeps this
        batch. The option --required-batch-size-multiple 1 also keeps this batch.
        """
        return self.run(*self.generation(path, *options))

    def generation(self, path, *options) -> list:
        common = ["--path", path, "--cpu", "--num-workers", 0, "--max-len-b", 12, "--batch-size", 4]
        return ["fairseq-generate", self.data, *common, "--required-batch-size-multiple", 1, *options]

    def decode(self, path, *options) -> Result:
        """Decode as with `generate`, in a process without Hydra. Each list of options is composed only once."""
        _, *words = map(str, self.generation("a checkpoint", *options))
        if tuple(words) not in self.composed:
            args = fairseq_options.parse_args_and_arch(fairseq_options.get_generation_parser(), words)
            file = self.folder / f"configuration{len(self.composed)}"
            file.write_bytes(pickle.dumps(convert_namespace_to_omegaconf(args)))
            self.composed[tuple(words)] = file
        return self.run("python", HERE / "composed.py", "generate", self.composed[tuple(words)], path)

    def resume(self, checkpoint: Path, save_dir: Path) -> Result:
        """Resume a training run in another folder, in a process without Hydra. The options are those of the checkpoint."""
        return self.run("python", HERE / "composed.py", "resume", checkpoint, save_dir)

    @staticmethod
    def state(path: Path) -> dict:
        return torch.load(path, weights_only=True)

    @staticmethod
    def rows(output: str, kind: str) -> dict[int, list[str]]:
        """Return a dictionary from sentence numbers to the output lines of this kind. The kind is a letter, such as H.

        With --nbest, a sentence has several lines.
        """
        found: dict[int, list[str]] = {}
        for number, row in re.findall(rf"^{kind}-(\d+)\t(.*)$", output, re.MULTILINE):
            found.setdefault(int(number), []).append(row)
        return found


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """Write the language pair, and prepare it with fairseq-preprocess. One dictionary contains the words of both languages."""
    text, draw = tmp_path_factory.mktemp("text"), random.Random(1)
    for part, lengths in PARTS.items():
        letters = [[draw.choice(LETTERS) for _ in range(length)] for length in lengths]
        if part == "train":
            letters[0] = list(LETTERS)  # otherwise, the dictionary may lack a letter
        (text / f"{part}.fw").write_text("".join(" ".join(row) + "\n" for row in letters))
        (text / f"{part}.bw").write_text("".join(" ".join(reversed(row)) + "\n" for row in letters))
    languages = ["--source-lang", "fw", "--target-lang", "bw", "--joined-dictionary", "--destdir", text / "binary"]
    parts = ["--trainpref", text / "train"]
    for part in ("valid", "test"):
        parts += [f"--{part}pref", f"{text}/{part},{text}/{part}1"]
    Fairseq(text, text).run("fairseq-preprocess", *languages, *parts).succeeded()
    return text / "binary"


@pytest.fixture(scope="session")
def fairseq(data, tmp_path_factory) -> Fairseq:
    return Fairseq(tmp_path_factory.mktemp("commands"), data)


@pytest.fixture(scope="session")
def shaw(fairseq, tmp_path_factory) -> Path:
    """Train a model with the method shaw for 60 updates. Its hypotheses then differ from each other. Return the checkpoint."""
    folder = tmp_path_factory.mktemp("shaw")
    sizes = ["--decoder-layers", 2, "--encoder-layers", 2, "--share-all-embeddings"]
    output = fairseq.train("posenc_shaw_tiny", folder, *sizes, "--max-update", 60, "--dropout", 0).succeeded()
    (folder / "log").write_text(output)
    return folder / "checkpoint_last.pt"
