"""Compute orders of source words from word alignments, and compare orders.

An order contains the original word index, from 0, at each position of the reordered sentence.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from .files import Fault

_LINK = re.compile(r"([0-9]{1,9})-([0-9]{1,9})", re.ASCII)


def parse_links(line: str, words: int) -> list[tuple[int, int]]:
    """Parse a word alignment such as 0-0 1-2. Return (source, target) of every link, with word indices from 0.

    The format of the preorderer topdown-btg, "6-7 ||| 0-0 1-2", is also supported. The part before the bars is ignored. Raise
    Fault for another format.
    """
    links = []
    for written in line.rpartition("|||")[2].split():
        match = _LINK.fullmatch(written)
        if not match:
            raise Fault("SIDE-FORMAT", f"{written[:40]!r} is not a word alignment. Expected SOURCE-TARGET, for example 0-0 1-2.")
        if int(match[1]) >= words:
            raise Fault(
                "SIDE-LEN",
                f"the alignment {written} contains source word {match[1]}. Expected source words from 0 to {words - 1}.",
            )
        links.append((int(match[1]), int(match[2])))
    return links


def order_of_links(links: Iterable[tuple[int, int]], words: int) -> list[int]:
    """Sort the source words by the mean position of the target words to which they are linked.

    A word without a link stays after the nearest linked word on its left. If no word on its left is linked, it stays before the
    first linked word. If there are no links, the order is the source order.
    """
    linked: list[list[int]] = [[] for _ in range(words)]
    for source, target in links:
        linked[source].append(target)
    keys: list = [sum(targets) / len(targets) if targets else None for targets in linked]
    nearest = next((key for key in keys if key is not None), 0)
    for word, key in enumerate(keys):
        nearest = keys[word] = nearest if key is None else key
    return sorted(range(words), key=keys.__getitem__)  # words with equal keys stay in the source order


def kendall_tau(order: Sequence[int]) -> float:
    """Return 1 - inversions / (n (n-1) / 2), which is 1 for the source order, and 0 for the reversed order."""
    count = len(order)
    inversions = sum(order[i] > order[j] for i in range(count) for j in range(i + 1, count))
    return 1 - inversions / (count * (count - 1) / 2) if count > 1 else 1.0


def fuzzy_reordering_score(order: Sequence[int]) -> float:
    """Return 1 - discontinuities / (n + 1): the fraction of continuous pairs among the pairs of neighbouring words in `order`.

    A pair is continuous if the second word directly follows the first word in the source order.

    The first word counts as a neighbour of the start of the sentence, and the last word as a neighbour of its end.
    """
    padded = [-1, *order, len(order)]
    return 1 - sum(b != a + 1 for a, b in itertools.pairwise(padded)) / (len(order) + 1)


def relative_to(order: Sequence[int], reference: Sequence[int]) -> list[int]:
    """Replace each word index of `order` by the position of this word in `reference`, another order. Return the result.

    `kendall_tau` and `fuzzy_reordering_score` compare their argument with the source order. If the argument is the result of
    this function, `kendall_tau` and `fuzzy_reordering_score` therefore compare `order` with `reference`.
    """
    place = {word: index for index, word in enumerate(reference)}
    return [place[word] for word in order]
