"""The commands of the pages on recipes and results run as printed. They are dry runs, which print the commands of a recipe."""

import re

import pytest

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


def test_commands_of_results(reader):
    """Commands that are not recipes need the folders of finished runs, or compute for hours."""
    indented = re.findall(r"(?<=\n\n)(?:    .*\n)+", read("results/README.md"))
    commands = [block for block in indented if re.search(r"^    [^#]*\brecipes/", block)]
    assert len(commands) > 15
    for command in commands:
        assert re.search(r"\bfairseq-train\b|\bcli analyse\b", reader.paste(command)), command
