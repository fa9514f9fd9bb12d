"""Architectures that one position method cannot describe, such as posenc_complex_transformer.

They are trained, resumed with identical results, and decoded with fairseq's commands.
"""

import argparse
import shutil

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

import fairseq_posenc.host.plugin  # noqa: F401  registers the architectures
from tests.fairseq.conftest import TRAINING

ARCHS = ["posenc_complex_transformer", "posenc_universal_halting", "posenc_p_transformer", "posenc_rope_window"]
OPTIONS = ["--max-update", 4, "--criterion", "posenc_label_smoothed_cross_entropy"]
HALTING = ["--encoder-layers", 3, "--decoder-layers", 3]


@pytest.fixture(scope="session", params=ARCHS)
def trained(request, fairseq, tmp_path_factory):
    """Train for four updates. Return the architecture, its options, the folder of the checkpoints, and the output."""
    folder = tmp_path_factory.mktemp(request.param)
    options = [*OPTIONS, *(HALTING if "halting" in request.param else [])]
    output = fairseq.train(
        f"{request.param}_tiny", folder, *options, "--save-interval-updates", 2, "--log-interval", 1
    ).succeeded()
    return request.param, options, folder, output


def test_it_resumes_to_the_last_bit(fairseq, trained, tmp_path):
    name, options, folder, _ = trained
    shutil.copy(folder / "checkpoint_1_2.pt", tmp_path / "checkpoint_last.pt")
    assert "(epoch 1 @ 2 updates)" in fairseq.train(f"{name}_tiny", tmp_path, *options).succeeded()
    through, resumed = (fairseq.state(path / "checkpoint_last.pt")["model"] for path in (folder, tmp_path))
    assert through.keys() == resumed.keys()
    assert all(torch.equal(value, resumed[parameter]) for parameter, value in through.items())


def test_it_decodes_with_beam_search(fairseq, trained):
    output = fairseq.generate(trained[2] / "checkpoint_last.pt", "--beam", 3).succeeded()
    assert sorted(fairseq.rows(output, "H")) == list(range(6))


def test_ponder_cost_and_steps_per_word_are_logged(trained):
    logged = [part in trained[3] for part in ("ponder=", "encoder_steps=", "decoder_steps=")]
    assert logged == [trained[0] == "posenc_universal_halting"] * 3


def test_a_criterion_that_leaves_out_the_ponder_cost_is_refused(fairseq, tmp_path):
    line = fairseq.train("posenc_universal_halting_tiny", tmp_path, "--criterion", "label_smoothed_cross_entropy").refusal()
    assert (
        "--encoder-halting adds a term to the training loss" in line
        and ("--criterion posenc_label_smoothed_cross_entropy") in line
    )


def test_the_criterion_of_pnat_is_refused(fairseq, tmp_path):
    line = fairseq.train("posenc_t5_tiny", tmp_path, "--criterion", "posenc_nat_loss").refusal()
    assert "--criterion posenc_nat_loss: only for posenc_pnat. Expected --criterion posenc_label_smoothed_cross_entropy." in line


@pytest.mark.parametrize("name", ARCHS)
@pytest.mark.parametrize("size, width", [("", 512), ("_tiny", 128), ("_small", 256), ("_big", 1024)])
def test_it_has_architectures_of_four_sizes(name, size, width):
    args = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[name + size](args)
    model = "ComplexTransformer" if "complex" in name else "PositionTransformer"
    assert ARCH_MODEL_REGISTRY[name + size].__name__ == model and args.encoder_embed_dim == width


def test_an_lstm_trains_with_the_criterion_of_this_plugin(fairseq, tmp_path):
    """The second output of this model is not a dictionary with further losses."""
    sizes = [f"--{name}=16" for name in ("encoder-embed-dim", "encoder-hidden-size", "decoder-embed-dim", "decoder-hidden-size")]
    command = ["fairseq-train", fairseq.data, "--arch", "lstm", *sizes, "--decoder-out-embed-dim=16", *TRAINING.split()]
    found = []
    for criterion in ("posenc_label_smoothed_cross_entropy", "label_smoothed_cross_entropy"):
        folder = tmp_path / criterion
        fairseq.run(*command, "--criterion", criterion, "--label-smoothing", "0.1", "--save-dir", folder).succeeded()
        found.append(fairseq.state(folder / "checkpoint_last.pt")["model"])
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())
