"""The tables under results/ are what posenc report and posenc bench make of the numbers next to them, and the folder is small."""

import json
import shlex
from pathlib import Path

import pytest

from fairseq_posenc import cli
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
    """A checkout stays small. Git ignores the other files that the commands write."""
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
