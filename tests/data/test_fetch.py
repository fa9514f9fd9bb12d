"""Downloads that are interrupted, fail, or return other content than before."""

import hashlib

import pytest

from fairseq_posenc.core import PositionError
from fairseq_posenc.data.download import TRIES, Source

BODY = bytes(range(256)) * 4000  # content of a file that needs many reads


@pytest.fixture
def source(server, tmp_path):
    server.files["a.bin"] = BODY
    return lambda: Source(server.address, tmp_path / "downloads", tmp_path / "record" / "sums", pause=0.001)


def asked(server, name="a.bin"):
    return [span for requested, span in server.requests if requested == name]


def test_a_file_comes_whole_and_is_recorded(server, source, capsys):
    found = source()
    assert found.get("a.bin").read_bytes() == BODY and not found.record.exists()
    found.record_downloads()
    total = hashlib.sha256(BODY).hexdigest()
    assert source().record.read_text() == f"{total}  {server.address}/a.bin\n"
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1 and "taken on trust" in printed and total in printed


def test_it_comes_once(server, source, capsys):
    found = source()
    assert found.get("a.bin") == found.get("a.bin")
    found.record_downloads()
    capsys.readouterr()
    assert source().get("a.bin").read_bytes() == BODY
    assert len(asked(server)) == 1 and capsys.readouterr().out == ""


def test_a_file_that_is_not_there_is_none(source):
    assert source().get("b.bin") is None


def test_a_broken_download_goes_on_where_it_ended(server, source, capsys):
    server.cuts = [1000, 5000]
    assert source().get("a.bin").read_bytes() == BODY
    assert asked(server) == [None, "bytes=1000-", "bytes=6000-"]
    assert f"1000 of {len(BODY)} bytes; trying again" in capsys.readouterr().err


def test_so_does_one_of_an_earlier_start(server, source):
    server.cuts = [1000, *[0] * (TRIES - 1)]
    with pytest.raises(PositionError, match="run the command again"):
        source().get("a.bin")
    assert source().get("a.bin").read_bytes() == BODY
    assert asked(server)[-1] == "bytes=1000-"


def test_a_file_that_changed_meanwhile_is_not_mixed(server, source):
    server.cuts = [1000, *[0] * (TRIES - 1)]
    with pytest.raises(PositionError):
        source().get("a.bin")
    server.files["a.bin"] = BODY[::-1]
    assert source().get("a.bin").read_bytes() == BODY[::-1]


def test_a_server_without_ranges_sends_it_anew(server, source):
    server.ranges, server.cuts = False, [1000]
    assert source().get("a.bin").read_bytes() == BODY


def test_a_begun_file_that_is_too_long_is_thrown_away(server, source):
    folder = source().downloads
    folder.mkdir()
    (folder / "a.bin.part").write_bytes(BODY + b"more")
    (folder / "a.bin.part.tag").write_text(f'"{hashlib.md5(BODY).hexdigest()}"')
    assert source().get("a.bin").read_bytes() == BODY


@pytest.mark.parametrize("length", ["many", "", "-7", "1,024"])
def test_a_length_that_is_no_number_says_nothing(server, source, length):
    server.lengths = [length] * 2
    assert source().get("a.bin").read_bytes() == BODY


def test_a_list_of_checksums_that_is_no_text(server, source, tmp_path):
    server.files["SHA256SUMS"] = "привіт".encode("cp1251")
    with pytest.raises(PositionError, match=rf"{server.address}/SHA256SUMS: not UTF-8 text, from byte 0"):
        source().get("a.bin")
    source().record.parent.mkdir()
    source().record.write_bytes(b"\xff")
    del server.files["SHA256SUMS"]
    with pytest.raises(PositionError, match=r"record/sums: not UTF-8 text, from byte 0"):
        source().get("a.bin")


@pytest.mark.parametrize("status", [500, 503, 429])
def test_failures_that_may_pass_are_tried_again(server, source, status):
    server.failures = [status] * (TRIES - 1)
    assert source().get("a.bin").read_bytes() == BODY


def test_but_not_for_ever(server, source):
    server.failures = [503] * 100
    with pytest.raises(PositionError, match=r"/a\.bin: the download failed \(503 Service Unavailable\)\. To resume the download"):
        source().get("a.bin")
    assert len(asked(server)) == TRIES


def test_a_refusal_is_not_tried_again(server, source):
    server.failures = [403] * 100
    with pytest.raises(PositionError, match="403 Forbidden"):
        source().get("a.bin")
    assert len(asked(server)) == 1


def test_nobody_listens(tmp_path):
    with pytest.raises(PositionError, match=r"http://127\.0\.0\.1:9/a\.bin: the download failed \(.*refused"):
        Source("http://127.0.0.1:9", tmp_path, tmp_path / "sums", pause=0.001).get("a.bin")


@pytest.mark.parametrize("form", ["{}  a.bin\n", "{} *a.bin\n", "{}  ./a.bin\n", "0  b.bin\n{}  a.bin\n"])
def test_a_mirror_can_list_checksums(server, source, form):
    server.files["SHA256SUMS"] = form.format(hashlib.sha256(BODY).hexdigest()).encode()
    found = source()
    assert found.get("a.bin").read_bytes() == BODY
    found.record_downloads()
    assert not found.record.exists()
    server.files["SHA256SUMS"] = form.format("1" * 64).encode()
    with pytest.raises(
        PositionError,
        match=r"wrong checksum \w+ \(SHA-256\)\. "
        rf"Expected 1111\w+, from {server.address}/SHA256SUMS",
    ):
        source().get("a.bin")


def test_what_was_trusted_once_must_come_again(server, source):
    found = source()
    path = found.get("a.bin")
    found.record_downloads()
    path.unlink()
    server.files["a.bin"] = BODY[:-1]
    with pytest.raises(PositionError, match=r"wrong checksum .*, from the earlier download in .*record/sums"):
        source().get("a.bin")


def test_a_download_that_was_damaged_here_comes_again(server, source):
    found = source()
    path = found.get("a.bin")
    found.record_downloads()
    path.write_bytes(b"damaged")
    assert source().get("a.bin").read_bytes() == BODY


def test_a_full_disk_is_said_at_once(server, source, full_disk):
    with full_disk(100_000), pytest.raises(PositionError, match=r"a\.bin: cannot be written \(File too large"):
        source().get("a.bin")
    assert len(asked(server)) == 1
    assert source().get("a.bin").read_bytes() == BODY


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_folder_is_read_where_it_is(tmp_path, form):
    mine = tmp_path / "my corpus"
    mine.mkdir()
    (mine / "a.bin").write_bytes(BODY)
    origin = form.format(str(mine).replace(" ", "%20") if "file" in form else mine)
    found = Source(origin, tmp_path / "downloads", tmp_path / "sums")
    assert found.get("a.bin") == mine / "a.bin" and found.get("b.bin") is None
    assert [path.name for path in tmp_path.iterdir()] == ["my corpus"]
    (mine / "SHA256SUMS").write_text(f"{'1' * 64}  a.bin\n")
    with pytest.raises(PositionError, match=r"Expected 1111.*my corpus/SHA256SUMS"):
        Source(origin, tmp_path / "downloads", tmp_path / "sums").get("a.bin")


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(PositionError, match="/nowhere: no such folder"):
        Source("/nowhere", tmp_path, tmp_path / "sums").get("a.bin")
