"""posenc checkpoint: longer maximum lengths, and the start of a training run with another method."""

import functools
from argparse import Namespace

import pytest
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

import fairseq_posenc.host.plugin  # noqa: F401  (registers the models)
from fairseq_posenc import registry
from fairseq_posenc.cli import main
from fairseq_posenc.registry.spec import parse

TINY = "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 8 --decoder-embed-dim 8 --encoder-ffn-embed-dim 8 \
--decoder-ffn-embed-dim 8 --encoder-attention-heads 2 --decoder-attention-heads 2 --optimizer adam"
#: maximum lengths of source and target, before and after the command
SHORT, LONG = (9, 12), (21, 30)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for language in ("xx", "yy"):
        (folder / f"dict.{language}.txt").write_text("".join(f"{word} 1\n" for word in [*"abcdefg", "<sep>"]))
    (folder / "dict.relations.txt").write_text("nsubj 2\nobj 1\n")
    return folder


def arguments(data, arch, *words):
    command = [str(data), "-s", "xx", "-t", "yy", "--arch", arch, *TINY.split(), *words]
    return options.parse_args_and_arch(options.get_training_parser(), command)


@functools.cache
def composed(data, arch, *words):
    """Compose the configuration of a training run. Return the configuration and its content."""
    config = convert_namespace_to_omegaconf(arguments(data, arch, *words))
    return config, OmegaConf.to_container(config, resolve=True, enum_to_str=True)


@pytest.fixture
def trained(data, tmp_path):
    """Return a function that writes a checkpoint of an architecture, in the format of fairseq-train, with random parameters."""

    def write(arch, *more, name="trained.pt", short=SHORT, old=False):
        words = ["--max-source-positions", str(short[0]), "--max-target-positions", str(short[1]), *more]
        args = arguments(data, arch, *words)
        if arch.startswith("posenc_"):  # the configurations of this plugin's architectures differ only in the entry `model`
            config, content = composed(data, "posenc_transformer_tiny", *words)
            options_of_model = Namespace(**{**vars(args), "_name": arch})
        else:
            config, content = composed(data, arch, *words)
            options_of_model = config.model
        model = tasks.setup_task(config.task).build_model(options_of_model)
        torch.manual_seed(1)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        history = {"criterion_name": "c", "optimizer_name": "o", "lr_scheduler_state": {}, "num_updates": 5}
        state = {
            "args": None, "cfg": {**content, "model": options_of_model}, "model": model.state_dict(),
            "optimizer_history": [history], "task_state": {}, "extra_state": {"train_iterator": {"epoch": 1}},
            "last_optimizer_state": {"state": torch.zeros(10)},
        }  # fmt: skip
        if old:  # until 2020, fairseq stored the arguments of the command instead of a configuration
            state.update(args=args, cfg=None)
        torch.save(state, tmp_path / name)
        return tmp_path / name

    return write


