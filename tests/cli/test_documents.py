"""The examples in the documents run as printed."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch

from fairseq_posenc import registry
from fairseq_posenc.bench.command import with_defaults
from fairseq_posenc.bench.models import variants
from fairseq_posenc.bench.settings import Settings
from fairseq_posenc.cli import main, make_parser
from fairseq_posenc.core import PositionError
from fairseq_posenc.registry import catalog
from fairseq_posenc.registry.architectures import SIZES
from tests.documents import Reader, blocks, documents, read, section

ROOT = Path(__file__).parents[2]


def python_of(document: str) -> list[str]:
    """Return the Python blocks of a document, in their order."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / document).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


RECIPE_PAGES = [str(path.relative_to(ROOT)) for path in (ROOT / "recipes").rglob("README.md")]


def posenc_commands(text: str) -> list[list[str]]:
    """Return the arguments of every posenc command. A command is inline code, or a line that begins with posenc."""
    joined = re.sub(r"\\\n", " ", text)
    found = re.findall(r"`(?:[^`]*;\s)?posenc\s+([^`]+)`", joined) + re.findall(r"^\s*posenc (.+)$", joined, re.MULTILINE)
    return [shlex.split(re.split(r"[|;>]|&&", command)[0], comments=True) for command in found]


@pytest.mark.parametrize("page", [*documents(), *RECIPE_PAGES, "results/README.md"])
def test_printed_commands_have_options_that_exist(page):
    """The text can name a command without its required arguments. This test only parses the commands."""
    for arguments in posenc_commands(read(page)):
        try:
            make_parser(arguments[0]).parse_args([argument.replace("$SENTENCES", "10") for argument in arguments])
        except PositionError as error:
            assert re.search("arguments are required|expected one argument", str(error)), (arguments, str(error))
        except SystemExit as end:  # --help and --version
            assert not end.code, arguments


@pytest.mark.parametrize(("page", "number"), [("results/README.md", 6), ("CONTRIBUTING.md", 2)])
def test_printed_benchmarks_have_settings_that_exist(page, number, monkeypatch):
    """This test only reads the settings, because the benchmarks run for minutes or hours. Other tests run small benchmarks."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    commands = [arguments for arguments in posenc_commands(read(page)) if arguments[0] == "bench" and len(arguments) > 1]
    assert len(commands) >= number
    for arguments in commands:
        settings = Settings.of(with_defaults(make_parser("bench").parse_args(arguments)))
        assert settings.output
        assert all(variants(settings.specs or registry.names(), site) for site in settings.sites)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_positions_in_a_transformer_of_ones_own(capsys):
    """All blocks run in one process, because a reader pastes one block after another."""
    blocks, names = python_of("howto/use_in_your_own_transformer.md"), {"__name__": "document"}
    assert len(blocks) == 5
    for block in blocks:
        exec(block, names)
    assert all(p.grad is not None for p in names["model"].parameters())
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("fairseq_posenc: TorchScript and ONNX: not supported for modules with position methods")


def test_the_fields_of_the_json_are_documented(capsys):
    text = (ROOT / "docs" / "reference/json_and_completion.md").read_text(encoding="utf-8")
    sections = {name: body for name, body in re.findall(r"^### `posenc (\w+) .*?--json`$(.*?)(?=^##)", text, re.M | re.S)}
    assert set(sections) == {"list", "show", "score", "report"}
    assert set(catalog.COLUMNS) <= set(re.findall(r"`(\w+)`", sections["list"]))
    assert main(["show", "shaw", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert set(shown) - set(catalog.COLUMNS) <= set(re.findall(r"`(\w+)`", sections["show"]))
    assert main(["report", str(ROOT / "results" / "multi30k_en-de" / "tiny"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    row = next(row for row in report["rows"] if row["method"] == "rope")
    part = row["scores"]["test_2016_flickr"]
    for found in (report, row, part["bleu"], part["bleu"]["difference"]):
        assert set(found) <= set(re.findall(r"`(\w+)`", sections["report"]))


def test_the_example_of_the_json_runs_as_printed(tmp_path):
    (example,) = blocks(read("docs/reference/json_and_completion.md"))
    found = [line.split()[0] for line in Reader(tmp_path).paste(example).splitlines()]
    cards = map(registry.card, registry.names())
    assert set(found) == {card.name for card in cards if card.learnable and card.unbound}


def test_the_sizes_of_architectures_are_documented():
    text = read("docs/reference/specs.md").split("| suffix |")[1]
    rows = [
        [cell.strip().replace(",", "") for cell in line.strip("|").split("|")] for line in text.splitlines()[2:] if "|" in line
    ]
    documented = {"" if name == "(none)" else name.strip("`"): tuple(map(float, values)) for name, *values in rows}
    sizes = {name: (size.layers, size.embed_dim, size.heads, size.ffn_embed_dim, size.dropout) for name, size in SIZES.items()}
    assert documented == sizes


def test_the_example_of_a_method_is_valid(tmp_path):
    """The method file and the oracle file of the tutorial pass the checks that every method must pass."""
    method, oracle = python_of("tutorials/your_own_method.md")
    for name, code in (("linear_penalty.py", method), ("oracle_linear_penalty.py", oracle)):
        (tmp_path / name).write_text(code.replace("from ...", "from fairseq_posenc."))
    (tmp_path / "references.bib").write_text("@misc{author-2026-penalty, \n  title = {Penalty}}\n")
    Reader(tmp_path).paste("posenc check linear_penalty.py")


def test_pages_of_pnat_begin_with_what_is_known():
    """Check the beginnings of the pages about PNAT, a non-autoregressive model with learned positions.

    The pages state first that PNAT is not better than a plain model, or on which condition it is better.
    """
    before_equations = (ROOT / "docs" / "reference" / "pnat.md").read_text().partition("## Equations")[0]
    assert "PNAT has a lower BLEU" in before_equations and "not distinguishable from this plain model" in " ".join(
        before_equations.split()
    )
    assert "lower BLEU" in (ROOT / "docs" / "howto" / "non_autoregressive_models.md").read_text().partition("## Train")[0]
    parts = (ROOT / "results" / "README.md").read_text().split("\n## ")[1:]
    first = {part.splitlines()[0]: " ".join(part.partition("\n* ")[0].split()) for part in parts}
    assert "**learned positions do not help**" in first["pnat/language"]
    assert "**learned positions help only if several lengths are decoded**" in first["pnat/multi30k_en-de"]
    assert "`pnat` is not distinguishable from `nat_deep`" in first["pnat/multi30k_en-de"]
    assert "pnat" not in (ROOT / "README.md").read_text().lower()


def test_the_page_of_pnat_lists_how_it_differs_from_the_authors_code():
    deviations = " ".join(section("docs/reference/pnat.md", "Source and deviations").split())
    for words in (
        "passes tanh(W [context; h])",
        "have a total probability above 0.5",
        "The model is a reconstruction",
    ):
        assert words in deviations, words
    options = section("docs/reference/pnat.md", "Equations")
    assert "* `embedding`: embeddings with sinusoidal positions" in options and "* `encoder` (default)" in options
