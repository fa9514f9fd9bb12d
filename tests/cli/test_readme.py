"""The statements of the README about methods, files and commands are true."""

import re
from pathlib import Path

import pytest

from fairseq_posenc import registry
from fairseq_posenc.cli import COMMANDS
from fairseq_posenc.registry.declarations import declarations
from tests.documents import Reader, blocks, documents, read, section, write_text

ROOT = Path(__file__).parents[2]
README = read("README.md")


def table(title):
    """Return the rows of the table of a section, without its head."""
    lines = [line for line in section("README.md", title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(cell):
    return re.findall(r"`(\w+)`", cell)


def test_the_number_of_methods_is_right():
    assert {int(number) for number in re.findall(r"(\d+) (?:position encodings|methods)", README)} == {len(registry.names())}


def test_every_family_lists_all_its_methods():
    listed = {family: names(cell) for family, cell in table("Methods")}
    expected = {}
    for name in registry.names():
        expected.setdefault(registry.declaration(name).family, []).append(name)
    assert listed == expected


def test_every_method_to_choose_from_has_the_property():
    agrees = {
        "first comparison": lambda card: "encoder" in card.all_sites and "decoder" in card.all_sites,
        "no additional parameters": lambda card: not card.learnable,
        "test sentences are longer than training sentences": lambda card: card.extrapolation == "runs",
        "positions in cross-attention": lambda card: "cross" in card.all_sites,
        "checkpoints of stock fairseq": lambda card: card.injection == "APE",
        "dependency trees of the source": lambda card: any("heads" in side.files for side in card.side_inputs),
        "control of the target length": lambda card: declarations()[card.name].family == "length",
    }
    rows = table("Choose a method")
    assert [row[0] for row in rows] == list(agrees)
    for situation, methods, _ in rows:
        assert names(methods)
        assert [name for name in names(methods) if not agrees[situation](registry.card(name))] == []


def test_every_method_in_code_type_exists():
    known = {*registry.names(), *(family.family for family in declarations().values())}
    cells = [cell for title in ("Choose a method", "Methods") for row in table(title) for cell in row]
    assert {name for cell in cells for name in names(cell)} <= known
    for arch in re.findall(r"posenc_([a-z0-9]+(?:_(?!tiny|small|big)[a-z0-9]+)*)", README):
        assert arch in ("transformer",) or arch in registry.names(), arch


def test_commands_exist():
    named = set(re.findall(r"posenc ([a-z]+)", "".join(re.findall(r"`[^`]+`", README))))
    assert len(named) > 2 and named <= set(COMMANDS)


@pytest.mark.parametrize("page", documents())
def test_links_hold(page):
    folder = (ROOT / page).parent
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", read(page))
    assert [target for target in targets if not (target.startswith("http") or (folder / target).exists())] == []


def test_recipes_exist():
    assert all((ROOT / name).is_file() for name in re.findall(r"\brecipes/[\w/]+[a-z](?=[\s`])", README))


@pytest.mark.slow
def test_the_commands_run_as_printed(tmp_path):
    """The commands run in one shell, on a tiny language pair. The recipes have their own tests."""
    write_text(tmp_path / "data")
    commands = [block for block in blocks(README) if not block.startswith("recipes/")]
    printed = Reader(tmp_path).paste(*commands, "posenc report runs/en-de", ARCH="posenc_t5_tiny", MERGES=20, UPDATES=3)
    assert re.search(r"^runs/en-de/t5: test BLEU \d+\.\d+, chrF \d+\.\d+, 8 sentences$", printed, re.MULTILINE)
    assert re.search(r"^\W*t5\b.*\d\.\d", printed, re.MULTILINE)
    assert (tmp_path / "positions.png").is_file()


@pytest.mark.slow
def test_the_training_command_accepts_the_specs(tmp_path):
    write_text(tmp_path / "data")
    (specs,) = [block for block in blocks(README, "text") if block.startswith("--arch posenc_transformer ")]
    (block,) = [block for block in blocks(README) if "--arch $ARCH" in block]
    specs = specs.strip().replace("posenc_transformer", "posenc_transformer_tiny")
    reader = Reader(tmp_path)
    reader.paste(block.replace("--arch $ARCH", specs), MERGES=20, UPDATES=2)
    assert "shaw:max_distance=8" in str(reader.state("runs/en-de/t5/checkpoint_last.pt")["cfg"]["model"])
