"""The server of tests/forked forks programs. Forked programs behave like newly started programs. Other tests rely on this."""

import atexit
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.recipes.process import BIN

SCRIPT = """import os, signal, sys, time
print(sys.argv, os.getcwd(), os.environ["COLOUR"], sys.stdin.read(), "fairseq_posenc" in sys.modules, flush=True)
{}
"""


def start(folder, ending, program=None, before=()):
    (folder / "script.py").write_text(SCRIPT.format(ending))
    command = [*before, program or f"{forked.folder()}/python", "script.py", "a b"]
    environment = {**os.environ, "COLOUR": "blue"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)


@pytest.mark.parametrize(
    "ending", ["", "sys.exit(3)", "sys.exit('why')", "1 / 0", "os.kill(os.getpid(), signal.SIGTERM)", "os.write(2, b'x')"]
)
def test_it_prints_and_ends_as_a_program_that_is_started(tmp_path, ending):
    (ours, errors, status), (real, real_errors, real_status) = (
        (*process.communicate("given"), process.returncode)
        for process in (start(tmp_path, ending), start(tmp_path, ending, sys.executable))
    )
    assert (ours, status) == (real, real_status) and "blue given False" in ours
    assert errors.splitlines()[-1:] == real_errors.splitlines()[-1:]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_its_caller_and_holds_its_lock_until_then(tmp_path, number):
    locked = ["bash", "-c", 'exec 9>>lock; flock 9; exec "$@"', "bash"]
    process = start(tmp_path, "time.sleep(60)", before=locked)
    process.stdin.close()
    assert "blue" in process.stdout.readline()
    with (tmp_path / "lock").open() as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.send_signal(number)
        assert process.wait(timeout=20) == -number
        fcntl.flock(lock, fcntl.LOCK_EX)  # if the process still held the lock, this call would wait for a minute


def test_it_can_be_interrupted_where_the_tests_run_in_the_background(tmp_path):
    ours = signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = forked.folder.__wrapped__()
    signal.signal(signal.SIGINT, ours)
    process = start(tmp_path, "time.sleep(60)", f"{server}/python")
    process.stdin.close()
    assert "blue" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == -signal.SIGINT


def test_every_program_of_the_environment_is_there():
    assert {"python", "fairseq-train", "subword-nmt", "torchrun"} <= set(os.listdir(forked.folder())) <= set(os.listdir(BIN))


def test_a_forked_process_leaves_the_programs_in_place():
    """In a forked process, Python 3.13 and later forget the functions that are registered with atexit.

    The folder of programs must still exist after this step.
    """
    programs = Path(forked.folder())
    process = multiprocessing.get_context("fork").Process(target=atexit._clear)
    process.start()
    process.join()
    assert process.exitcode == 0 and (programs / "python").is_file()
