"""Request a program from the server. Send the arguments, environment variables, working directory and open files.

The maximum size of a file (ulimit -f) is sent as well.

The process that starts this file receives the output and the exit status of the program. Signals to this file are
forwarded to the program.
"""

import _signal as signal  # importing the modules `signal`, `socket` and `json` would take most of the time of this program
import _socket as socket
import array
import os
import resource
import sys

#: file descriptors of the standard streams, and of the lock of a recipe's output folder
FILES = (0, 1, 2, 9)


def call() -> int:
    """Call the program and forward signals. If this process is killed, the server kills the program."""
    bin_folder, program = os.path.split(sys.argv[0])
    files = [number for number in FILES if os.path.exists(f"/proc/self/fd/{number}")]
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    place = [program, bin_folder, os.getcwd(), f"/proc/{os.getpid()}/ns/net", " ".join(map(str, files)), str(limit)]
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    job = os.fsencode("\0".join([*place, str(len(sys.argv) - 1), *sys.argv[1:], *variables]))
    server = socket.socket(socket.AF_UNIX)
    server.connect(os.path.join(os.path.dirname(bin_folder), "socket"))
    server.sendmsg([len(job).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
    server.sendall(job)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: server.send(bytes([received])))
    return int(server.recv(16) or 1)


if __name__ == "__main__":
    status = call()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
