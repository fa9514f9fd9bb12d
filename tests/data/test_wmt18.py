"""posenc data wmt18: checksums and members of archives, numbers of lines, cleaning, and test sets.

The test sets equal the test sets of sacreBLEU.
"""

import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import sacrebleu.dataset.fake_sgml

from fairseq_posenc.cli import main
from fairseq_posenc.core import PositionError
from fairseq_posenc.data import archives
from fairseq_posenc.data.archives import Archive, Store, extract
from fairseq_posenc.data.corpora import wmt18
from tests.recipes.news import SIZES, sentences, sgm, tgz, write_czeng, write_mirror


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mirror")
    write_mirror(folder)
    return folder


def fetch(mirror, folder, *options):
    return main(["data", "wmt18", str(folder), "--from", str(mirror), "--checksums", str(mirror / "sums"), *options])


def read(path):
    return path.read_bytes().decode().split("\n")[:-1]


# --- the pinned list ---


ALL = {archive for corpus in (*wmt18.CORPORA, *wmt18.MORE.values()) for archive in corpus.archives.values()} | {
    wmt18.DEV,
    wmt18.TEST,
}


def test_every_archive_is_pinned():
    assert len(ALL) == 8 and len({archive.place for archive in ALL}) == 8
    for archive in ALL:
        assert set(archive.checksum) <= set("0123456789abcdef") and len(archive.checksum) == (32 if archive is wmt18.TEST else 64)
        assert all(address.startswith(("http://", "https://")) and address.endswith(".tgz") for address in archive.addresses)
    assert len({archive.checksum for archive in ALL}) == 8


# --- where archives come from ---


@pytest.fixture
def archive(server):
    server.files["a.tgz"] = b"the archive" * 1000
    total = hashlib.sha256(server.files["a.tgz"]).hexdigest()
    return Archive((f"{server.address}/a.tgz",), total, len(server.files["a.tgz"]))


def store(tmp_path, **options):
    return Store(tmp_path / "downloads", pause=0.001, **options)


def test_an_archive_comes_once_and_whole(server, archive, tmp_path):
    for _ in range(2):
        (path,) = store(tmp_path).get([archive]).values()
        assert path.read_bytes() == server.files["a.tgz"]
    assert len(server.requests) == 1
    # the folders of the address are kept, because archives of different years can have the same file name
    assert path.relative_to(tmp_path / "downloads").parts[1:] == ("some", "where", "a.tgz")


@pytest.mark.parametrize("wrong", ["absent", "changed", "broken", "refused", "longer"])
def test_a_mirror_serves_where_the_home_does_not(wrong, server, archive, tmp_path, capsys):
    good = server.files["a.tgz"]
    server.files["b.tgz"] = good
    if wrong == "absent":
        del server.files["a.tgz"]
    elif wrong == "changed":
        server.files["a.tgz"] = good[::-1]
    elif wrong == "broken":
        server.cuts = [100, *[0] * (archives.download.__globals__["TRIES"] - 1)]
    elif wrong == "refused":
        server.failures = [403]
    else:
        server.files["a.tgz"] = good + b"!"
    both = Archive((*archive.addresses, f"{server.address}/b.tgz"), archive.checksum, archive.size)
    (path,) = store(tmp_path).get([both]).values()
    assert path.read_bytes() == good and f"{server.address}/a.tgz" in capsys.readouterr().err


def test_an_md5_serves_where_that_is_all(server, archive, tmp_path):
    known = Archive(archive.addresses, hashlib.md5(server.files["a.tgz"]).hexdigest())
    assert store(tmp_path).get([known])
    shutil.rmtree(tmp_path / "downloads")
    with pytest.raises(PositionError, match=r"md5 checksum .* instead of 000"):
        store(tmp_path).get([Archive(archive.addresses, "0" * 32)])


def test_nowhere_is_one_line_with_every_address(server, archive, tmp_path):
    both = Archive((*archive.addresses, f"{server.address}/b.tgz"), "0" * 64)
    with pytest.raises(
        PositionError, match=r"no address has the expected file \(.*a\.tgz: sha256 checksum .*; .*b\.tgz: there is no such file\)"
    ):
        store(tmp_path).get([both])
    assert not list((tmp_path / "downloads").rglob("*.tgz"))


