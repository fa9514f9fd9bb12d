"""Fixtures for the tests of posenc analyse: data, untrained models and a function that runs the command.

The files of the models and of the data have the formats of a training run.
"""

import random
from pathlib import Path

import pytest

TINY = (
    "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16 --decoder-embed-dim 16 --encoder-ffn-embed-dim 16 "
    "--decoder-ffn-embed-dim 16 --encoder-attention-heads 2 --decoder-attention-heads 2 --max-source-positions 40 "
    "--max-target-positions 60 --share-all-embeddings"
)
#: part -> lengths of its sentences, in letters
PARTS = {"train": range(6, 30), "valid": range(8, 14), "test": [2, *[7, 8, 9, 10, 24] * 12]}


@pytest.fixture
def posenc(capsys):
    """Return a function that runs a command in this process. The function returns the exit code, the output and the errors."""
    from fairseq_posenc.cli import main

    def run(*arguments):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse exits
            status = end.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def refusal(posenc):
    """Return a function that runs a command. The command must fail with a one-line error, which the function returns."""

    def run(*arguments):
        status, out, error = posenc(*arguments)
        lines = [line for line in error.splitlines() if not line.startswith("[")]  # without the progress line
        assert status == 2 and out == "" and len(lines) == 1, (status, out, error)
        return lines[0]

    return run


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """Write sentences of letters in the binary format of fairseq-preprocess. Each target is its source in reverse order."""
    import torch
    from fairseq.data import Dictionary, indexed_dataset

    folder, drawn, words = tmp_path_factory.mktemp("data"), random.Random(3), Dictionary()
    for letter in "abcdefgh":
        words.add_symbol(letter, 10)
    for language in ("fw", "bw"):
        words.save(str(folder / f"dict.{language}.txt"))
    for part, lengths in PARTS.items():
        rows = [[drawn.randrange(words.nspecial, len(words)) for _ in range(length)] for length in lengths]
        for language, step in (("fw", 1), ("bw", -1)):
            prefix = str(folder / f"{part}.fw-bw.{language}")
            builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", len(words))
            for row in rows:
                builder.add_item(torch.tensor([*row[::step], words.eos()]))
            builder.finalize(f"{prefix}.idx")
    return folder


def write_run(folder: Path, data: Path, arch: str, *extra: str) -> Path:
    """Write the checkpoint of an untrained model, and return the folder."""
    import torch
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    import fairseq_posenc.host.plugin  # noqa: F401  (registers the architectures)

    command = [str(data), "-s", "fw", "-t", "bw", "--arch", arch, *TINY.split(), *extra]
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), command))
    torch.manual_seed(1)
    model = tasks.setup_task(config.task).build_model(config.model)
    state = {"args": None, "cfg": OmegaConf.to_container(config, resolve=True, enum_to_str=True)}
    history = {"criterion_name": "c", "optimizer_name": "o", "lr_scheduler_state": {}, "num_updates": 1}
    state |= {"model": model.state_dict(), "optimizer_history": [history], "task_state": {}}
    torch.save({**state, "extra_state": {"train_iterator": {"epoch": 1}}}, folder / "checkpoint_last.pt")
    return folder


def options_of(encoder: str, decoder: str = "none") -> list[str]:
    return f"--encoder-position {encoder} --decoder-position {decoder} --cross-position none".split()


@pytest.fixture(scope="session")
def runs(data, tmp_path_factory):
    """Write one folder with an untrained model per spec. Return a dictionary: spec of the encoder -> folder."""
    found = {}
    for spec in ("none", "sinusoidal", "t5", "gaussian", "disan", "window:width=4", "complex"):
        decoder = spec if spec in ("sinusoidal", "t5") else "none"
        folder = tmp_path_factory.mktemp(spec.partition(":")[0])
        found[spec] = write_run(folder, data, "posenc_transformer", *options_of(spec, decoder))
    return found


@pytest.fixture(scope="session")
def other_models(data, tmp_path_factory):
    """Write one folder with an untrained model per architecture. Return a dictionary: architecture -> folder."""
    parallel = ["--task", "posenc_nat_translation", "--criterion", "posenc_nat_loss"]
    extra = {"posenc_complex_transformer": options_of("complex"), "posenc_pnat": parallel}
    return {arch: write_run(tmp_path_factory.mktemp(arch), data, arch, *given) for arch, given in extra.items()}
