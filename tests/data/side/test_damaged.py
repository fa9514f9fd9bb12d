"""Side files that were changed or damaged, or that belong to another text.

Each file leads to a one-line error, at binarising or at loading.
"""

import gzip
import shutil

import numpy as np
import pytest

from fairseq_posenc.cli import main
from fairseq_posenc.core import PositionError
from fairseq_posenc.host.side import checksums
from fairseq_posenc.host.side.binarise import binarise
from fairseq_posenc.host.side.load import FileInputs, SideFiles

ALL = ("heads", "relations", "edges", "order")


@pytest.fixture
def data(corpus, reference):
    """Return the prefix of binary data with all kinds of side files."""
    binarise([reference], corpus.data, subwords="subword_nmt")
    return reference.data


def refused(prefix, kinds=ALL) -> str:
    with pytest.raises(PositionError) as error:
        SideFiles(prefix, kinds)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500
    return str(error.value)


def rewrite(path, change) -> None:
    path.write_bytes(change(path.read_bytes()))


def test_unchanged_files(data):
    assert len(SideFiles(data, ALL)) == 3


def test_data_of_an_earlier_version_has_no_checksums(data):
    checksums.file_of(data).unlink()
    assert f"SIDE-MISSING: {data}.side.json: no such file" in refused(data)


@pytest.mark.parametrize("kind", [*ALL, "words"])
@pytest.mark.parametrize(
    "change",
    [lambda content: content[:-2], lambda content: b"", lambda content: content + b"\0\0", lambda content: bytes(len(content))],
    ids=["truncated", "empty", "longer", "zeros"],
)
@pytest.mark.parametrize("ending", ["bin", "idx"])
def test_a_changed_file(data, kind, change, ending):
    rewrite(data.with_name(f"{data.name}.{kind}.{ending}"), change)
    assert f"SIDE-CHANGED: {data}.{kind}.bin: the file was changed or belongs to another text" in refused(data)


def test_a_changed_tree_that_is_a_tree(data):
    content = data.with_name(f"{data.name}.heads.bin").read_bytes()
    heads = np.frombuffer(content, np.uint16).copy()
    heads[0] = 3  # "The" depends on the verb
    data.with_name(f"{data.name}.heads.bin").write_bytes(heads.tobytes())
    assert f"SIDE-CHANGED: {data}.heads.bin: the file was changed or belongs to another text" in refused(data)


@pytest.mark.parametrize(
    "ending, change",
    [
        ("bin", lambda content: content[:-2]),
        ("bin", lambda content: b""),
        ("idx", lambda content: content[:-2]),
        ("idx", lambda content: b""),
        ("idx", lambda content: b"X" + content[1:]),
        ("idx", lambda content: content[:9] + b"\2" + content[10:]),
        ("idx", lambda content: content[:17] + b"\xff" + content[18:]),
        ("idx", lambda content: content[:18] + b"\xff" * 8 + content[26:]),
        ("idx", lambda content: content[:26] + b"\xff" * 4 + content[30:]),
        ("idx", lambda content: content[:-8] + b"\xff" * 8),
    ],
    ids=["bin-truncated", "bin-empty", "idx-truncated", "idx-empty", "magic", "version", "type", "rows", "size", "place"],
)
def test_a_damaged_text(corpus, reference, ending, change, capfd):
    """posenc side binarise refuses the text. After posenc side binarise, loading refuses it."""
    path = reference.data.with_name(f"{reference.data.name}.{ending}")
    whole = path.read_bytes()
    rewrite(path, change)
    with pytest.raises(PositionError, match=r"SIDE-FORMAT: .*Run fairseq-preprocess again") as error:
        binarise([reference], corpus.data, subwords="subword_nmt")
    assert str(reference.data) in str(error.value) and "\n" not in str(error.value)
    path.write_bytes(whole)
    binarise([reference], corpus.data, subwords="subword_nmt")
    rewrite(path, change)
    assert f"SIDE-CHANGED: {reference.data}: the text changed after posenc side binarise" in refused(reference.data)
    assert "Traceback" not in "".join(capfd.readouterr())


def test_side_files_of_another_language(corpus, data):
    """The side files of the other language have the same number of sentences, and the same number of words per sentence."""
    other = corpus.write(
        "other", [("a b c d e f", "a b c d e@@ e f"), ("a", "a@@ a@@ a"), ("", "")], heads=["0 1 1 1 1 1", "0", ""]
    )
    binarise([other], corpus.data, subwords="subword_nmt")
    for ending in ("bin", "idx"):
        shutil.copy(f"{other.data}.heads.{ending}", f"{data}.heads.{ending}")
    assert "SIDE-CHANGED" in refused(data, ["heads"])


def test_another_text_with_the_same_lengths(corpus, data):
    rewrite(data.with_name(f"{data.name}.bin"), lambda content: bytes([content[0] ^ 1]) + content[1:])
    assert f"SIDE-CHANGED: {data}: the text changed after posenc side binarise" in refused(data)


