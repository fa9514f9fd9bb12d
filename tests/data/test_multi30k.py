"""Multi30K as raw text: formats, errors, and the name of the data."""

import gzip
import hashlib
import json
import shutil

import pytest

from fairseq_posenc import cli
from fairseq_posenc.data.corpora import multi30k

SIZES = {"train": 30, "val": 5, "test_2016_flickr": 7}


def lines(part, language, count=None):
    return [f"{part} {number} in {language}." for number in range(SIZES[part] if count is None else count)]


@pytest.fixture
def folder(tmp_path):
    """Write a corpus in the format of Multi30K."""
    found = tmp_path / "corpus"
    found.mkdir()
    for part in SIZES:
        for language in ("en", "uk"):
            write(found, f"{part}.{language}", lines(part, language))
    return found


def write(folder, name, text):
    data = text if isinstance(text, bytes) else "".join(f"{line}\n" for line in text).encode()
    (folder / f"{name}.gz").write_bytes(gzip.compress(data))


def pairs(folder, name, found):
    (folder / name).write_text("".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in found), encoding="utf-8")


@pytest.fixture
def json_folder(tmp_path):
    """Write a corpus in the format of Multi30k-uk, with 1,040 training pairs and without a validation part.

    1,014 pairs are held out for validation, and 26 training pairs remain.
    """
    found = tmp_path / "json"
    found.mkdir()
    train = zip(lines("train", "en", 1040), lines("train", "uk", 1040))
    pairs(found, "train.json", [{"en": en, "uk": uk} for en, uk in train])
    pairs(found, "test_2016_flickr.json", [{"en": "A dog. ", "uk": "Собака."}])
    return found


@pytest.fixture
def take(tmp_path, capsys):
    """Return a function that runs `posenc data multi30k`.

    If the command fails, the function returns the one-line error. Otherwise, it returns a dictionary: file name -> lines.
    """

    def run(origin, *options):
        out = tmp_path / "out"
        status = cli.main(["data", "multi30k", str(out), "--from", str(origin), *options])
        error = capsys.readouterr().err
        if status:
            assert status == 2 and error.startswith("posenc: ") and error.count("\n") == 1, error
            return error
        return {path.name: path.read_text(encoding="utf-8").splitlines() for path in out.iterdir()}

    return run


def test_the_parts_come_as_they_are(folder, take):
    text = take(folder)
    for part, name in multi30k.PARTS.items():
        for language in ("en", "uk"):
            assert text[f"{part}.{language}"] == lines(name, language)
    assert text["corpus.txt"] == [f"unknown data en-uk of {folder}"]
    assert len(text) == 7


def test_further_test_parts_are_asked_for(folder, take):
    for language in ("en", "uk"):
        write(folder, f"test_2017_mscoco.{language}", [f"a bench in {language}."])
    assert "test_2017_mscoco.en" not in take(folder)
    assert take(folder, "--tests", "test_2017_mscoco")["test_2017_mscoco.uk"] == ["a bench in uk."]
    assert "test_2017_flickr.en.gz is missing" in take(folder, "--tests", "test_2017_flickr")


