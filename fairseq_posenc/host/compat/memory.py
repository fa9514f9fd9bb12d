"""Keep freed memory in the process. On a CPU, every update allocates and frees the same large tensors.

By default, the C library of Linux (glibc) returns large blocks of memory to the system as soon as they are freed. The system then
clears every page of the next block before its first use. In a small model, this takes 12 % of the CPU time of training.
"""

import ctypes
import os
import sys

#: parameters of mallopt (malloc.h): free memory at the end of the heap that is returned, and size of blocks outside the heap
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
#: value of both parameters, in bytes. Only larger blocks are returned. The second value is the largest that glibc before 2.34
#: accepts as _MMAP_THRESHOLD
_KEPT, _KEPT_BEFORE = 2**28, 2**25


def apply() -> None:
    """Set both parameters. Leave them unchanged if the user has set parameters of malloc in the environment."""
    if sys.platform != "linux" or any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have no mallopt
    # a single call would disable glibc's own adaptation of the other parameter, and make training slower
    if mallopt is not None and (mallopt(_MMAP_THRESHOLD, _KEPT) or mallopt(_MMAP_THRESHOLD, _KEPT_BEFORE)):
        mallopt(_TRIM_THRESHOLD, _KEPT)
