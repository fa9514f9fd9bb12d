"""Run a recipe on small data as a process that can be observed and killed."""

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests import forked

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
#: options of fairseq-train: a model of two layers, which is validated with two batches
SMALL = "--encoder-layers 1 --decoder-layers 1 --max-valid-steps 1"


def programs(plugin=ROOT / "fairseq_posenc"):
    """Return a bin folder for the option POSENC_BIN. A server that has imported the plugin forks the programs."""
    return forked.folder(plugin)


def environment(**options):
    return {**os.environ, "OMP_NUM_THREADS": "1", **options}


def take_interrupts():
    """Let SIGINT end the process, also if the tests run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Process:
    """A recipe in one output folder and in its own process group.

    By default, a server (tests/forked) forks the programs that the recipe calls. The server has already imported the plugin. If
    the option POSENC_METHODS is given, the server has not imported the plugin. If the option POSENC_BIN is given, the recipe
    calls the programs in this folder instead.
    """

    def __init__(self, command, out, **options):
        bin_folder = programs(None) if "POSENC_METHODS" in options else programs()
        self.command, self.out, self.options = command, out, {"POSENC_BIN": bin_folder, **options}
        self.process = None

    def words(self, *stages):
        return [str(word) for word in (self.command, *stages)]

    def start(self, *stages, limit=None, **options):
        options = {**self.options, **options}
        environ = environment(OUT=str(self.out), **options)
        command = self.words(*stages)
        if limit:  # maximum size of a file in kilobytes
            command = ["bash", "-c", f'ulimit -f {limit}; exec "$@"', "bash", *command]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen(command, env=environ, start_new_session=True, preexec_fn=take_interrupts, **pipes)
        return self

    def finish(self, status=0):
        printed = self.process.communicate(timeout=600)[0]
        assert self.process.returncode == status, printed
        return printed

    def run(self, *stages, **options):
        return self.start(*stages, **options).finish()

    def fails(self, *stages, **options):
        """Check that the recipe fails without a traceback. Return its last line, which gives the reason."""
        printed = self.start(*stages, **options).finish(status=1)
        assert "Traceback" not in printed, printed
        return printed.splitlines()[-1]

    def wait_until(self, reached):
        while not reached():
            assert self.process.poll() is None, self.process.communicate()[0]
            time.sleep(0.01)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=60)
        with (self.out / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the lock is free when all commands of the recipe have ended

    def stages(self, *chosen, **options):
        """Return the folder and the name of every stage, in the order of the recipe, from a dry run."""
        shown = self.run(*chosen, DRY_RUN="1", **options)
        return [(Path(folder), name) for folder, name in re.findall(rf"^# ({self.out}(?:/\S+)?) (\S+)$", shown, re.MULTILINE)]

    def kill_in_every_stage(self, *chosen, **options):
        """Kill the recipe in every stage, as soon as the stage changes a file.

        If the stage has already written its stamp (the file .NAME.done), this method removes the stamp. The next start of the
        recipe completes the stage and writes a new stamp. This method also removes the new stamp, as if the recipe had been
        killed directly before writing the new stamp.
        """
        unstamped = None
        for folder, name in self.stages(*chosen, **options):
            self.start(*chosen, **options)
            for line in self.process.stdout:
                if re.search(rf"{re.escape(f'{folder} {name}')}( \(\d+ of \d+\))?$", line.rstrip()):
                    break
            else:
                raise AssertionError(f"{folder} {name} was not begun")
            before = self.files(folder)
            self.wait_until(lambda: self.files(folder) != before)  # noqa: B023
            self.kill()
            if unstamped:
                unstamped.unlink()
            unstamped = folder / f".{name}.done"
            unstamped.unlink(missing_ok=True)  # a fast stage may have ended and written its stamp
        self.start(*chosen, **options).wait_until(unstamped.exists)
        self.kill()
        unstamped.unlink()

    @staticmethod
    def resumed(printed):
        """Return the number of updates from which each training run was continued."""
        return [int(number) for number in re.findall(r"  resuming after (\d+) updates$", printed, re.MULTILINE)]

    def files(self, folder=None):
        """Return the modification time of each file."""
        found = {}
        for place, _, names in os.walk(folder or self.out):
            for path in (Path(place, name) for name in names if name != ".lock"):
                with contextlib.suppress(FileNotFoundError):  # the file was renamed or removed after os.walk listed it
                    found[path] = path.stat().st_mtime_ns
        return found

    def scores(self):
        """Return the scores and conditions of every run, without values that depend on time or machine."""
        measured = {"tokens_per_second", "training_seconds", "peak_memory"}
        read = {path.parent.relative_to(self.out): json.loads(path.read_text()) for path in sorted(self.out.rglob("score.json"))}
        return {run: {key: value for key, value in record.items() if key not in measured} for run, record in read.items()}
