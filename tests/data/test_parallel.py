"""Parallel text of the user: what is read and written, and which errors are raised."""

import gzip
import os

import pytest

from fairseq_posenc.cli import main
from fairseq_posenc.data.text import LONGEST_LINE

SOURCE = ["Uma casa.", "O rio é largo.", "Bom dia!"]
TARGET = ["A house.", "The river is wide.", "Good morning!"]


def text(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def corpus(tmp_path):
    """Write training text, validation text and two test sets. One test set has three references."""
    for part in ("train", "valid", "web", "news"):
        text(tmp_path / f"{part}.pt-BR", [f"{part} {line}" for line in SOURCE])
        text(tmp_path / f"{part}.en", [f"{part} {line}" for line in TARGET])
    for number in (1, 2):
        text(tmp_path / f"news.en.{number}", [f"{number} {line}" for line in TARGET])
    return tmp_path


def run(corpus, *options, tests=("web", "news"), source="pt-BR", target="en"):
    given = [f"{name}={corpus}/{name}" if "=" not in name and not name.startswith("wmt") else name for name in tests]
    arguments = ["--train", f"{corpus}/train", "--valid", f"{corpus}/valid", "--tests", *given]
    return main(["data", "parallel", str(corpus / "out"), *arguments, "--source", source, "--target", target, *options])


def refusal(capsys, *arguments, **options):
    assert run(*arguments, **options) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


def read(path):
    return path.read_text(encoding="utf-8").splitlines()


def test_the_parts_are_written_with_codes_that_fairseq_reads(corpus, capsys):
    assert run(corpus, "--codes", "pt", "en", "--name", "my corpus") == 0
    out = corpus / "out"
    assert read(out / "train.pt") == [f"train {line}" for line in SOURCE] and read(out / "web.en") == [
        f"web {line}" for line in TARGET
    ]
    assert (out / "corpus.txt").read_text() == "my corpus pt-BR-en\n" and (out / "pairs").read_text() == "3\n"
    assert read(out / "news.en.2") == [f"2 {line}" for line in TARGET] and not (out / "web.en.1").exists()
    assert capsys.readouterr().out == f"{out}: train 3, valid 3, web 3, news 3 sentence pairs\n"


def test_without_codes_dashes_become_underscores(corpus):
    assert run(corpus) == 0
    assert {path.name for path in (corpus / "out").glob("valid.*")} == {"valid.pt_BR", "valid.en"}


def test_gzipped_files_are_read(corpus):
    for name in ("train.pt-BR", "news.en.1"):
        (corpus / f"{name}.gz").write_bytes(gzip.compress((corpus / name).read_bytes()))
        (corpus / name).unlink()
    assert run(corpus) == 0
    assert len(read(corpus / "out" / "train.pt_BR")) == len(read(corpus / "out" / "news.en.1")) == 3


def test_only_a_line_feed_ends_a_line(corpus):
    (corpus / "web.en").write_bytes("\ufeffa\rb\u2028c \t d\nx\x85y\nz".encode())
    assert run(corpus) == 0
    assert (corpus / "out" / "web.en").read_text(encoding="utf-8") == "a b c d\nx y\nz\n"


def test_test_sentences_in_the_training_text_are_counted(corpus, capsys):
    text(corpus / "web.pt-BR", [f"train {SOURCE[0]}", "new", f"  train  {SOURCE[2]}"])
    assert run(corpus) == 0
    assert "WARNING: 2 of 3 sentences of test set web are in the training text" in capsys.readouterr().out


def test_pairs_with_an_empty_side_are_refused_or_left_out(corpus, capsys):
    text(corpus / "train.en", [f"train {TARGET[0]}", " \t", f"train {TARGET[2]}"])
    line = refusal(capsys, corpus)
    assert "1 pairs have an empty side, the first is line 2. Expected none. To remove these pairs, use DROP_EMPTY=1" in line
    assert run(corpus, "--drop-empty") == 0
    assert read(corpus / "out" / "train.pt_BR") == [f"train {SOURCE[0]}", f"train {SOURCE[2]}"]
    # the file contains the number of sentence pairs before empty pairs are removed. Defaults depend on this number
    assert (corpus / "out" / "pairs").read_text() == "3\n"
    assert "train: 1 pairs with an empty side are left out" in capsys.readouterr().out
    text(corpus / "web.en", [TARGET[0], "", TARGET[2]])
    assert "Correct the test set" in refusal(capsys, corpus, "--drop-empty")


def test_after_an_error_the_earlier_text_is_unchanged(corpus, capsys):
    assert run(corpus) == 0
    before = read(corpus / "out" / "train.en")
    with (corpus / "train.en").open("a") as file:
        file.write("one more\n")
    refusal(capsys, corpus)
    assert read(corpus / "out" / "train.en") == before and not list((corpus / "out").glob("*.tmp"))


@pytest.mark.parametrize("longer", ["train.pt-BR", "web.en", "news.en.2"])
def test_sides_of_unequal_length_are_refused_with_all_counts(corpus, capsys, longer):
    with (corpus / longer).open("a") as file:
        file.write("one more\nand one\n")
    line = refusal(capsys, corpus)
    assert "the two sides have different numbers of lines" in line and f"{longer} has 5" in line and "has 3" in line


def broken(corpus, kind):
    path = corpus / "train.en"
    if kind == "missing":
        path.unlink()
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    elif kind == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif kind == "latin-1":
        path.write_bytes("A house.\nÄrger\nx\n".encode("latin-1"))
    elif kind == "long":
        path.write_text("x" * (LONGEST_LINE + 1) + "\n")
    else:
        path.unlink()
        zipped = gzip.compress(b"\n" * 2**20)
        (corpus / "train.en.gz").write_bytes(zipped[: 40 if kind == "truncated" else None])
        if kind == "newlines":
            text(corpus / "train.pt-BR", [""] * 3)
            (corpus / "train.pt-BR").write_bytes(b"\n" * 2**20)


@pytest.mark.parametrize(
    "kind, line",
    [
        ("missing", "train.en: no such file. Expected text, one sentence per line, in this file or in the same file with .gz."),
        ("folder", "train.en: not a regular file"),
        ("pipe", "train.en: not a regular file"),
        (
            "latin-1",
            "train.en, line 2: not UTF-8 text, from byte 0 of the line. Expected UTF-8. Convert it",
        ),
        ("long", "train.en, line 1: more than 16,777,216 bytes"),
        ("truncated", "train.en.gz: damaged or truncated gzip, after line "),
    ],
)
def test_a_file_that_is_not_text_is_one_line(corpus, capsys, kind, line):
    broken(corpus, kind)
    assert line in refusal(capsys, corpus, "--drop-empty")


def test_a_file_that_unpacks_to_more_than_text_can_is_one_line(corpus, capsys, monkeypatch):
    monkeypatch.setattr("fairseq_posenc.data.text.FREE_BYTES", 1 << 10)
    broken(corpus, "newlines")
    assert "train.en.gz: the file expands to more than" in refusal(capsys, corpus, "--drop-empty")


@pytest.mark.parametrize(
    "tests, line",
    [
        (["train=x/web"], "test set 'train': not a name"),
        (["../a=x/web"], "test set '../a': not a name"),
        (["a=x/web", "a=x/news"], "test set 'a': given twice"),
        (["a="], "test set 'a=': no files"),
        (["web=x/nothing"], "nothing.en: no such file"),
        (["wmt99"], "test set 'wmt99': sacreBLEU has no such test set"),
        (["wmt18"], "test set 'wmt18': not in sacreBLEU for pt-BR-en"),
    ],
)
def test_wrong_test_sets_are_one_line(corpus, capsys, tests, line):
    tests = [test.replace("=x/", f"={corpus}/") for test in tests]
    assert line in refusal(capsys, corpus, tests=tests)


def test_a_test_set_of_sacrebleu_is_read_from_its_folder_and_never_downloaded(corpus, capsys, monkeypatch):
    import sacrebleu.utils

    folder = corpus / "sacrebleu"
    monkeypatch.setattr(sacrebleu.utils, "SACREBLEU_DIR", str(folder))
    for part in ("train", "valid"):
        (corpus / f"{part}.pt-BR").rename(corpus / f"{part}.de")
    line = refusal(capsys, corpus, tests=["wmt18"], source="de")
    assert "wmt18.de-en.src or its references are missing" in line and "sacrebleu -t wmt18 -l de-en --echo src" in line
    (folder / "wmt18").mkdir(parents=True)
    text(folder / "wmt18" / "wmt18.de-en.src", ["ein Haus"])
    text(folder / "wmt18" / "wmt18.de-en.ref", ["a house"])
    assert run(corpus, tests=["wmt18"], source="de") == 0
    assert read(corpus / "out" / "wmt18.de") == ["ein Haus"] and read(corpus / "out" / "wmt18.en") == ["a house"]


@pytest.mark.parametrize(("source", "reference"), [("de", "A"), ("cs", "B")])
def test_references_of_sacrebleu_are_those_of_its_scores(corpus, monkeypatch, source, reference):
    import sacrebleu.utils

    monkeypatch.setattr(sacrebleu.utils, "SACREBLEU_DIR", str(corpus))
    for part in ("train", "valid"):
        (corpus / f"{part}.pt-BR").rename(corpus / f"{part}.{source}")
    (corpus / "wmt22").mkdir()
    for ending in ("src", "ref-A", "ref-B"):
        text(corpus / "wmt22" / f"wmt22.{source}-en.{ending}", [ending])
    assert run(corpus, tests=["wmt22"], source=source) == 0
    assert read(corpus / "out" / "wmt22.en") == [f"ref-{reference}"] and not (corpus / "out" / "wmt22.en.1").exists()


def test_the_name_of_a_test_set_may_contain_the_name_of_another(corpus):
    tests = (f"news.en.2020={corpus}/web", f"news={corpus}/news")
    assert run(corpus, tests=tests) == 0
    assert read(corpus / "out" / "news.en.2020.en") == [f"web {line}" for line in TARGET]


def test_references_of_an_earlier_call_are_removed(corpus, capsys):
    text(corpus / "news.en.2", ["x", "", "y"])
    assert "have an empty side" in refusal(capsys, corpus)
    for number in (1, 2):
        (corpus / f"news.en.{number}").unlink()
    assert run(corpus) == 0
    assert {path.name for path in (corpus / "out").glob("news.*")} == {"news.pt_BR", "news.en"}


@pytest.mark.parametrize(
    "options, line",
    [
        ({"source": "pt BR"}, "language 'pt BR': not a language code"),
        ({"source": "../x"}, "not a language code"),
        ({"source": "en", "target": "en"}, "--source and --target are both en"),
    ],
)
def test_wrong_languages_are_one_line(corpus, capsys, options, line):
    assert line in refusal(capsys, corpus, **options)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_folder_of_the_input_is_refused_and_stays(corpus, capsys):
    (corpus / "out").symlink_to(corpus)
    before = contents(corpus)
    line = refusal(capsys, corpus)
    assert f"{corpus}/out/train.en: the command would overwrite this file, which is an input. Expected another file." in line
    assert "Give another FOLDER." in line and contents(corpus) == before


@pytest.mark.parametrize("name", ["train.pt", "valid.en", "web.en", "news.en.1", "news.en.7", "corpus.txt", "pairs"])
@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_an_input_that_is_a_link_to_an_output_is_refused_and_stays(corpus, capsys, name, link):
    out, reference = corpus / "out", corpus / "news.en.2"
    out.mkdir()
    reference.rename(out / name)
    getattr(reference, link)(out / name)
    before = contents(corpus)
    assert f"{out / name}: the command would overwrite" in refusal(capsys, corpus, "--codes", "pt", "en")
    assert contents(corpus) == before
