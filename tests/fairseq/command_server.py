"""Runs fairseq's commands in processes forked from this one, which has imported fairseq once and nothing of the plugin.

A command then starts in milliseconds instead of seconds, and still has a process and a working directory of its own.
Every line of standard input is a job; its folder gets `output`, `errors` and, when it ends, `status`.
"""

import gc
import json
import os
import signal
import sys
import traceback

sys.path.pop(0)  # this folder: `--user-dir` alone shall find the plugin
import fairseq_cli.generate
import fairseq_cli.interactive
import fairseq_cli.preprocess
import fairseq_cli.train
import fairseq_cli.validate
import torch._dynamo  # noqa: F401  every optimizer imports it, for over a second


def next_job() -> dict:
    """Serves until the input ends; only a forked process, in which the job is to run, ever returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries the supervisors
    for line in sys.stdin:
        if os.fork():
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        job = json.loads(line)
        os.setsid()
        worker = os.fork()
        if not worker:
            return job
        status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        path = os.path.join(job["folder"], "status")
        with open(path + ".new", "w") as file:
            file.write(str(status))
        os.rename(path + ".new", path)
        os._exit(0)
    sys.exit()


def run(job: dict) -> int:
    """The command's exit status; says what the interpreter would say of an exit or an error."""
    new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for stream, (name, flags) in enumerate((("input", os.O_RDONLY), ("output", new), ("errors", new))):
        os.dup2(os.open(os.path.join(job["folder"], name), flags), stream)
    sys.stdin = os.fdopen(0)  # the old one has read ahead
    os.chdir(job["folder"])
    os.environ.update(job["environment"])
    sys.argv = [job["command"], *job["arguments"]]
    try:
        status = getattr(fairseq_cli, job["command"].removeprefix("fairseq-")).cli_main()
    except SystemExit as stop:
        status = stop.code
    except BaseException:
        traceback.print_exc()
        return 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
        return 1
    return status or 0


if __name__ == "__main__":
    gc.freeze()  # or every process would copy what was imported, only to look for garbage in it
    status = run(next_job())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # taking all modules apart would take as long as the command
