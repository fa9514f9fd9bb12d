"""Convert CoNLL-U to side files: heads, relations and graphs of the words of a text.

Words are the syntactic words of CoNLL-U. A multiword token, such as 3-4, is skipped, because the next lines contain its words.
Empty nodes, such as 5.1, are not words. A path through empty nodes becomes one edge. The label of this edge joins the labels of
the path with ">", as in the tools of Universal Dependencies. Blanks within a word, such as 25 000, become underscores. A block
with the comment "# empty" is an empty sentence.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import conllu

from ...common.messages import shorten
from ...core import PositionError
from ..text import Lines
from .files import Fault, check_label, check_tree

FIELDS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
EMPTY = "# empty"
#: limits of the enhanced graph of a sentence: number of empty nodes of a path, and number of paths. The number of paths can grow
#: exponentially with the number of empty nodes
_MOST_EMPTY, _MOST_PATHS = 100, 10_000

#: columns that the library conllu must not parse. The columns xpos, feats and misc are not used. The column deps is parsed
#: below, because the library does not allow all labels
_PARSERS = dict.fromkeys(("xpos", "feats", "misc", "deps"), operator.getitem)


@dataclass(frozen=True)
class Block:
    """The text of one sentence in a CoNLL-U file, and the line number of its first line, from 1."""

    line: int
    text: str


@dataclass(frozen=True)
class Tree:
    words: list[str]
    heads: list[int]  # index of the head of every word, from 1. 0 for the root
    relations: list[str]  # label of the relation between every word and its head
    edges: list[tuple[int, int, str]] | None  # (from, to, label) of each edge, with word indices from 1. None: no graph


_MOST_BLANK = 10_000  # maximum number of successive blank lines. CoNLL-U needs only one
_LONGEST_BLOCK = 100_000  # maximum number of lines of a sentence


def blocks(file: Lines) -> Iterator[Block]:
    """Yield the sentences of a file, which are separated by blank lines."""
    first, lines, blank = 1, [], 0
    for number, line in enumerate(file, 1):
        if line.strip():
            blank = 0
            lines.append(line)
            if len(lines) > _LONGEST_BLOCK:
                raise PositionError(
                    f"{file.path}, line {first}: a sentence of more than {_LONGEST_BLOCK:,} lines. Expected CoNLL-U with a blank "
                    "line after each sentence. Check the file."
                )
            continue
        blank += 1
        if blank > _MOST_BLANK:
            raise PositionError(
                f"{file.path}, line {number}: more than {_MOST_BLANK:,} blank lines in succession. Expected one blank line "
                "between sentences. Check the file."
            )
        if lines:
            yield Block(first, "".join(lines))
        first, lines = number + 1, []
    if lines:
        yield Block(first, "".join(lines))


#: values of --edges: no graph, a graph with the edges of the tree, or a graph with the enhanced dependencies
EDGES = ("none", "basic", "enhanced")


def read_tree(block: Block, roots: str = "error", edges: str = "none") -> Tree:
    """Return the tree and the graph of a sentence. Raise Fault if they are not valid."""
    tokens = _tokens(block)
    words = [token for token in tokens if isinstance(token["id"], int)]
    if [word["id"] for word in words] != list(range(1, len(words) + 1)):
        raise Fault("SIDE-FORMAT", "wrong numbers in the first column. Expected 1, 2, 3, ... for the words.")
    for number, word in enumerate(words, 1):
        if not word["form"].split():  # for example only U+00A0
            raise Fault("SIDE-FORMAT", f"word {number} contains only blanks. Expected a word in column 2, or _.")
        if not isinstance(word["head"], int):
            raise Fault("TREE-RANGE", f"word {number} has no head. Expected a number in column 7. Parse the text.")
        if edges == "enhanced" and word["deps"] == "_":
            raise Fault("SIDE-FORMAT", f"word {number} has no enhanced dependencies in column 9. Use --edges basic.")
    heads = check_tree([word["head"] for word in words], roots)
    relations = ["_".join(word["deprel"].split()) for word in words]
    for relation in relations:
        check_label(relation)
    graph = None
    if edges == "basic":
        graph = [(head, number, relation) for number, (head, relation) in enumerate(zip(heads, relations), 1)]
    elif edges == "enhanced":
        graph = _enhanced(tokens)
    return Tree(["_".join(word["form"].split()) for word in words], heads, relations, graph)


def multiword_at(block: Block, number: int) -> str | None:
    """Return the form of the multiword token that contains a word. Return None if the word is not part of one."""
    spans = (token for token in _tokens(block) if _spans(token))
    return next((token["form"] for token in spans if token["id"][0] <= number <= token["id"][2]), None)


def _tokens(block: Block) -> Sequence[Any]:
    lines = [line for line in block.text.split("\n") if line and not line.startswith("#")]
    if not lines:
        if any(line.strip() == EMPTY for line in block.text.split("\n")):
            return ()
        raise Fault("SIDE-FORMAT", f"a sentence without words. Expected the comment {EMPTY!r} for an empty sentence.")
    for line in lines:
        if line.count("\t") != len(FIELDS) - 1:
            raise Fault(
                "SIDE-FORMAT",
                f"{shorten(line, 40)!r} has {line.count(chr(9)) + 1} columns. Expected 10 columns, separated by tabs.",
            )
        if "" in line.split("\t"):
            raise Fault("SIDE-FORMAT", f"{shorten(line, 40)!r} has an empty column. Expected _ for an empty value.")
    lines = [re.sub(" {2,}", " ", line) for line in lines]  # the library also splits columns at two blanks
    try:
        (sentence,) = conllu.parse("\n".join(lines), fields=FIELDS, field_parsers=_PARSERS)
    except (conllu.exceptions.ParseException, ValueError) as error:  # int() raises ValueError for thousands of digits
        raise Fault("SIDE-FORMAT", shorten(str(error), 100)) from None
    return sentence


def _enhanced(tokens: Sequence[Any]) -> list[tuple[int, int, str]]:
    """Return the edges of the enhanced graph. A path from word to word through empty nodes becomes one edge."""
    entering = {token["id"]: _dependencies(token) for token in tokens if not _spans(token)}
    words = [word for word in entering if isinstance(word, int)]
    paths = ((start, word, label) for word in words for start, label in _through_empty(word, entering, ()))
    found = list(itertools.islice(paths, _MOST_PATHS + 1))
    if len(found) > _MOST_PATHS:
        raise Fault("SIDE-FORMAT", f"column 9 has more than {_MOST_PATHS:,} paths through empty nodes. Use --edges basic.")
    return [edge for edge in found if edge[0] != edge[1]]


def _spans(token: Any) -> bool:
    return isinstance(token["id"], tuple) and token["id"][1] == "-"


def _dependencies(token: Any) -> list[tuple[Any, str]]:
    """Return (head, label) of every enhanced dependency of a token."""
    found = []
    for written in token["deps"].split("|"):
        head, colon, label = written.partition(":")
        whole, dot, part = head.partition(".")
        numbers = head.isascii() and whole.isdecimal() and (not dot or part.isdecimal()) and len(head) < 10
        if not (colon and label and numbers):
            raise Fault("SIDE-FORMAT", f"{shorten(written)!r} in column 9 is not an enhanced dependency. Expected HEAD:RELATION.")
        found.append(((int(whole), ".", int(part)) if dot else int(whole), "_".join(label.split())))
    return found


def _through_empty(node: Any, entering: dict[Any, list[tuple[Any, str]]], passed: tuple) -> Iterator[tuple[int, str]]:
    """Find every path that ends at a node and starts at a word or at the root. Yield (start, label) for each path.

    The start is the index of the word, or 0 for the root.

    All nodes between the two ends of a path are empty nodes. The label joins the labels of the path.
    A path contains each empty node at most once.
    """
    for head, label in entering[node]:
        if isinstance(head, int):
            if head and head not in entering:
                raise Fault(
                    "TREE-RANGE", f"column 9 contains the word {head}, which the sentence does not have. Correct column 9."
                )
            yield head, label
        elif head not in entering:
            raise Fault(
                "TREE-RANGE",
                f"column 9 contains the empty node {head[0]}.{head[2]}, which the sentence does not have. Correct column 9.",
            )
        elif head not in passed:
            if len(passed) == _MOST_EMPTY:
                raise Fault("SIDE-FORMAT", f"column 9 has a path through more than {_MOST_EMPTY} empty nodes. Use --edges basic.")
            for start, above in _through_empty(head, entering, (*passed, head)):
                yield start, f"{above}>{label}"
