"""Test every method that reads trees or graphs: conversion from CoNLL-U, preparation, three updates and decoding."""

import dataclasses
import random

import pytest

from fairseq_posenc import registry
from fairseq_posenc.cli import main
from fairseq_posenc.host.side.load import SideFiles

SIZES = {"train": 24, "valid": 4, "test": 6}
OPTIONS = ["--task", "posenc_translation", "--encoder-position"]


def readers() -> list[str]:
    """Return the encoder specs of all methods that read trees. A method that also reads graphs has a second spec."""
    found = []
    for name in registry.names():
        card, options = registry.card(name), registry.declaration(name).options
        if card.side_files(options()) & {"heads", "relations"}:
            found.append(card.specs["encoder"])
            if "graph" in {field.name for field in dataclasses.fields(options)}:
                found.append(card.specs["encoder"].replace(name, f"{name}:graph=edges"))
    return found


def sentence(draw: random.Random) -> list[str]:
    """Return CoNLL-U lines as in real treebanks. Edges of trees may cross. Graphs have empty nodes and cycles."""
    count = draw.randrange(1, 12)
    forms = ["".join(draw.choice("abcdef") for _ in range(draw.randrange(1, 4))) for _ in range(count)]
    heads, order = [0] * count, draw.sample(range(count), count)
    for place in range(1, count):
        heads[order[place]] = order[draw.randrange(place)] + 1
    relations = [draw.choice(["det", "obj", "acl:relcl", "nsubj"]) if head else "root" for head in heads]
    graph = [[f"{head}:{relation}"] for head, relation in zip(heads, relations)]
    lines, empty = [f"# text = {' '.join(forms)}"], draw.randrange(1, count + 1)
    for deps in draw.sample(graph, count // 3):
        deps.append(f"{draw.randrange(1, count + 1)}:{draw.choice(['ref', 'conj:and'])}")
    graph[draw.randrange(count)].append(f"{empty}.1:orphan")
    if count > 2:
        graph[order[-1]] = [f"{empty}.1:conj"]  # the only edge to this word comes from the empty node
    for number, (form, head, relation, deps) in enumerate(zip(forms, heads, relations, graph), 1):
        if number == 2:
            lines.append("2-3\tau\t_\t_\t_\t_\t_\t_\t_\t_" if count > 2 else "# two words")
        lines.append("\t".join([str(number), form, "_", "X", "_", "_", str(head), relation, "|".join(deps), "_"]))
        if number == empty:
            lines.append("\t".join([f"{empty}.1", "left", "_", "X", "_", "_", "_", "_", f"{empty}:conj", "_"]))
    return [*lines, ""]


@pytest.fixture(scope="module")
def treebank(fairseq, tmp_path_factory):
    """Return an object that runs fairseq's commands on a treebank in two languages. The text is split into subwords."""
    folder, draw = tmp_path_factory.mktemp("treebank"), random.Random(5)
    for part, size in SIZES.items():
        for language in ("fw", "bw"):
            text, trees = folder / f"{part}.{language}", folder / f"{part}.{language}.conllu"
            trees.write_text("\n".join(line for _ in range(size) for line in sentence(draw)) + "\n")
            assert main(["side", "trees", str(trees), str(text), "--write-text", "--edges", "enhanced"]) == 0
            lines = [" ".join("@@ ".join(word) for word in line.split()) for line in text.read_text().splitlines()]
            (folder / f"{part}.sub.{language}").write_text("".join(line + "\n" for line in lines))
    made = type(fairseq)(tmp_path_factory.mktemp("treebank_commands"), folder / "binary")
    prefixes = [word for part in SIZES for word in (f"--{part}pref", folder / f"{part}.sub")]
    languages = ["--source-lang", "fw", "--target-lang", "bw"]
    made.run("fairseq-preprocess", *languages, "--joined-dictionary", "--destdir", made.data, *prefixes).succeeded()
    prefixes = [word for part in SIZES for word in (f"--{part}pref", str(folder / part))]
    assert (
        main(["side", "binarise", str(made.data), *languages, *prefixes, *"--subwords subword_nmt --subwords-in .sub".split()])
        == 0
    )
    return made


def test_the_treebank_is_like_a_real_one(treebank):
    """The treebank has crossing edges, graphs that are not trees, and paths through empty nodes."""
    sentences = [SideFiles(treebank.data / "train.fw-bw.fw", ["heads", "edges"])[number] for number in range(SIZES["train"])]
    arcs = [[sorted((word, head)) for word, head in enumerate(one.heads.tolist()) if head >= 0] for one in sentences]
    assert any(a < c < b < d for one in arcs for a, b in one for c, d in one)
    assert any(len(one.edges) > len(one.heads) for one in sentences)
    assert "conj>conj" in (treebank.data / "dict.relations.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("spec", readers())
def test_every_method_from_trees_to_translations(treebank, spec, tmp_path):
    training = treebank.training("posenc_transformer_tiny", tmp_path, *OPTIONS, spec, "--max-update", 3, "--num-workers", 1)
    output = treebank.run(*(word for word in training if word != "--disable-validation")).succeeded()
    assert "num_updates 3" in output and "valid on 'valid' subset" in output and "nan" not in output
    found = treebank.generate(tmp_path / "checkpoint_last.pt", *OPTIONS[:2], "--beam", 2, "--remove-bpe").succeeded()
    assert len(treebank.rows(found, "H")) == SIZES["test"]
