"""Commands with invalid options, checkpoints or sentence lengths fail. fairseq-train fails before training.

The command prints one clear line and no traceback. Its exit status is not 0.
"""

import argparse
import shutil

import pytest
import torch
from fairseq.models import build_model
from omegaconf import OmegaConf

import fairseq_posenc
import fairseq_posenc.host.plugin
from fairseq_posenc.host.models.transformer.model import _REFUSED, PositionTransformer

#: refused option -> arguments of fairseq-train. The other options of _REFUSED are in UNREACHABLE
FLAGS = {
    "encoder_learned_pos": ["--encoder-learned-pos"],
    "decoder_learned_pos": ["--decoder-learned-pos"],
    "no_token_positional_embeddings": ["--no-token-positional-embeddings"],
    "encoder_layers_to_keep": ["--encoder-layers-to-keep", "0"],
    "decoder_layers_to_keep": ["--decoder-layers-to-keep", "0"],
    "encoder_xformers_att_config": ["--encoder-xformers-att-config", "{}x"],
    "decoder_xformers_att_config": ["--decoder-xformers-att-config", "{}x"],
    "adaptive_softmax_cutoff": ["--adaptive-softmax-cutoff", "8,12"],
    "merge_src_tgt_embed": ["--merge-src-tgt-embed"],
    "offload_activations": ["--offload-activations"],
    "no_cross_attention": ["--no-cross-attention"],
    "cross_self_attention": ["--cross-self-attention"],
    "quant_noise_pq": ["--quant-noise-pq", "0.1"],
    "quant_noise_scalar": ["--quant-noise-scalar", "0.1"],
    "base_layers": ["--base-layers", "1"],
    "export": ["--export"],
}
RDROP = "label_smoothed_cross_entropy_with_rdrop"
#: attributes that other architectures set. fairseq-train has no option for them
UNREACHABLE = {"adaptive_input", "char_inputs"}


def test_every_refused_option_is_tried_here():
    assert set(FLAGS) | UNREACHABLE == set(_REFUSED)


@pytest.mark.parametrize("option", FLAGS)
def test_options_without_effect_are_refused(fairseq, tmp_path, option):
    line = fairseq.train("posenc_t5_tiny", tmp_path, *FLAGS[option]).refusal()
    assert line.startswith(f"fairseq_posenc: --{option.replace('_', '-')} is not supported. ")
    assert not (tmp_path / "checkpoint_last.pt").exists()


