"""Checkpoints with a changed configuration, and very long file names.

posenc plot, analyse, average and score print no traceback. An error is one line with exit code 2.
"""

from argparse import Namespace

import pytest
import torch


def section(name, **changes):
    """Return a function that changes entries of one section of the configuration in a checkpoint.

    A section is a dictionary or a Namespace.
    """

    def change(state):
        found = state["cfg"][name]
        (vars(found) if isinstance(found, Namespace) else found).update(changes)

    return change


def drop(*names):
    def change(state):
        for name in names[:-1]:
            state = state[name]
            state = vars(state) if isinstance(state, Namespace) else state
        del state[names[-1]]

    return change


def replace(name, value):
    return lambda state: state["cfg"].update({name: value})


DAMAGE = {
    "no task": drop("cfg", "task"),
    "no model": drop("cfg", "model"),
    "no name of the task": drop("cfg", "task", "_name"),
    "task is a number": replace("task", 3),
    "task is a list": replace("task", [1, 2]),
    "task is none": replace("task", None),
    "unknown task": section("task", _name="nothing"),
    "task of numbers": section("task", _name=7),
    "task of another kind": section("task", _name="language_modeling"),
    "data is a number": section("task", data=5),
    "data is none": section("task", data=None),
    "data is missing": section("task", data="/nowhere/at/all"),
    "data has a long name": section("task", data="d" * 300),
    "data has a null character": section("task", data="a\0b"),
    "language is a list": section("task", source_lang=[1]),
    "language has a path": section("task", source_lang="../../nothing"),
    "interpolation": section("task", data="${nothing.at.all}"),
    "interpolation of itself": section("task", data="${task.data}"),
    "missing value": section("task", data="???"),
    "unknown setting": section("task", settings_of_nobody={"a": [1]}),
    "model is a number": replace("model", 3),
    "model is none": replace("model", None),
    "unknown architecture": section("model", arch="nothing", _name="nothing"),
    "width is text": section("model", encoder_embed_dim="wide"),
    "width is none": section("model", encoder_embed_dim=None),
    "width is negative": section("model", encoder_embed_dim=-8),
    "width is a fraction": section("model", encoder_embed_dim=8.5),
    "other width": section("model", encoder_embed_dim=16),
    "heads are zero": section("model", encoder_attention_heads=0),
    "layers are text": section("model", encoder_layers="two"),
    "position is a number": section("model", encoder_position=3),
    "position is unknown": section("model", encoder_position="nothing"),
    "activation is unknown": section("model", activation_fn="nothing"),
    "dropout is text": section("model", dropout="much"),
    "common is a list": replace("common", [1]),
}


@pytest.fixture
def damaged(run_folder, tmp_path):
    def write(change):
        state = torch.load(run_folder / "checkpoint_last.pt", weights_only=False)
        change(state)
        torch.save(state, tmp_path / "checkpoint_best.pt")
        return tmp_path / "checkpoint_best.pt"

    return write


@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_configuration_is_one_line(posenc, damaged, tmp_path, change):
    path = damaged(change)
    for command in (
        ["plot", path, "--output", tmp_path / "picture.png"],
        ["analyse", "vectors", path],
        ["average", tmp_path / "average.pt", path],
    ):
        status, out, error = posenc(*command)
        lines = [line for line in error.splitlines() if line.startswith("posenc: ")]
        assert "Traceback" not in error and status in (0, 2), error
        assert len(lines) == (status == 2) and len("".join(lines)) < 800, error
        assert status == 2 or command[0] == "average" or change in HARMLESS, out


#: settings that are not read during loading
HARMLESS = [DAMAGE["unknown setting"], DAMAGE["common is a list"], DAMAGE["dropout is text"]]


COMMANDS = [["plot"], ["analyse", "vectors"], ["average", "out.pt"], ["score"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("name", ["n" * 300, "n" * 5000, "f/" * 3000, "f/" * 1500], ids=["300", "5000", "path", "allowed"])
def test_very_long_names(posenc, tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    arguments = ["score", name, "test=a"] if command[0] == "score" else [*command, f"./{name}"]
    status, out, error = posenc(*arguments)
    assert status == 2 and out == "" and "Traceback" not in error
    assert sum(line.startswith("posenc: ") for line in error.splitlines()) == 1 and len(error) < 1500
