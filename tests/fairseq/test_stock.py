"""Compare training runs of stock `transformer` and of this plugin's model.

The parameters, their order, their initial values and all updates are equal.
"""

import argparse
import re

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq import tasks, utils
from fairseq.models import ARCH_CONFIG_REGISTRY

import fairseq_posenc.host.plugin  # noqa: F401  registers the architectures

LEARNED = ["--encoder-learned-pos", "--decoder-learned-pos"]


def build(fairseq, arch: str, *options):
    given = [str(fairseq.data), "--arch", arch, *fairseq.tiny, "--source-lang=fw", "--target-lang=bw", *options]
    args = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), given)
    utils.set_torch_seed(1)
    return tasks.setup_task(args).build_model(args)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--encoder-layers", "3", "--decoder-layers", "2", "--share-all-embeddings"],
        ["--encoder-normalize-before", "--decoder-normalize-before", "--layernorm-embedding"],
        ["--encoder-embed-dim", "24", "--encoder-attention-heads", "3", "--share-decoder-input-output-embed"],
    ],
    ids=lambda options: " ".join(options),
)
@pytest.mark.parametrize("arch, learned", [("posenc_sinusoidal", []), ("posenc_learned", LEARNED)])
def test_parameters_have_the_order_of_stock(fairseq, arch, learned, options):
    stock, ours = build(fairseq, "transformer", *options, *learned), build(fairseq, arch, *options)
    names = [name.replace("embed_positions", "position.methods.0") for name, _ in stock.named_parameters()]
    assert [name for name, _ in ours.named_parameters()] == names
    assert [value.shape for value in ours.parameters()] == [value.shape for value in stock.parameters()]
    if not learned:  # with learned positions, stock fairseq draws the table twice, so later random numbers differ
        for (name, value), expected in zip(ours.named_parameters(), stock.parameters()):
            assert torch.equal(value, expected), name


@pytest.mark.parametrize(
    "options, sizes",
    [
        ([], (128, 512)),
        (["--encoder-embed-dim", "64"], (64, 512)),
        (["--encoder-ffn-embed-dim", "256"], (128, 256)),
        (["--encoder-embed-dim", "64", "--decoder-embed-dim", "32", "--encoder-ffn-embed-dim", "8"], (32, 8)),
        (["--decoder-ffn-embed-dim", "24"], (128, 24)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_widths_of_the_decoder_follow_the_encoder_as_in_stock(fairseq, options, sizes):
    """The widths are also stored in checkpoints. If a stored configuration is loaded, its widths are kept."""
    command = [str(fairseq.data), "--arch", "posenc_sinusoidal_tiny", *options]
    args = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), command)
    assert (args.decoder_embed_dim, args.decoder_ffn_embed_dim) == sizes
    stored = argparse.Namespace(**{**vars(args), "encoder_embed_dim": 48, "encoder_ffn_embed_dim": 12})
    ARCH_CONFIG_REGISTRY[args.arch](stored)
    assert (stored.decoder_embed_dim, stored.decoder_ffn_embed_dim) == sizes
    stock = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), [*command[:2], "transformer", *options])
    given = {option.lstrip("-").replace("-", "_") for option in options[::2]}
    for name in ("embed_dim", "ffn_embed_dim"):
        if given & {f"encoder_{name}", f"decoder_{name}"}:
            assert getattr(args, f"decoder_{name}") == getattr(stock, f"decoder_{name}")


def losses(output: str) -> list:
    """Return the loss of every update."""
    return [float(loss) for loss in re.findall(r"\btrain_inner\b.* loss=([0-9.]+)", output)]


@pytest.mark.parametrize("arch, learned", [("posenc_sinusoidal", []), ("posenc_learned", LEARNED)])
def test_a_stock_training_goes_on_as_ours(fairseq, tmp_path, arch, learned):
    options = ["--log-interval", 1, "--dropout", 0, "--lr", 0.03, "--encoder-layers", 2, "--decoder-layers", 2]
    options += ["--encoder-ffn-embed-dim", 24, "--decoder-ffn-embed-dim", 24]
    fairseq.train("transformer", tmp_path / "stock", *options, *learned, "--max-update", 5).succeeded()
    last = tmp_path / "stock" / "checkpoint_last.pt"
    restored = [*options, "--restore-file", last, "--max-update", 12]
    expected = losses(fairseq.train("transformer", tmp_path / "on", *restored, *learned).succeeded())
    found = losses(fairseq.train(arch, tmp_path / "ours", *restored).succeeded())
    assert len(found) == 7
    assert found == pytest.approx(expected, abs=0.002)
    states = [fairseq.state(tmp_path / name / "checkpoint_last.pt")["last_optimizer_state"]["state"] for name in ("on", "ours")]
    for index, state in states[0].items():
        torch.testing.assert_close(states[1][index]["exp_avg"], state["exp_avg"], rtol=0.01, atol=1e-4)
