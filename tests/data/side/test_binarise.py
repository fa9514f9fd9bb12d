"""Side files next to the binary text: the written files, the loaded values, and the error code of every problem."""

import dataclasses

import numpy as np
import pytest

from fairseq_posenc.cli import main
from fairseq_posenc.core import PositionError
from fairseq_posenc.data.side.files import WORDS, SideError
from fairseq_posenc.host.side.binarise import binarise
from fairseq_posenc.host.side.load import Shuffled, SideFiles, sentences_of, split_names

from .conftest import EDGES, HEADS, ORDER, RELATIONS, SUBWORDS
from .conftest import WORDS as TEXT

ALL = ("heads", "relations", "edges", "order")


def made(corpus, *parts, **options):
    binarise(parts, corpus.data, **{"subwords": "subword_nmt", **options})


def relations(corpus):
    lines = (corpus.data / "dict.relations.txt").read_text().split("\n")
    return {line.split()[0]: 4 + number for number, line in enumerate(filter(None, lines))}


def test_a_sentence_comes_back(corpus, reference):
    made(corpus, reference)
    sentence = SideFiles(reference.data, ALL)[0]
    number = relations(corpus)
    assert set(number) == {*RELATIONS.split(), "friend"} and number["det"] == 4  # the most frequent relation
    assert sentence.words.tolist() == [0, 1, 2, 3, 4, 4, 5, 6]
    assert sentence.heads.tolist() == [1, 2, -1, 5, 5, 2, 2]  # </s> depends on "chased"
    assert sentence.relations.tolist() == [*(number[label] for label in RELATIONS.split()), 2]
    edges = [(1, 0, "det"), (2, 1, "nsubj"), (5, 3, "det"), (5, 4, "amod"), (2, 5, "obj"), (1, 5, "friend")]
    assert sentence.edges.tolist() == [[start, end, number[label]] for start, end, label in edges] + [[2, 6, 2]]
    assert sentence.order.tolist() == [0, 1, 3, 4, 5, 2, 6]


def test_short_sentences(corpus, reference):
    made(corpus, reference)
    one, empty = SideFiles(reference.data, ALL)[1], SideFiles(reference.data, ALL)[2]
    assert one.words.tolist() == [0, 0, 0, 1] and one.heads.tolist() == [-1, 0] and one.order.tolist() == [0, 1]
    assert one.edges.tolist() == [[0, 1, 2]] and one.relations.tolist()[1] == 2
    assert empty.words.tolist() == [0] and empty.heads.tolist() == [-1] and empty.order.tolist() == [0]
    assert empty.edges.shape == (0, 3) and empty.relations.tolist() == [2]


def test_kinds_that_nobody_reads_are_none(corpus, reference):
    made(corpus, reference)
    sentence = SideFiles(reference.data, ["heads"])[0]
    assert sentence.relations is sentence.edges is sentence.order is None and sentence.heads is not None


@pytest.mark.parametrize(
    "edges, root",
    [("2-1:a 0-3:root", 2), ("2-1:a 2-3:b", 1), ("1-2:a 2-3:b 3-1:c", 0), ("", 0)],
    ids=["marked", "not entered", "circle", "none"],
)
def test_without_a_tree_the_end_hangs_off_the_root_of_the_graph(corpus, edges, root):
    part = corpus.write("train", [("a b c", "a b c")], edges=[edges])
    made(corpus, part)
    assert SideFiles(part.data, ["edges"])[0].edges[-1].tolist() == [root, 3, 2]


def test_a_map_that_is_given_is_used(corpus):
    part = corpus.write("train", [("ab c", "a b c")], heads=["0 1"])
    with pytest.raises(SideError, match=r"SIDE-MAP: .*line 1: the subwords belong to 3 words, but the text has 2"):
        made(corpus, part)
    (corpus.folder / "train.sub.fw.words").write_text("1 1 2\n")
    made(corpus, part)
    assert SideFiles(part.data, ["heads"])[0].words.tolist() == [0, 0, 1, 2]
    (corpus.folder / "train.sub.fw.words").write_text("1 2\n")
    with pytest.raises(SideError, match=r"SIDE-MAP: .*train\.sub\.fw\.words, line 1: 2 word numbers for 3 subwords"):
        made(corpus, part)


