"""The pages about recipes and results contain commands that run as printed. Commands that train models are dry runs."""

import re
import shutil

import pytest

from fairseq_posenc.evaluation.scoring import archive, record
from tests.documents import ROOT, Reader, blocks, read

PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "recipes").rglob("README.md"))


@pytest.fixture
def reader(tmp_path):
    found = Reader(tmp_path)
    found.link_recipes()
    found.environment["DRY_RUN"] = "1"
    (tmp_path / "my_methods.txt").write_text("none\nt5\n")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_recipes(reader, page):
    commands = blocks(read(page))
    assert commands and "fairseq-train" in reader.paste(*commands)


def indented() -> list[str]:
    """Return the indented blocks of results/README.md."""
    return re.findall(r"(?<=\n\n)(?:    .*\n)+", read("results/README.md"))


def test_commands_of_results(reader):
    commands = [block for block in indented() if re.search(r"^    [^#]*\brecipes/", block)]
    assert len(commands) > 15
    for command in commands:
        assert re.search(r"\bfairseq-(train|generate)\b|\bcli analyse\b", reader.paste(command)), command


def test_archive_commands_of_results(reader):
    """A new run in a folder of results is added to the archive, and to the report."""
    name = "transformer_tiny"
    folder = reader.folder / "results" / name
    shutil.copytree(ROOT / "results" / name, folder)
    (folder.parent / "chance").symlink_to(ROOT / "results" / "chance")  # the report reads the seed variance from this folder
    records = archive.read(folder)
    new = next(iter(records))
    (folder / new).mkdir(parents=True)
    (folder / new / record.FILE).write_text(records.pop(new).model_dump_json(exclude_unset=True), encoding="utf-8")
    archive.write(folder, records)
    [commands] = [block for block in indented() if "posenc archive" in block]
    reader.paste(commands.replace("FOLDER", name))
    for file in (archive.FILE, "report.md", "report.csv"):
        assert (folder / file).read_bytes() == (ROOT / "results" / name / file).read_bytes(), file