def run(capsys, *arguments):
    status = main(["checkpoint", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def resize(capsys, path, out, limits=LONG):
    return run(capsys, "resize-positions", path, out, "--max-source-positions", limits[0], "--max-target-positions", limits[1])


def parameters(path):
    return torch.load(path, weights_only=True)["model"]


def loaded(path):
    """Load the model as fairseq-generate does."""
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    return model.eval()


#: options with which fairseq can build the architectures of all methods. Some methods have side inputs or additional losses
EVERY = ["--task", "posenc_translation", "--criterion", "posenc_label_smoothed_cross_entropy"]


def test_data_without_the_languages_is_one_line(trained, tmp_path, capsys):
    """fairseq infers the languages from the names of the prepared data, if the training command did not name them."""
    path = trained("posenc_t5")
    state = torch.load(path, weights_only=False)
    state["cfg"]["task"]["source_lang"] = state["cfg"]["task"]["target_lang"] = None
    torch.save(state, path)
    limits = ["--max-source-positions", "21", "--max-target-positions", "30"]
    assert main(["checkpoint", "resize-positions", str(path), str(tmp_path / "out.pt"), *limits]) == 2
    error = capsys.readouterr().err
    assert "the languages cannot be inferred from the names of files in" in error and error.count("\n") == 1


@pytest.mark.parametrize("name", registry.names())
def test_every_method_accepts_longer_sentences(name, trained, tmp_path, capsys):
    """The command compares the old model with the resized model on short sentences, before it writes the resized model."""
    path, out = trained(f"posenc_{name}_tiny", *EVERY), tmp_path / "longer.pt"
    status, printed, error = resize(capsys, path, out)
    assert (status, error) == (0, "")
    assert printed.startswith(f"wrote {out}: maximum lengths 21 (source) and 30 (target)\n")
    old, new = parameters(path), parameters(out)
    grown = [key for key in new if old[key].shape != new[key].shape]
    assert old.keys() == new.keys() and ("train on before you decode" in printed) == bool(grown)
    assert all(torch.equal(old[key], new[key]) for key in new if key not in grown)
    limits = loaded(out).max_positions()
    assert limits >= (1, 1)
    if registry.card(name).unbound and not grown:
        assert limits == LONG or registry.card(name).specs.get("encoder") is None


def test_a_longer_table_begins_with_the_trained_rows(trained, tmp_path, capsys):
    path, out = trained("posenc_learned_tiny"), tmp_path / "longer.pt"
    resize(capsys, path, out)
    name = "decoder.position.methods.0.weight"
    old, new = parameters(path)[name], parameters(out)[name]
    assert len(new) - len(old) == LONG[1] - SHORT[1] and torch.equal(new[: len(old)], old)
    model = loaded(out)
    with torch.no_grad():
        source = torch.randint(4, 12, (1, LONG[0]))
        assert model(source, torch.tensor([LONG[0]]), source)[0].isfinite().all()


def test_tables_of_positions_can_have_the_size_of_tables_of_distances(trained, tmp_path, capsys):
    """The target limit is twice the source limit. Distances of the source then have as many rows as positions of the target."""
    for number, spec in enumerate(([], ["--encoder-position", "deberta"], ["--cross-position", "diet_abs"])):
        path, out = trained("posenc_diet_abs_tiny", *spec, short=(8, 16)), tmp_path / f"longer{number}.pt"
        assert resize(capsys, path, out, (16, 32))[::2] == (0, "")


def test_a_model_that_changes_for_short_sentences_is_not_written(trained, tmp_path, capsys, monkeypatch):
    from fairseq_posenc.host.checkpoints import convert

    monkeypatch.setattr(convert, "_copy_rows", lambda *unused: None)
    path, out = trained("posenc_learned_tiny"), tmp_path / "longer.pt"
    status, _, error = resize(capsys, path, out)
    assert status == 2 and "the outputs of the longer model differ for short sentences" in error and not out.exists()


@pytest.mark.parametrize(
    ("arch", "options", "refused"),
    [
        ("posenc_randomised_tiny", [], True),
        ("posenc_transformer_tiny", ["--encoder-position", "deberta:buckets=8"], True),
        ("posenc_transformer_tiny", ["--encoder-position", "deberta:buckets=8,max_distance=64"], False),
        ("posenc_t5_tiny", [], False),
    ],
)
def test_a_method_without_a_longer_table_must_not_change_for_short_sentences(arch, options, refused, trained, tmp_path, capsys):
    """The range of `randomised` and the last bucket of `deberta` can depend on the maximum length."""
    path, out = trained(arch, *options, short=(64, 64)), tmp_path / "longer.pt"
    status, _, error = resize(capsys, path, out, (128, 128))
    assert out.exists() == (status == 0) == (not refused), error
    assert not refused or (error.count("\n") == 1 and "the outputs of the longer model differ for short sentences" in error)


@pytest.mark.parametrize("method", ["t5", "posenc_rope", "encoder=shaw:max_distance=3;cross=t5", "learned"])
def test_another_method_keeps_all_other_parameters(method, trained, tmp_path, capsys):
    path, out = trained("posenc_tupe_rel_tiny"), tmp_path / "start.pt"
    assert run(capsys, "start-from", path, out, "--method", method)[0] == 0
    old, new = parameters(path), parameters(out)
    shared = [key for key in old if ".position." not in key and ".cross_position." not in key and key != "positions_version"]
    assert len(shared) > 30 and all(torch.equal(old[key], new[key]) for key in shared)
    assert any(".position." in key or ".cross_position." in key for key in new) == (method != "posenc_rope")
    assert str(loaded(out).specs["encoder"]) in method


def test_a_checkpoint_of_stock_fairseq_becomes_the_start_of_every_method(trained, tmp_path, capsys):
    path, out = trained("transformer", "--encoder-learned-pos", "--decoder-learned-pos"), tmp_path / "start.pt"
    status, printed, error = run(capsys, "start-from", path, out, "--method", "rope")
    assert error == "" and status == 0 and printed == f"wrote {out}: encoder rope, decoder rope, cross none\n"
    old, new = parameters(path), parameters(out)
    assert all(torch.equal(old[key], new[key]) for key in new if key != "positions_version")


def test_options_of_the_earlier_training_run_are_not_kept(trained, tmp_path, capsys):
    """Models of other methods refuse noise in the output lengths, and frozen positions."""
    noisy = trained("posenc_ldpe_tiny", *EVERY, "--length-noise", "2", name="noisy.pt")
    frozen = trained("posenc_learned_tiny", "--encoder-freeze-position", "--decoder-freeze-position", name="frozen.pt")
    scaled = trained("posenc_ldpe_tiny", *EVERY, "--eval-bleu", "--length-ratio", "0.9", name="scaled.pt")
    for path in (noisy, frozen, scaled):
        out = tmp_path / f"from_{path.name}"
        assert run(capsys, "start-from", path, out, "--method", "rope")[::2] == (0, "")
        assert loaded(out).specs["encoder"] == parse("rope")


def test_an_architecture_has_the_specs_of_the_size_of_the_checkpoint(trained, tmp_path, capsys):
    path, out = trained("posenc_t5_tiny"), tmp_path / "start.pt"
    assert run(capsys, "start-from", path, out, "--method", "posenc_rope_window")[::2] == (0, "")
    again = loaded(trained("posenc_rope_window_tiny", name="again.pt"))  # the model that fairseq-train builds
    again.load_state_dict(torch.load(out, weights_only=True)["model"])


def test_an_architecture_may_have_options(trained, tmp_path, capsys):
    path, out = trained("posenc_rope_tiny"), tmp_path / "start.pt"
    assert run(capsys, "start-from", path, out, "--method", "posenc_t5:buckets=16")[::2] == (0, "")
    assert loaded(out).specs["encoder"] == parse("t5:buckets=16")


@pytest.mark.parametrize("arch", ["transformer", "posenc_t5_tiny"])
def test_global_attentions_start_as_the_local_attentions(arch, trained, tmp_path, capsys):
    path, out = trained(arch), tmp_path / "start.pt"
    status, printed, error = run(capsys, "start-from", path, out, "--method", "posenc_g_transformer")
    assert (status, error) == (0, "")
    old, new = parameters(path), parameters(out)
    whole = [name for name in new if "_attn_global." in name]
    # two layers: one encoder layer with self-attention, one decoder layer with self-attention and cross-attention
    assert len(whole) == 3 * 8 and all(torch.equal(new[name], old[name.replace("_attn_global.", "_attn.")]) for name in whole)
    assert "_attn_gate" in printed and "_attn_global" not in printed
    again = loaded(trained("posenc_g_transformer_tiny", name="again.pt"))  # the model that fairseq-train builds
    again.load_state_dict(torch.load(out, weights_only=True)["model"])


def test_global_attentions_of_a_checkpoint_are_kept(trained, tmp_path, capsys):
    path, out = trained("posenc_g_transformer_tiny"), tmp_path / "start.pt"
    status, _, error = run(capsys, "start-from", path, out, "--method", "encoder=rope+group;decoder=rope+group;cross=group")
    assert (status, error) == (0, "")
    old, new = parameters(path), parameters(out)
    kept = [name for name in old if "_attn_global." in name or "_attn_gate." in name]
    assert kept and all(torch.equal(new[name], old[name]) for name in kept)


def merged_projections(state):
    """Merge the projections of queries, keys and values, as fairseq did until August 2019."""
    for query in [key for key in state if ".q_proj." in key]:
        parts = [state.pop(query.replace(".q_proj.", f".{which}_proj.")) for which in "qkv"]
        state[query.replace(".q_proj.", ".in_proj_")] = torch.cat(parts)


def numbered_norms(state):
    """Name the layer norms by numbers, as in fairseq's first versions."""
    for key in [key for key in state if ".layers." in key and "layer_norm" in key]:
        layer, name, kind = key.rsplit(".", 2)
        number = ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"].index(name)
        state[f"{layer}.layer_norms.{min(number, 1) if 'encoder.' in layer else number}.{kind}"] = state.pop(key)


def no_final_norm(state, *, version=None):
    """Remove the layer norms after the stacks and the versions, or set the versions."""
    for side in ("encoder", "decoder"):
        state.pop(f"{side}.version")
        if version:
            state[f"{side}.version"] = torch.tensor([version])
        if not version or side == "decoder":  # encoders of version 2 have this layer norm
            del state[f"{side}.layer_norm.weight"], state[f"{side}.layer_norm.bias"]


def embed_out(state):
    state["decoder.embed_out"] = state.pop("decoder.output_projection.weight")


PRE_NORM = ["--encoder-normalize-before", "--decoder-normalize-before"]


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ([lambda state: state.pop("decoder.output_projection.weight")], ["--share-all-embeddings"]),
        ([lambda state: state.pop("decoder.output_projection.weight")], ["--share-decoder-input-output-embed"]),
        ([embed_out], []),
        ([merged_projections], []),
        ([numbered_norms, merged_projections, embed_out], []),
        ([no_final_norm], PRE_NORM),
        ([lambda state: no_final_norm(state, version=2.0)], PRE_NORM),
        ([numbered_norms, merged_projections, embed_out], ["--encoder-learned-pos", "--decoder-learned-pos"]),
    ],
    ids=["shared", "shared in the decoder", "embed_out", "in_proj", "all", "version 1", "version 2", "learned"],
)
@pytest.mark.parametrize("how", ["start-from", "load"])
@pytest.mark.filterwarnings("ignore::UserWarning")  # hydra warns when fairseq converts the arguments
def test_old_checkpoints_of_stock_fairseq_give_the_outputs_of_stock(how, changes, options, trained, tmp_path, capsys):
    """fairseq itself converts these checkpoints when it loads them."""
    path, out = trained("transformer", *options, old=len(changes) > 1), tmp_path / "start.pt"
    state = torch.load(path, weights_only=True)
    for change in changes:
        change(state["model"])
    torch.save(state, path)
    method = "learned" if "--encoder-learned-pos" in options else "sinusoidal"
    if how == "start-from":
        assert run(capsys, "start-from", path, out, "--method", method)[0] == 0
        ours = loaded(out)
        if method == "learned":  # the command never copies positions
            state["model"].update({
                f"{side}.embed_positions.weight": getattr(ours, side).position.methods[0].weight.detach()
                for side in ("encoder", "decoder")
            })  # fmt: skip
            torch.save(state, path)
    else:
        others = [option for option in options if "learned" not in option]
        ours = loaded(trained(f"posenc_{method}_tiny", *others, name="ours.pt"))
        ours.load_state_dict(state["model"])
    stock = loaded(path)
    source, target = torch.tensor([[5, 6, 4, 7, 2]]), torch.tensor([[2, 6, 4, 8]])
    expected, found = (model(source, torch.tensor([5]), target)[0] for model in (stock, ours))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert expected.std() > 0.1
    torch.save({**state, "model": ours.state_dict()}, out)  # the converted model is complete
    again = trained(f"posenc_{method}_tiny", *(option for option in options if "learned" not in option), name="again.pt")
    model = loaded(again)
    model.load_state_dict(torch.load(out, weights_only=True)["model"])
    assert torch.equal(model(source, torch.tensor([5]), target)[0], found)


