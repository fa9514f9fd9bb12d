"""The tables under results/ are the output of posenc report and posenc bench for the stored results in the same folder.

The folder results/ is small.
"""

import csv
import json
import re
import shlex
from pathlib import Path

import pytest

from fairseq_posenc import cli, registry
from fairseq_posenc.bench import counts, files
from fairseq_posenc.evaluation.scoring import archive

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(ROOT.glob("results/**/command"))
BENCHMARKS = sorted(ROOT.glob("results/**/bench.json"))
COUNTS = sorted(ROOT.glob("results/**/count.json"))
OTHERS = {ROOT / "results" / "pnat" / data for data in ("language", "multi30k_en-de")}  # see tests/recipes/test_pnat.py


def test_there_are_results():
    assert COMMANDS and BENCHMARKS and COUNTS


def test_every_archive_has_a_report():
    archives = {path.parent for path in ROOT.glob(f"results/**/{archive.RUNS}")}
    assert archives == {path.parent for path in COMMANDS} | OTHERS
    assert archives == {path.parent for path in ROOT.glob(f"results/**/{archive.SENTENCES}")}


def test_results_are_small():
    """The stored files must stay small. Files that Git ignores are not counted."""
    left_out = (ROOT / "results" / ".gitignore").read_text(encoding="utf-8").split()
    files = [path for path in (ROOT / "results").rglob("*") if path.is_file()]
    files = [path for path in files if not any(path.match(pattern) for pattern in left_out)]
    assert len(files) < 250 and sum(path.stat().st_size for path in files) < 6 * 2**20


@pytest.mark.parametrize("command", COMMANDS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_committed_report(command, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    arguments = shlex.split(command.read_text(encoding="utf-8"))
    folder = Path(arguments[arguments.index("--output") + 1])
    arguments[arguments.index("--output") + 1] = str(tmp_path)
    assert cli.main(arguments[1:]) == 0
    assert folder == command.parent.relative_to(ROOT)
    made = [path for path in tmp_path.iterdir() if path.suffix in (".md", ".csv")]
    assert {path.suffix for path in made} == {".md", ".csv"}
    for path in made:
        assert path.read_text(encoding="utf-8") == (ROOT / folder / path.name).read_text(encoding="utf-8"), path.name
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {path.name for path in (ROOT / folder).glob("*.png")}


@pytest.mark.parametrize("measured", BENCHMARKS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_committed_benchmark(measured, tmp_path):
    files.write(json.loads(measured.read_text(encoding="utf-8")), tmp_path)
    for name in ("bench.md", "bench.csv"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (measured.parent / name).read_text(encoding="utf-8"), name


@pytest.mark.parametrize("counted", COUNTS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_committed_counts(counted):
    assert (counted.parent / "count.md").read_text(encoding="utf-8") == counts.document(counts.read(counted))


# --- the page of results ---


def bleu(precision: str) -> dict[str, float]:
    """Return the mean BLEU on the test set of every row of all_methods."""
    with (ROOT / "results" / "all_methods" / precision / "report.csv").open(encoding="utf-8") as file:
        return {row["method"]: float(row["test_bleu_mean"]) for row in csv.DictReader(file)}


def page() -> str:
    return (ROOT / "results" / "README.md").read_text(encoding="utf-8")


def test_the_page_names_files_that_exist():
    named = set(re.findall(r"`([\w./]+/[\w.]+\.(?:py|sh))`", page()))
    places = [ROOT, ROOT / "fairseq_posenc"]
    assert named and [name for name in named if not any((place / name).exists() for place in places)] == []
    links = re.findall(r"\]\(([^)#\s]+)", page())
    assert [link for link in links if not link.startswith("http") and not (ROOT / "results" / link).exists()] == []


def test_the_page_has_the_numbers_of_its_reports():
    """The BLEU in the text of results/README.md equals the BLEU of the stored runs."""
    text, single, half = " ".join(page().split()), bleu("float32"), bleu("bfloat16")
    for name, seeds in (("tener", "1 seed"), ("none", "3 seeds")):
        assert f"`{name}` has {single[name]:.1f} BLEU in float32 and {half[name]:.1f} BLEU in bfloat16 ({seeds})" in text
    assert "`tener` is not distinguishable from `none`." in text
    assert f"`shape` has {single['shape']:.1f} BLEU (1 seed) and `none` has {single['none']:.1f} BLEU (3 seeds)" in text
    rows = [f"encoder sinusoidal+{name}, decoder sinusoidal" for name in ("laplacian", "tpe")]
    apart = [abs(table[row] - table[f"{row} (random structure)"]) for table in (single, half) for row in rows]
    assert f"`laplacian` and `tpe` to their controls are {min(apart):.1f} to {max(apart):.1f} BLEU" in text


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_page_names_the_methods_without_runs(precision):
    trained = {run.arch for run in archive.read(ROOT / "results" / "all_methods" / precision).values()}
    listed = re.search(r"These methods are not in the tables: (.*?)\.", " ".join(page().split()))[1]
    assert re.findall(r"`(\w+)`", listed) == [name for name in registry.names() if f"posenc_{name}_tiny" not in trained]
