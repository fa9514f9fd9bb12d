"""Load, resume and decode with fairseq 0.12 on current torch and numpy, and reject unsafe checkpoints."""

import argparse
import functools
import importlib.util
import os
import re
import socket
import subprocess
import sys
import tarfile
import warnings
import zipfile
from pathlib import Path

import numpy
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary, LanguagePairDataset, data_utils
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

import fairseq_posenc
from fairseq_posenc.host import compat
from tests import forked

USER_DIR = Path(fairseq_posenc.__file__).parent
TINY = (  # a model of stock fairseq. The task dummy_mt generates its data
    "--arch transformer --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 8 --decoder-embed-dim 8 "
    "--encoder-ffn-embed-dim 8 --decoder-ffn-embed-dim 8 --encoder-attention-heads 2 --decoder-attention-heads 2 "
    "--task dummy_mt --dict-size 40 --dataset-size 64 --src-len 5 --tgt-len 5 --batch-size 4 "
    "--optimizer adam --lr 0.001 --max-epoch 1 --disable-validation --cpu"
).split()


def command(name: str, *args) -> list:
    return [Path(sys.executable).with_name(name), *map(str, args), "--user-dir", USER_DIR]


def forked_command(name: str, *args) -> list:
    """Return a command that starts in a process that has already imported fairseq and the plugin."""
    return [Path(forked.folder(USER_DIR)) / name, *map(str, args), "--user-dir", USER_DIR]


def start(args: list, cwd: Path) -> subprocess.Popen:
    return subprocess.Popen(args, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen) -> str:
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    return output


def refusal(process: subprocess.Popen) -> str:
    """Return the last line of the command's output. Check that the command failed, and that the output has no traceback."""
    output = process.communicate(timeout=120)[0]
    assert process.returncode not in (0, None)
    assert "Traceback" not in output
    return output.splitlines()[-1]


def refused(path: Path) -> str:
    with pytest.raises(SystemExit) as stop:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    message = stop.value.code
    assert message.startswith(f"fairseq_posenc: {path}: ") and "\n" not in message
    return message


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple:
    """Return the folder and the output of a short training run."""
    folder = tmp_path_factory.mktemp("run")
    output = finish(start(command("fairseq-train", *TINY, "--max-update", 2, "--save-dir", folder), folder))
    return folder, output


@pytest.fixture
def state(run) -> dict:
    return torch.load(run[0] / "checkpoint_last.pt", weights_only=True)


def save(state, path: Path) -> Path:
    torch.save(state, path)
    return path


# --- checkpoints that load ---


def test_a_checkpoint_loads_with_its_namespace(run):
    state = checkpoint_utils.load_checkpoint_to_cpu(str(run[0] / "checkpoint_last.pt"))
    assert isinstance(state["cfg"].model, argparse.Namespace)
    assert state["cfg"].model.encoder_layers == 1


def test_training_prints_no_warning(run):
    assert "training on 1 devices" in run[1]
    assert "Warning" not in run[1]