def reordered(path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")


def test_a_reordered_dictionary_of_relations(data):
    relations = data.with_name("dict.relations.txt")
    reordered(relations)
    assert f"SIDE-CHANGED: {relations}: the numbers of the labels differ from {data.name}" in refused(data)
    SideFiles(data, ["heads"])  # this kind has no labels


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"det\n",
        b"det x\n",
        b"det " + b"9" * 5000 + b"\n",
        b"det " + b"9" * 100 + b"\n",
        b"<pad> 3\n",
        b"det 3\ndet 4\n",
        b"\0",
    ],
    ids=["bytes", "no count", "no number", "digits", "64 bits", "reserved", "twice", "null"],
)  # fmt: skip
def test_a_damaged_dictionary_of_relations(corpus, data, content):
    path = corpus.data / "dict.relations.txt"
    path.write_bytes(content)
    task = FileInputs([str(corpus.data)], ("fw", "bw"))
    for read in (lambda: checksums.load_relations(path), lambda: SideFiles(data, ALL), lambda: task.build(None, None)):
        with pytest.raises(PositionError) as error:
            read()
        assert "\n" not in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize("content", ["", "[]", "{}", "{" * 99999, '{"text": 1, "relations": 2, "files": 3}', "\0"])
def test_damaged_checksums(data, content):
    checksums.file_of(data).write_text(content)
    assert "side.json" in refused(data)


# --- files next to a text ---


def command(corpus, capsys, *options) -> str:
    """Run posenc side binarise on the part train. Return its one line of error."""
    arguments = ["side", "binarise", corpus.data, "-s", "fw", "-t", "bw", "--trainpref", corpus.folder / "train", *options]
    assert main([*map(str, arguments), "--subwords-in", ".sub", "--subwords", "subword_nmt"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.startswith("posenc: ")
    assert not list(corpus.data.glob("*.heads.*")) and not list(corpus.data.glob("*.tmp"))
    return error


@pytest.mark.parametrize("kind", ALL)
def test_a_side_file_that_is_a_folder(corpus, reference, capsys, kind):
    path = corpus.folder / f"train.fw.{kind}"
    path.unlink()
    path.mkdir()
    assert f"{path}: this is a folder. Expected a file." in command(corpus, capsys)


def test_a_side_file_that_is_a_dangling_link(corpus, reference, capsys):
    path = corpus.folder / "train.fw.edges"
    path.unlink()
    path.symlink_to(corpus.folder / "nothing")
    assert f"{path}: cannot be read" in command(corpus, capsys)


@pytest.mark.parametrize("label", ["<pad>", "</s>", "<s>", "<unk>"])
def test_reserved_labels(corpus, reference, capsys, label):
    for kind, line in (("relations", f"{label} nsubj root det amod obj"), ("edges", f"2-1:{label}")):
        path = corpus.folder / f"train.fw.{kind}"
        before = path.read_text()
        path.write_text("\n".join([line, *before.split("\n")[1:]]))
        assert f"{path}, line 1: the label {label!r} is reserved" in command(corpus, capsys)
        path.write_text(before)


@pytest.mark.parametrize("kind", ["heads", "relations", "edges", "order", "order.source"])
def test_other_bytes_than_utf8(corpus, reference, capsys, kind):
    path = corpus.folder / f"train.fw.{kind}"
    path.write_bytes(b"2 \xff\n\n\n")
    assert f"{path}" in command(corpus, capsys) or kind == "order.source"


@pytest.mark.parametrize("kind", ["heads", "edges", "order"])
def test_numbers_of_many_digits(corpus, reference, capsys, kind):
    path = corpus.folder / f"train.fw.{kind}"
    digits = "9" * 5000
    path.write_text({"heads": digits, "edges": f"{digits}-1:a", "order": digits}[kind] + " 1 2 3 4 5\n\n\n")
    assert f"{path}, line 1" in command(corpus, capsys)


TREE = "1\ta\t_\t_\t_\t_\t0\troot\t0:root\t_\n"


@pytest.mark.parametrize(
    "content, words",
    [
        (gzip.compress((TREE + "\n").encode() * 200)[:-20], "damaged or truncated gzip"),
        (b"\x1f\x8b\x08", "damaged or truncated gzip"),
        (b"text", "damaged or truncated gzip"),
        (gzip.compress(TREE.encode().replace(b"root", b"\xff")), "not UTF-8 text"),
        (gzip.compress(TREE.replace("0\troot", "9" * 5000 + "\troot").encode()), "SIDE-FORMAT"),
        (gzip.compress(TREE.replace("1\ta", "9" * 5000 + "\ta").encode()), "SIDE-FORMAT"),
        (gzip.compress(TREE.replace("0:root", "9" * 5000 + ":root").encode()), "SIDE-FORMAT"),
        (gzip.compress(TREE.replace("\troot", "\t<pad>").encode()), "the label '<pad>' is reserved"),
    ],
    ids=["truncated", "header", "no gzip", "bytes", "head", "number", "graph", "reserved"],
)
def test_trees_that_are_damaged(tmp_path, capsys, content, words):
    (tmp_path / "trees.conllu.gz").write_bytes(content)
    (tmp_path / "text").write_text("a\n" * 200 if "truncated" in words else "a\n")
    assert main(["side", "trees", str(tmp_path / "trees.conllu.gz"), str(tmp_path / "text"), "--edges", "enhanced"]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1 and len(error) < 600
