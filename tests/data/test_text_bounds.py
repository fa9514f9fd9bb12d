"""Files that become very large when they are read, or that repeat without end.

For each file, a command in a separate process must fail with a one-line error. The time and memory of this process are limited.
"""

import gzip
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _bound() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))


def line(*arguments: object) -> str:
    """Run a command with limited time and memory. The command must fail with exit code 2. Return its one-line error."""
    done = subprocess.run(
        [sys.executable, "-m", "fairseq_posenc.cli", *map(str, arguments)], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, preexec_fn=_bound,
    )  # fmt: skip
    assert done.returncode == 2, (done.returncode, done.stderr[-2000:])
    assert done.stderr.count("\n") == 1 and len(done.stderr) < 600, done.stderr[-2000:]
    return done.stderr


def expanding(path: Path, content: bytes, times: int = 60) -> Path:
    """Write a small gzip file with a large content."""
    with gzip.open(path, "wb") as file:
        for _ in range(times):
            file.write(content)
    return path


@pytest.fixture
def text(tmp_path) -> Path:
    (tmp_path / "train.en").write_text("a b\n")
    return tmp_path / "train.en"


def test_trees_of_newlines(text, tmp_path):
    assert "blank lines in succession" in line("side", "trees", expanding(tmp_path / "bomb.conllu.gz", b"\n" * 2**20), text)


def test_trees_of_one_endless_line(text, tmp_path):
    assert "line 1: more than 16,777,216 bytes" in line(
        "side", "trees", expanding(tmp_path / "bomb.conllu.gz", bytes(2**20)), text
    )


def test_trees_of_one_endless_sentence(text, tmp_path):
    bomb = expanding(tmp_path / "bomb.conllu.gz", b"1\ta\n" * 2**18)
    assert "a sentence of more than 100,000 lines" in line("side", "trees", bomb, text)


def test_orders_that_expand(text, tmp_path):
    bomb = expanding(tmp_path / "bomb.gz", b"0 1\n" * 2**18)
    text.write_text("0 1\n")
    assert "expands to more than" in line("side", "compare", bomb, text)


@pytest.mark.parametrize("content, words", [(b"\n", "more than 67,108,864 bytes"), (b"a", "more than 67,108,864 bytes")])
def test_captions_that_expand(tmp_path, content, words):
    for part in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            (tmp_path / f"{part}.{language}").write_text("a\n")
    (tmp_path / "train.en").unlink()
    expanding(tmp_path / "train.en.gz", content * 2**20, 70)
    assert words in line("data", "multi30k", tmp_path / "out", "--target", "de", "--from", tmp_path)


def test_captions_of_too_many_lines(tmp_path):
    (tmp_path / "train.en").write_text("\n" * 2_000_000)
    assert "more than 1,000,000 lines" in line("data", "multi30k", tmp_path / "out", "--target", "de", "--from", tmp_path)


@pytest.mark.parametrize("device", ["/dev/zero", "pipe"])
def test_devices_and_pipes(tmp_path, device):
    path = Path(device)
    if device == "pipe":
        path = tmp_path / "pipe"
        os.mkfifo(path)
    assert "device or pipe" in line("side", "trees", path, tmp_path / "train.en")
    (tmp_path / "train.log").write_text("num. shared model params: 5\n")
    assert "device or pipe" in line("score", tmp_path, f"test={path}", "--log", path)


# --- logs ---

LOGS = {
    "brackets": "{'_name': " + "[" * 100_000,
    "many starts": "{'_name': " * 100_000,
    "many ends": "{'_name': " + "}" * 100_000,
    "nested settings": "{'_name': " + "[" * 100_000 + "]" * 100_000 + "}",
    "json starts": '{"epoch": ' * 100_000,
    "nested json": '{"epoch": ' + "[" * 9_000 + "]" * 9_000 + "}",
    "validations": "epoch 1 | valid on 'a' subset | loss 1 " * 300,
    "asked": "x asked: " + "1:" + "1111111111:" * 5_000 + "x",
    "digits": "num. shared model params: " + "9" * 5_000,
    "short digits": "num. shared model params: " + "9" * 18 + "\nD-" + "9" * 5_000 + "\t-1\ta\n| epoch " + "9" * 5_000 + " | x",
}


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
def test_logs_that_take_hours(tmp_path, log):
    (tmp_path / "train.log").write_text(f"num. shared model params: 5\n{log}\n" if "params" not in log else log)
    (tmp_path / "test.out").write_text(f"output lengths: file, ratio 1, unit token, end free\n{log}\nD-0\t-1\ta b\n")
    (tmp_path / "ref").write_text("a b\n")
    assert line("score", tmp_path, f"test={tmp_path / 'ref'}")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
def test_a_device_as_reference(tmp_path, device):
    (tmp_path / "train.log").write_text("num. shared model params: 5\n")
    (tmp_path / "test.out").write_text("D-0\t-1\ta b\n")
    assert f"{device}: a device or pipe cannot be read" in line("score", tmp_path, f"test={device}")


# --- addresses ---


@pytest.mark.parametrize("address", ["http://[::1", "http://", "https:///path", "http://host:port/", "http://host:99999/"])
@pytest.mark.parametrize("command", [["multi30k"], ["wmt18"]], ids=" ".join)
def test_an_address_that_cannot_be_read(tmp_path, command, address):
    error = line("data", *command, tmp_path / "out", "--from", address)
    assert f"{address!r}: not an address" in error and "Expected http://HOST/PATH" in error
