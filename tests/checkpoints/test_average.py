"""posenc average: averages that fairseq loads, and errors for checkpoints that cannot be averaged."""

import shutil

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

import fairseq_posenc.host.plugin  # noqa: F401  (registers the model)
from fairseq_posenc.host.checkpoints.read import read
from fairseq_posenc.host.checkpoints.repair import repair

TINY = "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 8 --decoder-embed-dim 8 --encoder-ffn-embed-dim 8 \
--decoder-ffn-embed-dim 8 --encoder-attention-heads 2 --decoder-attention-heads 2 --share-all-embeddings --optimizer adam"


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Return a function that builds a model from a spec, as fairseq-train does.

    The function returns the configuration and the model.
    """
    data = tmp_path_factory.mktemp("data")
    for language in ("xx", "yy"):
        (data / f"dict.{language}.txt").write_text("a 1\nb 1\n")

    def new(spec, *more):
        specs = ["--encoder-position", spec, "--decoder-position", spec]
        command = [str(data), "-s", "xx", "-t", "yy", "--arch", "posenc_transformer", *specs, *TINY.split(), *more]
        config = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), command))
        return config, tasks.setup_task(config.task).build_model(config.model)

    return new


@pytest.fixture(scope="module")
def trained(build, tmp_path_factory):
    """Write the checkpoints of one training run, and return their folder.

    Three checkpoints are named by their epoch. Two checkpoints are named by their epoch and their number of updates.
    """
    folder = tmp_path_factory.mktemp("run")
    config, model = build("t5")
    for number in (1, 2, 3):
        torch.manual_seed(number)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        save(folder / f"checkpoint{number}.pt", config, model, number * 10)
    (folder / "checkpoint_3_25.pt").write_bytes((folder / "checkpoint3.pt").read_bytes())
    (folder / "checkpoint_3_9.pt").write_bytes((folder / "checkpoint1.pt").read_bytes())
    return folder


def save(path, config, model, updates):
    """Save a checkpoint as fairseq's trainer does."""
    history = {"criterion_name": "c", "optimizer_name": "o", "lr_scheduler_state": {}, "num_updates": updates}
    state = {
        "args": None,
        "cfg": OmegaConf.to_container(config, resolve=True, enum_to_str=True),
        "model": model.state_dict(),
        "optimizer_history": [history],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1}, "ema": model.state_dict()},
        "last_optimizer_state": {"state": torch.zeros(1000)},
    }
    torch.save(state, path)


def model_of(path):
    return torch.load(path, weights_only=True)["model"]


def test_averages_are_means_and_fairseq_loads_them(posenc, trained, tmp_path):
    out = tmp_path / "average.pt"
    paths = [trained / f"checkpoint{number}.pt" for number in (1, 2, 3)]
    status, printed, error = posenc("average", out, *paths)
    assert (status, error) == (0, "") and "the mean of checkpoint1.pt, checkpoint2.pt, checkpoint3.pt" in printed
    states, found = [model_of(path) for path in paths], model_of(out)
    assert found.keys() == states[0].keys()
    for name, tensor in found.items():
        assert tensor.dtype == states[0][name].dtype
        mean = np.mean([state[name].double().numpy() for state in states], axis=0).astype(tensor.numpy().dtype)
        if tensor.is_floating_point():
            np.testing.assert_array_max_ulp(tensor.numpy(), mean, 1)
    assert found["positions_version"].equal(states[0]["positions_version"])
    (model,), _ = checkpoint_utils.load_model_ensemble([str(out)])
    assert all(found[name].equal(value) for name, value in model.state_dict().items())


def test_a_copy_is_refused(posenc, trained, tmp_path):
    shutil.copy(trained / "checkpoint2.pt", tmp_path / "checkpoint_last.pt")
    paths = [trained / "checkpoint1.pt", trained / "checkpoint2.pt", tmp_path / "checkpoint_last.pt"]
    status, _, error = posenc("average", tmp_path / "average.pt", *paths)
    assert status == 2 and error.count("\n") == 1 and not (tmp_path / "average.pt").exists()
    assert f"checkpoint_last.pt: a copy of {trained}/checkpoint2.pt, which would count twice" in error


