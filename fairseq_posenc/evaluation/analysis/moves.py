"""Move a word of a sentence to another position, as in the detection of word reordering (Yang et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

#: number of distances per bucket, and number of buckets
BUCKET, BUCKETS = 10, 7


def move(words: Sequence[T], origin: int, target: int) -> list[T]:
    """Remove the word at `origin` and insert it at `target`."""
    rest = [*words[:origin], *words[origin + 1 :]]
    return [*rest[:target], words[origin], *rest[target:]]


def labels(origin: int, target: int) -> tuple[int, int]:
    """Return two indices in the changed sentence.

    The first is the index of the moved word. The second is the index of the word that followed the moved word before the move.
    """
    return target, origin + 1 if origin > target else origin


def draw(length: int, random: Random, least: int = 1) -> tuple[int, int] | None:
    """Return the origin and the target of a random move by at least `least` words.

    The last word keeps its position. Return None if the sentence is too short.
    """
    if length - 2 < least:
        return None
    while True:  # draw again until the distance is large enough
        origin, target = random.randrange(length - 1), random.randrange(length - 1)
        if abs(origin - target) >= least:
            return origin, target


def bucket(distance: int) -> int:
    return min(distance // BUCKET, BUCKETS - 1)


def bucket_names() -> list[str]:
    names = [f"{BUCKET * i}-{BUCKET * (i + 1) - 1}" for i in range(BUCKETS - 1)]
    return [*names, f"{BUCKET * (BUCKETS - 1)}+"]
