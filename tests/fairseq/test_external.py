"""A method outside this package is trained and decoded with fairseq's commands.

A missing or wrong method leads to a one-line error.
"""

import dataclasses

import pytest

import fairseq_posenc.host.plugin  # noqa: F401  (lets torch read the checkpoint)
from fairseq_posenc.cli import main


@pytest.fixture
def slope(tmp_path):
    assert main(["new", "slope", "--folder", str(tmp_path)]) == 0
    return tmp_path / "slope.py"


def test_a_file_of_ones_own_is_an_architecture_and_a_spec(fairseq, slope, tmp_path):
    own = dataclasses.replace(fairseq, folder=tmp_path, environment={"POSENC_METHODS": str(slope)})
    own.train("posenc_slope_tiny", tmp_path / "model").succeeded()
    state = fairseq.state(tmp_path / "model" / "checkpoint_last.pt")["model"]
    assert [name for name in state if name.endswith("position.methods.0.factor")] == [
        f"{side}.position.methods.0.factor" for side in ("encoder", "decoder")
    ]
    assert "Generate test with beam=2" in own.generate(tmp_path / "model" / "checkpoint_last.pt", "--beam", 2).succeeded()
    without = dataclasses.replace(own, environment={"POSENC_METHODS": ""}, started=100)
    line = without.generate(tmp_path / "model" / "checkpoint_last.pt").refusal()
    assert "'slope': unknown" in line and "POSENC_METHODS" in line


def test_a_wrong_file_ends_training_with_one_line(fairseq, slope, tmp_path):
    slope.write_text(slope.read_text(encoding="utf-8").replace('"relative"', '"relativ"'), encoding="utf-8")
    own = dataclasses.replace(fairseq, folder=tmp_path, environment={"POSENC_METHODS": str(slope)})
    line = own.train("posenc_slope_tiny", tmp_path / "model").refusal()
    assert "reference='relativ' is not allowed" in line and not (tmp_path / "model").exists()