def test_checkpoints_of_two_seeds_are_refused(posenc, build, trained, tmp_path):
    config, model = build("t5", "--seed", "7")
    save(tmp_path / "other.pt", config, model, 40)
    status, _, error = posenc("average", tmp_path / "average.pt", trained / "checkpoint1.pt", tmp_path / "other.pt")
    assert status == 2 and error.count("\n") == 1 and "other.pt: seed 7, but" in error and not (tmp_path / "average.pt").exists()


def test_other_settings_are_a_warning(posenc, build, trained, tmp_path):
    """A training run that was resumed with another end, or on other machines, has no other settings."""
    for name, changes in (
        ("one", "--lr 0.5 --dropout 0.25"),
        ("resumed", "--max-update 9 --distributed-world-size 2 --reset-meters --no-last-checkpoints"),
    ):
        config, model = build("t5", *changes.split())
        save(tmp_path / f"{name}.pt", config, model, 40)
    one, other = tmp_path / "one.pt", trained / "checkpoint1.pt"
    assert posenc("average", tmp_path / "average.pt", other, tmp_path / "resumed.pt")[::2] == (0, "")
    status, _, error = posenc("average", tmp_path / "average.pt", other, one)
    named = f"posenc: {one} and {other} differ in dropout (0.25 and 0.1), lr ([0.5] and [0.25]). "
    assert status == 0 and error.startswith(named)
    state = torch.load(tmp_path / "resumed.pt", weights_only=True)
    state["cfg"]["task"]["data"] = state["cfg"]["model"].data = "elsewhere"
    torch.save(state, tmp_path / "moved.pt")
    error = posenc("average", tmp_path / "average.pt", other, tmp_path / "moved.pt")[2]
    assert f"moved.pt and {other} differ in data (elsewhere and " in error
    assert error.count("\n") == 1


def test_what_is_shared_stays_shared_and_the_optimizer_goes(posenc, trained, tmp_path):
    assert posenc("average", tmp_path / "average.pt", trained / "checkpoint1.pt", trained / "checkpoint2.pt")[0] == 0
    state = torch.load(tmp_path / "average.pt", weights_only=True)
    shared = [tensor.data_ptr() for name, tensor in state["model"].items() if name.endswith("embed_tokens.weight")]
    assert len(shared) == 2 and len(set(shared)) == 1
    assert state["last_optimizer_state"] is None and "ema" not in state["extra_state"]


def test_the_average_has_the_updates_of_the_last_checkpoint_in_any_order(posenc, trained, tmp_path):
    for number, order in enumerate(((1, 2, 3), (3, 1, 2))):
        posenc("average", tmp_path / f"{number}.pt", *(trained / f"checkpoint{epoch}.pt" for epoch in order))
    one, other = (torch.load(tmp_path / f"{number}.pt", weights_only=True) for number in range(2))
    assert one["optimizer_history"][-1]["num_updates"] == other["optimizer_history"][-1]["num_updates"] > 0
    assert one["extra_state"]["train_iterator"] == other["extra_state"]["train_iterator"]


def test_the_last_of_a_folder_go_by_number(posenc, trained, tmp_path):
    status, printed, _ = posenc("average", tmp_path / "a.pt", trained, "--last", "2")
    assert status == 0 and "the mean of checkpoint2.pt, checkpoint3.pt" in printed
    status, printed, _ = posenc("average", tmp_path / "b.pt", trained, "--last", "2", "--by", "update")
    assert status == 0 and "the mean of checkpoint_3_9.pt, checkpoint_3_25.pt" in printed
    status, _, error = posenc("average", tmp_path / "c.pt", trained / "checkpoint2.pt", "--by", "update")
    assert status == 2 and error.strip() == (
        "posenc: --by update: no effect without --last. Expected both. Add --last N, or remove --by."
    )


def test_a_score_says_that_its_model_is_an_average(posenc, trained, tmp_path):
    posenc("average", tmp_path / "average.pt", trained, "--last", "3")
    training = read(tmp_path / "average.pt")
    assert training.averaged == 3 and training.updates == 30
    assert read(trained / "checkpoint3.pt").averaged == 0


