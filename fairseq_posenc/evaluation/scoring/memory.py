"""Run fairseq-train in this process, and print the peak memory at the end:

    python fairseq_posenc/evaluation/scoring/memory.py fairseq-train DATA OPTION...

Run this file by its path, not with `python -m`, so that the package is not imported before fairseq. The package registers the
plugin only if fairseq is already imported. For training on a GPU, the printed number is not used, because fairseq logs the memory
of the GPU.
"""

import atexit
import os
import runpy
import shutil
import sys

PEAK_OF_PROCESS = "peak memory of the training process: {:.3f} GiB"


def peak_memory() -> float:
    """Return the peak resident memory of this process in GiB."""
    if os.path.exists("/proc/self/status"):  # preferred, because getrusage may include the parent process
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 2**20
    import resource  # does not exist on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** (30 if sys.platform == "darwin" else 20)


def main(command: list) -> None:
    script = shutil.which(command[0]) if command else None
    if script is None:
        sys.exit(f"{command[0] if command else 'no command'}: not a command. Expected fairseq-train with its options.")
    atexit.register(lambda: print(PEAK_OF_PROCESS.format(peak_memory()), flush=True))
    sys.argv = [script, *command[1:]]
    sys.path[0] = os.path.dirname(script)  # as if the script were called directly
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
