import json

import pytest

from fairseq_posenc.cli import main


@pytest.fixture
def posenc(capsys):
    """Runs a command: (status, what it printed, its error)."""

    def call(*arguments):
        status = main([str(argument) for argument in arguments])
        return (status, *capsys.readouterr())

    return call


@pytest.fixture
def write(tmp_path):
    """Writes records as runs, and returns their folder."""

    def write_runs(*records):
        for number, record in enumerate(records):
            folder = tmp_path / "runs" / str(number)
            folder.mkdir(parents=True)
            (folder / "score.json").write_text(json.dumps(record))
        return tmp_path / "runs"

    return write_runs