def test_an_interrupted_training_does_not_go_on_from_an_average(posenc, trained, tmp_path):
    for name in ("checkpoint1.pt", "checkpoint2.pt"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    posenc("average", tmp_path / "checkpoint_average.pt", trained / "checkpoint2.pt", trained / "checkpoint3.pt")
    before = (tmp_path / "checkpoint_average.pt").read_bytes()
    assert repair(tmp_path) == 20
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == (trained / "checkpoint2.pt").read_bytes()
    assert (tmp_path / "checkpoint_average.pt").read_bytes() == before


@pytest.fixture(scope="module")
def others(trained, tmp_path_factory):
    """Write checkpoints that cannot be averaged with the checkpoints of `trained`. Return their folder."""
    tmp_path = tmp_path_factory.mktemp("others")
    state = torch.load(trained / "checkpoint1.pt", weights_only=True)
    weight = state["model"]["decoder.embed_tokens.weight"].clone()
    changes = {
        "rope": {"positions_version": torch.tensor(list(b"encoder: rope\ndecoder: rope\ncross: none"))},
        "wide": {"encoder.layers.0.fc1.bias": torch.zeros(12)},
        "apart": {"decoder.embed_tokens.weight": weight},
        "more": {"more": weight},
        "crafted": {"positions_version": torch.tensor([255] * 5000)},
    }
    for name, change in changes.items():
        torch.save({**state, "model": {**state["model"], **change}}, tmp_path / f"{name}.pt")
    torch.save({**state, "model": None}, tmp_path / "empty.pt")
    return tmp_path


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["{run}/checkpoint1.pt", "{other}/rope.pt"], "rope.pt: positions"),
        (["{run}/checkpoint1.pt", "{other}/wide.pt"], "wide.pt: encoder.layers.0.fc1"),
        (["{run}/checkpoint1.pt", "{other}/apart.pt"], "apart.pt: other shared parameters"),
        (["{run}/checkpoint1.pt", "{other}/more.pt"], "checkpoint1.pt: the parameter more of "),
        (["{run}/checkpoint1.pt", "{other}/crafted.pt"], "positions_version does not contain specs"),
        (["{other}/empty.pt"], "empty.pt: damaged, truncated or not a checkpoint"),
        (["{run}/checkpoint1.pt", "{run}/nowhere.pt"], "nowhere.pt: no such file"),
        (["{run}"], "this is a folder. Expected checkpoint files, or a folder together with --last N."),
        (
            ["{run}", "--last", "4"],
            "contains 3 checkpoints with names of the form checkpointEPOCH.pt (--by epoch). Expected at least 4.",
        ),
        (["{run}", "--last", "0"], "--last: '0' is not a positive whole number"),
        (["{run}/checkpoint1.pt", "--last", "1"], "--last: wrong arguments. Expected one folder"),
        (["{run}/checkpoint1.pt", "{run}/checkpoint1.pt"], "a checkpoint is given twice. Expected different checkpoints."),
        (["{other}/out.pt"], "out.pt: this is one of the checkpoints to read"),
    ],
)
def test_every_error_is_one_line(posenc, trained, others, inputs, message):
    arguments = [text.format(run=trained, other=others) for text in inputs]
    status, _, error = posenc("average", others / "out.pt", *arguments)
    assert status == 2 and error.startswith("posenc: ") and error.count("\n") == 1 and message in error and len(error) < 600
    assert not (others / "out.pt").exists()


def test_a_folder_that_is_not_there_is_one_line(posenc, trained, tmp_path):
    status, _, error = posenc("average", tmp_path / "nowhere" / "out.pt", trained / "checkpoint1.pt")
    assert status == 2 and "cannot be written" in error and error.count("\n") == 1


def test_a_full_disk_is_one_line_and_leaves_no_partial_file(posenc, trained, tmp_path, small_files):
    with small_files(1000):
        status, _, error = posenc("average", tmp_path / "out.pt", trained / "checkpoint1.pt")
    assert status == 2 and "out.pt: cannot be written" in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())
