"""Orders of source words: computed from word alignments, and compared with another order.

A reordering lists the original word index, from 0, at each place of the reordered sentence.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from .files import Fault

_LINK = re.compile(r"([0-9]{1,9})-([0-9]{1,9})", re.ASCII)


def parse_links(line: str, words: int) -> list[tuple[int, int]]:
    """Return (source, target) of every link of an alignment, from 0. The text has the form 0-0 1-2. Raise Fault for another form.

    The format of the preorderer topdown-btg, "6-7 ||| 0-0 1-2", is also supported. Its word numbers before the bars are ignored.
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
    """Return the source words in the order of the mean position of their linked target words.

    A word without a link follows the nearest linked word on its left. Words before all links precede the first linked word.
    Without any link, the source order is returned.
    """
    linked: list[list[int]] = [[] for _ in range(words)]
    for source, target in links:
        linked[source].append(target)
    keys: list = [sum(targets) / len(targets) if targets else None for targets in linked]
    nearest = next((key for key in keys if key is not None), 0)
    for word, key in enumerate(keys):
        nearest = keys[word] = nearest if key is None else key
    return sorted(range(words), key=keys.__getitem__)  # the sort is stable, so that equal keys keep the source order


def kendall_tau(order: Sequence[int]) -> float:
    """Return 1 - inversions / (n (n-1) / 2). 1: the order is the same. 0: the order is reversed."""
    count = len(order)
    inversions = sum(order[i] > order[j] for i in range(count) for j in range(i + 1, count))
    return 1 - inversions / (count * (count - 1) / 2) if count > 1 else 1.0


def fuzzy_reordering_score(order: Sequence[int]) -> float:
    """Return 1 - discontinuities / (n + 1), the fraction of neighbours that were neighbours before.

    Both ends of the sentence count as neighbours of its first and last word.
    """
    padded = [-1, *order, len(order)]
    return 1 - sum(b != a + 1 for a, b in itertools.pairwise(padded)) / (len(order) + 1)


def relative_to(order: Sequence[int], reference: Sequence[int]) -> list[int]:
    """Return the order with words numbered by their place in the reference.

    Both measures then compare the order with the reference.
    """
    place = {word: index for index, word in enumerate(reference)}
    return [place[word] for word in order]


def inverse(order: Sequence[int]) -> list[int]:
    """Return the place of every word."""
    places = [0] * len(order)
    for place, word in enumerate(order):
        places[word] = place
    return places
