"""Fork a process for every program that `caller.py` requests. The server imports torch and fairseq before it forks.

If the third argument is the folder of the plugin, the server also imports the plugin.
"""

import argparse
import array
import atexit
import contextlib
import fcntl
import gc
import json
import logging
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback

sys.path.pop(0)  # remove the folder of this file, because `--user-dir` must find the plugin without additional paths
import fairseq.models
import fairseq.tasks
import fairseq.utils
import torch._dynamo  # noqa: F401  every optimizer imports this module, which takes over a second
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf


def serve(real: str, place: str) -> dict:
    """Fork a process for every caller until standard input ends.

    This function returns only in a process that must run a program. It returns the job of this process.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system collects the exit statuses of the supervisors
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(os.path.join(place, "socket"))
        door.listen(64)
        os.write(1, b".")
        while door in select.select([door, sys.stdin], [], [])[0]:
            caller = door.accept()[0]
            if not os.fork():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                door.close()
                return supervise(caller, real)
            caller.close()
    os._exit(0)


def supervise(caller: socket.socket, real: str) -> dict:
    _, rights, *_ = caller.recvmsg(1, socket.CMSG_SPACE(16 * array.array("i").itemsize))
    files = array.array("i", rights[0][2])
    job = json.loads(caller.makefile().readline())
    worker = os.fork()
    if not worker:
        caller.close()
        os.setpgid(0, 0)
        enter_network(job["network"])
        signal.signal(signal.SIGINT, signal.default_int_handler)  # signals may be ignored if the tests run in the background
        # First duplicate the file descriptors to numbers of at least 100. Otherwise, dup2 could close a file descriptor that
        # is not yet duplicated.
        high = [fcntl.fcntl(file, fcntl.F_DUPFD, 100) for file in files]
        for file in files:
            os.close(file)
        for file, number in zip(high, job["files"]):
            os.dup2(file, number)
            os.close(file)
        return {**job, "real": real}
    os.setpgid(worker, worker)  # both processes set the group, because either may run first
    for file in [*files, 0, 1, 2]:
        os.close(file)
    ended = os.pidfd_open(worker)
    while ended not in select.select([ended, caller], [], [])[0]:
        number = caller.recv(1)
        os.killpg(worker, number[0] if number else signal.SIGKILL)
        if not number:
            break
    status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    with contextlib.suppress(OSError):  # the caller may have ended
        caller.sendall(f"{status}\n".encode())
    os._exit(0)


def enter_network(path: str) -> None:
    """Enter the network namespace of the caller, if it is a different one."""
    if not os.path.samefile(path, "/proc/self/ns/net"):
        import ctypes

        with open(path) as file:
            assert ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0) == 0, os.strerror(ctypes.get_errno())


def run(job: dict) -> int:
    """Run the program. Return its exit status. Print what the interpreter would print about an exit or an error."""
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  the earlier sys.stdin may have buffered input
    if job["environment"].get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
    logging.getLogger().handlers.clear()
    program, arguments = job["program"], job["arguments"]
    # Some programs, such as memory.py, run a second program. The path of the second program is an argument of the first
    # program. The server replaces this path, so that the second program runs without the server
    if "FORK_PROGRAMS_IN_ARGUMENTS" not in os.environ:
        arguments = [word.replace(job["bin"], job["real"]) for word in arguments]
    if program == "python" and arguments[0] == "-u":  # as torchrun starts its workers
        arguments.pop(0)
        sys.stdout.reconfigure(write_through=True)
    paths = job["environment"].get("PYTHONPATH", "").split(":")
    sys.path[:0] = [path for path in paths if path]
    try:
        if program != "python":
            sys.argv = [os.path.join(job["real"], program), *arguments]
            runpy.run_path(sys.argv[0], run_name="__main__")
        elif arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path.insert(0, job["folder"])
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
            return 1
        return stop.code or 0
    except KeyboardInterrupt:
        traceback.print_exc()
        return -signal.SIGINT
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def compose_configurations() -> None:
    """Compose a configuration of fairseq-train and one of fairseq-generate.

    Hydra then has imported its plugins, and has filled the tables of its parser. Every fairseq command composes a configuration.
    This takes most of the time of a command that trains for a few updates.
    """
    training = ["data", "--arch", "transformer_tiny", "--optimizer", "adam", "--lr", "0.1"]
    for parser, words in (
        (options.get_training_parser(), training),
        (options.get_generation_parser(), ["data", "--path", "model"]),
    ):
        convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, words))


if __name__ == "__main__":
    if len(sys.argv) > 3:
        fairseq.utils.import_user_module(argparse.Namespace(user_dir=sys.argv[3]))
    compose_configurations()
    gc.freeze()  # otherwise, garbage collection would make every process copy the imported modules
    status = run(serve(*sys.argv[1:3]))
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)  # destroying all modules would take as long as the program
