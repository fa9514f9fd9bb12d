"""Methods are trained, saved, resumed with identical results, and decoded with fairseq's commands.

These are all methods that need neither side inputs nor documents.
"""

import argparse
import shutil

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

import fairseq_posenc as posenc
import fairseq_posenc.host.plugin  # registers the architectures
from fairseq_posenc import registry
from fairseq_posenc.core.hooks import HOOKS

WIDTHS = {"_tiny": (2, 128, 4, 512), "_small": (3, 256, 4, 1024), "": (6, 512, 8, 2048), "_big": (6, 1024, 16, 4096)}

#: options that limit the number of positions, because some methods have a table of all pairs of positions
SHORT = ["--max-update", 4, "--max-source-positions", 64, "--max-target-positions", 64]


#: methods that need neither side inputs nor documents. Other files test the other methods
READ_WORDS_ALONE = [name for name in posenc.names() if not (posenc.card(name).side_inputs or posenc.card(name).documents)]
READ_LENGTHS = [name for name in posenc.names() if "target_length" in {side.name for side in posenc.card(name).side_inputs}]


#: methods whose training run is resumed, and whose checkpoint is decoded, with fairseq's commands. Together, these methods have
#: all hooks, buffers, random numbers, and a state of decoding. The other methods
#: resume and decode without Hydra
WITH_COMMANDS = {
    "cape", "carope", "deberta_emd", "diet_linformer", "floater", "learned", "path_attention", "rr", "shortformer", "spe_sine",
    "stickbreaking", "synthesizer_factorised", "unifpe", "universal",
}  # fmt: skip


@pytest.fixture(scope="session", params=READ_WORDS_ALONE)
def trained(request, fairseq, tmp_path_factory):
    """Train a method for four updates. Return its name, and the folder with the checkpoints after two and four updates."""
    folder = tmp_path_factory.mktemp(request.param)
    fairseq.train_as_on_its_page(request.param, folder, *SHORT, "--save-interval-updates", 2).succeeded()
    return request.param, folder


def test_it_resumes_to_the_last_bit(fairseq, trained, tmp_path):
    name, folder = trained
    middle = folder / "checkpoint_1_2.pt"
    if name in WITH_COMMANDS:
        shutil.copy(middle, tmp_path / "checkpoint_last.pt")
        output = fairseq.train_as_on_its_page(name, tmp_path, *SHORT).succeeded()
    else:
        output = fairseq.resume(middle, tmp_path).succeeded()
    assert "(epoch 1 @ 2 updates)" in output
    begun, through, resumed = (
        fairseq.state(path) for path in (middle, folder / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt")
    )
    assert resumed["optimizer_history"][-1]["num_updates"] == 4
    assert resumed["model"].keys() == through["model"].keys() == begun["model"].keys()
    for parameter, value in through["model"].items():
        assert torch.equal(value, resumed["model"][parameter]), parameter
        if value.is_floating_point() and not parameter.endswith("version"):
            assert value.isfinite().all(), parameter
    assert not torch.equal(through["model"]["decoder.embed_tokens.weight"], begun["model"]["decoder.embed_tokens.weight"])


def test_the_methods_with_commands_have_all_hooks():
    assert set().union(*(registry.method_class(name)._overridden for name in WITH_COMMANDS)) == set(HOOKS)
    assert set(READ_WORDS_ALONE) > WITH_COMMANDS


@pytest.mark.parametrize("name", READ_LENGTHS)
def test_methods_that_read_lengths_train_as_on_their_pages(fairseq, tmp_path, name):
    assert "num_updates 4" in fairseq.train_as_on_its_page(name, tmp_path, *SHORT).succeeded()


def test_it_decodes_with_beam_search(fairseq, trained):
    decode = fairseq.generate if trained[0] in WITH_COMMANDS else fairseq.decode
    output = decode(trained[1] / "checkpoint_last.pt", "--beam", 3, "--nbest", 2).succeeded()
    hypotheses = fairseq.rows(output, "H")
    assert sorted(hypotheses) == list(range(6))
    assert all(len(rows) == 2 and "nan" not in "".join(rows) for rows in hypotheses.values())
    assert "Generate test with beam=3: BLEU4" in output


@pytest.mark.parametrize("name", posenc.names())
@pytest.mark.parametrize("size", WIDTHS)
def test_it_has_architectures_of_four_sizes(name, size):
    assert ARCH_MODEL_REGISTRY[f"posenc_{name}{size}"].__name__ == "PositionTransformer"
    args = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[f"posenc_{name}{size}"](args)
    for side in ("encoder", "decoder"):
        kinds = ("layers", "embed_dim", "attention_heads", "ffn_embed_dim")
        assert tuple(getattr(args, f"{side}_{kind}") for kind in kinds) == WIDTHS[size]
    specs = [args.encoder_position, args.decoder_position, args.cross_position]
    assert any(part.split(":")[0] == name for spec in specs for part in spec.split("+"))


@pytest.mark.parametrize("given", [{"dropout": 0.0}, {"encoder_layers": 1}, {"decoder_position": "t5:buckets=8"}], ids=str)
def test_options_that_are_given_win_over_the_architecture(given):
    args = argparse.Namespace(**given)
    ARCH_CONFIG_REGISTRY["posenc_shaw_tiny"](args)
    assert {name: getattr(args, name) for name in given} == given
