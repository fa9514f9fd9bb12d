"""Convert CoNLL-U to side files: multiword tokens, empty nodes, graphs, roots, and texts that do not match."""

import gzip

import pytest

from fairseq_posenc.cli import main
from fairseq_posenc.core import PositionError
from fairseq_posenc.data.side.trees import Job, convert

#: (id, form, head, relation, enhanced dependencies) of every line
ZUM = [
    ("1", "Er", "2", "nsubj", "2:nsubj"),
    ("2", "geht", "0", "root", "0:root"),
    ("3-4", "zum", "_", "_", "_"),
    ("3", "zu", "5", "case", "5:case"),
    ("4", "dem", "5", "det", "5:det"),
    ("5", "Arzt", "2", "obl", "2:obl:zu:dat"),
]
#: "tea" is the object of a verb that is left out
GAP = [
    ("1", "She", "2", "nsubj", "2:nsubj"),
    ("2", "drinks", "0", "root", "0:root"),
    ("3", "25 000", "4", "nummod", "4:nummod"),
    ("4", "teas", "2", "obj", "2:obj|5.1:obj"),
    ("5", "he", "2", "conj", "5.1:nsubj"),
    ("5.1", "_", "_", "_", "2:conj"),
]


def conllu(*sentences, comments="# sent_id = 1\n"):
    def line(word):
        number, form, head, relation, enhanced = word
        return "\t".join([number, form, "_", "_", "_", "_", head, relation, enhanced, "_"]) + "\n"

    return "".join(comments + "".join(map(line, words)) + "\n" for words in sentences)


@pytest.fixture
def run(tmp_path):
    """Return a function that converts sentences of CoNLL-U. It returns the lines of every written file."""

    def convert_all(*sentences, text=None, source=None, workers=1, **options):
        path = tmp_path / "trees.conllu"
        path.write_text(conllu(*sentences) if source is None else source, encoding="utf-8")
        if text is not None:
            (tmp_path / "text.de").write_text("".join(line + "\n" for line in text))
        convert(Job(path, tmp_path / "text.de", write_text=text is None, **options), workers)
        kinds = ("", ".heads", ".relations", ".edges")
        files = {kind: tmp_path / f"text.de{kind}" for kind in kinds}
        return [files[kind].read_text().splitlines() if files[kind].exists() else None for kind in kinds]

    return convert_all


def test_words_are_syntactic_words(run):
    assert run(ZUM) == [["Er geht zu dem Arzt"], ["2 0 5 5 2"], ["nsubj root case det obl"], None]


def test_a_path_over_empty_nodes_is_one_edge(run):
    text, heads, _, edges = run(GAP, edges="enhanced")
    assert text == ["She drinks 25_000 teas he"] and heads == ["2 0 4 2 2"]
    assert edges == ["2-1:nsubj 0-2:root 4-3:nummod 2-4:obj 2-4:conj>obj 2-5:conj>nsubj"]
    assert run(GAP, edges="basic")[3] == ["2-1:nsubj 0-2:root 4-3:nummod 2-4:obj 2-5:conj"]


def test_empty_nodes_in_a_circle_end(run):
    circle = [("1", "a", "0", "root", "1.1:x|0:root"), ("1.1", "_", "_", "_", "1.2:y"), ("1.2", "_", "_", "_", "1.1:z|0:root")]
    assert run(circle, edges="enhanced")[3] == ["0-1:root>y>x 0-1:root"]


def test_an_empty_sentence_is_marked(run):
    source = conllu(ZUM) + "# empty\n\n" + conllu(ZUM)
    assert run(source=source, text=["Er geht zu dem Arzt", "", "Er geht zu dem Arzt"])[1] == ["2 0 5 5 2", "", "2 0 5 5 2"]


def test_a_text_that_is_there_is_compared_and_stays(run, tmp_path):
    assert run(ZUM, GAP, text=["Er geht zu dem Arzt", "She  drinks 25_000 teas he"])[1] == ["2 0 5 5 2", "2 0 4 2 2"]
    assert "She  drinks" in (tmp_path / "text.de").read_text()


def test_workers_and_gzip_give_the_same(run, tmp_path, monkeypatch):
    monkeypatch.setattr("fairseq_posenc.data.side.outputs.CHUNK", 2)
    sentences = [ZUM, GAP, GAP, ZUM, GAP, ZUM, ZUM]
    alone = run(*sentences, edges="enhanced")
    assert run(*sentences, edges="enhanced", workers=2) == alone
    (tmp_path / "trees.conllu.gz").write_bytes(gzip.compress(conllu(*sentences).encode()))
    convert(Job(tmp_path / "trees.conllu.gz", tmp_path / "zipped.de", write_text=True))
    assert (tmp_path / "zipped.de.heads").read_text().splitlines() == alone[1]


def changed(sentence, number, **changes):
    names = ("id", "form", "head", "relation", "enhanced")
    return [
        tuple(changes.get(name, value) for name, value in zip(names, word)) if word[0] == number else word for word in sentence
    ]


def empty_nodes(length, ways):
    """Return a sentence of one word with a chain of empty nodes. Each node has several dependencies on the node before it."""

    def node(n):
        head = f"1.{n - 1}" if n > 1 else "0"
        return f"1.{n}", "_", "_", "_", "|".join(f"{head}:r{way}" for way in range(ways))

    return [("1", "Er", "0", "root", f"1.{length}:nsubj"), *map(node, range(1, length + 1))]


