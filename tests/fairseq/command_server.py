"""Runs fairseq's commands in processes forked from this one, which has imported fairseq once and nothing of the plugin.

A command then starts in milliseconds instead of seconds, and still has a process, a working directory and an interpreter's
exit of its own. Every line of standard input is a job; its folder gets `output`, `errors` and, when it ends, `status`.
"""

import json
import os
import signal
import sys

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


if __name__ == "__main__":
    job = next_job()
    for stream, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(os.path.join(job["folder"], name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.chdir(job["folder"])
    sys.stdin = open(os.path.join(job["folder"], "input"))
    sys.argv = [job["command"], *job["arguments"]]
    sys.exit(getattr(fairseq_cli, job["command"].removeprefix("fairseq-")).cli_main())
