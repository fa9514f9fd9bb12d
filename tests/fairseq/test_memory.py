"""Memory that the process keeps between updates."""

import os
import platform
import subprocess
import sys

import pytest

_PAGES = """
import resource, torch
import fairseq_posenc.host.plugin
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(2**24)
before = faults()
for _ in range(10):
    torch.ones(2**24)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is a function of glibc")
@pytest.mark.parametrize("setting, kept", [({}, True), ({"MALLOC_TRIM_THRESHOLD_": "131072"}, False)])
def test_freed_memory_is_used_again(setting, kept):
    """A tensor of 64 MiB has 16,384 pages of 4 KiB. Ten tensors need ten times as many new pages, unless memory is used again.

    A parameter of malloc that the user has set remains.
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_") and name != "GLIBC_TUNABLES"}
    found = subprocess.run([sys.executable, "-c", _PAGES], env=plain | setting, capture_output=True, text=True, check=True)
    pages = int(found.stdout.splitlines()[-1])
    assert (pages < 2 * 16384) == kept, pages
