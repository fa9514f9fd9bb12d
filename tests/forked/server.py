"""Fork a process for every program that `caller.py` requests. The server imports torch and fairseq before it forks.

If the third argument is the folder of the plugin, the server also imports the plugin.
"""

import argparse
import array
import atexit
import contextlib
import ctypes
import dataclasses
import fcntl
import gc
import logging
import os
import resource
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
import weakref

sys.path.pop(0)  # remove the folder of this file, because `--user-dir` must find the plugin without additional paths
import fairseq.models
import fairseq.tasks
import fairseq.utils
import matplotlib.backends.backend_agg  # noqa: F401  posenc report imports this module
import pydantic.main  # noqa: F401  posenc score and posenc report import this module
import torch._dynamo  # noqa: F401  every optimizer imports this module, which takes over a second
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf


@dataclasses.dataclass
class Worker:
    """A process that runs a program, and the connection to its caller."""

    number: int
    caller: socket.socket
    ended: int  # a file descriptor that is readable when the process has ended

    def receive(self) -> bool:
        """Forward a signal of the caller. If the caller has ended, kill the process and return False."""
        try:
            number = self.caller.recv(1)
        except OSError:
            number = b""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.number, number[0] if number else signal.SIGKILL)
        return bool(number)

    def finish(self) -> None:
        """Wait until the process has ended, and send its status to the caller."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])
        with contextlib.suppress(OSError):  # the caller may have ended
            self.caller.sendall(f"{status}\n".encode())
        self.close()

    def close(self) -> None:
        self.caller.close()
        os.close(self.ended)


def serve(real: str, place: str) -> dict:
    """Fork a process for every caller until standard input ends.

    This function returns only in a process that must run a program. It returns the job of this process.
    """
    workers: list[Worker] = []
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(os.path.join(place, "socket"))
        door.listen(64)
        os.write(1, b".")
        while True:
            watched = [end for worker in workers for end in (worker.ended, worker.caller)]
            ready = select.select([door, sys.stdin, *watched], [], [])[0]
            if sys.stdin in ready:
                break
            for worker in workers[:]:
                if worker.ended in ready or (worker.caller in ready and not worker.receive()):
                    workers.remove(worker)
                    worker.finish()
            if door in ready and (job := start(door.accept()[0], workers)):
                return {**job, "real": real}
    for worker in workers:
        os.killpg(worker.number, signal.SIGKILL)
    os._exit(0)


def start(caller: socket.socket, workers: list[Worker]) -> dict:
    """Fork a process, and add it to `workers`. Return the job in the new process, and {} in the server."""
    try:
        size, rights, *_ = caller.recvmsg(4, socket.CMSG_SPACE(16 * array.array("i").itemsize))
        files = array.array("i", rights[0][2])
        fields = os.fsdecode(caller.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)).split("\0")
        (program, bin_folder, folder, network, numbers, limit, count), words = fields[:7], fields[7:]
        arguments, variables = words[: int(count)], words[int(count) :]
    except (OSError, LookupError, ValueError):  # the caller has ended
        caller.close()
        return {}
    if number := os.fork():
        os.setpgid(number, number)  # both processes set the group, because either may run first
        workers.append(Worker(number, caller, os.pidfd_open(number)))
        for file in files:
            os.close(file)
        return {}
    for worker in workers:
        worker.close()
    caller.close()
    os.setpgid(0, 0)
    enter_network(network)
    _, highest = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), highest))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # signals may be ignored if the tests run in the background
    # First duplicate the file descriptors to numbers of at least 100. Otherwise, dup2 could close a file descriptor that is not
    # yet duplicated.
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, 100) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(high, map(int, numbers.split())):
        os.dup2(file, number)
        os.close(file)
    environment = dict(variable.split("=", 1) for variable in variables)
    return {"program": program, "bin": bin_folder, "folder": folder, "arguments": arguments, "environment": environment}


def enter_network(path: str) -> None:
    """Enter the network namespace of the caller, if it is a different one."""
    if not os.path.samefile(path, "/proc/self/ns/net"):
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


def use_large_pages() -> None:
    """Move the memory of this process into pages of 2 MiB, if the system has such pages.

    A fork copies the table of pages, and a table of large pages is small. A fork then takes a third of the time.
    """
    size, collapse = 1 << 21, 25  # size of a page, and MADV_COLLAPSE of Linux
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with open("/proc/self/maps") as file:
        areas = [line.split() for line in file]
    for place, access, _, _, _, *name in areas:
        if access == "rw-p" and name in ([], ["[heap]"]):
            begin, end = (int(address, 16) for address in place.split("-"))
            begin, end = -(-begin // size) * size, end // size * size
            if begin < end:
                madvise(begin, end - begin, collapse)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        fairseq.utils.import_user_module(argparse.Namespace(user_dir=sys.argv[3]))
    compose_configurations()
    gc.freeze()  # otherwise, garbage collection would make every process copy the imported modules
    use_large_pages()
    for finalizer in list(weakref.finalize._registry):  # torch removes its operators at exit, which takes longer than a fork
        finalizer.atexit = False
    status = run(serve(*sys.argv[1:3]))
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)  # destroying all modules would take as long as the program
