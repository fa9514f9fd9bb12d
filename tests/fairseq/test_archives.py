"""Archives for from_pretrained: safe archives load, and no member of an unsafe archive is written."""

import gzip
import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from fairseq import file_utils

import fairseq_posenc as posenc
import fairseq_posenc.host.plugin
from tests import forked


def member(name: str, content: bytes = b"text", **changes) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in changes.items():
        setattr(info, field, value)
    return info, content


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    mode = "w:" + path.suffix[1:].replace("tar", "")
    with tarfile.open(path, mode) as file:
        for info, content in members:
            file.addfile(info, io.BytesIO(content))
    return path


def refused(path: Path) -> str:
    """Load an archive that must be refused, and return the error line.

    Check that the archive's folder and the parent of this folder contain the same files before and after the call.
    """
    before = sorted(path.parent.parent.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        file_utils.load_archive_file(str(path))
    message = stop.value.code
    assert message.startswith(f"fairseq_posenc: {path}: the archive ") and "\n" not in message and len(message) < 500
    assert sorted(path.parent.parent.rglob("*")) == before
    return message


@pytest.fixture
def folder(tmp_path) -> Path:
    """Return a folder inside the temporary folder. A member that is written outside the returned folder is then detected."""
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "tar"])
def test_an_archive_becomes_the_folder_that_it_contains(folder, suffix):
    path = archive(
        folder / f"model.{suffix}",
        member("model", b"", type=tarfile.DIRTYPE, mode=0o755), member("model/a.pt"), member("model/sub/b.txt", b"more"),
    )  # fmt: skip
    for _ in range(2):  # the first call replaces the archive by a folder
        assert file_utils.load_archive_file(str(path)) == str(path)
        assert (path / "a.pt").read_bytes() == b"text" and (path / "sub" / "b.txt").read_bytes() == b"more"
    assert [item.name for item in folder.iterdir()] == [path.name]


def test_files_at_the_root_of_an_archive_are_found(folder):
    path = archive(folder / "model.tar.gz", member("a.pt"), member("dict.fw.txt"))
    assert sorted(item.name for item in Path(file_utils.load_archive_file(str(path))).iterdir()) == ["a.pt", "dict.fw.txt"]