def test_attention_of_a_padded_batch_gives_no_warning():
    attention = MultiheadAttention(4, 2, self_attention=True)
    x, padding = torch.zeros(3, 2, 4), torch.tensor([[False, False, True], [False, False, False]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compat.warnings.apply()
        attention(x, x, x, key_padding_mask=padding, attn_mask=torch.zeros(3, 3))


@pytest.mark.parametrize("package", ["numpy.core", "numpy._core"])
def test_meters_load_that_numpy_1_or_numpy_2_has_written(state, tmp_path, package):
    meters = [numpy.float64(0.5), numpy.float32(0.5), numpy.int64(3), numpy.bool_(True), numpy.array([7, 5, 3, 1])]
    state["extra_state"]["meters"] = meters
    written, path = save(state, tmp_path / "written.pt"), tmp_path / "checkpoint.pt"
    with zipfile.ZipFile(written) as old, zipfile.ZipFile(path, "w") as new:
        for item in old.infolist():
            new.writestr(item, re.sub(rb"numpy\._?core(?=\.multiarray\n)", package.encode(), old.read(item)))
    assert path.read_bytes().count(package.encode() + b".multiarray\n") == 2

    loaded = checkpoint_utils.load_checkpoint_to_cpu(str(path))["extra_state"]["meters"]
    assert [type(value) for value in loaded] == [type(value) for value in meters]
    assert loaded[:4] == meters[:4] and loaded[4].tolist() == [7, 5, 3, 1]


@pytest.mark.slow
def test_two_workers_resume(tmp_path):
    def train(updates: int) -> list:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        workers = [
            start(
                forked_command(
                    *["fairseq-train", *TINY, "--max-update", updates, "--save-dir", tmp_path],
                    *["--ddp-backend", "legacy_ddp", "--distributed-backend", "gloo", "--distributed-no-spawn"],
                    *["--distributed-init-method", f"tcp://127.0.0.1:{port}"],
                    *["--distributed-world-size", 2, "--distributed-rank", rank],
                ),
                tmp_path,
            )
            for rank in (0, 1)
        ]
        try:
            return [finish(worker) for worker in workers]
        finally:
            for worker in workers:
                worker.kill()

    train(2)
    assert "(epoch 1 @ 2 updates)" in train(4)[0]  # rank 1 prints nothing
    assert torch.load(tmp_path / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 4


# --- errors ---


class Foreign:
    """An object that calls a function when the object is unpickled."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def test_decoding_refuses_foreign_code(state, tmp_path):
    marker = tmp_path / "it-ran"
    state["cfg"]["foreign"] = Foreign(os.system, f"touch {marker}")
    path = save(state, tmp_path / "checkpoint_best.pt")
    for language in ("de", "en"):
        (tmp_path / f"dict.{language}.txt").write_text("word 1\n")
    generate = command("fairseq-generate", tmp_path, "-s", "de", "-t", "en", "--path", path, "--cpu")
    line = refusal(start(generate, tmp_path))
    assert line.startswith(f"fairseq_posenc: {path}: not loaded, because it contains {os.system.__module__}.system,")
    assert not marker.exists()


@pytest.mark.parametrize("function", [os.system, exec], ids=["os.system", "exec"])
def test_loading_refuses_foreign_code(state, tmp_path, function):
    marker = tmp_path / "it-ran"
    code = {os.system: f"touch {marker}", exec: f"open({str(marker)!r}, 'w')"}[function]
    state["extra_state"]["foreign"] = Foreign(function, code)
    assert f"{function.__name__}, which could run code" in refused(save(state, tmp_path / "foreign.pt"))
    assert not marker.exists()


def test_a_loader_that_asks_for_arbitrary_pickle_gets_the_safe_one(state, tmp_path):
    marker = tmp_path / "it-ran"
    path = save({**state, "foreign": Foreign(os.system, f"touch {marker}")}, tmp_path / "foreign.pt")
    # like this function, fairseq's main branch calls torch.load with weights_only=False
    load = compat.checkpoints.with_safe_loader(lambda path: torch.load(path, weights_only=False))
    with pytest.raises(SystemExit, match="not loaded, because it contains"):
        load(path)
    assert not marker.exists()
    assert not isinstance(torch.load, functools.partial)


def test_numpy_objects_are_no_numbers(state, tmp_path):
    state["extra_state"]["meters"] = numpy.array([Foreign(print, "it ran")], dtype=object)
    assert "it ran" not in refused(save(state, tmp_path / "objects.pt"))


def damage(kind: str, whole: bytes) -> bytes:
    return {
        "truncated": whole[: len(whole) // 2],
        "header": whole[:100],
        "empty": b"",
        "text": b"this is a text\n",
        "overwritten": whole[: len(whole) // 4] + bytes(len(whole) // 2) + whole[-len(whole) // 4 :],
    }[kind]


@pytest.mark.parametrize("kind", ["truncated", "header", "empty", "text", "overwritten"])
def test_a_damaged_file_is_one_line_that_names_what_to_use(run, tmp_path, kind):
    whole = (run[0] / "checkpoint_last.pt").read_bytes()
    (tmp_path / "checkpoint_last.pt").write_bytes(damage(kind, whole))
    assert "checkpoint_best.pt or checkpoint1.pt" in refused(tmp_path / "checkpoint_last.pt")
    (tmp_path / "checkpoint3.pt").write_bytes(whole)
    assert f"({tmp_path / 'checkpoint3.pt'})" in refused(tmp_path / "checkpoint_last.pt")


@pytest.mark.parametrize("other", [{"weight": torch.ones(2)}, [1, 2], {"model": {}}], ids=["weights", "list", "model"])
def test_another_kind_of_file_is_no_checkpoint(tmp_path, other):
    assert "there is no fairseq model" in refused(save(other, tmp_path / "other.pt"))


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"cfg": None}, "cfg"),
        ({"cfg": [1]}, "cfg"),
        ({"cfg": None, "args": {"arch": "transformer"}}, "args"),
        ({"model": None}, "model"),
        ({"model": {"weight": "text"}}, "model"),
        ({"model": {1: torch.ones(1)}}, "model"),
        ({"extra_state": None}, "extra_state"),
        ({"extra_state": {"train_iterator": 7}}, "train_iterator"),
        ({"optimizer_history": []}, "optimizer_history"),
        ({"optimizer_history": None}, "optimizer_history"),
        ({"optimizer_history": [7]}, "optimizer_history"),
        ({"optimizer_history": [{}]}, "num_updates"),
        ({"optimizer_history": [{"num_updates": "many"}]}, "num_updates"),
        ({"model": {"positions_version": torch.tensor(1)}}, "positions_version"),
        ({"model": {"positions_version": torch.ones(2, 2)}}, "positions_version"),
        ({"model": {"positions_version": torch.tensor([-1, 300])}}, "positions_version"),
        ({"model": {"positions_version": torch.tensor([0xFF, 0xFE])}}, "positions_version"),
        ({"model": {"positions_version": torch.tensor([65, 66])}}, "positions_version"),
        ({"model": {"positions_version": torch.tensor([*b"encoder: \xff"])}}, "positions_version"),
        ({"model": {"positions_version": torch.tensor([], dtype=torch.long)}}, "positions_version"),
    ],
    ids=str,
)
def test_a_crafted_checkpoint_is_refused_in_one_line(state, tmp_path, changes, words):
    message = refused(save({**state, **changes}, tmp_path / "crafted.pt"))
    assert words in message


def test_the_specs_of_a_checkpoint_may_contain_other_letters(state, tmp_path):
    """A separator of sentences can be any token, such as ¶."""
    text = "encoder: segments:separator=¶\u0445\ndecoder: none\ncross: none"
    model = {**state["model"], "positions_version": torch.tensor([*text.encode()])}
    path = save({**state, "model": model}, tmp_path / "checkpoint.pt")
    assert bytes(checkpoint_utils.load_checkpoint_to_cpu(str(path))["model"]["positions_version"].tolist()).decode() == text


def test_other_kinds_of_archive_are_refused_without_advice_to_run_them(tmp_path):
    """torch's message recommends weights_only=False, which would execute code of the file."""
    torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / "script.pt")
    with tarfile.open(tmp_path / "old.pt", "w") as archive:
        archive.add(__file__, "storages")
    save({"model": {}, "foreign": Foreign(print, "it ran")}, tmp_path / "foreign.pt")
    for path in tmp_path.iterdir():
        assert "weights_only" not in refused(path)


def test_a_folder_is_no_checkpoint(tmp_path):
    assert "cannot be read" in refused(tmp_path)


def test_resuming_refuses_a_truncated_checkpoint(run, tmp_path):
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes((run[0] / "checkpoint_last.pt").read_bytes()[:5000])
    train = forked_command("fairseq-train", *TINY, "--max-update", 4, "--save-dir", tmp_path)
    assert refusal(start(train, tmp_path)).startswith(f"fairseq_posenc: {last}: damaged")


# --- versions of fairseq ---


class FusedEncoderLayer:
    """An encoder layer with `can_use_fastpath`. Only fairseq 0.12.2 from PyPI has this attribute."""

    def __init__(self):
        self.can_use_fastpath = True


def test_a_fused_encoder_is_refused_in_one_line():
    compat.environment.require_usable(TransformerEncoderLayerBase)
    with pytest.raises(SystemExit) as stop:
        compat.environment.require_usable(FusedEncoderLayer)
    assert "pip install fairseq-fixed" in stop.value.code and "\n" not in stop.value.code


def test_a_missing_fairseq_is_one_line():
    code = "import sys; sys.modules['fairseq'] = None; import fairseq_posenc"
    line = refusal(start([sys.executable, "-c", code], USER_DIR.parent))
    assert line.startswith("fairseq_posenc: fairseq cannot be imported") and "pip install fairseq-fixed" in line


def test_importing_the_plugin_leaves_logging_alone_and_loads_no_examples():
    """The examples of fairseq are scripts. They only run if a user imports them."""
    code = """
import logging, sys, fairseq_posenc.host.plugin
root = logging.getLogger()
print(root.level, root.handlers, [name for name in sys.modules if "examples" in name.split(".")])
"""
    assert finish(start([sys.executable, "-c", code], USER_DIR.parent)).splitlines()[-1] == "30 [] []"


def test_importing_it_again_changes_nothing():
    before = checkpoint_utils.load_checkpoint_to_cpu
    compat.apply()
    assert checkpoint_utils.load_checkpoint_to_cpu is before
    assert importlib.util.find_spec("fairseq_posenc").submodule_search_locations[0] == str(USER_DIR)


@pytest.mark.parametrize("sentences", [0, 3, 8, 11, 17])
def test_no_sentence_is_lost_for_a_batch_that_is_no_multiple(sentences):
    batches = data_utils.batch_by_size(
        list(range(sentences)), lambda index: 5, max_tokens=40, max_sentences=8, required_batch_size_multiple=8
    )
    assert sorted(index for batch in batches for index in batch) == list(range(sentences))


@pytest.mark.parametrize("number", [1, 3, 20])
def test_batch_buckets_are_the_quantiles_of_the_lengths(number):
    """numpy 2.4 has no argument `interpolation`, with which fairseq calls numpy.percentile."""
    sizes = numpy.array([9, 2, 3, 3, 7, 5, 11, 4])
    expected = sorted({int(sorted(sizes)[index * (len(sizes) - 1) // number]) for index in range(1, number + 1)})
    words = [torch.full((size,), 5) for size in sizes]
    pairs = LanguagePairDataset(words, sizes, Dictionary(), words, sizes, Dictionary(), num_buckets=number)
    assert pairs.src.buckets.tolist() == data_utils.get_buckets(sizes, number).tolist() == expected
    for index, size in enumerate(sizes):
        assert len(pairs[index]["source"]) == min(bucket for bucket in expected if bucket >= size)
    assert pairs.get_batch_shapes() == [(None, size) for size in expected]


#: a program that ends while a thread of fairseq still computes batches. A training run with --max-update ends in the same way
STOPS_WHILE_LOADING = """
import torch
import fairseq_posenc.host.plugin
from fairseq.data.iterators import BufferedIterator

class Batches:
    def __len__(self):
        return 50

    def __iter__(self):
        matrix = torch.ones(1500, 1500)
        return (matrix @ matrix for _ in range(50))

for buffer in (1, 40):
    next(BufferedIterator(buffer, Batches()))
"""


def test_a_training_that_stops_while_it_loads_ends_without_an_error():
    """Without the patch of this project, Python before 3.14 aborts this program with exit status 134."""
    finish(start([sys.executable, "-c", STOPS_WHILE_LOADING], USER_DIR.parent))