def test_workers_give_the_same(corpus, monkeypatch):
    monkeypatch.setattr("fairseq_posenc.data.side.outputs.CHUNK", 2)
    rows = [(" ".join("abcdefg"[:n]), " ".join("abcdefg"[:n])) for n in range(8)]
    part = corpus.write("train", rows, heads=[" ".join(map(str, range(n))) for n in range(8)])
    files = []
    for workers in (1, 2):
        made(corpus, part, workers=workers)
        files.append({path.name: path.read_bytes() for path in corpus.data.iterdir()})
    assert files[0] == files[1] and "train.fw-bw.fw.heads.idx" in files[0]
    assert [row.heads.tolist() for row in map(SideFiles(part.data, ["heads"]).__getitem__, range(3))] == [
        [-1],
        [-1, 0],
        [-1, 0, 0],
    ]


# --- relations ---


def test_relations_of_other_parts_have_the_numbers_of_train(corpus, reference, capsys):
    valid = corpus.write(
        "valid",
        [("a b", "a b")],
        heads=["0 1"],
        relations=["root new"],
        edges=["1-2:det"],
        order=["0 1"],
        order_source=["made up"],
    )
    made(corpus, reference, valid)
    number = relations(corpus)
    assert SideFiles(valid.data, ["relations"])[0].relations.tolist() == [number["root"], 3, 2]
    assert "valid: 1 relations are not in dict.relations.txt and count as unknown: 'new'" in capsys.readouterr().out
    before = (corpus.data / "dict.relations.txt").read_bytes()
    made(corpus, valid)  # later, in a separate command
    assert (corpus.data / "dict.relations.txt").read_bytes() == before
    assert SideFiles(valid.data, ["relations"])[0].relations.tolist() == [number["root"], 3, 2]


def test_rare_relations_are_unknown(corpus, reference):
    made(corpus, reference, min_count=2)
    assert set(relations(corpus)) == {"det", "root"}  # all other labels belong to one word each
    given = corpus.data / "dict.relations.txt"
    with pytest.raises(PositionError, match=r"--min-count 2: no effect, because the labels are read from .*relations\.txt\."):
        made(corpus, reference, min_count=2, relations=given)
    unlabelled = corpus.write("valid", [("a", "a")], heads=["0"])
    with pytest.raises(PositionError, match=r"--min-count 2: no effect, because the side files contain no labels\."):
        made(corpus, unlabelled, min_count=2)


def test_a_label_of_a_tree_and_of_its_edges_counts_once(corpus, capsys):
    part = corpus.write(
        "train",
        [("a b c", "a b c")],
        heads=["0 1 1"],
        relations=["root det det"],
        edges=["0-1:root 1-2:det 1-3:det 2-3:friend 3-2:friend 1-2:friend"],
    )
    made(corpus, part)
    assert (corpus.data / "dict.relations.txt").read_text() == "friend 3\ndet 2\nroot 1\n"
    made(corpus, part, min_count=3)
    assert set(relations(corpus)) == {"friend"}
    assert "train: 3 relations are not in dict.relations.txt and count as unknown: 'det', 'root'" in capsys.readouterr().out


def test_another_dictionary_would_leave_other_parts_behind(corpus, reference):
    valid = corpus.write("valid", [("a", "a")], relations=["root"])
    made(corpus, dataclasses.replace(reference, text=valid.text, subwords=valid.subwords, data=valid.data), valid)
    with pytest.raises(
        PositionError,
        match=r"valid\.fw-bw\.fw\.relations\.idx: the file was created with the earlier "
        r"relations .*one command",
    ):
        made(corpus, reference)


def test_without_train_the_relations_must_be_there(corpus):
    part = corpus.write("test", [("a", "a")], relations=["root"])
    with pytest.raises(SideError, match=r"SIDE-MISSING: .*dict\.relations\.txt: .*Add --trainpref or --relations"):
        made(corpus, part)
    (corpus.folder / "given.txt").write_text("nsubj 3\nroot 2\n")
    made(corpus, part, relations=corpus.folder / "given.txt")
    assert SideFiles(part.data, ["relations"])[0].relations.tolist() == [5, 2]


