"""Fork programs from a process that has imported torch and fairseq. Each program starts in milliseconds instead of seconds.

`folder()` returns a bin folder. The files in this folder have the names of the programs of the Python environment. Each file
contains the code of caller.py, which requests the program from the server. The program receives the arguments, environment
variables, working directory, open files and signals of the process of caller.py. The program ends when this process ends.
"""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


@functools.cache
def folder(plugin: Path | None = None) -> str:
    """Start the server, and return the bin folder. The server ends when this process ends.

    The programs use one thread, so that results are identical in every run. If `plugin` is the folder of the plugin, the server
    also imports the plugin. Commands with the plugin as --user-dir then start faster.
    """
    real, place = Path(sys.executable).parent, Path(tempfile.mkdtemp(prefix="forked-"))
    (place / "bin").mkdir()
    caller = f"#!{sys.executable} -IS\n{(HERE / 'caller.py').read_text(encoding='utf-8')}"
    for program in real.iterdir():
        if program.is_file() and (program.name == "python" or program.read_bytes().startswith(b"#!")):
            (place / "bin" / program.name).write_text(caller, encoding="utf-8")
            (place / "bin" / program.name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, HERE / "server.py", real, place, *filter(None, [plugin])]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=place,
        env={**environment, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip
    assert server.stdout.read(1), "the server did not start"

    @atexit.register
    def end():
        server.stdin.close()
        server.wait()
        shutil.rmtree(place)

    return str(place / "bin")
