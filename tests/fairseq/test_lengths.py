"""Output lengths through fairseq's commands: what training reads, what generation asks for, and where sentences end."""

import re

import pytest

TASK = ("--task", "posenc_translation")
CRITERION = ("--criterion", "posenc_label_smoothed_cross_entropy")


@pytest.fixture(scope="module")
def ldpe(fairseq, tmp_path_factory):
    """A model that has learned to reverse a little, and to end where it is told; with a length predictor."""
    folder = tmp_path_factory.mktemp("ldpe")
    sizes = ["--decoder-layers", 2, "--encoder-layers", 2, "--share-all-embeddings"]
    options = [*TASK, *CRITERION, "--length-loss-weight", 1, "--max-update", 120, "--dropout", 0]
    output = fairseq.train("posenc_ldpe_tiny", folder, *sizes, *options).succeeded()
    (folder / "log").write_text(output)
    return folder / "checkpoint_last.pt"


def generate(fairseq, path, *options):
    """Beam 4 of the six test sentences, of 5, 6, 7, 2, 1 and 8 letters, four in a batch."""
    return fairseq.generate(path, *TASK, "--beam", 4, *options)


def hypotheses(fairseq, output: str) -> list:
    rows = fairseq.rows(output, "H")
    return [rows[number][0].split("\t")[1].split() for number in sorted(rows)]


def lengths(fairseq, output: str) -> list:
    return [len(words) for words in hypotheses(fairseq, output)]


def asked(output: str) -> list:
    """What the log says, by sentence."""
    lines = re.findall(r"asked: (.*)$", output, re.MULTILINE)
    pairs = dict(tuple(map(int, pair.split(":"))) for line in lines for pair in line.split())
    return [pairs[number] for number in sorted(pairs)]


REFERENCE = [5, 6, 7, 2, 1, 8]


def test_smoke(fairseq, ldpe):
    output = generate(fairseq, ldpe).succeeded()
    print(output)
    print(asked(output), lengths(fairseq, output))
    output = generate(fairseq, ldpe, "--length-from", "predictor").succeeded()
    print(asked(output), lengths(fairseq, output))
    output = generate(fairseq, ldpe, "--length-from", "7", "--length-eos", "exact", "--prefix-size", 2).succeeded()
    print(asked(output), lengths(fairseq, output))
    assert 0
