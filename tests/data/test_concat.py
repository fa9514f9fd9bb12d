"""posenc concat: consecutive sentences in one line."""

import itertools

import pytest

from fairseq_posenc.cli import main
from fairseq_posenc.data.corpora.concat import mixed


@pytest.fixture
def corpus(tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"test.{language}").write_text("".join(f"{language}{number} .\n" for number in range(1, 66)))
    return tmp_path


def concat(corpus, *options, output="out/test"):
    return main(["concat", str(corpus / "test"), str(corpus / output), "-s", "en", "-t", "de", *options])


def lines(corpus, ending, output="out/test"):
    return (corpus / f"{output}.{ending}").read_text().splitlines()


def test_all_test_sets_have_the_same_words(corpus):
    assert concat(corpus, "--sentences", "1-6") == 0
    for number in range(1, 7):
        for language in ("en", "de"):
            found = lines(corpus, f"k{number}.{language}")
            assert len(found) == 60 // number
            sentences = [sentence for line in found for sentence in line.split(" <sep> ")]
            assert sentences == [f"{language}{line} ." for line in range(1, 61)]
        assert lines(corpus, f"k{number}.lines") == [f"{first}\t{number}" for first in range(1, 61, number)]
    assert lines(corpus, "k2.en")[0] == "en1 . <sep> en2 ."


def test_without_a_separator(corpus):
    assert concat(corpus, "--sentences", "1,3", "--separator", "", "--lines", "6") == 0
    assert lines(corpus, "k3.de") == ["de1 . de2 . de3 .", "de4 . de5 . de6 ."]
    assert not (corpus / "out" / "test.k2.de").exists()


def test_training_text_has_each_line_once_an_epoch(corpus):
    assert concat(corpus, "--mix", "1-3", "--seed", "5", "--epoch", "1-2") == 0
    groups = [tuple(map(int, row.split("\t"))) for row in lines(corpus, "lines")]
    used = [line for first, number in groups for line in range(first, first + number)]
    assert sorted(used) == sorted([*range(1, 66)] * 2)
    for language in ("en", "de"):
        expected = [" <sep> ".join(f"{language}{line} ." for line in range(first, first + n)) for first, n in groups]
        assert lines(corpus, language) == expected
    assert {number for _, number in groups} == {1, 2, 3}
    assert concat(corpus, "--mix", "1-3", "--seed", "5", "--epoch", "2", output="second") == 0
    assert lines(corpus, "lines", "second") == lines(corpus, "lines")[-len(lines(corpus, "lines", "second")) :]


def test_numbers_have_equal_shares_of_the_lines():
    groups = list(mixed(60000, [1, 2, 3, 6], 1, 1))
    assert len(groups) < 60000
    for number in (1, 2, 3, 6):
        share = sum(n for _, n in groups if n == number) / 60000
        assert share == pytest.approx(0.25, abs=0.01)
    assert list(mixed(60000, [1, 2, 3, 6], 1, 1)) == groups != list(mixed(60000, [1, 2, 3, 6], 1, 2))
    assert list(itertools.islice(mixed(9, [1], 3, 1), 99)) == [
        (first % 9, 1) for first in range(groups_begin(9), groups_begin(9) + 9)
    ]


def groups_begin(lines):
    return next(mixed(lines, [1], 3, 1))[0]


@pytest.mark.parametrize(
    "options, says",
    [
        (["--sentences", "1-6", "--lines", "61"], "--lines 61 is not allowed. Expected a multiple of 60"),
        (["--sentences", "1-6", "--lines", "120"], "has 65 lines. Expected at least 120"),
        (["--sentences", "7-11"], "has 65 lines. Expected at least 27720"),
        (["--sentences", "0-2"], "--sentences 0-2 is not allowed. Expected numbers from 1 to 1000"),
        (["--sentences", "3-1"], "--sentences 3-1 is not allowed"),
        (["--sentences", "1,1"], "contains a number twice"),
        (["--sentences", "x"], "--sentences x is not allowed"),
        (["--mix", "1-2", "--seed", "-1"], "--seed -1 is not allowed"),
        (["--mix", "1-2", "--epoch", "a"], "--epoch a is not allowed"),
        (["--mix", "1-70"], "--mix 1-70 uses 65. Expected from 70 to 65 lines"),
        (["--sentences", "1", "--seed", "3"], "--seed and --epoch are options of --mix"),
        (["--sentences", "1", "--separator", "a b"], "contains a blank"),
        (["--sentences", "1", "--separator", "<s;>"], "is not allowed. Expected a token without + , ;"),
        (["--sentences", "1", "--separator", "</s>"], "'</s>' is not allowed"),
        (["--sentences", "1", "--separator", "."], "line 1: contains the separator '.'"),
        (["--sentences", "1", "--mix", "1"], "not allowed with argument"),
        ([], "one of the arguments --sentences --mix is required"),
        (["--sentences", "1", "--target", "lines"], "the output files would have equal names"),
    ],
)
def test_what_is_refused(corpus, capsys, options, says):
    assert concat(corpus, *options) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
    assert not (corpus / "out").exists()


@pytest.mark.parametrize("options, output", [(["--mix", "1-2"], "test"), (["--sentences", "1-2"], "out/test")])
def test_no_input_is_overwritten(corpus, capsys, options, output):
    (corpus / "out").mkdir()
    for name in ("test.k2.en", "test.lines"):
        (corpus / "out" / name).hardlink_to(corpus / "test.en")
    before = (corpus / "test.en").read_text()
    assert concat(corpus, *options, output=output) == 2
    line = capsys.readouterr().err
    assert "the command would overwrite this file, which is an input" in line and "another OUT" in line and line.count("\n") == 1
    assert (corpus / "test.en").read_text() == before and not (corpus / "out" / "test.k1.en").exists()


@pytest.mark.parametrize(
    "text, says",
    [
        ("a\n" * 64, "the two sides have different numbers of lines"),
        ("a\n" * 9 + "\n" + "a\n" * 55, "line 10: empty"),
        ("a\n" * 9 + "b <sep> c\n" + "a\n" * 55, "line 10: contains the separator '<sep>'"),
        ("a\n" * 9 + "b<sep>c\n" + "a\n" * 55, "line 10: contains the separator '<sep>'"),
        (None, "no such file"),
    ],
)
def test_damaged_text(corpus, capsys, text, says):
    path = corpus / "test.de"
    path.unlink() if text is None else path.write_text(text)
    assert concat(corpus, "--sentences", "1-2") == 2
    assert says in capsys.readouterr().err
