"""Small checkpoint files that would fill the memory, or take hours, if they were read without checks.

For each file, the project must raise a one-line error instead. One test also limits the CPU time.
"""

import pickle
import resource
import struct
import subprocess
import sys
import zipfile
from argparse import Namespace

import numpy
import pytest
import torch

from fairseq_posenc.core import PositionError
from fairseq_posenc.host.checkpoints import average, bounds, read, repair
from tests.checkpoints.files import write_checkpoint

#: text that the tests replace by 100,000 nested lists. pickle cannot write such lists, because it is recursive
NESTED = "100,000 nested lists"


def _shared(depth: int) -> list:
    """Return nested lists with 10 ** depth values. In memory and in a file, each list is stored only once."""
    inner: list = [1]
    for _ in range(depth):
        inner = [inner] * 10
    return inner


def _views(count: int) -> dict:
    base = torch.zeros(1000 + count)
    return {f"weight{number}": base[number : number + 1000] for number in range(count)}


def _circle() -> list:
    inner: list = []
    inner.append(inner)
    return inner


TERABYTES = (2**40,)
EVIL = {
    "weight": (lambda state: state["model"].update(weight=torch.zeros(1).expand(TERABYTES)), "larger than its storage"),
    "positions": (
        lambda state: state["model"].update(positions_version=torch.zeros(1, dtype=torch.uint8).expand(TERABYTES)),
        "larger than its storage",
    ),
    "long positions": (
        lambda state: state["model"].update(positions_version=torch.full((200_000,), 65)),
        "positions_version does not contain specs",
    ),
    "complex positions": (
        lambda state: state["model"].update(positions_version=torch.ones(3, dtype=torch.complex64)),
        "positions_version does not contain specs",
    ),
    "optimizer": (
        lambda state: state.update(last_optimizer_state={"state": {0: {"exp_avg": torch.zeros(1).expand(TERABYTES)}}}),
        "larger than its storage",
    ),
    "views": (lambda state: state["model"].update(_views(50)), "overlap in memory"),
    "sparse": (
        lambda state: state["model"].update(weight=torch.sparse_coo_tensor([[0]], [1.0], (2**40,))), "sparse, quantized"
    ),
    "meta": (lambda state: state["model"].update(weight=torch.empty(2**40, device="meta")), "without data"),
    "array": (lambda state: state["extra_state"].update(value=numpy.zeros(2**20)), "numpy array has 8,388,608 bytes"),
    "lists": (lambda state: state["cfg"]["task"].update(data=NESTED), "32 containers"),
    "lists of the state": (lambda state: state.update(more=NESTED), "32 containers"),
    "Namespace": (lambda state: state["cfg"].update(model=Namespace(layers=NESTED)), "32 containers"),
    "shared lists": (lambda state: state["cfg"]["task"].update(data=_shared(12)), "values"),
    "shared lists of settings": (lambda state: state["cfg"]["task"].update(data=_shared(5)), "cfg: more than 100,000"),
    "circle": (lambda state: state["cfg"]["task"].update(data=_circle()), "32 containers"),
    "digits": (lambda state: state["cfg"]["common"].update(seed=2**100), "more than 64 bits"),
    "many digits": (lambda state: state["cfg"]["common"].update(seed=10**5000), "damaged, truncated"),
    "text": (lambda state: state["cfg"]["task"].update(data="a" * 2_000_000), "more than 1,000,000 characters"),
}  # fmt: skip


@pytest.mark.parametrize("change, words", EVIL.values(), ids=EVIL)
def test_a_checkpoint_larger_than_its_file_is_one_line(tmp_path, change, words):
    path = tmp_path / "checkpoint_last.pt"
    write_checkpoint(path, tmp_path)
    state = torch.load(path, weights_only=False)
    change(state)
    torch.save(state, path)
    _rewrite(path, _with_nested_lists)
    assert path.stat().st_size < 20_000_000
    for use in (read.read, lambda path: average.average([path])):
        with pytest.raises(PositionError) as error:
            use(path)
        assert words in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 600
    if "positions" not in words:
        with pytest.raises(PositionError, match="the file is complete, but cannot be loaded"):
            repair.repair(tmp_path)


def _with_nested_lists(archive, name, content) -> None:
    """Write a record of an archive. Nested lists replace the text NESTED."""
    text = pickle.BINUNICODE + struct.pack("<I", len(NESTED)) + NESTED.encode()
    archive.writestr(name, content.replace(text, pickle.EMPTY_LIST * 100_000 + pickle.APPEND * 99_999))


def test_shared_weights_are_no_bomb(tmp_path):
    weight = torch.ones(30, 4)
    state = {"model": {"encoder": weight, "decoder": weight, "transposed": weight.t(), "row": weight[3]}, "cfg": {}}
    torch.save(state, tmp_path / "tied.pt")
    assert bounds.problem_of_archive(tmp_path / "tied.pt") is None
    assert bounds.problem_of_state(torch.load(tmp_path / "tied.pt")) is None


# --- archives ---


def _rewrite(path, change) -> None:
    """Rewrite a torch.save file. `change(archive, name, content)` writes each record to the new archive."""
    with zipfile.ZipFile(path) as old:
        records = [(item.filename, old.read(item)) for item in old.infolist()]
    with zipfile.ZipFile(path, "w") as new:
        for name, content in records:
            change(new, name, content)


def _deflated(archive, name, content) -> None:
    content = bytes(100_000_000) if name.endswith("data/0") else content
    archive.writestr(name, content, zipfile.ZIP_DEFLATED)


def _announced(path) -> None:
    """Change the size of a record in the directory of the archive. The new size is larger than the file."""
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\x01\x02")
    data[place + 20 : place + 28] = (2**30).to_bytes(4, "little") * 2
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda path: _rewrite(path, _deflated), "is compressed, which torch.save never does"),
        (_announced, "larger than the file"),
        (lambda path: path.write_bytes(b"text" + path.read_bytes()), "does not begin at the start"),
    ],
    ids=["deflated", "announced", "prefix"],
)
def test_an_archive_that_grows_is_refused_before_it_is_read(tmp_path, damage, words):
    path = tmp_path / "checkpoint_last.pt"
    write_checkpoint(path, tmp_path)
    damage(path)
    for use in (read.read, lambda path: repair.repair(path.parent)):
        with pytest.raises(PositionError) as error:
            use(path)
        assert words in str(error.value) and "\n" not in str(error.value)


def test_a_tensor_of_more_bytes_than_its_record_is_one_line(tmp_path):
    """The pickle contains the number of elements of a tensor.

    The zip format does not require that this number matches the size of the tensor's record in the archive.
    """
    path = tmp_path / "checkpoint_last.pt"
    write_checkpoint(path, tmp_path, weight=torch.zeros(77))
    content = path.read_bytes()
    place = content.index(b"K\x4d")  # the number 77 in the pickle
    path.write_bytes(content[:place] + b"K\xff" + content[place + 2 :])
    done = subprocess.run(
        [sys.executable, "-m", "fairseq_posenc.cli", "average", str(tmp_path / "out.pt"), str(path)],
        capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 60)),
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and str(path) in done.stderr
