"""Measure the times of several actions in turns, and divide them by the times of one of these actions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

#: smallest number of rounds for which quartiles are computed
FEWEST_FOR_QUARTILES = 4


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of the ratios of all rounds.

    With fewer than four rounds, minimum and maximum replace the quartiles.
    """

    median: float
    low: float
    high: float


def interleaved(
    actions: dict[str, Callable[[], Any]], rounds: int, device: torch.device, progress: Callable[[str], None]
) -> dict[str, list[float]]:
    """Return the seconds of every action in every round. Each round starts with another action, to remove order effects."""
    clock = _clock(device)
    names = list(actions)
    for name in names:
        progress(f"{name}, warming up")
        actions[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            progress(f"{name}, round {turn + 1} of {rounds}")
            start = clock()
            actions[name]()
            seconds[name].append(clock() - start)
    return seconds


def ratios(seconds: dict[str, list[float]], base: str) -> dict[str, Ratio]:
    """Divide the seconds of each action by the seconds of the action `base` in the same round. Return one `Ratio` per action."""
    found = {}
    for name, own in seconds.items():
        shares = sorted(a / b for a, b in zip(own, seconds[base]))
        few = len(shares) < FEWEST_FOR_QUARTILES
        low, high = (shares[0], shares[-1]) if few else statistics.quantiles(shares, n=4)[::2]
        found[name] = Ratio(statistics.median(shares), low, high)
    return found


def _clock(device: torch.device) -> Callable[[], float]:
    """Return the clock of the measurement.

    With one thread on the CPU, it is the CPU time of this process, which is independent of other programs. Otherwise it is
    wall-clock time. On CUDA, the clock waits for the device.
    """
    if device.type == "cuda":

        def synchronised() -> float:
            torch.cuda.synchronize()
            return time.perf_counter()

        return synchronised
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter
