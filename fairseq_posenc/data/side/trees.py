"""Convert a CoNLL-U file to side files of a text."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from tqdm import tqdm

from ..text import Lines, in_step, require_other_files
from . import conllu
from .files import Fault, SideError, side_file
from .outputs import Outputs, chunks, in_order


@dataclass(frozen=True)
class Job:
    """Input files and options of one conversion."""

    trees: Path
    text: Path
    write_text: bool = False
    edges: str = "none"
    roots: str = "error"

    @property
    def kinds(self) -> list[str]:
        return ["heads", "relations", *["edges"] * (self.edges != "none")]


#: (sentence number from 1, CoNLL-U block, line of the text or None)
_Sentence = tuple[int, conllu.Block, str | None]


def convert(job: Job, workers: int = 1) -> int:
    """Write TEXT.heads and TEXT.relations. Return the number of sentences.

    Also write TEXT.edges, unless `job.edges` is "none". With `job.write_text`, also write the words to the text file TEXT.
    """
    paths = {kind: side_file(job.text, kind) for kind in job.kinds}
    if job.write_text:
        paths["text"] = job.text
    require_other_files(paths.values(), [job.trees], "Give another TEXT.")
    earlier = side_file(job.text, "edges")
    if "edges" not in job.kinds and earlier.exists():
        print(
            f"posenc: {earlier}: not changed, so its edges may belong to other trees. Remove the file, or write it with --edges.",
            file=sys.stderr,
        )
    with Outputs() as outputs, contextlib.ExitStack() as stack:
        files = {
            kind: stack.enter_context(outputs.partial(path).open("w", encoding="utf-8", newline="\n"))
            for kind, path in paths.items()
        }
        done = 0
        with tqdm(desc=str(job.text), unit=" sentences", disable=None) as progress:
            for made in in_order(_convert, ((job, chunk) for chunk in chunks(_sentences(job))), workers):
                for kind, lines in made.items():
                    files[kind].writelines(line + "\n" for line in lines)
                done += len(made["heads"])
                progress.update(len(made["heads"]))
        return done


def _sentences(job: Job) -> Iterator[_Sentence]:
    with contextlib.ExitStack() as stack:
        blocks = conllu.blocks(stack.enter_context(Lines(job.trees)))
        if job.write_text:
            yield from ((number, block, None) for number, block in enumerate(blocks, 1))
            return

        def unequal(counts: list[int]) -> SideError:
            wanted = f"Expected {counts[1]}, which is the number of lines of the file {job.text}."
            return SideError("SIDE-LINES", str(job.trees), f"{counts[0]} sentences. {wanted}")

        rows = in_step([blocks, iter(stack.enter_context(Lines(job.text)))], unequal)
        yield from ((number, *row) for number, row in enumerate(rows, 1))


def _convert(task: tuple[Job, list[_Sentence]]) -> dict[str, list[str]]:
    """Convert some sentences. Return a dictionary from the kind of a side file to its lines."""
    job, sentences = task
    made: dict[str, list[str]] = {kind: [] for kind in [*job.kinds, *["text"] * job.write_text]}
    for number, block, line in sentences:
        try:
            tree = conllu.read_tree(block, job.roots, job.edges)
            if line is not None:
                _require_words(tree.words, line.split(), block, f"{job.text}, line {number}")
        except Fault as fault:
            raise SideError(fault.code, f"{job.trees}, sentence {number}, line {block.line}", fault.detail) from None
        made["heads"].append(" ".join(map(str, tree.heads)))
        made["relations"].append(" ".join(tree.relations))
        if tree.edges is not None:
            made["edges"].append(" ".join(f"{start}-{end}:{label}" for start, end, label in tree.edges))
        if job.write_text:
            made["text"].append(" ".join(tree.words))
    return made


def _require_words(words: list[str], wanted: list[str], block: conllu.Block, where: str) -> None:
    if words == wanted:
        return
    pairs = zip_longest(words, wanted, fillvalue="nothing")
    number, (given, expected) = next((n, pair) for n, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    whole = conllu.multiword_at(block, number)
    hint = f" (part of the multiword token {whole!r})" if whole else ""
    raise Fault(
        "SIDE-TOKEN",
        f"word {number} is {given!r}{hint}. Expected {expected!r}, from {where}. Parse this text, or use --write-text.",
    )
