"""Before several machines train one model, their options, data and code are compared. The message names every difference.

The file also tests the messages about lost connections to machines.
"""

import os
import shutil
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairseq_posenc.host.compat import machines
from fairseq_posenc.host.compat.addresses import address_to, interface_of


def trainer(folder, **options):
    model = Namespace(arch="posenc_transformer", encoder_position="t5", save_dir=str(folder))
    cfg = Namespace(
        task=SimpleNamespace(data=str(folder)),
        dataset=SimpleNamespace(train_subset="train", valid_subset="valid"),
        optimization={"lr": [0.1], "device_id": len(folder.name), **options},
        model=model,
    )
    return SimpleNamespace(cfg=cfg)


@pytest.fixture
def folders(data, tmp_path):
    made = [tmp_path / "one", tmp_path / "other"]
    for folder in made:
        shutil.copytree(data, folder)
    return made


def differences(folders, **options):
    one, other = folders
    return machines._differences(machines.facts(trainer(one)), machines.facts(trainer(other, **options)))


def test_equal_machines_with_folders_of_their_own_do_not_differ(folders):
    assert differences(folders) == ""
    assert any(name.startswith("number of sentences in train.") for name in machines.facts(trainer(folders[0])))


def test_options_are_named_with_both_values(folders):
    assert differences(folders, lr=[0.2]) == "option --lr is [0.2], not [0.1]"
    assert differences(folders, clip_norm=1.0) == "option --clip-norm is missing on the first"


@pytest.mark.parametrize("pattern", ["dict.*.txt", "train.*.bin", "valid.*.idx"])
def test_files_are_named(folders, pattern):
    for path in sorted(folders[1].glob(pattern)):
        before = path.read_bytes()
        path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        kind = "dictionary" if path.name.startswith("dict") else "data"
        assert differences(folders) == f"{kind} {path.name}"
        path.unlink()
        assert f"{kind} {path.name} is missing on it" in differences(folders)
        path.write_bytes(before)


def test_all_folders_of_sharded_data_are_compared(folders, tmp_path):
    """The files of the second folder have the same names as the files of the first folder."""
    shard, changed = folders[0], tmp_path / "changed"
    shutil.copytree(shard, changed)
    path = min(changed.glob("train.*.bin"))
    path.write_bytes(path.read_bytes() + b"1")

    def facts(*paths):
        one = trainer(shard)
        one.cfg.task.data = os.pathsep.join(map(str, paths))
        return machines.facts(one)

    assert machines._differences(facts(shard, shard), facts(shard, changed)) == f"data {path.name} in data folder 2"
    assert machines._differences(facts(shard, shard), facts(changed, shard)) == f"data {path.name} in data folder 1"


def test_raw_text_is_compared(folders):
    for folder, text in zip(folders, ("one", "two")):
        (folder / "train.svo-sov.svo").write_text(text)
    assert differences(folders) == "data train.svo-sov.svo"


def test_test_sets_may_differ(folders):
    for path in folders[1].glob("test.*"):
        path.unlink()
    assert differences(folders) == ""


def test_another_version_is_named(folders, monkeypatch):
    facts = machines.facts(trainer(folders[0]))
    monkeypatch.setattr(machines.torch, "__version__", "1.0")
    assert "version of torch is 1.0, not " in machines._differences(facts, machines.facts(trainer(folders[1])))
    monkeypatch.undo()
    hashed = machines.digest_of
    monkeypatch.setattr(machines, "digest_of", lambda paths: hashed([path for path in paths if path.name != "addresses.py"]))
    assert machines._differences(facts, machines.facts(trainer(folders[1]))) == "code of fairseq_posenc"


def test_methods_of_the_user_are_code_too(folders, monkeypatch, tmp_path):
    facts = machines.facts(trainer(folders[0]))
    (tmp_path / "mine.py").write_text("")
    monkeypatch.setenv("POSENC_METHODS", str(tmp_path / "mine.py"))
    assert machines._differences(facts, machines.facts(trainer(folders[1]))) == "code of POSENC_METHODS"


GLOO = "[x/pair.cc:534] Connection closed by peer [10.0.0.{}]:4321"


@pytest.mark.parametrize(
    "message, line",
    [
        (GLOO.format(3), "lost the connection to machine 2 (c)"),
        (GLOO.format(1), "lost the connection to machine 1 (b) or machine 2 (c) ("),  # 10.0.0.1 is this machine
        ("Timed out waiting 8000ms for recv", "no answer from machine 1 (b) or machine 2 (c) within 8 seconds. "),
        ("NCCL error: remote process exited", "lost the connection to machine 1 (b) or machine 2 (c) (NCCL error"),
    ],
)
def test_an_error_of_a_collective_names_the_machine(monkeypatch, message, line):
    monkeypatch.setenv("POSENC_NODE_RANK", "0")
    monkeypatch.setenv("POSENC_TIMEOUT", "8")
    names = ["machine 0 (a)", "machine 1 (b)", "machine 2 (c)"]
    found = [machines.Worker(number, name, f"10.0.0.{number + 1}") for number, name in enumerate(names)]
    monkeypatch.setattr(machines, "_workers", found)
    assert machines._lost(message, message).startswith(line)
    monkeypatch.setattr(machines, "_workers", [])
    assert machines._lost(message, message).startswith("machine 0 could not connect to the others (")


def test_addresses():
    assert address_to("127.0.0.1") == address_to("[127.0.0.1]") == "127.0.0.1"
    if os.path.exists("/proc/net/dev"):
        assert interface_of("127.0.0.1") in Path("/proc/net/dev").read_text()
    assert interface_of("192.0.2.1") is None
