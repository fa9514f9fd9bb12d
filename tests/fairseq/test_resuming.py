"""An interrupted training run has the same result as an uninterrupted run, also after errors of the disk."""

import resource
import shutil
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils, file_io

import fairseq_posenc.host.plugin  # noqa: F401  registers the architectures
from fairseq_posenc.host.compat import patience

#: with 48 sentences, an epoch has 3 updates. The seed determines which sentences are in a batch
EPOCHS = ["--max-update", 100, "--batch-size", 8, "--update-freq", 2, "--save-interval-updates", 1, "--clip-norm", 1]


@pytest.fixture(scope="module")
def whole(fairseq, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    fairseq.train("posenc_t5_tiny", folder, *EPOCHS, "--max-epoch", 3).succeeded()
    return folder


@pytest.mark.parametrize("name", ["checkpoint_1_2.pt", "checkpoint_1_3.pt", "checkpoint_2_5.pt", "checkpoint_3_8.pt"])
def test_from_any_epoch_the_parameters_are_the_same(fairseq, whole, tmp_path, name):
    """The parameters are identical only if dropout, the order of batches and the sentences of each batch are identical."""
    path = whole / name
    if not path.exists():  # for the last update of an epoch, fairseq does not write a checkpoint with this name
        fairseq.train("posenc_t5_tiny", tmp_path, *EPOCHS, "--max-epoch", int(name.split("_")[1])).succeeded()
    else:
        shutil.copy(path, tmp_path / "checkpoint_last.pt")
    updates = name.removesuffix(".pt").rsplit("_")[-1]
    output = fairseq.train("posenc_t5_tiny", tmp_path, *EPOCHS, "--max-epoch", 3).succeeded()
    assert f"@ {updates} updates" in output
    one, other = (fairseq.state(folder / "checkpoint_last.pt") for folder in (whole, tmp_path))
    assert one["optimizer_history"][-1]["num_updates"] == other["optimizer_history"][-1]["num_updates"] == 9
    for key, tensor in one["model"].items():
        torch.testing.assert_close(other["model"][key], tensor, rtol=0, atol=0, msg=key)


# --- a full disk ---


STATE = {"model": {"weight": torch.arange(300_000.0)}, "cfg": {}}


@pytest.fixture
def full_disk():
    """Simulate a full disk: no file can exceed 100 kB. Return a function that ends this limit, as if space were freed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def pauses(monkeypatch):
    """Return a list of functions. The first function replaces the first pause between two attempts to write, and so on."""
    found = []
    monkeypatch.setattr("time.sleep", lambda seconds: found and found.pop(0)())
    return found


def test_a_checkpoint_that_cannot_be_written_is_one_line(full_disk, pauses, tmp_path, caplog):
    path = tmp_path / "checkpoint_last.pt"
    path.write_bytes(b"the one before")
    with pytest.raises(
        SystemExit,
        match=r"checkpoint_last\.pt: cannot be written \(File too large\)\. "
        r".* Free disk space",
    ) as error:
        checkpoint_utils.torch_persistent_save(STATE, str(path))
    assert "\n" not in str(error.value) and not caplog.records
    assert path.read_bytes() == b"the one before" and list(tmp_path.iterdir()) == [path]


def test_room_that_comes_in_time_is_used(full_disk, pauses, tmp_path):
    pauses.append(full_disk)
    checkpoint_utils.torch_persistent_save(STATE, str(tmp_path / "checkpoint_last.pt"))
    found = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    torch.testing.assert_close(found["model"]["weight"], STATE["model"]["weight"])
    assert (tmp_path / "checkpoint_last.pt").stat().st_size < 2 * 4 * 300_000  # the file contains no data of the first attempt


@pytest.mark.parametrize("before", [True, False])
def test_the_message_says_where_the_next_training_begins(full_disk, pauses, tmp_path, before):
    if before:
        (tmp_path / "checkpoint_last.pt").write_bytes(b"the one before")
    with pytest.raises(SystemExit) as error:
        checkpoint_utils.torch_persistent_save(STATE, str(tmp_path / "checkpoint2.pt"))
    expected = "Training then resumes from checkpoint_last.pt" if before else "Training then starts from the beginning"
    assert expected in str(error.value)


def test_a_copy_needs_no_room(tmp_path, full_disk, caplog):
    """The disk is full after the first checkpoint is written. checkpoint_last.pt is then a link to this checkpoint, not a copy.

    The next training run can therefore start from this checkpoint.
    """
    full_disk()
    source, target = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(bytes(200_000))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    assert file_io.PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == source.read_bytes() and len(list(tmp_path.iterdir())) == 2
    assert "File too large" in caplog.text and "checkpoint1.pt" in caplog.text


def test_a_copy_that_cannot_be_written_leaves_the_one_before(tmp_path, full_disk, monkeypatch):
    monkeypatch.delattr("os.link")  # as on a file system without links
    full_disk()  # space for the first file only
    source, target = tmp_path / "checkpoint_best.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(bytes(200_000))
    target.write_bytes(b"the one before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    with pytest.raises(SystemExit, match=r"checkpoint_last\.pt: cannot be written \(File too large\)"):
        file_io.PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == b"the one before" and len(list(tmp_path.iterdir())) == 2
    full_disk()
    assert file_io.PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == source.read_bytes()


# --- a folder that cannot be written ---


@pytest.mark.parametrize("name", ["a-file", "a-file/below", "/proc/fairseq_posenc"])
def test_a_folder_that_cannot_be_written_is_one_line(fairseq, tmp_path, name):
    (tmp_path / "a-file").write_text("")
    line = fairseq.train("posenc_t5_tiny", tmp_path / name).refusal()
    assert line.startswith(f"fairseq_posenc: --save-dir {tmp_path / name}: cannot be written")


# --- early stopping ---


@pytest.fixture
def count():
    """Return the state of early stopping in fairseq-train: best loss, and number of validations without improvement."""
    from fairseq_cli.train import should_stop_early

    yield vars(should_stop_early)
    vars(should_stop_early).clear()


def test_patience_counts_the_validations_before_an_interruption(count):
    saved = {}
    count.update(best=2.0, num_runs=3)
    patience.with_count(lambda trainer, path, extra_state: saved.update(extra_state))(
        None, "checkpoint_last.pt", {"val_loss": 2.5}
    )
    assert saved == {"val_loss": 2.5, "early_stopping": {"best": 2.0, "num_runs": 3}}
    count.clear()

    def resume(allowed, file="runs/checkpoint_last.pt", reset_dataloader=False, **options):
        checkpoint = SimpleNamespace(patience=allowed, save_dir="runs", reset_dataloader=reset_dataloader)
        trainer = SimpleNamespace(cfg=SimpleNamespace(checkpoint=checkpoint), checkpoint_suffix="")
        load = patience.restoring_count(lambda trainer, path, *resets, reset_meters: dict(saved))
        return load(trainer, file, **options)

    for reset in ("reset_optimizer", "reset_lr_scheduler", "reset_meters", "reset_dataloader"):
        assert resume(3, **{reset: True}) == saved and count == {}
    for file in ("others/checkpoint_last.pt", "runs/checkpoint_best.pt"):  # another training run starts from this checkpoint
        assert resume(3, file) == saved and count == {}
    assert resume(4, "./runs/../runs/checkpoint_last.pt") == saved and count == {"best": 2.0, "num_runs": 3}
    with pytest.raises(SystemExit) as ended:  # early stopping had ended the training run. One more epoch would change the model
        resume(3)
    assert ended.value.code == 0
    del saved["early_stopping"]  # a checkpoint of stock fairseq does not contain this state
    assert resume(3) == saved
