import contextlib
import json
import resource

import pytest

from fairseq_posenc.cli import main


@pytest.fixture
def posenc(capsys):
    """Return a function that runs a command. The function returns (status, output, error)."""

    def call(*arguments):
        status = main([str(argument) for argument in arguments])
        return (status, *capsys.readouterr())

    return call


@pytest.fixture
def write(tmp_path):
    """Return a function that writes records as runs. The function returns the folder of the runs."""

    def write_runs(*records):
        for number, record in enumerate(records):
            folder = tmp_path / "runs" / str(number)
            folder.mkdir(parents=True)
            (folder / "score.json").write_text(json.dumps(record))
        return tmp_path / "runs"

    return write_runs


@pytest.fixture
def small_files():
    """Return a context manager that takes a number of bytes.

    Within the context, no file can be larger than this number of bytes, as on a full disk.
    """

    @contextlib.contextmanager
    def limit(size):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limit