def test_a_broken_download_goes_on(server, archive, tmp_path):
    server.cuts = [1000]
    assert store(tmp_path).get([archive])
    assert [span for _, span in server.requests] == [None, "bytes=1000-"]


def test_another_origin_has_the_paths_of_the_first(server, archive, tmp_path):
    elsewhere = Archive(("http://nowhere.invalid/a.tgz",), archive.checksum, archive.size)
    assert store(tmp_path, origin=server.address).get([elsewhere])
    folder = tmp_path / "mine"
    tgz(folder / "a.tgz", {"x": b"y"})
    with pytest.raises(PositionError, match=r"mine/a\.tgz: not the public file \(.* bytes instead of"):
        store(tmp_path, origin=str(folder)).get([elsewhere])
    sums = folder / "sums"
    sums.write_text(f"{hashlib.sha256((folder / 'a.tgz').read_bytes()).hexdigest()}  a.tgz\n")
    for origin in (str(folder), f"file://{folder}"):
        assert store(tmp_path, origin=origin, checksums=sums).get([elsewhere]) == {elsewhere: folder / "a.tgz"}
    sums.write_text("")
    with pytest.raises(PositionError, match=r"sums: no checksum of a\.tgz"):
        store(tmp_path, origin=str(folder), checksums=sums).get([elsewhere])


def test_the_room_is_looked_at_before(server, archive, tmp_path, monkeypatch):
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 10_000))
    with pytest.raises(PositionError, match=r"0\.0 GB of disk space are free, but the downloads require"):
        store(tmp_path).get([archive])
    assert not server.requests


# --- members ---


