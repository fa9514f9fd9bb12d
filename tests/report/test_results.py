"""The tables under results/ are what posenc report and posenc bench make of the numbers beside them."""

import json
import shlex
from pathlib import Path

import pytest

from fairseq_posenc import cli
from fairseq_posenc.bench import counts, files

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(ROOT.glob("results/**/command"))
BENCHMARKS = sorted(ROOT.glob("results/**/bench.json"))
COUNTS = sorted(ROOT.glob("results/**/count.json"))


def test_there_are_results():
    assert COMMANDS and BENCHMARKS and COUNTS


@pytest.mark.parametrize("command", COMMANDS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_committed_report(command, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    arguments = shlex.split(command.read_text(encoding="utf-8"))
    folder = Path(arguments[arguments.index("--output") + 1])
    arguments[arguments.index("--output") + 1] = str(tmp_path)
    assert cli.main(arguments[1:]) == 0
    assert folder == command.parent.relative_to(ROOT)
    made = [path for path in tmp_path.iterdir() if path.suffix in (".md", ".csv", ".tex")]
    assert made
    for path in made:
        assert path.read_text(encoding="utf-8") == (ROOT / folder / path.name).read_text(encoding="utf-8"), path.name


@pytest.mark.parametrize("measured", BENCHMARKS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_committed_benchmark(measured, tmp_path):
    files.write(json.loads(measured.read_text(encoding="utf-8")), tmp_path)
    for name in ("bench.md", "bench.csv"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (measured.parent / name).read_text(encoding="utf-8"), name


@pytest.mark.parametrize("counted", COUNTS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_committed_counts(counted):
    assert (counted.parent / "count.md").read_text(encoding="utf-8") == counts.document(counts.read(counted))
