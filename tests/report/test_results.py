"""The reports under results/ are what posenc report makes of the score.json files beside them."""

import shlex
from pathlib import Path

import pytest

from fairseq_posenc import cli

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(ROOT.glob("results/**/command"))


def test_there_are_results():
    assert COMMANDS


@pytest.mark.parametrize("command", COMMANDS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_committed_report(command, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    arguments = shlex.split(command.read_text(encoding="utf-8"))
    folder = Path(arguments[arguments.index("--output") + 1])
    arguments[arguments.index("--output") + 1] = str(tmp_path)
    assert cli.main(arguments[1:]) == 0
    assert folder == command.parent.relative_to(ROOT)
    for name in ("report.md", "report.csv", "report.tex"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (ROOT / folder / name).read_text(encoding="utf-8"), name