def test_text_may_lie_there_unpacked(folder, take):
    for path in list(folder.iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert take(folder)["train.uk"] == lines("train", "uk")


def test_a_validation_part_is_held_out_where_there_is_none(json_folder, take):
    text = take(json_folder)
    assert len(text["valid.en"]) == 1014 and len(text["train.en"]) == 26
    assert sorted(text["train.en"] + text["valid.en"]) == sorted(lines("train", "en", 1040))
    for part in ("train", "valid"):
        assert [line.replace("in en", "in uk") for line in text[f"{part}.en"]] == text[f"{part}.uk"]
    assert text["test.en"] == ["A dog."] and text["test.uk"] == ["Собака."]


def test_by_a_seed(json_folder, take):
    first = take(json_folder)
    assert take(json_folder) == first
    # the split is equal on every version of Python
    assert hashlib.sha256("\n".join(first["train.en"]).encode()).hexdigest().startswith("92950eae9738a2ee")
    assert take(json_folder, "--valid-seed", "2") != first


def test_white_space_and_line_ends_come_in_one_form(folder, take):
    odd = lines("train", "en")
    odd[3] = "\ttwo  blanks, a line\u2028separator and a\u00a0hard blank \r"
    write(folder, "train.en", odd)
    assert take(folder)["train.en"][3] == "two blanks, a line separator and a hard blank"
    write(folder, "train.en", "\n".join(lines("train", "en")).encode())  # the last line has no line feed
    assert take(folder)["train.en"] == lines("train", "en")


@pytest.mark.parametrize("form", ["folder", "json_folder"])
def test_a_mirror_gives_the_same_as_a_folder(request, server, take, capsys, tmp_path, form):
    folder = request.getfixturevalue(form)
    server.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    server.cuts = [None] * 3 + [40]
    expected = take(folder)
    record = ["--downloads", str(tmp_path / "kept"), "--record", str(tmp_path / "sums")]
    text = take(server.address, *record)
    assert text.pop("corpus.txt") == [f"unknown data en-uk of {server.address}"]
    assert text == {name: lines for name, lines in expected.items() if name != "corpus.txt"}
    assert len((tmp_path / "sums").read_text().splitlines()) == len(server.files)
    server.files = dict.fromkeys(server.files, b"something else")
    shutil.rmtree(tmp_path / "kept")
    assert "wrong checksum" in take(server.address, *record)


# --- errors ---


def test_files_that_are_not_aligned(folder, take):
    write(folder, "val.uk", lines("val", "uk")[:-1])
    assert "valid: 5 lines in en and 4 lines in uk." in take(folder)


@pytest.mark.parametrize("part", ["train", "val", "test_2016_flickr"])
def test_an_empty_line(folder, take, part):
    text = lines(part, "uk")
    text[1], text[4] = "  ", ""
    write(folder, f"{part}.uk", text)
    name = {"val": "valid", "test_2016_flickr": "test"}.get(part, part)
    assert f"{name}: 2 empty lines, the first is line 2 of uk." in take(folder)
    left = take(folder, "--drop-empty")
    if part == "train":
        assert left["train.uk"] == [line for line in text if line.strip()]
        assert left["train.en"] == [line for i, line in enumerate(lines("train", "en")) if i not in (1, 4)]
    else:
        assert "empty lines" in left


def test_an_empty_part(folder, take):
    for language in ("en", "uk"):
        write(folder, f"test_2016_flickr.{language}", [])
    assert "test: no sentence pairs" in take(folder)


def test_a_missing_file(folder, take):
    (folder / "val.uk.gz").unlink()
    wanted = "{train,val,test_2016_flickr}.LANGUAGE.gz, or train.json and test_2016_flickr.json"
    assert f"{folder}: val.uk.gz is missing. Expected {wanted}." in take(folder)


def test_another_folder_altogether(tmp_path, take):
    assert "train.en.gz is missing. Expected" in take(tmp_path)


def test_a_language_that_is_not_there(folder, take):
    assert "train.fr.gz is missing" in take(folder, "--target", "fr")


def test_a_cut_file(folder, take):
    path = folder / "train.en.gz"
    path.write_bytes(path.read_bytes()[:-20])
    assert f"{path}: damaged gzip file" in take(folder)
    path.write_bytes(b"<html>")
    assert f"{path}: damaged" in take(folder)


def test_a_file_that_is_no_text(folder, take):
    write(folder, "train.uk", "привіт".encode("cp1251"))
    assert "train.uk.gz: not UTF-8 text, from byte 0" in take(folder)


def test_a_wrong_checksum(folder, take):
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  train.uk.gz\n")
    assert "train.uk.gz: wrong checksum" in take(folder)


@pytest.mark.parametrize("form", ["folder", "json_folder"])
def test_a_page_in_place_of_the_data_is_not_trusted(request, server, take, tmp_path, form):
    """A network may return a login page instead of a file. A later run of the command must accept the real data."""
    folder = request.getfixturevalue(form)
    names = [path.name for path in folder.iterdir()] + ["train.json"]
    page = "<html>\n<p>Bitte anmelden: für das Netz\n</html>\n".encode("latin-1")
    record = ["--downloads", str(tmp_path / "kept"), "--record", str(tmp_path / "sums")]
    server.files = dict.fromkeys(names, page)
    assert "train.json" in take(server.address, *record)
    server.files = dict.fromkeys([name.removesuffix(".gz") for name in names if name != "train.json"], page)
    assert take(server.address, *record)
    assert not (tmp_path / "sums").exists()
    server.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert isinstance(take(server.address, *record), dict)
    assert len((tmp_path / "sums").read_text().splitlines()) == len(server.files)


def test_parts_that_do_not_agree_are_not_trusted(folder, server, take, tmp_path):
    """One file contains a login page, and the other files contain the data.

    Each file can be read, but the files have different numbers of lines.
    """
    record = ["--downloads", str(tmp_path / "kept"), "--record", str(tmp_path / "sums")]
    server.files = {path.stem: gzip.decompress(path.read_bytes()) for path in folder.iterdir()}
    good, server.files["train.uk"] = server.files["train.uk"], b"<html>\n</html>\n"
    assert "Expected equal numbers of lines" in take(server.address, *record)
    server.files["train.uk"] = good
    assert take(server.address, *record)["train.uk"] == lines("train", "uk")


def test_one_language_twice(folder, take):
    assert "--source uk --target uk: the same language twice" in take(folder, "--source", "uk")


@pytest.mark.parametrize(
    "line", ['{"en": "A dog.", "uk": null}', '{"en": "A dog.", "uk": 7}', '{"en": "A dog."}', "[1, 2]", "A dog.", ""]
)
def test_json_that_is_no_pair(json_folder, take, line):
    path = json_folder / "train.json"
    path.write_text(line + "\n" + path.read_text())
    assert f"{path}, line 1: wrong content. Expected a JSON object with en and uk" in take(json_folder)


def test_too_few_pairs_to_hold_some_out(json_folder, take):
    pairs(json_folder, "train.json", [{"en": "a", "uk": "b"}] * 1014)
    assert "1014 sentence pairs. Expected more than 1014" in take(json_folder)


def test_what_is_refused_leaves_earlier_text_as_it_is(folder, take, tmp_path):
    before = take(folder)
    (folder / "val.uk.gz").unlink()
    write(folder, "train.en", lines("train", "en")[::-1])
    take(folder)
    assert {path.name: path.read_text().splitlines() for path in (tmp_path / "out").iterdir()} == before


def test_the_folder_of_the_input_is_refused_and_stays(tmp_path, capsys):
    for part in multi30k.PARTS.values():
        for language in ("en", "uk"):
            (tmp_path / f"{part}.{language}").write_text(" one \ntwo\n")
    assert cli.main(["data", "multi30k", str(tmp_path), "--from", str(tmp_path)]) == 2
    line = capsys.readouterr().err
    assert f"{tmp_path}/train.en: the command would overwrite this file" in line and line.count("\n") == 1
    assert (tmp_path / "train.en").read_text() == " one \ntwo\n" and not (tmp_path / "test.en").exists()


# --- names of the data ---


@pytest.fixture
def known(monkeypatch):
    """Replace the checksums of the public corpora by the checksums of the text in these tests.

    The command then treats this text as Multi30K, and its Ukrainian side as MultiScript30k.
    """
    sums = {}
    for part in SIZES:
        for language, corpus in (("en", "Multi30K"), ("de", "Multi30K"), ("uk", "MultiScript30k")):
            text = "".join(f"{line}\n" for line in lines(part, language))
            sums[f"{part}.{language}"] = {hashlib.sha256(text.encode()).hexdigest(): corpus}
    monkeypatch.setattr(multi30k, "KNOWN", sums)


def test_known_text_is_called_by_its_name(folder, take, known):
    assert take(folder)["corpus.txt"] == ["MultiScript30k (machine-translated) en-uk"]
    for part in SIZES:
        write(folder, f"{part}.de", lines(part, "de"))
    assert take(folder, "--target", "de")["corpus.txt"] == ["Multi30K en-de"]


def test_other_text_is_not(folder, take, known):
    write(folder, "val.en", lines("val", "en")[::-1])
    assert take(folder)["corpus.txt"] == [f"unknown data en-uk of {folder}"]


def test_only_the_public_home_has_multi30k_uk(json_folder, take, monkeypatch):
    assert "Multi30k-uk" not in take(json_folder)["corpus.txt"][0]
    monkeypatch.setattr(multi30k, "HUB", str(json_folder))
    assert take("")["corpus.txt"] == ["Multi30k-uk en-uk"]


def test_the_public_home_of_multi30k_must_have_what_is_known(folder, take, known, monkeypatch):
    monkeypatch.setattr(multi30k, "REPOSITORY", str(folder))
    for part in SIZES:
        write(folder, f"{part}.de", lines(part, "de"))
    assert take("", "--target", "de")["corpus.txt"] == ["Multi30K en-de"]
    write(folder, "val.de", lines("val", "de")[::-1])
    assert "the text differs from the known Multi30K" in take("", "--target", "de")


def test_every_known_sum_is_one():
    files = [f"{part}.{language}" for part in SIZES for language in ("en", "de", "cs", "uk")]
    files += [f"{part}.{language}" for part in multi30k.MORE_TESTS for language in ("en", "de")]
    assert sorted(multi30k.KNOWN) == sorted(files)
    sums = [total for found in multi30k.KNOWN.values() for total in found]
    assert len(set(sums)) == len(files) and all(len(total) == 64 for total in sums)
