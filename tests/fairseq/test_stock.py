"""Compare training runs of stock `transformer` and of this plugin's model.

The parameters, their order, their initial values and all updates are equal.
"""

import re

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq import tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import fairseq_posenc.host.plugin  # noqa: F401  registers the architectures

LEARNED = ["--encoder-learned-pos", "--decoder-learned-pos"]


def build(fairseq, arch: str, *options):
    given = [str(fairseq.data), "--arch", arch, *fairseq.tiny, "--source-lang=fw", "--target-lang=bw", *options]
    args = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), given)
    cfg = convert_namespace_to_omegaconf(args)
    utils.set_torch_seed(1)
    return tasks.setup_task(cfg.task).build_model(cfg.model)


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
