"""posenc archive stores many score.json files in one small file without loss."""

import base64
import json
import lzma
import shutil
import zlib

import pytest

from fairseq_posenc import registry
from fairseq_posenc.core import PositionError
from fairseq_posenc.evaluation.scoring import archive
from fairseq_posenc.evaluation.scoring.lengths import Lengths
from fairseq_posenc.evaluation.scoring.sentences import count
from tests.report import runs
from tests.report.conftest import write  # noqa: F401


@pytest.fixture
def folder(write):  # noqa: F811
    long, references = runs.texts(40, 60, 3), runs.texts()
    records = [runs.run(spec, seed, rate) for spec, rate in (("none", 0.5), ("t5", 0.2)) for seed in (1, 2)]
    for number, record in enumerate(records):
        hypotheses = runs.spoilt(long, 0.1 * number)
        record["parts"]["long"] = {**record["parts"]["test"], "reference": "xyz", "decoding": {"beam": 5}}
        record["parts"]["long"] |= {"sentences": 40, "statistics": count(hypotheses, long).pack()}  # without source lengths
    asked = {"source": "reference", "ratio": 1.0, "unit": "token", "end": "free"}
    lengths = Lengths([len(line) for line in references], [len(line) + 3 for line in references])
    records[2]["parts"]["test"] |= {"asked": asked, "lengths": lengths.pack()}
    del records[3]["parts"]["test"]["statistics"]
    records[1]["settings"]["lr"], records[3]["settings"]["cpu"] = [0.001], 1
    for record, empty in zip(records, ({}, None, {"a": {}}, 1)):
        record["settings"]["empty"] = empty
    return write(*records)


@pytest.fixture
def archived(folder, posenc, tmp_path):
    assert posenc("archive", folder, "--output", tmp_path / "archive")[0] == 0
    return tmp_path / "archive"


def test_runs_of_another_folder_are_added(posenc, archived, write, tmp_path):  # noqa: F811
    more = tmp_path / "more" / "rope"
    more.mkdir(parents=True)
    (more / "score.json").write_text(json.dumps(runs.run("rope")))
    before = archive.read(archived)
    status, out, _ = posenc("archive", tmp_path / "more", "--output", archived)
    assert status == 0 and ": 5 runs (" in out
    after = archive.read(archived)
    assert {name: after[name] for name in before} == before and after["rope"].method["encoder"] == "rope"
    (more / "score.json").write_text(json.dumps(runs.run("shaw")))
    status, _, error = posenc("archive", tmp_path / "more", "--output", archived)
    assert status == 2 and f"rope differs from the run rope in {archived / archive.FILE}" in error
    assert posenc("archive", tmp_path / "more", "--output", archived, "--replace")[0] == 0
    assert archive.read(archived)["rope"].method["encoder"] == "shaw"


def test_runs_behind_links_are_found_once(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "score.json").write_text(json.dumps(runs.run("rope")))
    (folder / "link").symlink_to(elsewhere)
    (folder / "0" / "again").symlink_to(folder)  # a circle
    found = archive.find(folder)
    assert [path.parent.name for path in found] == ["0", "1", "2", "3", "link"]


