import contextlib
import json
import resource

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


@pytest.fixture
def small_files():
    """A disk that is full: files that are written within end after so many bytes."""

    @contextlib.contextmanager
    def limit(size):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limit
