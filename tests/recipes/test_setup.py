"""recipes/setup, as far as it goes without installing anything."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.recipes.process import ROOT


def setup(folder, *arguments, **options):
    command = [folder / "recipes" / "setup", *arguments]
    return subprocess.run(
        command, env={**os.environ, "PYTHON": sys.executable, "CHROMIUM": "none", **options}, capture_output=True, text=True
    )


@pytest.fixture
def checkout(tmp_path):
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    for name in ("setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_an_environment_that_is_up_to_date_is_left_alone(checkout):
    """Its stamp names the folder, the Python and what was installed."""
    files = "cat setup.py constraints.txt | cksum"
    content = subprocess.run(files, shell=True, cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()
    (checkout / ".venv").mkdir()
    stamp = checkout / ".venv" / "stamp"
    stamp.write_text(f"{checkout}: {sys.base_prefix} {sys.version.split()[0]}: {content} test\n")
    for arguments in ([], ["test"]):
        done = setup(checkout, *arguments)
        assert (done.returncode, done.stdout) == (0, "[setup] .venv is up to date\n"), done.stderr
    assert list(stamp.parent.iterdir()) == [stamp]


def test_an_environment_of_somebody_else_is_left_alone(checkout):
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "mine").touch()
    done = setup(checkout)
    assert done.returncode == 1 and "there is a .venv that recipes/setup has not made" in done.stderr
    assert (checkout / ".venv" / "mine").exists()


def test_a_program_that_is_no_python_is_named(checkout):
    done = setup(checkout, PYTHON="/bin/false")
    assert done.returncode == 1
    assert done.stderr == "[setup] PYTHON=/bin/false is no Python 3.9 to 3.12; name another, or leave it out\n"


def test_an_unknown_extra_is_refused(checkout):
    done = setup(checkout, "tests")
    assert done.returncode == 1 and done.stderr == "[setup] there is no extra 'tests'; recipes/setup or recipes/setup test\n"
