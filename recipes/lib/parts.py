"""Divide a large training text into parts for fairseq-preprocess, and write the dictionary of the whole text.

parts.py TOKENS DICTIONARY LIST PREFIX SOURCE TARGET

Each part has at most TOKENS source tokens and at most TOKENS target tokens. The reason is a limit of fairseq-preprocess. If
several processes write a binary file, the index of the file overflows at 2 GiB. DICTIONARY is equal to the dictionary of
`fairseq-preprocess --joined-dictionary` for the whole text. LIST contains the prefix of each part, one per line: PREFIX.0,
PREFIX.1, and so on. The files of a part are PREFIX.0.SOURCE and PREFIX.0.TARGET. If the text is not divided, LIST contains only
PREFIX.
"""

import itertools
import os
import sys
from collections import Counter
from collections.abc import Iterator

from fairseq.data import Dictionary

MOST = 1 << 29  # maximum number of tokens per part. A token has two bytes if the vocabulary has at most 65,500 types


def pairs(prefix: str, source: str, target: str) -> Iterator[tuple[str, str]]:
    names = [f"{prefix}.{language}" for language in (source, target)]
    with open(names[0], encoding="utf-8", newline="\n") as one, open(names[1], encoding="utf-8", newline="\n") as two:
        for left, right in itertools.zip_longest(one, two):
            if left is None or right is None:
                sys.exit(
                    f"parts.py: {names[left is not None]} has fewer lines than {names[left is None]}. Expected parallel text."
                )
            yield left, right


def divide(prefix: str, source: str, target: str, tokens: int) -> tuple[Counter, list[int]]:
    """Return the count of every subword, and the end of each part.

    The end is the index of the line after the last line of the part.
    """
    counts, ends, sizes = Counter(), [], (0, 0)
    number = 0
    for number, sides in enumerate(pairs(prefix, source, target)):
        words = [side.split() for side in sides]
        for side in words:
            counts.update(side)
        grown = tuple(size + len(side) + 1 for size, side in zip(sizes, words))
        if max(grown) > tokens and max(sizes):
            ends.append(number)
            grown = tuple(len(side) + 1 for side in words)
        sizes = grown
    return counts, [*ends, number + 1]


def write(prefix: str, source: str, target: str, ends: list[int]) -> list[str]:
    """If the text has several parts, write each part to separate files. Return the prefixes of all parts."""
    if len(ends) == 1:
        return [prefix]
    found, prefixes = pairs(prefix, source, target), []
    for number, (begin, end) in enumerate(zip([0, *ends], ends)):
        prefixes.append(f"{prefix}.{number}")
        with open(f"{prefixes[-1]}.{source}", "wb") as one, open(f"{prefixes[-1]}.{target}", "wb") as two:
            for left, right in itertools.islice(found, end - begin):
                one.write(left.encode())
                two.write(right.encode())
    return prefixes


def main(tokens: str, dictionary: str, listed: str, prefix: str, source: str, target: str) -> None:
    if int(tokens) > MOST:
        sys.exit(f"parts.py: {tokens} tokens per part. Expected at most {MOST}.")
    counts, ends = divide(prefix, source, target, int(tokens))
    found = Dictionary()
    for word, count in counts.items():
        found.add_symbol(word, count)
    found.finalize(padding_factor=8)
    found.save(dictionary)
    prefixes = write(prefix, source, target, ends)
    with open(f"{listed}.part", "w", encoding="utf-8") as file:
        file.writelines(f"{part}\n" for part in prefixes)
    os.replace(f"{listed}.part", listed)


if __name__ == "__main__":
    main(*sys.argv[1:])
