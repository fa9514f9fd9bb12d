"""Request a program from the server. Send the arguments, environment variables, working directory and open files.

The process that starts this file receives the output and the exit status of the program. Signals to this file are
forwarded to the program.
"""

import array
import json
import os
import signal
import socket
import sys

#: file descriptors of the standard streams, and of the lock of a recipe's output folder
FILES = (0, 1, 2, 9)


def call() -> int:
    """Call the program and forward signals. If this process is killed, the server kills the program."""
    bin_folder, program = os.path.split(sys.argv[0])
    files = [number for number in FILES if os.path.exists(f"/proc/self/fd/{number}")]
    job = {
        "program": program, "arguments": sys.argv[1:], "bin": bin_folder, "folder": os.getcwd(), "environment": dict(os.environ),
        "files": files, "network": f"/proc/{os.getpid()}/ns/net",
    }  # fmt: skip
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.path.join(os.path.dirname(bin_folder), "socket"))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, _: server.send(bytes([received])))
        server.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
        server.sendall(json.dumps(job).encode() + b"\n")
        return int(server.makefile().readline() or 1)


if __name__ == "__main__":
    status = call()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