UNSAFE = {
    "absolute": ([member("/tmp/posenc-evil")], "absolute path '/tmp/posenc-evil'"),
    "parent": ([member("../evil")], "path '../evil' outside its folder"),
    "inner parent": ([member("model/../../evil")], "outside its folder"),
    "late": ([member(f"model/{number}") for number in range(20)] + [member("../evil")], "outside its folder"),
    "symbolic link": ([member("model/x", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")], "contains the link 'model/x'"),
    "hard link": ([member("model/x", b"", type=tarfile.LNKTYPE, linkname="../../evil")], "contains the link 'model/x'"),
    "device": ([member("model/x", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=5)], "device or special file"),
    "fifo": ([member("model/x", b"", type=tarfile.FIFOTYPE)], "device or special file"),
    "newline": ([member("../a\nb")], r"path '../a\nb' outside"),
    "nothing": ([member("model", b"", type=tarfile.DIRTYPE)], "contains no file"),
    "file below a file": ([member("model/a"), member("model/a/b")], "cannot be extracted"),
}


@pytest.mark.parametrize("members, words", UNSAFE.values(), ids=UNSAFE)
def test_nothing_of_an_unsafe_archive_is_written(folder, members, words):
    assert words in refused(archive(folder / "evil.tar.gz", *members))


def test_a_link_and_a_file_below_it_are_refused(folder):
    """A known attack: the link is inside the folder, and a file that is written through the link is outside."""
    link = member("model/out", b"", type=tarfile.SYMTYPE, linkname="../..")
    assert "link" in refused(archive(folder / "evil.tar.gz", link, member("model/out/evil")))


@pytest.mark.parametrize(
    "content", [b"", b"text", b"\x1f\x8b" + bytes(30), gzip.compress(b"no archive"), b"BZh", b"\xfd7zXZ\0"], ids=range(6)
)
def test_another_file_is_one_line(folder, content):
    path = folder / "model.tar.gz"
    path.write_bytes(content)
    assert "Expected a complete tar archive" in refused(path)


def test_a_truncated_archive_is_one_line(folder):
    path = archive(folder / "model.tar.gz", member("model/a", bytes(range(256)) * 400))
    path.write_bytes(path.read_bytes()[:-200])
    assert "Expected a complete tar archive" in refused(path)


def test_a_missing_model_is_one_line():
    with pytest.raises(SystemExit, match="nowhere: the model was not found") as stop:
        posenc.PositionTransformer.from_pretrained("nowhere")
    assert "\n" not in stop.value.code


# --- bounds ---


def declared(path: Path, *headers: tarfile.TarInfo) -> Path:
    """Write an archive that contains only headers. The headers declare a size, but the content is missing."""
    path.write_bytes(gzip.compress(b"".join(header.tobuf(tarfile.GNU_FORMAT) for header in headers) + bytes(1024)))
    return path


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info


@pytest.mark.parametrize(
    "headers, words",
    [
        ([header("model/a", 2**50)], "more than 64 GiB"),
        ([header("model/a", 2**36 - 1)] * 2, "Expected a complete tar archive"),
        ([header("././@LongLink", 2**30, tarfile.GNUTYPE_LONGNAME)], "Expected a complete tar archive"),
        ([header("pax", 2**30, tarfile.XHDTYPE)], "Expected a complete tar archive"),
        ([header(f"model/{number}", 0) for number in range(10_001)], "more than 10,000 files"),
        ([header("pax", 0, tarfile.XHDTYPE)] * 5000, "Expected a complete tar archive"),
    ],
    ids=["size", "sum", "long name", "pax", "members", "nested"],
)
def test_sizes_are_bounded_before_they_are_read(folder, headers, words):
    assert words in refused(declared(folder / "bomb.tar.gz", *headers))


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE], ids=["long name", "pax"])
def test_headers_are_read_up_to_a_limit(folder, kind):
    """Python 3.14 reads a header in parts. Earlier versions read the whole header in one call."""
    size = 2**26
    path = folder / "bomb.tar.gz"
    path.write_bytes(gzip.compress(header("header", size, kind).tobuf(tarfile.GNU_FORMAT) + bytes(size), 1))
    assert "headers that are too large" in refused(path)


def test_more_than_the_disk_has_is_refused(folder, monkeypatch):
    monkeypatch.setattr("fairseq_posenc.host.compat.archives.shutil.disk_usage", lambda path: type("Usage", (), {"free": 3}))
    assert "needs 0.0 GB" in refused(archive(folder / "model.tar.gz", member("model/a")))


# --- whole commands ---


def test_a_model_loads_from_an_archive(fairseq, shaw, tmp_path):
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as file:
        file.add(shaw, "model/model.pt")
        for name in ("dict.fw.txt", "dict.bw.txt"):
            file.add(fairseq.data / name, f"model/{name}")
    hub = posenc.PositionTransformer.from_pretrained(str(tmp_path / "model.tar.gz"), source_lang="fw", target_lang="bw")
    assert hub.translate(["a b c"], beam=1)[0]


def test_an_unsafe_archive_ends_a_script_with_one_line(tmp_path):
    path = archive(tmp_path / "evil.tar.gz", member("../posenc-evil"))
    script = tmp_path / "script.py"
    script.write_text(f"import fairseq_posenc as posenc; posenc.PositionTransformer.from_pretrained({str(path)!r})")
    python = Path(forked.folder(Path(posenc.__file__).parent), "python")
    done = subprocess.run([python, script], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(f"fairseq_posenc: {path}: the archive contains")
    assert "Traceback" not in done.stderr and not list(tmp_path.parent.glob("posenc-evil"))
