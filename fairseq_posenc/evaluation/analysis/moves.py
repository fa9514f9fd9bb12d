"""A word of a sentence moved to another place, as in the detection of word reordering (Yang et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

#: distances of one bucket, and how many buckets there are
BUCKET, BUCKETS = 10, 7


def move(words: Sequence[T], origin: int, target: int) -> list[T]:
    """Take the word at `origin` out and insert it at `target`."""
    rest = [*words[:origin], *words[origin + 1 :]]
    return [*rest[:target], words[origin], *rest[target:]]


def labels(origin: int, target: int) -> tuple[int, int]:
    """New index of the moved word, and index of the word of the changed sentence before which it belongs."""
    return target, origin + 1 if origin > target else origin


def restore(words: Sequence[T], inserted: int, original: int) -> list[T]:
    """Return the arguments of `move`, from the changed sentence and its labels."""
    return move(words, inserted, original - 1 if original > inserted else original)


def draw(length: int, random: Random, least: int = 1) -> tuple[int, int] | None:
    """Origin and target of a move by at least so many places; the last word stays. None where the sentence is too short."""
    if length - 2 < least:
        return None
    while True:  # most pairs of a long sentence will do
        origin, target = random.randrange(length - 1), random.randrange(length - 1)
        if abs(origin - target) >= least:
            return origin, target


def bucket(distance: int) -> int:
    return min(distance // BUCKET, BUCKETS - 1)


def bucket_names() -> list[str]:
    names = [f"{BUCKET * i}-{BUCKET * (i + 1) - 1}" for i in range(BUCKETS - 1)]
    return [*names, f"{BUCKET * (BUCKETS - 1)}+"]
