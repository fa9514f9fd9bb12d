"""Checkpoints of earlier versions still load, decode to the same output, and can be trained further."""

import gzip
import importlib.util
from pathlib import Path

import pytest
import torch

import fairseq_posenc.host.plugin  # noqa: F401  lets the tests read checkpoints

FIXTURES = Path(__file__).parents[1] / "fixtures"

_spec = importlib.util.spec_from_file_location("make_checkpoints", FIXTURES / "make_checkpoints.py")
made = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(made)


@pytest.fixture
def unpack(tmp_path):
    """Return a function that unpacks a checkpoint to the path at which a training run saves it."""

    def unpack(name: str) -> Path:
        path = tmp_path / "checkpoint_last.pt"
        path.write_bytes(gzip.decompress((FIXTURES / f"{name}.pt.gz").read_bytes()))
        return path

    return unpack


def split(text: str) -> tuple[list, list]:
    """Return two lists: pairs (sentence number, words) of the hypotheses, and the scores of the hypotheses."""
    rows = [line.split("\t") for line in text.splitlines()]
    return [(number, words) for number, _, words in rows], [float(score) for _, score, _ in rows]


def test_every_fixture_is_tried_here():
    assert {path.name.removesuffix(".pt.gz") for path in FIXTURES.glob("*.gz")} == {*made.MODELS, *made.RESUMED}


@pytest.mark.parametrize("name", [*made.MODELS, *made.RESUMED])
def test_it_decodes_to_the_same_output(fairseq, unpack, name):
    output = fairseq.run("fairseq-generate", *made.decoding(unpack(name))).succeeded()
    words, scores = split(made.hypotheses(output))
    expected_words, expected_scores = split((FIXTURES / f"{name}.hypotheses.txt").read_text())
    assert words == expected_words
    assert scores == pytest.approx(expected_scores, abs=1e-4)


@pytest.mark.parametrize("name", made.RESUMED)
def test_it_goes_on_training(fairseq, unpack, name):
    path = unpack(name)
    training = made.training(name, path.parent, made.UPDATES + made.FURTHER)
    output = fairseq.run("fairseq-train", *training).succeeded()
    assert f"@ {made.UPDATES} updates" in output
    found, expected = made.losses(output), (FIXTURES / f"{name}.losses.txt").read_text()
    assert [*map(float, found.split())] == pytest.approx([*map(float, expected.split())], abs=0.002)


def test_a_moving_average_goes_on(fairseq, unpack):
    """At every update, the average moves by 0.01 % towards the model. A restarted average would nearly equal the model."""
    path = unpack("resumed_average")
    before = fairseq.state(path)["extra_state"]["ema_fp32_params"]
    fairseq.run("fairseq-train", *made.training("resumed_average", path.parent, made.UPDATES + made.FURTHER)).succeeded()
    after = fairseq.state(path)
    average = after["extra_state"]["ema_fp32_params"]
    assert average.keys() == after["model"].keys()
    name = "decoder.layers.0.fc1.weight"
    assert not torch.allclose(after["model"][name], average[name], rtol=0, atol=0.01)
    assert sum(value.numel() for value in average.values()) == sum(value.numel() for value in before.values())
    for name, value in before.items():
        torch.testing.assert_close(average[renamed(name)], value, rtol=0, atol=0.002)


def renamed(name: str) -> str:
    """Convert the name of a tensor in a checkpoint of an earlier version to the current name."""
    return name.replace(".parts.", ".methods.")
