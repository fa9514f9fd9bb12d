"""The generated pages that are committed."""

import re
from pathlib import Path

import pytest

from fairseq_posenc import registry
from fairseq_posenc.cli import COMMANDS
from posenc_docs import commands, committed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", ["docs/methods.md", "docs/claims.md", "docs/coverage.md", "docs/reference/commands.md"])
def test_a_page_is_that_of_the_code(path):
    """If this test fails, regenerate the page with: python docs/renew.py"""
    generated = committed.generated(ROOT)
    assert path in generated and (ROOT / path).read_text(encoding="utf-8") == generated[path]


def test_every_method_is_a_link_to_its_source_file():
    links = dict(re.findall(r"^\| \[(\w+)\]\((\S+)\)", (ROOT / "docs/methods.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert list(links) == registry.names()
    for name, link in links.items():
        assert f'name="{name}"' in (ROOT / "docs" / link).read_text(encoding="utf-8")


def test_the_page_of_commands_has_every_command():
    page = commands.page()
    for name in COMMANDS:
        assert f"## posenc {name}" in page
    assert "\\$(posenc path)" in page
    assert not re.search(r"(?<!\\)\$", re.sub(r"`[^`]*`", "", page)), "a dollar sign would begin a formula"
