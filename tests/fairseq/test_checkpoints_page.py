"""docs/howto/decode_longer_sentences.md: its commands and its Python, as they are printed there."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

import fairseq_posenc.host.plugin  # noqa: F401  readies the safe loader

PAGE = (Path(__file__).parents[2] / "docs" / "howto/decode_longer_sentences.md").read_text(encoding="utf-8")
LONG = ["--gen-subset", "test1", "--max-len-b", 40]  # two of its sentences have 25 and 30 letters
TRAINED = ["--max-source-positions", 14, "--max-target-positions", 14]


def blocks(title: str) -> list[str]:
    """The indented blocks of a section."""
    section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    return [
        re.sub("^    ", "", found, flags=re.MULTILINE)
        for found in re.findall(r"(?:^    .*\n|^\n(?=    ))+", section, re.MULTILINE)
    ]


def commands(title: str, folder: Path) -> list[list[str]]:
    """What stands behind DATA in the commands of a section; files of checkpoints are in the folder."""
    found = []
    for text in "".join(blocks(title)).replace("\\\n", "").splitlines():
        if text.strip().startswith("fairseq-"):
            words = shlex.split(text.replace("--user-dir $(posenc path)", ""))
            assert words[1] == "DATA", text
            found.append([str(folder / word) if word.endswith(".pt") else word for word in words[2:] if word != "..."])
    return found


def python(title: str) -> str:
    """What stands before the last command."""
    code = "".join(blocks(title))
    return code[code.index("import ") : code.rindex("fairseq-train")]


def trained(fairseq, arch: str, folder: Path, *options) -> dict:
    """Of a few updates, as both checkpoints that the page names; its parameters."""
    fairseq.train(arch, folder, *options).succeeded()
    shutil.copy(folder / "checkpoint_last.pt", folder / "checkpoint_best.pt")
    return fairseq.state(folder / "checkpoint_last.pt")["model"]


def test_sentences_longer_than_those_of_the_training(fairseq, tmp_path):
    given, _ = commands("Decoding sentences longer than those of the training", tmp_path)
    trained(fairseq, "posenc_t5", tmp_path, *TRAINED)
    assert fairseq.generate(tmp_path / "checkpoint_best.pt", *LONG).status
    rows = fairseq.rows(fairseq.generate(*given[1:], *LONG).succeeded(), "H")
    assert len(rows) == 6


def test_a_table_with_more_rows(fairseq, tmp_path, monkeypatch):
    title = "Decoding sentences longer than those of the training"
    given, further = commands(title, tmp_path / "short")
    short = trained(fairseq, "posenc_learned", tmp_path / "short", *TRAINED)
    assert "size mismatch for encoder.position" in fairseq.generate(*given[1:], *LONG).refusal()

    room = [word for word in further if not word.endswith(".pt")][:4]
    assert room == ["--max-source-positions", "2048", "--max-target-positions", "2048"]
    long = trained(fairseq, "posenc_learned", tmp_path / "long", *room, "--max-update", 1)
    monkeypatch.chdir(tmp_path)
    exec(python(title), {})
    longer = fairseq.state(tmp_path / "longer.pt")["model"]
    name = "encoder.position.methods.0.weight"
    rows = len(short[name])
    assert torch.equal(longer[name][:rows], short[name]) and torch.equal(longer[name][rows:], long[name][rows:])

    _, further = commands(title, tmp_path)
    fairseq.train("posenc_learned", tmp_path / "on", *further).succeeded()
    assert len(fairseq.rows(fairseq.generate(tmp_path / "on" / "checkpoint_last.pt", *LONG).succeeded(), "H")) == 6


def test_a_checkpoint_of_stock_fairseq(fairseq, tmp_path):
    (given,) = commands("Checkpoints of stock fairseq", tmp_path)
    fairseq.train("transformer", tmp_path).succeeded()
    shutil.move(tmp_path / "checkpoint_last.pt", tmp_path / "stock.pt")
    plain, ours = (fairseq.generate(*options).succeeded() for options in ([tmp_path / "stock.pt"], given[1:]))
    words = [{number: rows[0].split("\t")[1] for number, rows in fairseq.rows(out, "H").items()} for out in (plain, ours)]
    assert words[0] == words[1] and len(words[0]) == 6


def test_from_one_method_to_another(fairseq, tmp_path, monkeypatch):
    title = "From one method to another"
    (given,) = commands(title, tmp_path)
    sinusoidal = trained(fairseq, "posenc_sinusoidal", tmp_path / "sinusoidal")
    t5 = trained(fairseq, "posenc_t5", tmp_path / "t5", "--max-update", 1)
    monkeypatch.chdir(tmp_path)
    exec(python(title), {})
    start = fairseq.state(tmp_path / "start.pt")["model"]
    for name, value in start.items():
        own = ".position." in name or name == "positions_version"
        assert torch.equal(value, (t5 if own else sinusoidal)[name]), name
    arch = given[given.index("--arch") + 1]
    options = given[given.index("--arch") + 2 :]
    fairseq.train(arch, tmp_path / "on", *options).succeeded()


@pytest.mark.parametrize("command", re.findall(r"`posenc ([^`]+)`", PAGE))
def test_what_it_says_of_posenc(command, capsys):
    from fairseq_posenc.cli import main

    assert main(shlex.split(command.replace("NAME", "t5"))) == 0
