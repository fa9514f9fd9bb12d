"""The workflows in .github are valid YAML, and the program of every command exists in a checkout or in the environment."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from fairseq_posenc.cli import COMMANDS
from tests.recipes.process import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
BIN = Path(sys.executable).parent


def jobs(workflow):
    return yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]


COMMANDS_OF_STEPS = [
    (name, line)
    for workflow in WORKFLOWS
    for name, job in jobs(workflow).items()
    for step in job["steps"]
    for line in step.get("run", "").splitlines()
]


def test_lint_tests_wheel_and_site_are_jobs():
    found = [name for workflow in WORKFLOWS for name in jobs(workflow)]
    assert sorted(found) == ["lint", "site", "tests", "wheel"]


@pytest.mark.parametrize(("job", "command"), COMMANDS_OF_STEPS)
def test_every_command_exists(job, command):
    program, *arguments = shlex.split(command)
    if program == "python":
        assert arguments[:3] == ["-m", "pip", "wheel"]
    elif program.startswith("recipes/"):
        assert (ROOT / program).stat().st_mode & 0o100
    else:
        assert (BIN / Path(program).name).exists()
    if program.endswith("/posenc"):
        assert arguments[0] in COMMANDS


def test_every_supported_python_is_tested():
    matrices = [
        job["strategy"]["matrix"]["python"] for workflow in WORKFLOWS for job in jobs(workflow).values() if "strategy" in job
    ]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert matrices == [re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)]