def test_the_archive_may_be_above_the_runs(folder, posenc, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for output in (".", tmp_path):
        assert posenc("archive", folder.relative_to(tmp_path), "--output", output)[0] == 0
        assert len(archive.read(tmp_path)) == 4


@pytest.mark.parametrize("limit, unit", [("_MOST_NUMBERS", "counts of sentences"), ("_MOST_BYTES", "bytes in one file")])
def test_an_archive_that_cannot_be_read_is_not_written(posenc, folder, tmp_path, monkeypatch, limit, unit):
    monkeypatch.setattr(archive, limit, 1000)
    status, _, error = posenc("archive", folder, "--output", tmp_path / "archive")
    assert status == 2 and error.count("\n") == 1 and not (tmp_path / "archive").exists()
    assert f"too many {unit} for one archive. Expected at most 1,000. Store the runs in several archives." in error


def test_an_archive_may_contain_three_runs_of_every_method():
    """The runs of a method have 3 seeds and 3 test sets of 3,003 sentences, with 29 counts per sentence."""
    assert len(registry.names()) * 3 * 3 * 3003 * 29 <= archive._MOST_NUMBERS


def test_damaged_statistics_are_one_line(posenc, folder):
    file = folder / "0" / "score.json"
    content = json.loads(file.read_text())
    content["parts"]["test"]["statistics"] = "AAAA"
    file.write_text(json.dumps(content))
    status, out, error = posenc("archive", folder)
    assert status == 2 and out == "" and error.count("\n") == 1 and "0, test: the field statistics is damaged" in error


def test_records_come_back_as_they_were(folder, archived):
    before, after = archive.find(folder), archive.find(archived)
    assert len(before) == 4
    assert {path.relative_to(folder): record for path, record in before.items()} == {
        path.relative_to(archived): record for path, record in after.items()
    }
    # `cpu` is 1 in one run, and true in the other runs. Therefore the archive does not store it as shared by all runs
    assert content_of(archived)[0]["shared"]["settings"]["cpu"] is None
    # The order of the fields must also be equal. It determines the order of sites in tables.
    for path, record in before.items():
        assert record.model_dump_json() == after[archived / path.relative_to(folder)].model_dump_json()


def test_the_file_is_small(folder, archived):
    assert (
        sum(path.stat().st_size for path in archived.iterdir()) < sum(path.stat().st_size for path in folder.rglob("*.json")) / 2
    )


def test_writing_again_gives_the_same_bytes(archived, posenc, tmp_path):
    assert posenc("archive", archived, "--output", tmp_path / "again")[0] == 0
    assert (tmp_path / "again" / archive.FILE).read_bytes() == (archived / archive.FILE).read_bytes()


def test_a_report_of_the_archive_is_that_of_the_files(write, posenc, tmp_path):  # noqa: F811
    folder = write(*(runs.run(spec, seed, rate) for spec, rate in (("none", 0.5), ("t5", 0.2)) for seed in (1, 2)))
    assert posenc("archive", folder, "--output", tmp_path / "archive")[0] == 0
    (status, first, _), (_, second, _) = (
        posenc("report", place, "--baseline", "none") for place in (folder, tmp_path / "archive")
    )
    assert status == 0 and "t5" in first and first.replace(str(folder), "F") == second.replace(str(tmp_path / "archive"), "F")


def test_an_archive_keeps_the_order_of_test_sets(write, posenc, tmp_path):  # noqa: F811
    """One run lacks the first test set of the other run."""
    both, one = (runs.run(spec, part="test") for spec in ("none", "t5"))
    both["parts"] = {"dev": both["parts"]["test"], **both["parts"]}
    assert posenc("archive", write(both, one), "--output", tmp_path / "archive")[0] == 0
    assert sorted(list(found.parts) for found in archive.read(tmp_path / "archive").values()) == [["dev", "test"], ["test"]]


def test_files_beside_an_archive_must_agree_with_it(folder, archived):
    shutil.copytree(folder / "0", archived / "0")
    assert len(archive.find(archived)) == 4
    other = json.loads((archived / "0" / "score.json").read_text())
    (archived / "0" / "score.json").write_text(json.dumps({**other, "seed": 9}))
    with pytest.raises(PositionError, match=r"Expected one record per run\. Remove score\.json"):
        archive.find(archived)


def test_another_compression_of_the_same_numbers_is_the_same_run(folder, posenc, tmp_path):
    """Versions of zlib compress the same text to different bytes."""
    file = folder / "0" / "score.json"
    content = json.loads(file.read_text())
    for scores in content["parts"].values():
        packed = zlib.decompress(base64.b64decode(scores["statistics"]))
        scores["statistics"] = base64.b64encode(zlib.compress(packed, 1)).decode()
    file.write_text(json.dumps(content))
    for command in (["archive", folder], ["archive", folder], ["archive", folder, "--output", tmp_path / "other"]):
        status, _, error = posenc(*command)
        assert status == 0, error
    content["parts"]["test"]["bleu"] += 1
    file.write_text(json.dumps(content))
    assert "score.json differs from the run 0" in posenc("archive", folder)[2]


def test_no_lengths_are_one_line(folder, posenc):
    file = folder / "2" / "score.json"
    content = json.loads(file.read_text())
    content["parts"]["test"]["lengths"] = Lengths([], []).pack()
    file.write_text(json.dumps(content))
    status, _, error = posenc("archive", folder)
    assert status == 2 and "the field lengths is damaged (no sentences). Run posenc score again." in error


def test_new_runs_are_added_to_the_archive_of_their_folder(folder, posenc, tmp_path):
    expected = {path.relative_to(folder): record for path, record in archive.find(folder).items()}
    shutil.move(folder / "3", tmp_path / "new")
    assert posenc("archive", folder)[0] == 0
    for number in range(3):
        shutil.rmtree(folder / str(number))
    shutil.move(tmp_path / "new", folder / "3")
    status, printed, _ = posenc("archive", folder)
    assert status == 0 and "4 runs" in printed
    shutil.rmtree(folder / "3")
    assert {path.relative_to(folder): record for path, record in archive.find(folder).items()} == expected


def test_a_run_that_was_scored_again_replaces_the_archived_one_on_demand(folder, posenc):
    assert posenc("archive", folder)[0] == 0
    changed = json.loads((folder / "0" / "score.json").read_text())
    (folder / "0" / "score.json").write_text(json.dumps({**changed, "seed": 9}))
    status, _, error = posenc("archive", folder)
    assert status == 2 and "differs from the run 0" in error
    assert posenc("archive", folder, "--replace")[0] == 0
    assert [record.seed for record in archive.read(folder).values()] == [9, 2, 1, 2]


def content_of(archived):
    """Return the records, and the bytes with the statistics of sentences."""
    records, _, numbers = lzma.decompress((archived / archive.FILE).read_bytes()).partition(b"\0")
    return json.loads(records), numbers


def pack(archived, records, numbers=b"", null=b"\0"):
    (archived / archive.FILE).write_bytes(lzma.compress(records.encode() + null + numbers))


def _edit(change):
    def edited(archived):
        content, numbers = content_of(archived)
        change(content)
        pack(archived, json.dumps(content), numbers)

    return edited


def _numbers(change):
    def edited(archived):
        content, numbers = content_of(archived)
        pack(archived, json.dumps(content), change(numbers))

    return edited


@pytest.mark.parametrize(
    "damage",
    [
        lambda archived: (archived / archive.FILE).unlink(),
        lambda archived: (archived / archive.FILE).write_bytes(b""),
        lambda archived: (archived / archive.FILE).write_bytes((archived / archive.FILE).read_bytes()[:-40]),
        lambda archived: (archived / archive.FILE).write_bytes((archived / archive.FILE).read_bytes()[:400]),
        lambda archived: (archived / archive.FILE).write_bytes(lzma.compress(bytes(2**22))),
        lambda archived: pack(archived, "[" * 100_000),
        lambda archived: pack(archived, "[]"),
        lambda archived: pack(archived, " " * 2**22, null=b""),
        _numbers(lambda numbers: b""),
        _numbers(lambda numbers: numbers[:-1]),
        _numbers(lambda numbers: numbers + b"\0"),
        _edit(lambda content: content.update(format=1)),
        _edit(lambda content: content["sentences"][0].__setitem__(3, 2**40)),
        _edit(lambda content: content["sentences"][0].__setitem__(3, float("inf"))),
        _edit(lambda content: content["sentences"][0].insert(3, content["sentences"][0].pop(4))),
        _edit(lambda content: content["sentences"].pop()),
        _edit(lambda content: content["runs"]["0"].pop("seed")),
        _edit(lambda content: content["runs"]["0"]["parts"].update(test=[])),
    ],
    ids=[
        "missing",
        "empty",
        "truncated",
        "records-truncated",
        "other",
        "nested",
        "list",
        "no-null",
        "no-numbers",
        "number-truncated",
        "longer",
        "format",
        "huge",
        "infinite",
        "columns",
        "fewer",
        "no-seed",
        "no-part",
    ],
)
def test_damage_is_one_line(archived, damage):
    damage(archived)
    with pytest.raises(PositionError) as error:
        archive.read(archived)
    assert "\n" not in str(error.value) and archive.FILE in str(error.value)


def test_an_archive_below_the_runs(write, posenc):  # noqa: F811
    """The archive contains copies of the runs, which count once."""
    folder = write(runs.run("none"), runs.run("t5"))
    for _ in range(2):
        status, out, _ = posenc("archive", folder, "--output", folder / "archive")
        assert status == 0 and ": 2 runs (" in out
    assert posenc("report", folder)[0] == 0


def test_a_folder_without_runs_is_refused(posenc, tmp_path):
    (tmp_path / "empty").mkdir()
    status, _, error = posenc("archive", tmp_path / "empty", "--output", tmp_path / "archive")
    assert status == 2 and "Run posenc score first" in error and not (tmp_path / "archive").exists()
