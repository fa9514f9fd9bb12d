"""posenc checkpoint: longer maximum lengths, and the start of a training run with another method."""

import pytest
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

import fairseq_posenc.host.plugin  # noqa: F401  (registers the models)
from fairseq_posenc import registry
from fairseq_posenc.cli import main

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


@pytest.fixture
def trained(data, tmp_path):
    """Return a function that writes a checkpoint of an architecture, in the format of fairseq-train, with random parameters."""

    def write(arch, *more, name="trained.pt", short=SHORT):
        limits = ["--max-source-positions", str(short[0]), "--max-target-positions", str(short[1])]
        command = [str(data), "-s", "xx", "-t", "yy", "--arch", arch, *TINY.split(), *limits, *more]
        config = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), command))
        model = tasks.setup_task(config.task).build_model(config.model)
        torch.manual_seed(1)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        history = {"criterion_name": "c", "optimizer_name": "o", "lr_scheduler_state": {}, "num_updates": 5}
        state = {
            "args": None, "cfg": OmegaConf.to_container(config, resolve=True, enum_to_str=True), "model": model.state_dict(),
            "optimizer_history": [history], "task_state": {}, "extra_state": {"train_iterator": {"epoch": 1}},
            "last_optimizer_state": {"state": torch.zeros(10)},
        }  # fmt: skip
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
    assert loaded(out).max_positions() >= (1, 1)
    if registry.card(name).unbound and not grown:
        assert loaded(out).max_positions() == LONG or registry.card(name).specs.get("encoder") is None


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
        (["start-from", "{path}", "{out}", "--method", "t5", "--data", "/"], "Set the folder with --data"),
        (["start-from", "{path}", "{out}", "--method", "posenc_spr_rel"], "--task posenc_translation"),
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