@pytest.mark.parametrize(
    "options, words",
    [
        (["--left-pad-target"], ["--left-pad-target", "Remove it"]),
        (["--encoder-attention-heads", "3"], ["--encoder-embed-dim 16", "--encoder-attention-heads 3"]),
        (["--encoder-attention-heads", "0"], ["--encoder-attention-heads 0", "at least 1"]),
        (["--decoder-attention-heads", "-2"], ["--decoder-attention-heads -2", "at least 1"]),
        (["--decoder-embed-dim", "0"], ["--decoder-embed-dim 0", "at least 1"]),
        (["--encoder-ffn-embed-dim", "-1"], ["--encoder-ffn-embed-dim -1", "at least 1"]),
        (["--decoder-layers", "-1"], ["--decoder-layers -1", "0 to 1000"]),
        (["--encoder-layers", "1000000000"], ["--encoder-layers 1000000000", "0 to 1000"]),
        (["--encoder-ffn-embed-dim", "100000000000000"], ["memory", "sizes"]),
        (["--encoder-position", "show"], ["'show': unknown", "Did you mean 'shaw'"]),
        (["--encoder-position", "shaw:max_distanc=3"], ["'max_distanc'", "Did you mean 'max_distance'"]),
        (["--encoder-position", "shaw:max_distance=-1"], ["max_distance='-1'", "an integer from 0"]),
        (["--encoder-position", "shaw:max_distance=many"], ["max_distance='many'", "an integer"]),
        (["--encoder-position", "shaw:keys=perhaps"], ["keys='perhaps'", "true or false"]),
        (["--encoder-position", "shaw:share=all"], ["share='all'", "heads, none, layers"]),
        (["--encoder-position", "shaw:keys=true,keys=false"], ["option keys is given twice"]),
        (["--encoder-position", ""], ["unknown"]),
        (["--encoder-position", "shaw+shwa"], ["Did you mean 'shaw'"]),
        (["--encoder-position", "t5:buckets=5"], ["buckets=5 is odd"]),
        (["--encoder-position", "shaw:layers=1"], ["there is no layer 1", "Expected layers 0 to 0."]),
        (["--encoder-position", "sinusoidal:layers=0"], ["layers= has no effect"]),
        (["--encoder-position", "alibi"], ["alibi: not defined at site encoder", "alibi_symmetric"]),
        (["--cross-position", "sinusoidal"], ["sinusoidal: not defined at site cross"]),
        (["--encoder-position", "rope+rope:base=100"], ["both methods rotate queries and keys", "layers=..."]),
        (["--encoder-position", "rope+shaw"], ["rope rotates the queries that shaw reads"]),
        (["--encoder-position", "tupe_rel", "--decoder-position", "sandwhich"], ["unknown"]),
        (["--encoder-position", "show", "--decoder-position", "shaw:x=1"], ["'show': unknown"]),
        (
            [
                "--task",
                "translation_multi_simple_epoch",
                "--langs",
                "fw,bw",
                "--lang-pairs",
                "fw-bw",
                "--left-pad-target",
                "True",
            ],
            ["--left-pad-target", "Remove it"],
        ),
        (
            ["--encoder-position", "learned", "--required-seq-len-multiple", "8", "--max-source-positions", "20"],
            ["--required-seq-len-multiple 8: ", "padded to 24", "learned (encoder)", "--max-source-positions 24"],
        ),
        (
            ["--cross-position", "tupe_rel", "--required-seq-len-multiple", "8", "--max-target-positions", "20"],
            ["--required-seq-len-multiple 8: ", "padded to 24", "tupe_rel (cross)", "--max-target-positions 24"],
        ),
        (["--criterion", "label_smoothed_cross_entropy_with_alignment"], ["_with_alignment: ", "attention weights", "Expected"]),
        (
            ["--task", "posenc_translation", "--decoder-position", "ldpe", "--criterion", RDROP, "--rdrop-alpha", "1"],
            [f"--criterion {RDROP}: ", "length", "Expected --criterion posenc_label_smoothed_cross_entropy"],
        ),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_mistakes_are_named(fairseq, tmp_path, options, words):
    line = fairseq.train("posenc_transformer_tiny", tmp_path, *options).refusal()
    assert all(word in line for word in words), line


def test_configurations_of_hydra_are_refused():
    """fairseq-hydra-train passes only the options of the model. The model could not check the criterion."""
    with pytest.raises(SystemExit, match=r"^fairseq_posenc: fairseq-hydra-train: .* Run fairseq-train --arch posenc_t5_tiny\.$"):
        build_model(OmegaConf.create({"_name": "posenc_t5_tiny"}), None)


def test_an_unknown_architecture_names_ours(fairseq, tmp_path):
    result = fairseq.train("posenc_shwa", tmp_path)
    assert result.status == 2
    assert "posenc_shaw" in result.output


# --- checkpoints ---


@pytest.fixture(scope="module")
def t5(fairseq, tmp_path_factory):
    folder = tmp_path_factory.mktemp("t5")
    fairseq.train("posenc_t5_tiny", folder).succeeded()
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize(
    "arch, options, words",
    [
        ("posenc_rope_tiny", [], ["encoder: t5:", "instead of rope:", "decoder: t5:"]),
        ("posenc_t5_tiny", ["--encoder-position", "t5:buckets=16"], ["buckets=32", "instead of", "buckets=16"]),
        ("posenc_t5_tiny", ["--cross-position", "alibi"], ["cross: none", "instead of alibi"]),
        ("posenc_t5_tiny", ["--encoder-ffn-embed-dim", "24"], ["does not fit this model", "fc1", "Check --arch and the sizes"]),
        ("posenc_t5_tiny", ["--decoder-layers", "2"], ["does not fit this model", "decoder.layers.1"]),
    ],
)
@pytest.mark.parametrize("how", ["resume", "restore"])
def test_a_checkpoint_of_another_model_is_refused(fairseq, t5, tmp_path, arch, options, words, how):
    if how == "resume":
        shutil.copy(t5, tmp_path / "checkpoint_last.pt")
    else:
        options = [*options, "--restore-file", t5]
    line = fairseq.train(arch, tmp_path, *options, "--max-update", 3).refusal()
    assert all(word in line for word in words), line


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_checkpoint_of_too_many_layers_is_refused(fairseq, t5, tmp_path, side):
    state = fairseq.state(t5)
    setattr(state["cfg"]["model"], f"{side}_layers", 10**9)
    torch.save(state, tmp_path / "checkpoint.pt")
    assert (
        f"--{side}-layers 1000000000: not allowed. Expected 0 to 1000" in fairseq.generate(tmp_path / "checkpoint.pt").refusal()
    )


def test_a_checkpoint_of_stock_fairseq_is_refused_by_other_positions(fairseq, tmp_path):
    fairseq.train("transformer", tmp_path).succeeded()
    line = fairseq.train("posenc_t5_tiny", tmp_path, "--max-update", 3).refusal()
    assert "of stock fairseq and does not fit --encoder-position t5" in line


def test_a_checkpoint_of_ours_is_no_stock_checkpoint(fairseq, t5, tmp_path):
    result = fairseq.train("transformer", tmp_path, "--restore-file", t5)
    assert result.status != 0


@pytest.mark.parametrize("how", ["restored", "resumed"])
def test_a_checkpoint_without_optimizer_state_is_not_resumed(fairseq, t5, tmp_path, how):
    """For example, the output of posenc average, or of a training run with --no-save-optimizer-state."""
    at = tmp_path / "checkpoint_last.pt" if how == "resumed" else tmp_path / "mean.pt"
    torch.save({**fairseq.state(t5), "last_optimizer_state": None}, at)
    options = [] if how == "resumed" else ["--restore-file", at]
    line = fairseq.train("posenc_t5_tiny", tmp_path, *options, "--max-update", 3).refusal()
    assert f"{at}: contains no optimizer state. Expected" in line and "use --finetune-from-model and another --save-dir" in line
    fairseq.train("posenc_t5_tiny", tmp_path / "new", "--finetune-from-model", at, "--max-update", 1).succeeded()


def test_stock_weights_begin_a_training_of_ours(fairseq, tmp_path):
    fairseq.train("transformer", tmp_path / "stock").succeeded()
    options = ["--finetune-from-model", tmp_path / "stock" / "checkpoint_last.pt"]
    fairseq.train("posenc_sinusoidal_tiny", tmp_path / "ours", *options).succeeded()
    assert (tmp_path / "ours" / "checkpoint_last.pt").exists()


def test_a_cut_off_checkpoint_is_refused(fairseq, t5, tmp_path):
    cut = tmp_path / "checkpoint_last.pt"
    cut.write_bytes(t5.read_bytes()[:3000])
    for result in (fairseq.train("posenc_t5_tiny", tmp_path), fairseq.generate(cut)):
        assert str(cut) in result.refusal()


def test_members_of_an_ensemble_may_have_different_positions(fairseq, t5, tmp_path):
    fairseq.train("posenc_learned_tiny", tmp_path).succeeded()
    output = fairseq.generate(f"{t5}:{tmp_path / 'checkpoint_last.pt'}").succeeded()
    assert len(fairseq.rows(output, "H")) == 6


# --- sentences that are too long for a method with a maximum length ---
# The longest sentences have 31 tokens in valid1 and test1, and at most 13 tokens in the other parts.

SHORT = ["--max-source-positions", 20, "--max-target-positions", 20]


@pytest.fixture(scope="module")
def bounded(fairseq, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bounded")
    fairseq.train("posenc_learned_tiny", folder, *SHORT).succeeded()
    return folder / "checkpoint_last.pt"


def test_padding_to_a_multiple_stays_within_the_limit(fairseq, tmp_path):
    """Sentences of 13 tokens are padded to 16 tokens. A method without a limit accepts any padding."""
    options = ["--max-source-positions", 16, "--max-target-positions", 16, "--required-seq-len-multiple", 8]
    fairseq.train("posenc_learned_tiny", tmp_path / "bounded", *options, "--cross-position", "none").succeeded()
    options = ["--max-source-positions", 13, "--max-target-positions", 13, "--required-seq-len-multiple", 8]
    fairseq.train("posenc_t5_tiny", tmp_path / "unbounded", *options).succeeded()


def test_training_skips_what_is_too_long_and_says_so(fairseq, tmp_path):
    options = ["--max-source-positions", 6, "--max-target-positions", 6]
    output = fairseq.train("posenc_learned_tiny", tmp_path, *options).succeeded()
    assert "have invalid sizes and will be skipped, max_positions=(6, 6)" in output


def validation(fairseq, folder, *options) -> list:
    """Return the command of a training run that validates on the long sentences."""
    arguments = fairseq.training("posenc_learned_tiny", folder, *SHORT, "--valid-subset", "valid1", *options)
    return [argument for argument in arguments if argument != "--disable-validation"]


def stopped_by_length(result) -> bool:
    """Check that the command failed without a traceback.

    Return whether it printed fairseq's message about the maximum length of the model.
    """
    assert result.status != 0 and "Traceback" not in result.output
    return "max_positions=(20, 20), skip this example with --skip-invalid-size-inputs-valid-test" in result.output


def test_validation_stops_before_the_training_begins(fairseq, tmp_path):
    result = fairseq.run(*validation(fairseq, tmp_path))
    assert stopped_by_length(result)
    assert "begin training epoch" not in result.output and not (tmp_path / "checkpoint_last.pt").exists()


def test_validation_skips_on_request(fairseq, tmp_path):
    output = fairseq.run(*validation(fairseq, tmp_path, "--skip-invalid-size-inputs-valid-test")).succeeded()
    assert "2 samples have invalid sizes and will be skipped, max_positions=(20, 20)" in output
    assert "valid on 'valid1' subset" in output


def test_decoding_stops_and_names_the_limit(fairseq, bounded):
    assert stopped_by_length(fairseq.generate(bounded, "--gen-subset", "test1"))


def test_decoding_skips_on_request(fairseq, bounded):
    output = fairseq.generate(bounded, "--gen-subset", "test1", "--skip-invalid-size-inputs-valid-test").succeeded()
    assert sorted(fairseq.rows(output, "H")) == [0, 3, 4, 5]


def test_interactive_stops_and_names_the_limit(fairseq, bounded):
    long = "a b " * 15 + "\n"
    assert stopped_by_length(fairseq.run("fairseq-interactive", fairseq.data, "--path", bounded, "--cpu", input=long))


def test_hypotheses_end_at_the_limit(fairseq, bounded):
    """--max-len-b allows more positions than the method supports."""
    output = fairseq.generate(bounded, "--max-len-b", 100, "--beam", 2).succeeded()
    assert all(len(row[0].split("\t")[1].split()) < 20 for row in fairseq.rows(output, "H").values())


def test_a_module_stops_and_names_the_limit():
    """The module is called without fairseq's filters, as in a notebook."""
    attention = fairseq_posenc.build_attention("tupe_rel", 16, 2, max_positions=20)
    x = torch.zeros(21, 1, 16)
    with pytest.raises(fairseq_posenc.PositionError, match=r"21 positions\. Expected at most 20"):
        attention(x, x, x)


def test_sharded_parameters_are_refused():
    """The test calls build_model directly, because fairseq-train would first require another package for this option."""
    args = argparse.Namespace(ddp_backend="fully_sharded")
    with pytest.raises(SystemExit, match=r"fully_sharded is not supported\. Expected legacy_ddp or pytorch_ddp"):
        PositionTransformer.build_model(args, argparse.Namespace(cfg=argparse.Namespace()))
