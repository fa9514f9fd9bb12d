"""The description of a training run in a checkpoint, and the repair of an interrupted training run."""

import subprocess
import sys

import pytest
import torch

from fairseq_posenc.core import PositionError
from fairseq_posenc.host.checkpoints import read, repair
from tests.checkpoints.files import write_checkpoint


def test_the_newest_complete_checkpoint_replaces_an_incomplete_copy(tmp_path, capsys):
    for name, updates in {"checkpoint_1_400.pt": 400, "checkpoint_best.pt": 200, "checkpoint_last.pt": 400}.items():
        write_checkpoint(tmp_path / name, tmp_path, updates=updates)
    whole = (tmp_path / "checkpoint_1_400.pt").read_bytes()
    assert repair.repair(tmp_path) == 400
    assert (tmp_path / "checkpoint_best.pt").read_bytes() != whole  # a complete checkpoint is not replaced
    (tmp_path / "checkpoint_last.pt").write_bytes(whole[: len(whole) // 2])
    assert repair.repair(tmp_path) == 400
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == whole
    (tmp_path / "checkpoint_last.pt").unlink()
    assert repair.repair(tmp_path) == 400
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == whole
    assert capsys.readouterr().err == ""
    (tmp_path / "checkpoint_best.pt").write_bytes(whole[: len(whole) // 2])
    assert repair.repair(tmp_path) == 400
    assert "checkpoint_best.pt: incomplete, and replaced by " in capsys.readouterr().err


def test_nothing_is_left_where_nothing_is_complete(tmp_path):
    assert repair.repair(tmp_path) == 0
    (tmp_path / "checkpoint_last.pt").write_bytes(b"half")
    assert repair.repair(tmp_path) == 0
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_with_zeros_in_its_middle_is_incomplete(tmp_path):
    for name, updates in {"checkpoint_1_400.pt": 400, "checkpoint_last.pt": 500}.items():
        write_checkpoint(tmp_path / name, tmp_path, updates=updates, weight=torch.ones(20000))
    damaged = bytearray((tmp_path / "checkpoint_last.pt").read_bytes())
    middle = damaged.index(b"\x00\x00\x80\x3f" * 1000)  # within the data of a tensor of ones
    damaged[middle : middle + 20000] = bytes(20000)
    (tmp_path / "checkpoint_last.pt").write_bytes(damaged)
    assert repair.repair(tmp_path) == 400
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == (tmp_path / "checkpoint_1_400.pt").read_bytes()


def test_an_undamaged_file_that_does_not_load_is_kept(tmp_path):
    """If loading fails for an undamaged file, `repair` must not delete the file.

    Otherwise, a loader that fails for all files would cause the loss of all checkpoints of a training run.
    """
    torch.save({"model": {}, "cfg": {}, "code": Sentinel}, tmp_path / "checkpoint_last.pt")
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    with pytest.raises(PositionError, match=r"checkpoint_last.pt: the file is complete, but cannot be loaded") as error:
        repair.repair(tmp_path)
    assert "\n" not in str(error.value) and (tmp_path / "checkpoint_last.pt").read_bytes() == before


class Sentinel:
    """A type that the safe loader does not accept."""


def test_recipes_run_it_as_a_module(tmp_path):
    write_checkpoint(tmp_path / "checkpoint_1_400.pt", tmp_path, updates=400)
    command = [sys.executable, "-m", "fairseq_posenc.host.checkpoints.repair", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "400\n"
    assert (tmp_path / "checkpoint_last.pt").is_file()


@pytest.mark.parametrize("change", [{"cfg": None}, {"optimizer_history": []}, {"model": None}, {"extra_state": None}])
def test_a_checkpoint_without_its_training_is_refused(tmp_path, change):
    path = tmp_path / "checkpoint_last.pt"
    write_checkpoint(path, tmp_path)
    torch.save({**torch.load(path, weights_only=False), **change}, path)
    with pytest.raises(PositionError, match=r"checkpoint_last.pt: damaged, truncated or not a checkpoint") as caught:
        read.read(path)
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_one_line_and_keeps_what_is_there(tmp_path, capsys, small_files):
    write_checkpoint(tmp_path / "checkpoint_1_400.pt", tmp_path, updates=400)
    with small_files(100), pytest.raises(SystemExit, match=r"checkpoint_last.pt: cannot be written \(File too large"):
        repair.main([str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_1_400.pt"]
