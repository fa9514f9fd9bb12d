"""The reference tree of these tests, its side files, and its binary text, written without fairseq's commands."""

import dataclasses
from pathlib import Path

import pytest
import torch

import fairseq_posenc.host.plugin  # noqa: F401  (first, because it patches fairseq)
from fairseq_posenc.host.side.binarise import Part

WORDS = "The cat chased a small dog"
SUBWORDS = "The cat chased a sm@@ all dog"
HEADS = "2 3 0 6 6 3"
RELATIONS = "det nsubj root det amod obj"
EDGES = "2-1:det 3-2:nsubj 0-3:root 6-4:det 6-5:amod 3-6:obj 2-6:friend"
ORDER = "0 1 3 4 5 2"


@dataclasses.dataclass
class Corpus:
    """A text with its side files and its binary data."""

    folder: Path
    data: Path

    def write(self, name: str, sentences, **kinds) -> Part:
        """Write a corpus. Each item of `sentences` is a pair: the words and the subwords of a sentence.

        Each item of `kinds` is a kind of side file, with its list of lines.
        """
        from fairseq.data import Dictionary, indexed_dataset

        text, subwords = self.folder / f"{name}.fw", self.folder / f"{name}.sub.fw"
        text.write_text("".join(words + "\n" for words, _ in sentences))
        subwords.write_text("".join(pieces + "\n" for _, pieces in sentences))
        for kind, lines in kinds.items():
            (self.folder / f"{name}.fw.{kind.replace('_', '.')}").write_text("".join(line + "\n" for line in lines))
        self.data.mkdir(exist_ok=True)
        dictionary = Dictionary()
        for letter in range(30):
            dictionary.add_symbol(f"w{letter}")
        for language in ("fw", "bw"):
            builder = indexed_dataset.make_builder(str(self.data / f"{name}.fw-bw.{language}.bin"), "mmap", len(dictionary))
            for _, pieces in sentences:
                tokens = [4 + len(piece) for piece in pieces.split()]
                builder.add_item(torch.tensor([*tokens, dictionary.eos()]))
            builder.finalize(str(self.data / f"{name}.fw-bw.{language}.idx"))
            dictionary.save(str(self.data / f"dict.{language}.txt"))
        return self.part(name)

    def part(self, name: str) -> Part:
        return Part(name, self.folder / f"{name}.fw", self.folder / f"{name}.sub.fw", self.data / f"{name}.fw-bw.fw")


@pytest.fixture
def corpus(tmp_path):
    return Corpus(tmp_path, tmp_path / "data")


@pytest.fixture
def reference(corpus):
    """The reference tree, followed by a sentence of one word and an empty sentence."""
    return corpus.write(
        "train",
        [(WORDS, SUBWORDS), ("Yes", "Y@@ e@@ s"), ("", "")],
        heads=[HEADS, "0", ""],
        relations=[RELATIONS, "root", ""],
        edges=[EDGES, "0-1:root", ""],
        order=[ORDER, "0", ""],
        order_source=["made up"],
    )
