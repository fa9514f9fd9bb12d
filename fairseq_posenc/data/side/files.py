"""Parse and check side files, which contain the syntax and the reordering of each sentence of a text, one sentence per line.

TEXT is a text file whose words are separated by blanks, and SUBWORDS is the same text in subwords.

    TEXT.heads       index of the head of every word, from 1. 0 marks the root
    TEXT.relations   label of the relation between every word and its head
    TEXT.edges       edges of a graph, FROM-TO:LABEL, with word indices from 1. 0-TO:LABEL marks a root
    TEXT.order       original word index, from 0, at each position of the reordered sentence
    SUBWORDS.words   word index, from 1, of every subword

An error message begins with a code of the problem, such as TREE-ROOT, and contains the file and the line. Many messages also
contain the index of a word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ...common.messages import shorten
from ...core import PositionError

#: kinds of side files next to TEXT. These are also the names of fields of core.Sentence
KINDS = ("heads", "relations", "edges", "order")
#: kind of the file next to SUBWORDS
WORDS = "words"
#: symbols that every dictionary of fairseq contains
RESERVED = ("<s>", "<pad>", "</s>", "<unk>")
#: values of --roots, for sentences with several roots: raise an error, or attach all roots to the first root
ROOTS = ("error", "first")

_NUMBERS = re.compile(r"[0-9 ]*", re.ASCII)
_EDGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9}):(\S+)", re.ASCII)


class SideError(PositionError):
    """A problem in a side file: code, location and description."""

    def __init__(self, code: str, where: str, detail: str):
        super().__init__(code, where, detail)  # these arguments allow a worker process to pickle the error
        self.code = code

    def __str__(self) -> str:
        code, where, detail = self.args
        return f"{code}: {where}: {detail}"


class Fault(Exception):
    """A problem in a line. It is raised by functions that receive the line, but not the file and the line number."""

    def __init__(self, code: str, detail: str):
        super().__init__(code, detail)
        self.code, self.detail = code, detail

    def at(self, path: object, line: int) -> SideError:
        """Return the SideError for this problem in a file. `line` is the line number from 1."""
        return SideError(self.code, f"{path}, line {line}", self.detail)


def side_file(text: Path, kind: str) -> Path:
    """Return the path of a side file next to a text: TEXT.KIND."""
    return text.with_name(f"{text.name}.{kind}")


def parse_heads(line: str, words: int, roots: str = "error") -> list[int]:
    """Return the index of the head of every word, from 1. 0 is the root. Raise Fault if the heads are not a tree."""
    return check_tree(_numbers(line, words, "heads", "TREE-RANGE"), roots)


def check_tree(heads: Sequence[int], roots: str = "error") -> list[int]:
    """Return the heads. Raise Fault if they are not a tree. With roots="first", attach all other roots to the first root."""
    heads, count = list(heads), len(heads)
    for word, head in enumerate(heads, 1):
        if not 0 <= head <= count:
            raise Fault("TREE-RANGE", f"the head of word {word} is {head}. Expected 0 (root) or a word from 1 to {count}.")
        if head == word:
            raise Fault("TREE-SELF", f"word {word} is its own head. Expected another word, or 0 for the root.")
    found = [word for word, head in enumerate(heads, 1) if head == 0]
    if count and not found:
        raise Fault("TREE-ROOT", "there is no root. Expected one word with head 0.")
    if len(found) > 1:
        if roots == "error":
            named = ", ".join(map(str, found))
            raise Fault(
                "TREE-ROOT", f"words {named} are roots. Expected one root. To attach all roots to the first, use --roots first."
            )
        for word in found[1:]:
            heads[word - 1] = found[0]
    _refuse_cycles(heads)
    return heads


def _refuse_cycles(heads: Sequence[int]) -> None:
    seen = [0] * (len(heads) + 1)  # word -> start of the first path that contains the word. 0: not visited
    for start in range(1, len(heads) + 1):
        word = start
        while word and not seen[word]:
            seen[word] = start
            word = heads[word - 1]
        if word and seen[word] == start:
            cycle = [word]
            while heads[cycle[-1] - 1] != word:
                cycle.append(heads[cycle[-1] - 1])
            named = " -> ".join(map(str, [*cycle, word]))
            raise Fault("TREE-CYCLE", f"the heads {shorten(named)} are a cycle. Expected a path from each word to the root.")


def parse_relations(line: str, words: int) -> list[str]:
    """Return the label of every word. Raise Fault for a wrong number of labels, or for a label that is not allowed."""
    labels = line.split()
    _require_length(labels, words, "relations")
    for label in labels:
        check_label(label)
    return labels


def check_label(label: str) -> None:
    """Raise Fault for a label that is a special symbol of fairseq's dictionaries.

    The label would have the same index as the symbol.
    """
    if label in RESERVED:
        raise Fault(
            "SIDE-FORMAT", f"the label {label!r} is reserved for fairseq's dictionary. Expected another label. Rename it."
        )


def parse_edges(line: str, words: int) -> list[tuple[int, int, str]]:
    """Return (from, to, label) of every edge, with word indices from 1. `from` is 0 at a root."""
    edges = []
    for written in line.split():
        match = _EDGE.fullmatch(written)
        if not match:
            raise Fault("SIDE-FORMAT", f"{shorten(written)!r} is not an edge. Expected FROM-TO:LABEL, for example 2-1:det.")
        start, end, label = int(match[1]), int(match[2]), match[3]
        if start > words or not 1 <= end <= words:
            raise Fault(
                "TREE-RANGE",
                f"the edge {shorten(written)!r} has a wrong word. Expected words from 1 to {words}, or from 0 for a root.",
            )
        if start == end:
            raise Fault("TREE-SELF", f"the edge {shorten(written)!r} leads from a word to itself. Expected two words.")
        check_label(label)
        edges.append((start, end, label))
    return edges


def parse_order(line: str, words: int) -> list[int]:
    """Return the original word index, from 0, at every position of the reordered sentence."""
    return check_order(_numbers(line, words, "places", "ORDER-PERM"))


def check_order(order: Sequence[int]) -> list[int]:
    """Return the order. Raise Fault if it is not a permutation of the words."""
    if sorted(order) != list(range(len(order))):
        missing = next(iter(sorted(set(range(len(order))) - set(order))))
        raise Fault("ORDER-PERM", f"word {missing} is missing. Expected a permutation of the words 0 to {len(order) - 1}.")
    return list(order)


def parse_words(line: str, subwords: int, words: int) -> list[int]:
    """Return the word index, from 1, of every subword.

    The indices begin with 1 and increase by 0 or 1. The last index is `words`, the number of words.
    """
    numbers = _numbers(line, None, "", "SIDE-MAP")
    if len(numbers) != subwords:
        raise Fault("SIDE-MAP", f"{len(numbers)} word numbers for {subwords} subwords. Expected one per subword.")
    return check_words(numbers, words)


def check_words(numbers: Sequence[int], words: int) -> list[int]:
    """Return the word indices. Raise Fault if they do not satisfy the conditions of `parse_words`."""
    last = 0
    for place, number in enumerate(numbers, 1):
        if not last <= number <= last + 1 or number == 0:
            raise Fault(
                "SIDE-MAP",
                f"subword {place} belongs to word {number}, but the one before it to word {last}. "
                "Expected words in order, from 1.",
            )
        last = number
    if last != words:
        raise Fault(
            "SIDE-MAP", f"the subwords belong to {last} words, but the text has {words}. Expected subwords of the same text."
        )
    return list(numbers)


def _numbers(line: str, count: int | None, what: str, code: str) -> list[int]:
    parts = line.split()
    if count is not None:
        _require_length(parts, count, what)
    if not _NUMBERS.fullmatch(line.strip()) or any(len(part) > 9 for part in parts):
        wrong = next((part for part in parts if not re.fullmatch("[0-9]{1,9}", part, re.ASCII)), line)
        raise Fault(code, f"{shorten(wrong)!r} is not the number of a word. Expected integers separated by spaces.")
    return list(map(int, parts))


def _require_length(items: Sequence, words: int, what: str) -> None:
    if len(items) != words:
        raise Fault("SIDE-LEN", f"{len(items)} {what} for the {words} words of the text. Expected one per word.")