WRONG = {
    "token": (
        [ZUM],
        {"text": ["Er geht zum Arzt"]},
        "SIDE-TOKEN",
        "word 3 is 'zu' (part of the multiword token 'zum'). Expected",
    ),
    "shorter": ([ZUM], {"text": ["Er geht zu dem"]}, "SIDE-TOKEN", "word 5 is 'Arzt'. Expected"),
    "longer": ([ZUM], {"text": ["Er geht zu dem Arzt ."]}, "SIDE-TOKEN", "word 6 is 'nothing'"),
    "fewer": ([ZUM, ZUM], {"text": ["Er geht zu dem Arzt"]}, "SIDE-LINES", "2 sentences. Expected 1"),
    "more": ([ZUM], {"text": ["Er geht zu dem Arzt", "Ja", "Nein"]}, "SIDE-LINES", "1 sentences. Expected 3"),
    "roots": ([changed(ZUM, "5", head="0")], {}, "TREE-ROOT", "words 2, 5 are roots"),
    "no root": ([changed(ZUM, "2", head="1")], {}, "TREE-ROOT", "there is no root"),
    "cycle": ([changed(ZUM, "5", head="3")], {}, "TREE-CYCLE", "3 -> 5 -> 3"),
    "range": ([changed(ZUM, "5", head="9")], {}, "TREE-RANGE", "the head of word 5 is 9"),
    "negative": ([changed(ZUM, "5", head="-1")], {}, "TREE-RANGE", "the head of word 5 is -1"),
    "self": ([changed(ZUM, "5", head="5")], {}, "TREE-SELF", "word 5 is its own head"),
    "no head": ([changed(ZUM, "5", head="_")], {}, "TREE-RANGE", "word 5 has no head"),
    "no number": ([changed(ZUM, "5", head="two")], {}, "SIDE-FORMAT", "two"),
    "numbers": ([changed(ZUM, "5", id="6")], {}, "SIDE-FORMAT", "wrong numbers in the first column"),
    "bad number": ([changed(ZUM, "5", id="x")], {}, "SIDE-FORMAT", "'x' is not a valid ID"),
    "blank": ([changed(ZUM, "5", form="\u00a0")], {}, "SIDE-FORMAT", "word 5 contains only blanks"),
    "no graph": ([changed(ZUM, "5", enhanced="_")], {"edges": "enhanced"}, "SIDE-FORMAT", "Use --edges basic"),
    "bad graph": ([changed(ZUM, "5", enhanced="2obl")], {"edges": "enhanced"}, "SIDE-FORMAT", "not an enhanced dependency"),
    "graph range": ([changed(ZUM, "5", enhanced="9:obl")], {"edges": "enhanced"}, "TREE-RANGE", "the word 9, which"),
    "graph node": ([changed(ZUM, "5", enhanced="9.1:obl")], {"edges": "enhanced"}, "TREE-RANGE", "the empty node 9.1, which"),
    "long path": ([empty_nodes(102, 1)], {"edges": "enhanced"}, "SIDE-FORMAT", "a path through more than 100 empty nodes"),
    "many paths": ([empty_nodes(40, 2)], {"edges": "enhanced"}, "SIDE-FORMAT", "more than 10,000 paths through empty nodes"),
    "columns": ([], {"source": "1\tEr\t2\n"}, "SIDE-FORMAT", "has 3 columns"),
    "nothing": ([], {"source": "# text = ?\n\n"}, "SIDE-FORMAT", "Expected the comment '# empty'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_line_and_leaves_nothing(run, tmp_path, name):
    sentences, options, code, message = WRONG[name]
    with pytest.raises(PositionError) as error:
        run(*sentences, **options)
    line = str(error.value)
    assert line.startswith(f"{code}: {tmp_path / 'trees.conllu'}") and message in line and "\n" not in line
    assert {path.name for path in tmp_path.iterdir()} <= {"trees.conllu", "text.de"}


def test_sentence_and_line_are_named(run, tmp_path):
    with pytest.raises(PositionError, match=r"trees\.conllu, sentence 3, line 17: the heads"):
        run(ZUM, ZUM, changed(ZUM, "5", head="3"))


def test_further_roots_can_hang_off_the_first(run):
    assert run(changed(ZUM, "5", head="0"), roots="first")[1] == ["2 0 5 5 2"]


def test_the_command(tmp_path, capsys):
    (tmp_path / "trees.conllu").write_text(conllu(ZUM, GAP))
    words = ["side", "trees", str(tmp_path / "trees.conllu"), str(tmp_path / "text.de")]
    assert main(words) == 2  # without a text
    assert capsys.readouterr().err == (
        f"posenc: {tmp_path}/text.de: cannot be read (No such file or directory). Expected a readable file. Check the path.\n"
    )
    assert main([*words, "--write-text", "--edges", "enhanced", "--workers", "2"]) == 0
    assert "2 sentences with heads, relations, edges" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["trees", "trees.heads"])
def test_the_trees_are_not_overwritten(tmp_path, capsys, text):
    trees = tmp_path / text
    trees.write_text(conllu(ZUM, GAP))
    (tmp_path / "trees").touch()
    assert main(["side", "trees", str(trees), str(tmp_path / "trees"), "--write-text"]) == 2
    line = capsys.readouterr().err
    assert f"{trees}: the command would overwrite this file, which is an input. Expected another file. Give another TEXT." in line
    assert trees.read_text() == conllu(ZUM, GAP)


def test_a_byte_order_mark_is_no_part_of_the_trees(run):
    assert run(ZUM, source="\ufeff" + conllu(ZUM)) == run(ZUM)


def test_two_blanks_do_not_divide_a_column(run):
    doubled = [(number, form.replace(" ", "  "), *rest) for number, form, *rest in GAP]
    assert run(doubled) == run(GAP)


def test_an_empty_column_is_one_line(run):
    source = conllu(ZUM).replace("2:nsubj\t_\n", "\t\n")
    with pytest.raises(PositionError, match="has an empty column"):
        run(ZUM, source=source, edges="enhanced")
