"""The README is short, and what it says of methods and files is so."""

import re
from pathlib import Path

import pytest

from fairseq_posenc import registry
from fairseq_posenc.cli import COMMANDS
from fairseq_posenc.registry.declarations import declarations

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short():
    lines = README.splitlines()
    assert len(lines) <= 90
    assert all(len(line) <= 100 for line in lines if not line.startswith("    "))


def test_it_has_every_family_and_methods_of_it():
    rows = dict(re.findall(r"\*\*(\w+)\*\*([^*]+?)[;.]\s", README.split("## Methods\n")[1].split("## Compare")[0]))
    assert set(rows) == {found.family for found in declarations().values()}
    for family, listed in rows.items():
        for name in re.sub(r"\(.*?\)|\.\.\.|\s", "", listed).strip(",").split(","):
            begun = [other for other in registry.names() if other.startswith(f"{name}_")]
            found = [name] if name in registry.names() else begun
            assert found and {registry.declaration(other).family for other in found} == {family}, name


@pytest.mark.parametrize(
    "file", ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
)
def test_links_hold(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or ((ROOT / file).parent / target).exists(), target


def test_commands_exist():
    named = set(re.findall(r"^    posenc ([a-z]+)", README, re.MULTILINE))
    assert len(named) > 4 and named <= set(COMMANDS)