@pytest.mark.parametrize("method", ["encoder=sinusoidal+zhu;decoder=sinusoidal", "posenc_xl_pe", "posenc_ldpe"])
@pytest.mark.parametrize(
    ("arch", "task"), [("transformer", []), ("posenc_cai_lam_tiny", [*EVERY, "--random-structure", "3"])], ids=["stock", "trees"]
)
def test_a_model_with_side_inputs_starts_from_every_checkpoint(arch, task, method, trained, tmp_path, capsys):
    path, out = trained(arch, *task), tmp_path / "start.pt"
    status, _, error = run(capsys, "start-from", path, out, "--method", method)
    assert (status, error) == (0, "")
    made = torch.load(out, weights_only=True)
    assert made["cfg"]["task"]["_name"] == "posenc_translation"
    options = made["cfg"]["model"]
    options = options if isinstance(options, dict) else vars(options)
    assert not options.keys() & {"relations", "relations_digest", "order_source", "random_structure", "side_files"}
    assert loaded(out).encoder.side_inputs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["resize-positions", "{path}", "{out}", "--max-source-positions", 5, "--max-target-positions", 12],
            "Expected at least 9",
        ),
        (["resize-positions", "none.pt", "{out}", "--max-source-positions", 9, "--max-target-positions", 12], "no such file"),
        (["resize-positions", "{path}", "{path}", "--max-source-positions", 9, "--max-target-positions", 12], "another name"),
        (["resize-positions", "{path}", "no/out", "--max-source-positions", 9, "--max-target-positions", 12], "no folder no"),
        (["start-from", "{path}", "{out}", "--method", "ropee"], "rope"),
        (["start-from", "{path}", "{out}", "--method", "alibi"], "not defined at site encoder"),
        (["start-from", "{path}", "{out}", "--method", "all"], "--method all: not allowed. Expected one spec"),
        (["start-from", "{path}", "{out}", "--method", "t5", "--data", "/"], "Set the folder with --data"),
        *(
            (["start-from", "{path}", "{out}", "--method", arch], "has other layers than a Transformer")
            for arch in ("posenc_universal", "posenc_universal_halting", "posenc_pnat", "posenc_complex_transformer")
        ),
    ],
)
def test_wrong_input_is_one_line(arguments, message, trained, tmp_path, capsys):
    out = tmp_path / "out.pt"
    status, _, error = run(capsys, *(str(word).format(path=trained("posenc_t5_tiny"), out=out) for word in arguments))
    assert status == 2 and error.count("\n") == 1 and message in error, error
    assert not out.exists()


def test_a_checkpoint_of_stock_fairseq_has_no_positions_to_resize(trained, tmp_path, capsys):
    status, _, error = resize(capsys, trained("transformer"), tmp_path / "out.pt")
    assert status == 2 and "posenc checkpoint start-from" in error


def test_a_non_autoregressive_model_cannot_be_resized(trained, tmp_path, capsys):
    path = trained("posenc_pnat_tiny", "--task", "translation_lev", "--criterion", "posenc_nat_loss")
    status, _, error = resize(capsys, path, tmp_path / "out.pt")
    assert status == 2 and error.count("\n") == 1 and "Expected one of an autoregressive model" in error, error


@pytest.mark.parametrize("arch", ["complex_transformer", "universal_halting", "g_transformer", "p_transformer", "rope_window"])
def test_every_other_architecture_accepts_longer_sentences(arch, trained, tmp_path, capsys):
    status, _, error = resize(capsys, trained(f"posenc_{arch}_tiny", *EVERY), tmp_path / "longer.pt")
    assert (status, error) == (0, "")
