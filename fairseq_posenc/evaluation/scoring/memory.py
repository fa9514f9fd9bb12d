"""Run fairseq-train in this process and, when it ends, print the most memory that it has held:

    python fairseq_posenc/evaluation/scoring/memory.py fairseq-train DATA OPTION...

Started by its path: importing the package, and so fairseq, before fairseq-train does would change the form of its log.
On a GPU, fairseq logs the memory, and this number is not used.
"""

import atexit
import os
import runpy
import shutil
import sys

PEAK_OF_PROCESS = "peak memory of the training process: {:.3f} GiB"


def peak_memory() -> float:
    """Return the largest resident size of this process in GiB."""
    if os.path.exists("/proc/self/status"):  # unlike getrusage, without the memory of the parent process
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 2**20
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** (30 if sys.platform == "darwin" else 20)


def main(command: list) -> None:
    script = shutil.which(command[0]) if command else None
    if script is None:
        sys.exit(f"{command[0] if command else 'no command'}: not a command. Expected fairseq-train with its options.")
    atexit.register(lambda: print(PEAK_OF_PROCESS.format(peak_memory()), flush=True))
    sys.argv = [script, *command[1:]]
    sys.path[0] = os.path.dirname(script)  # as if the script had been started directly
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