def test_only_what_is_wanted_is_unpacked(tmp_path):
    tgz(tmp_path / "a.tgz", {"../out": b"1", "/abs": b"2", "in/side": b"3", "./dot": b"4", "big": b"5"})
    extract(tmp_path / "a.tgz", {"in/side": tmp_path / "x" / "one", "dot": tmp_path / "x" / "two"})
    assert {path.name: path.read_bytes() for path in (tmp_path / "x").iterdir()} == {"one": b"3", "two": b"4"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tgz", "x"]


def test_a_link_is_no_member(tmp_path):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        link = tarfile.TarInfo("text")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    with pytest.raises(PositionError, match=r"a\.tgz: these files are missing in the archive: text"):
        extract(tmp_path / "a.tgz", {"text": tmp_path / "text"})
    assert not (tmp_path / "text").is_symlink()


@pytest.mark.parametrize("damage", ["cut", "changed", "none"])
def test_a_damaged_archive_is_one_line(damage, tmp_path):
    path = tmp_path / "a.tgz"
    tgz(path, {"text": bytes(range(256)) * 5000, "more": bytes(99999)})
    body = path.read_bytes()
    path.write_bytes({"cut": body[: len(body) // 2], "changed": body[:30] + b"?" * 50 + body[80:], "none": b"<html>"}[damage])
    with pytest.raises(PositionError, match=r"a\.tgz: damaged"):
        extract(path, {"text": tmp_path / "text", "more": tmp_path / "more"})
    assert not (tmp_path / "more").exists()


# --- the text ---


def test_all_corpora_one_after_another(mirror, tmp_path, capsys):
    assert fetch(mirror, tmp_path) == 0
    printed = capsys.readouterr().out
    one, two = read(tmp_path / "train.de"), read(tmp_path / "train.en")
    count = SIZES["europarl"] - 2 + SIZES["commoncrawl"] + SIZES["news_commentary"]
    assert len(one) == len(two) == count and "left out: 2 empty" in printed and "europarl: 158 of 160" in printed
    for number, (left, right) in enumerate(zip(one, two)):
        assert [word[::-1] for word in left[:-1].lower().split()][::-1] == right[:-1].lower().split(), number
    assert not any(set("\r\t\u2028\x85") & set(line) for line in one + two)
    assert not (tmp_path / "raw").exists()
    assert (
        (tmp_path / "corpus.txt").read_text().startswith("WMT18 en-de: europarl, commoncrawl, news_commentary; unknown data of")
    )


def test_the_counts_of_the_public_files_are_compared(mirror, tmp_path, capsys, monkeypatch):
    """The command compares its counts with published counts, and prints a line for each difference.

    It prints no line if all counts agree, or if the data are not the public files.
    """
    monkeypatch.setattr(wmt18, "Store", lambda downloads, origin, _: Store(downloads, origin, mirror / "sums"))
    public = ["data", "wmt18", str(tmp_path), "--from", str(mirror)]
    assert main(public) == 0
    found = [line.partition(": ")[2] for line in capsys.readouterr().out.splitlines() if "others count" in line]
    pairs = SIZES["europarl"] - 2 + SIZES["commoncrawl"] + SIZES["news_commentary"]
    assert found == [
        f"europarl has {SIZES['europarl']} lines; others count 1,920,209",
        f"commoncrawl has {SIZES['commoncrawl']} lines; others count 2,399,123",
        f"the three corpora have {pairs} pairs; others count 4,592,289",
    ]
    monkeypatch.setattr(wmt18, "KNOWN_LINES", {name: SIZES[name] for name in wmt18.KNOWN_LINES})
    monkeypatch.setattr(wmt18, "KNOWN_PAIRS", pairs)
    assert main(public) == main([*public, "--other", "cs"]) == fetch(mirror, tmp_path) == 0
    assert "others count" not in capsys.readouterr().out


def test_the_readme_names_what_a_first_run_checks():
    page = (Path(__file__).parents[2] / "recipes" / "wmt18" / "README.md").read_text(encoding="utf-8")
    for count in (*wmt18.KNOWN_LINES.values(), wmt18.KNOWN_PAIRS):
        assert f"{count:,}" in page
    assert all(words in page for words in ("SHA-256 of every archive", "addresses", "NCCL"))


def test_both_pairs_and_more_corpora(mirror, tmp_path):
    write_czeng(tmp_path / "czeng")
    assert fetch(mirror, tmp_path / "x", "--other", "cs", "--paracrawl", "--czeng", str(tmp_path / "czeng")) == 0
    base = SIZES["europarl"] - 2 + SIZES["commoncrawl"] + SIZES["news_commentary"] + SIZES["paracrawl"]
    assert len(read(tmp_path / "x" / "train.cs")) == base + 32  # two of ten blocks of CzEng are left out
    assert len(read(tmp_path / "x" / "newstest2018.cs-en.en")) == SIZES["test"]


def test_cleaning(tmp_path):
    bad = "a\x07b c"
    pairs = [
        ("a b", "c d"),
        ("", "c"),
        (None, "c"),
        ("a b", "c d"),
        ("a", "a"),
        ("a", "b c"),
        (bad, "d e"),
        ("x " * 251, "y " * 251),
    ]
    pairs = [tuple(side if side is None else side.strip() for side in pair) for pair in pairs]
    none, basic = wmt18.Cleaning("none"), wmt18.Cleaning("basic")
    assert [none("c", *pair) for pair in pairs] == [True, False, False, True, True, True, True, True]
    assert [basic("c", *pair) for pair in pairs] == [True] + [False] * 7
    assert dict(basic.left_out) == {
        "empty": 1, "not UTF-8": 1, "repeated": 1, "equal sides": 1, "other length": 1, "control characters": 1,
        "more than 250 words": 1,
    }  # fmt: skip


def test_tests_are_read_as_sacrebleu_reads_them(mirror, tmp_path):
    fetch(mirror, tmp_path)
    lines = [*sentences(1, 5)["en"], "A &amp; B  said&lt;br&gt;.", "x\u2028y", "  z\u00a0 "]
    (tmp_path / "a.sgm").write_bytes(sgm(lines, "ref"))
    out = tmp_path / "theirs"
    sacrebleu.dataset.fake_sgml.FakeSGMLDataset("wmt18")._convert_format(str(tmp_path / "a.sgm"), str(out))
    assert wmt18.sgm(tmp_path / "a.sgm") == read(out)
    assert "&amp; Co." in read(tmp_path / "newstest2018.en-de.en")[0]


def test_sides_that_differ_are_refused(tmp_path):
    (tmp_path / "a.de").write_text("1\n2\n3\n")
    (tmp_path / "a.en").write_text("1\n2\n")
    with pytest.raises(PositionError, match=r"a\.en has 2 lines, but a\.de has more\. Expected parallel text"):
        list(wmt18.parallel({"de": tmp_path / "a.de", "en": tmp_path / "a.en"}, "de"))


def test_wrong_options_are_one_line(mirror, tmp_path, capsys):
    assert fetch(mirror, tmp_path, "--other", "cs", "--rapid") == 2
    assert capsys.readouterr().err == (
        "posenc: --other cs: not available for rapid. Expected de. Use another language, or remove rapid.\n"
    )
    assert fetch(mirror, tmp_path, "--czeng", str(tmp_path)) == 2
    assert "CzEng is Czech-English. Expected --other cs, not de" in capsys.readouterr().err
    assert fetch(mirror, tmp_path, "--other", "cs", "--czeng", str(tmp_path)) == 2
    assert f"{tmp_path}: no .tar files in this folder" in capsys.readouterr().err


def test_text_that_was_unpacked_from_other_archives_is_not_used(mirror, tmp_path):
    """A call for other archives was interrupted after it had unpacked a file."""
    assert fetch(mirror, tmp_path / "whole") == 0
    left = tmp_path / "again" / "raw" / "training" / "europarl-v7.de-en.de"
    left.parent.mkdir(parents=True)
    left.write_text("other\n" * SIZES["europarl"])
    (tmp_path / "again" / "raw" / "made_from").write_text("other archives")
    assert fetch(mirror, tmp_path / "again") == 0
    assert read(tmp_path / "again" / "train.de") == read(tmp_path / "whole" / "train.de")
    assert not (tmp_path / "again" / "raw").exists()


def test_other_files_in_the_folder_of_unpacked_files_are_kept(mirror, tmp_path):
    own = [tmp_path / "raw" / "mine", tmp_path / "raw" / "dev" / "mine"]
    for path in own:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    assert fetch(mirror, tmp_path) == 0
    assert sorted(path for path in (tmp_path / "raw").rglob("*") if path.is_file()) == sorted(own)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_archive(tmp_path):
    """Hashing, unpacking and writing 60 MB of text increases the memory of the process by less than 25,000 KiB."""
    body = b"a line of text that does not compress to nothing, number %d\n" * 1000
    with tarfile.open(tmp_path / "a.tgz", "w:gz", compresslevel=1) as archive:
        info = tarfile.TarInfo("text")
        info.size = 60_000_000 // len(body) * len(body)
        archive.addfile(info, Repeated(body, info.size))
    code = f"""
from pathlib import Path
from fairseq_posenc.data.archives import extract
from fairseq_posenc.data.corpora.wmt18 import Cleaning, parallel, write_train
from fairseq_posenc.common.files import digest
def most():  # ru_maxrss would contain the memory of the process that has started this process
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
before = most()
folder = Path({str(tmp_path)!r})
digest(folder / "a.tgz")
extract(folder / "a.tgz", {{"text": folder / "text"}})
digest(folder / "text")
write_train(folder, "de", {{"c": parallel({{"de": folder / "text", "en": folder / "text"}}, "de")}}, Cleaning("none"))
print(most() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 25_000  # kilobytes
    assert (tmp_path / "train.de").stat().st_size == (tmp_path / "text").stat().st_size


class Repeated:
    """A file that repeats one block. The size is a multiple of the size of the block."""

    def __init__(self, block, size):
        self.block, self.left = block, size

    def read(self, count):
        begin, size = -self.left % len(self.block), min(count, self.left)
        self.left -= size
        return (self.block * (count // len(self.block) + 2))[begin : begin + size]
