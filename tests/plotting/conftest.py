"""Fixtures: a function that runs a posenc command, and a training run whose positions the tests plot."""

import pytest

TINY = (
    "--encoder-layers 2 --decoder-layers 1 --encoder-embed-dim 8 --decoder-embed-dim 8 --encoder-ffn-embed-dim 8 "
    "--decoder-ffn-embed-dim 8 --encoder-attention-heads 2 --decoder-attention-heads 2 --max-source-positions 40"
)


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


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """Write a checkpoint with t5 in the encoder, sinusoids in the decoder, and tupe_abs in cross-attention."""
    import torch
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    import fairseq_posenc.host.plugin  # noqa: F401  (registers the architectures)

    folder = tmp_path_factory.mktemp("run")
    for language in ("xx", "yy"):
        (folder / f"dict.{language}.txt").write_text("a 1\nb 1\n")
    specs = "--encoder-position t5 --decoder-position sinusoidal --cross-position tupe_abs"
    command = [str(folder), "-s", "xx", "-t", "yy", "--arch", "posenc_transformer", *specs.split(), *TINY.split()]
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), command))
    model = tasks.setup_task(config.task).build_model(config.model)
    state = {"args": None, "cfg": OmegaConf.to_container(config, resolve=True, enum_to_str=True), "model": model.state_dict()}
    history = {"criterion_name": "c", "optimizer_name": "o", "lr_scheduler_state": {}, "num_updates": 1}
    extra = {"train_iterator": {"epoch": 1}}
    torch.save({**state, "optimizer_history": [history], "task_state": {}, "extra_state": extra}, folder / "checkpoint_last.pt")
    return folder