# --- files that do not fit ---


def broken(corpus, **kinds):
    """Return the reference corpus. `kinds` replaces the lines of some side files."""
    lines = {"heads": [HEADS], "relations": [RELATIONS], "edges": [EDGES], "order": [ORDER], "order_source": ["made up"], **kinds}
    return corpus.write("train", [(TEXT, SUBWORDS)], **lines)


@pytest.mark.parametrize(
    "kinds, code, words",
    [
        ({"heads": ["2 3 0 6 6"]}, "SIDE-LEN", ["train.fw.heads, line 1", "5 heads for the 6 words"]),
        ({"heads": [HEADS, HEADS]}, "SIDE-LINES", ["train.fw.heads", "2 lines, but", "has 1 sentences"]),
        ({"heads": []}, "SIDE-LINES", ["train.fw.heads", "0 lines, but"]),
        ({"heads": ["2 3 0 6 6 7"]}, "TREE-RANGE", ["train.fw.heads, line 1", "word 6 is 7"]),
        ({"heads": ["2 3 0 6 6 6"]}, "TREE-SELF", ["word 6"]),
        ({"heads": ["2 3 6 6 6 3"]}, "TREE-ROOT", ["there is no root"]),
        ({"heads": ["2 3 0 6 6 0"]}, "TREE-ROOT", ["words 3, 6", "--roots first"]),
        ({"heads": ["2 1 0 6 6 3"]}, "TREE-CYCLE", ["1 -> 2 -> 1"]),
        ({"relations": ["det"]}, "SIDE-LEN", ["train.fw.relations, line 1", "1 relations"]),
        ({"edges": ["2-1"]}, "SIDE-FORMAT", ["train.fw.edges, line 1", "not an edge"]),
        ({"edges": ["2-7:det"]}, "TREE-RANGE", ["words from 1 to 6"]),
        ({"order": ["0 1 2 3 4 4"]}, "ORDER-PERM", ["train.fw.order, line 1", "word 5 is missing"]),
        ({"order": ["0 1"]}, "SIDE-LEN", ["2 places for the 6 words"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_line_is_named_and_nothing_is_written(corpus, kinds, code, words):
    part = broken(corpus, **kinds)
    before = set(corpus.data.iterdir())
    with pytest.raises(SideError) as error:
        made(corpus, part)
    line = str(error.value)
    assert line.startswith(f"{code}: ") and all(word in line for word in words) and "\n" not in line, line
    assert set(corpus.data.iterdir()) == before


def test_several_roots_can_be_joined(corpus):
    part = broken(corpus, heads=["2 3 0 6 6 0"])
    made(corpus, part, roots="first")
    assert SideFiles(part.data, ["heads"])[0].heads.tolist() == [1, 2, -1, 5, 5, 2, 2]


def test_subwords_must_be_those_of_the_data(corpus):
    part = broken(corpus)
    part.subwords.write_text("The cat chased a small dog\n")
    with pytest.raises(
        SideError,
        match=r"SIDE-MAP: .*line 1: 6 subwords, but .*train.fw-bw.fw has 7\. "
        r"Expected the text of fairseq-preprocess",
    ):
        made(corpus, part)
    part.subwords.write_text("The cat chased a sm all dog\n")
    with pytest.raises(SideError, match=r"SIDE-MAP: .*the subwords belong to 7 words, but the text has 6"):
        made(corpus, part)


def test_what_is_missing_is_named(corpus, reference):
    valid = corpus.write("valid", [("a", "a")], heads=["0"])
    with pytest.raises(SideError, match=r"SIDE-MISSING: .*valid\.fw\.relations: no such file"):
        made(corpus, reference, valid)
    with pytest.raises(SideError, match=r"SIDE-MISSING: .*test\.fw: no side files\. .*posenc side trees"):
        made(corpus, corpus.write("test", [("a", "a")]))
    (corpus.data / "valid.fw-bw.fw.idx").unlink()
    with pytest.raises(SideError, match=r"SIDE-MISSING: .*valid\.fw-bw\.fw\.idx: .*Run fairseq-preprocess first"):
        made(corpus, valid)


def test_orders_come_from_one_source(corpus, reference):
    rows = {"heads": ["0"], "relations": ["root"], "edges": [""], "order": ["0"]}
    with pytest.raises(SideError, match=r"SIDE-MISSING: .*valid\.fw\.order\.source: .*posenc side order"):
        made(corpus, reference, corpus.write("valid", [("a", "a")], **rows))
    valid = corpus.write("valid", [("a", "a")], **rows, order_source=["another"])
    message = r"different sources: 'made up' in .*train\.fw\.order\.source and 'another' in .*valid\.fw\.order\.source"
    with pytest.raises(PositionError, match=message):
        made(corpus, reference, valid)
    made(corpus, reference)
    with pytest.raises(PositionError, match=r"different sources: .*'made up' in .*order\.source\.txt"):
        made(corpus, valid)  # later, in a separate command
    assert (corpus.data / "order.source.txt").read_text() == "made up\n"


# --- reading ---


def test_files_that_do_not_fit_the_text_are_refused(corpus, reference):
    with pytest.raises(SideError, match=r"SIDE-MISSING: .*train\.fw-bw\.fw\.heads\.idx: .*posenc side binarise"):
        SideFiles(reference.data, ["heads"])
    made(corpus, reference)
    corpus.write("train", [(TEXT, SUBWORDS)])  # the text is binarised again
    with pytest.raises(SideError, match=r"SIDE-CHANGED: .*: the text changed after posenc side binarise\. .* again"):
        SideFiles(reference.data, ["heads"])
    corpus.write("train", [(TEXT, TEXT), ("Yes", "Y@@ e@@ s"), ("", "")])  # the text is binarised again, with other subwords
    with pytest.raises(SideError, match=r"SIDE-CHANGED: .*: the text changed after posenc side binarise"):
        SideFiles(reference.data, ["heads"])


def test_combined_parts_follow_fairseq(corpus, reference):
    second = corpus.write("train1", [("a b", "a b")], heads=["2 0"])
    for kind in ("relations", "edges", "order"):
        (corpus.folder / f"train.fw.{kind}").unlink()
    made(corpus, reference, second)
    sentences = sentences_of([reference.data, second.data], {"heads"}, upsample_primary=2)
    assert len(sentences) == 7
    assert [len(sentences[number].heads) for number in range(7)] == [7, 2, 1, 7, 2, 1, 3]


def test_random_structure_keeps_the_shape(corpus, reference):
    made(corpus, reference)
    real = SideFiles(reference.data, ALL)
    one, again, other = (Shuffled(real, seed)[0] for seed in (1, 1, 2))
    for field in ALL:
        assert np.array_equal(getattr(one, field), getattr(again, field))
        assert not all(np.array_equal(getattr(one, field), getattr(x, field)) for x in (real[0], other))
    assert np.array_equal(one.words, real[0].words)

    def depths(heads):
        return sorted(sum(1 for _ in walk(heads, word)) for word in range(len(heads)))

    def walk(heads, word):
        while heads[word] >= 0:
            yield (word := heads[word])

    assert depths(one.heads) == depths(real[0].heads) and (one.heads >= 0).sum() == 6
    assert one.heads[-1] == np.flatnonzero(one.heads < 0)[0]  # </s> is still last, and depends on the root
    moved = {(real[0].relations[w], tuple(sorted(real[0].relations[real[0].heads == w]))) for w in range(7)}
    assert moved == {(one.relations[w], tuple(sorted(one.relations[one.heads == w]))) for w in range(7)}
    assert sorted(one.order.tolist()) == list(range(7)) and one.order[-1] == 6
    assert {tuple(edge) for edge in one.edges.tolist() if edge[2] != relations(corpus)["friend"]} == {
        (head, word, relation)
        for word, (head, relation) in enumerate(zip(one.heads.tolist(), one.relations.tolist()))
        if head >= 0
    }
    for number in (1, 2):
        assert Shuffled(real, 5)[number].heads.tolist() == real[number].heads.tolist()


# --- commands ---


def test_the_commands(corpus, reference, capsys):
    words = ["side", "binarise", corpus.data, "-s", "fw", "-t", "bw", "--subwords", "subword_nmt", "--subwords-in", ".sub"]
    words = [str(word) for word in words]
    assert main(words) == 2
    assert "posenc: posenc side binarise: no text" in capsys.readouterr().err
    assert main([*words, "--trainpref", str(corpus.folder / "train")]) == 0
    assert "train: 3 sentences with heads, relations, edges, order" in capsys.readouterr().out
    assert (corpus.data / f"train.fw-bw.fw.{WORDS}.idx").is_file()


def test_data_of_the_reverse_direction_has_its_own_names(corpus, reference, capsys):
    """fairseq-preprocess wrote bw-fw. fairseq also loads this data with -s fw -t bw."""
    for path in [*corpus.data.glob("train.fw-bw.*")]:
        path.rename(path.with_name(path.name.replace("fw-bw", "bw-fw")))
    words = ["side", "binarise", str(corpus.data), "-s", "fw", "-t", "bw", "--trainpref", str(corpus.folder / "train")]
    assert main([*words, "--subwords", "subword_nmt", "--subwords-in", ".sub"]) == 0, capsys.readouterr().err
    (prefix,) = split_names(corpus.data, "train", ("fw", "bw"), False)
    assert prefix == corpus.data / "train.bw-fw.fw" and len(SideFiles(prefix, ["heads", "edges"])[0]) == 7


def test_orders_of_alignments_and_of_a_preorderer(tmp_path, capsys):
    (tmp_path / "text").write_text("I have a pen .\nno\n")
    (tmp_path / "links").write_text("0-0 0-1 1-4 1-5 3-2 4-6\n\n")
    (tmp_path / "given").write_text("0 1 2 3 4\n0\n")
    assert main(["side", "order", f"{tmp_path}/text", "--links", f"{tmp_path}/links"]) == 0
    assert "2 sentences, Kendall's tau 0.9000, fuzzy reordering score 0.7500" in capsys.readouterr().out
    assert (tmp_path / "text.order").read_text() == "0 3 1 2 4\n0\n"
    assert (tmp_path / "text.order.source").read_text() == "word alignments with the target (oracle)\n"
    assert main(["side", "compare", f"{tmp_path}/given", f"{tmp_path}/text.order"]) == 0
    assert "2 sentences, Kendall's tau 0.9000, fuzzy reordering score 0.7500" in capsys.readouterr().out
    assert main(["side", "order", f"{tmp_path}/text", "--order", f"{tmp_path}/given"]) == 2
    assert "--order: --source is missing" in capsys.readouterr().err
    assert main(["side", "order", f"{tmp_path}/text", "--order", f"{tmp_path}/given", "--source", "btg"]) == 0
    assert (tmp_path / "text.order.source").read_text() == "btg\n"
    (tmp_path / "given").write_text("0 1 2 2 4\n0\n")
    assert main(["side", "order", f"{tmp_path}/text", "--order", f"{tmp_path}/given", "--source", "btg"]) == 2
    assert f"ORDER-PERM: {tmp_path}/given, line 1: word 3 is missing" in capsys.readouterr().err
    assert (tmp_path / "text.order").read_text() == "0 1 2 3 4\n0\n"  # existing files are not changed
    (tmp_path / "given").write_text("0 1 2 3 4\n")
    assert main(["side", "order", f"{tmp_path}/text", "--order", f"{tmp_path}/given", "--source", "btg"]) == 2
    assert f"SIDE-LINES: {tmp_path}/given: 1 lines. Expected 2, as in {tmp_path}/text." in capsys.readouterr().err


def test_alignments_are_not_overwritten_but_orders_may_stay_in_their_file(tmp_path, capsys):
    given = tmp_path / "text.order"
    (tmp_path / "text").write_text("I have\n")
    given.write_text("0-1 1-0\n")
    assert main(["side", "order", f"{tmp_path}/text", "--links", str(given)]) == 2
    assert f"{given}: the command would overwrite this file, which is an input." in capsys.readouterr().err
    assert given.read_text() == "0-1 1-0\n"
    given.write_text("1 0\n")
    assert main(["side", "order", f"{tmp_path}/text", "--order", str(given), "--source", "btg"]) == 0
    assert given.read_text() == "1 0\n" and (tmp_path / "text.order.source").read_text() == "btg\n"
