"""Peak memory of one attention, in forward and backward pass. Every measurement runs in a separate process."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROBE = """
import re, sys, torch
import fairseq_posenc as posenc

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024  # MiB

torch.set_num_threads(1)
attention = posenc.build_attention(sys.argv[1], 256, 4, max_positions=512)
for length in (8, 512):  # the first run loads what torch loads once
    before, x = peak(), torch.randn(length, 4, 256, requires_grad=True)
    attention(x, x, x, need_weights=False)[0].square().mean().backward()
print(peak() - before)
"""


def peak(spec: str) -> float:
    """Return the increase of the peak memory in MiB, from 4 sentences of 8 words to 4 sentences of 512 words."""
    done = subprocess.run([sys.executable, "-c", PROBE, spec], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_huang3_holds_no_products_of_all_channels():
    """If huang3 were computed as in the paper, it would store one number for every query, key and channel.

    huang3 would then need ten times the memory of huang4.
    """
    scores = 4 * 4 * 512 * 512 * 4 / 2**20  # MiB of one tensor of all scores
    measured = {spec: peak(spec) for spec in ("huang4", "huang3")}
    assert measured["huang4"] > 2 * scores, measured  # the measurement includes the tensors of scores
    assert measured["huang3"] < 1.5 * measured["huang4"], measured
