"""The user's parser is called once per piece of the text. Several calls can run in parallel.

Completed pieces are not parsed again.
"""

import io
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from fairseq_posenc.cli import main
from fairseq_posenc.core import PositionError
from fairseq_posenc.data.side.parsing import parse
from fairseq_posenc.data.side.trees import Job, convert

ROOT = Path(__file__).parents[3]
#: a parser in which every word depends on the word before it. A line "stop" ends it. Every call appends its first sentence to
#: `calls`
PARSER = """
import sys
sentences = sys.stdin.readlines()
open("calls", "a").write(sentences[0])
for sentence in sentences:
    if sentence.strip() == "stop":
        sys.exit("no model")
    if sentence.strip() == "skip":
        continue
    for number, word in enumerate(sentence.split()):
        print(number + 1, word, "_", "_", "_", "_", number, "dep" if number else "root", "_", "_", sep="\\t")
    print()
"""


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parser.py").write_text(PARSER)
    (tmp_path / "text.en").write_text("a b c\n\nd e\nf\ng h i j\nk\n")
    return tmp_path / "text.en"


def command():
    return f"{sys.executable} parser.py"


def calls(text):
    path = text.with_name("calls")
    return sorted(path.read_text().splitlines())


def test_every_line_has_its_tree(text):
    assert parse(text, command(), workers=2, lines=2) == text.with_name("text.en.conllu")
    assert calls(text) == ["a b c", "f", "k"]  # five sentences in pieces of two. The empty sentence needs no parser
    assert convert(Job(text.with_name("text.en.conllu"), text)) == 6
    assert text.with_name("text.en.heads").read_text() == "0 1 2\n\n0 1\n0\n0 1 2 3\n0\n"
    assert not text.with_name("text.en.parsed").exists()


class FakeWord:
    """A word of spaCy. Every access to `head` returns another object, as in spaCy 3."""

    def __init__(self, words, heads, i):
        self.words, self.heads, self.i, self.text = words, heads, i, words[i]
        self.pos_, self.dep_ = "X", "ROOT" if heads[i] == i else "dep"

    @property
    def head(self):
        return FakeWord(self.words, self.heads, self.heads[self.i])


def test_the_program_for_spacy_on_the_page_writes_trees(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "howto" / "use_trees.md").read_text(encoding="utf-8")
    program = next(block for block in page.split("```text\n") if block.startswith("import sys, spacy")).partition("```")[0]

    class Pipeline:
        vocab = None

        def __call__(self, words):
            return [FakeWord(words, [*range(1, len(words)), len(words) - 1], i) for i in range(len(words))]

    spacy = ModuleType("spacy")
    spacy.tokens = SimpleNamespace(Doc=lambda vocab, words, sent_starts: words)
    spacy.load = lambda name: Pipeline()
    monkeypatch.setitem(sys.modules, "spacy", spacy)
    monkeypatch.setattr(sys, "stdin", io.StringIO("two dogs run\nhi\n"))
    exec(compile(program, "parser.py", "exec"), {})
    trees, text = tmp_path / "trees", tmp_path / "text"
    trees.write_text(capsys.readouterr().out)
    convert(Job(trees, text, write_text=True))
    assert text.with_name("text.heads").read_text() == "2 3 0\n0\n"


def test_the_parser_reads_the_words_of_fairseq(text):
    """fairseq splits text at every whitespace character of Unicode. Some parsers split only at the ASCII space."""
    text.write_text("25\u00a0000 b\u2003c\n")
    (text.parent / "parser.py").write_text(PARSER.replace(".split()", '.rstrip().split(" ")'))
    convert(Job(parse(text, command()), text))
    assert text.with_name("text.en.heads").read_text() == "0 1 2 3\n"


def test_after_a_failure_the_same_command_goes_on(text):
    sentences = text.read_text()
    text.write_text(sentences.replace("f\n", "stop\n"))
    with pytest.raises(PositionError, match=r"the parser failed with exit status 1\. For its messages, see .*000001\.errors"):
        parse(text, command(), lines=2)
    assert "no model" in (text.with_name("text.en.parsed") / "000001.errors").read_text()
    text.with_name("parser.py").write_text(PARSER.replace('"stop"', '"never"'))
    parse(text, command(), lines=2)
    assert calls(text).count("a b c") == 1 and calls(text).count("stop") == 2  # the first piece was complete
    text.write_text(sentences)  # for another text, no piece of the first text is used
    parse(text, command(), lines=2)
    assert calls(text).count("a b c") == 2


#: a piece with the sentence "f" is not parsed before the file "go" exists
SLOW = PARSER.replace("import sys\n", "import os, sys, time\n").replace(
    '    if sentence.strip() == "skip":',
    '    while sentence.strip() == "f" and not os.path.exists("go"):\n        time.sleep(0.01)\n'
    '    if sentence.strip() == "skip":',
)


def test_after_a_kill_the_same_command_goes_on(text):
    """The parser of the killed command still runs. Its output is not used."""
    text.with_name("parser.py").write_text(SLOW)
    words = ["side", "parse", str(text), "--command", command(), "--lines", "2"]
    killed = subprocess.Popen([sys.executable, "-m", "fairseq_posenc.cli", *words], env={**os.environ, "PYTHONPATH": str(ROOT)})
    end = time.monotonic() + 60
    while not (text.with_name("calls").exists() and "f" in calls(text)):
        assert killed.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert (text.with_name("text.en.parsed") / "000000.conllu").is_file() and not text.with_name("text.en.conllu").exists()
    text.with_name("go").touch()
    assert main(words) == 0
    assert calls(text) == ["a b c", "f", "f", "k"]
    assert convert(Job(text.with_name("text.en.conllu"), text)) == 6


def test_a_sentence_that_is_left_out_is_named(text):
    text.write_text("a b\nskip\n")
    with pytest.raises(PositionError, match=r"the parser wrote 1 trees for 2 sentences"):
        parse(text, command())
    assert not text.with_name("text.en.conllu").exists()


def test_the_command(text, capsys):
    assert main(["side", "parse", str(text), "--command", command(), "--workers", "2", "--lines", "3"]) == 0
    assert "text.en.conllu: done" in capsys.readouterr().out
