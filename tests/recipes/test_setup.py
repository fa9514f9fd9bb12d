"""recipes/setup, without the steps that install packages."""

import fcntl
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
    for name in ("setup.py", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def stamp_of(checkout):
    """Return the content of .venv/stamp for an environment that is up to date."""
    files = "cat setup.py pyproject.toml constraints.txt | cksum"
    content = subprocess.run(files, shell=True, cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()
    return f"{checkout}: {sys.base_prefix} {sys.version.split()[0]}: {content} test\n"


def test_an_environment_that_is_up_to_date_is_left_alone(checkout):
    """The file .venv/stamp describes the installed environment.

    This file contains the folder of the checkout, the folder and the version of Python, a checksum of three files, and the
    argument `test`. The three files determine which packages are installed.
    """
    (checkout / ".venv").mkdir()
    stamp = checkout / ".venv" / "stamp"
    stamp.write_text(stamp_of(checkout))
    for arguments in ([], ["test"]):
        done = setup(checkout, *arguments)
        assert (done.returncode, done.stdout) == (0, "[setup] .venv is up to date\n"), done.stderr
    assert list(stamp.parent.iterdir()) == [stamp]


def test_a_link_to_the_checkout_has_the_same_environment(checkout, tmp_path_factory):
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "stamp").write_text(stamp_of(checkout))
    link = tmp_path_factory.mktemp("links") / "checkout"
    link.symlink_to(checkout)
    command = ["bash", "-c", f"cd {link} && recipes/setup"]
    environment = {**os.environ, "PYTHON": sys.executable, "CHROMIUM": "none", "CDPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[setup] .venv is up to date\n"), done.stderr


def test_an_environment_of_somebody_else_is_left_alone(checkout):
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "mine").touch()
    done = setup(checkout)
    assert done.returncode == 1 and ".venv: not created by recipes/setup" in done.stderr
    assert (checkout / ".venv" / "mine").exists()


def test_one_installation_at_a_time(checkout):
    """A call waits until the other call ends. Then it reads the stamp that the other call has written."""
    (checkout / ".venv").mkdir()
    with (checkout / "recipes" / "setup").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        command, environment = [checkout / "recipes" / "setup"], {**os.environ, "PYTHON": sys.executable, "CHROMIUM": "none"}
        waiting = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert waiting.stdout.readline() == "[setup] waiting for another installation in this folder\n"
        assert waiting.poll() is None
        (checkout / ".venv" / "home").write_text("written by the other call\n")
        (checkout / ".venv" / "python").write_text("/bin/false\n")
        (checkout / ".venv" / "stamp").write_text(stamp_of(checkout))
    assert waiting.communicate(timeout=60) == ("[setup] .venv is up to date\n", "")


FAKE = """#!/bin/bash
# A Python of another version. As an environment's Python it writes down what pip is called with.
case $* in
  *" suitable") exec {python} -c "import runpy, sys; sys.version_info = {version}; sys.argv = ['', 'suitable']
runpy.run_path('$1', run_name='__main__')" ;;
  *" complete") exit {incomplete} ;;
  *" version") echo {dotted} ;;
  *" name") echo {name} ;;
  *" home") echo "/somewhere {dotted}" ;;
  --version) echo "Python {dotted}" ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && touch "$3/bin/pip" && chmod +x "$3/bin/pip" ;;
  "-m pip "*) echo "[$PIP_CONSTRAINT] [$PIP_BUILD_CONSTRAINT] $*" >>pip.log; [[ $* != *"${{FAILS:-nothing}}"* ]] ;;
esac
"""


@pytest.fixture
def fake(tmp_path):
    """Write a folder for PATH with only the commands that recipes/setup requires.

    Return a function that adds a fake Python of a given version to this folder. The function returns the folder.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    for command in ("bash", "cat", "cksum", "cp", "cc", "c++", "chmod", "dirname", "env", "id", "mkdir", "rm", "tail", "touch"):
        (folder / command).symlink_to(shutil.which(command))

    def make(name, *version, incomplete=0):
        python = folder / name
        dotted = ".".join(map(str, version))
        words = {"python": sys.executable, "version": version, "dotted": dotted, "name": f"python{version[0]}.{version[1]}"}
        python.write_text(FAKE.format(**words, incomplete=incomplete))
        python.chmod(0o755)
        return folder

    return make


def found(printed):
    return printed.splitlines()[0].split("Found: ")[1].split(". Expected")[0]


@pytest.mark.parametrize("version", [(3, 9, 25), (3, 15, 0), (3, 8, 1), (2, 7, 18)], ids=str)
def test_an_unsupported_python_is_named(checkout, fake, version):
    """The message also contains the supported versions, and how to install one."""
    folder = fake("python", *version)
    done = setup(checkout, PYTHON="python", PATH=str(folder))
    assert done.returncode == 1 and done.stdout == ""
    assert found(done.stderr) == f"Python {'.'.join(map(str, version))} ({folder}/python)"
    assert "Expected Python 3.10 to 3.14." in done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()[1:]] == ["  apt", "  uv", "  conda"]
    assert not (checkout / ".venv").exists()


def test_a_program_that_is_not_python_is_named(checkout):
    done = setup(checkout, PYTHON="/bin/false")
    assert done.returncode == 1
    assert found(done.stderr) == "PYTHON=/bin/false, which does not run as Python 3"


def test_a_python_without_venv_names_its_packages(checkout, fake):
    folder = fake("python3.13", 3, 13, 5, incomplete=1)
    done = setup(checkout, PYTHON="python3.13", PATH=str(folder))
    assert done.returncode == 1
    packages = "python3.13-venv and python3.13-dev"
    assert done.stderr == (
        f"[setup] {folder}/python3.13: venv or the headers of Python are missing. "
        f"Install {packages}, or name another Python: PYTHON=...\n"
    )


@pytest.mark.parametrize("minor", range(10, 15))
def test_torch_is_installed_once_and_before_fairseq_is_built(checkout, fake, minor):
    folder = fake("python", 3, minor, 1)
    done = setup(checkout, "test", PYTHON="python", PATH=str(folder), PIP_CONSTRAINT="a.txt", PIP_BUILD_CONSTRAINT="b.txt")
    assert done.returncode == 0, done.stderr
    calls = [line.split(" -m pip install ") for line in (checkout / "pip.log").read_text().splitlines()]
    assert [call for _, call in calls] == [
        "torch numpy Cython setuptools wheel",
        "--no-build-isolation fairseq-fixed",
        "--editable .[test]",
    ]
    ours = "[constraints.txt a.txt]"
    # pip does not accept a build constraint together with --no-build-isolation
    assert [settings for settings, _ in calls] == [f"{ours} [b.txt]", f"{ours} []", f"{ours} [b.txt]"]
    again = setup(checkout, PYTHON="python", PATH=str(folder))
    assert again.stdout == "[setup] .venv is up to date\n" and len((checkout / "pip.log").read_text().splitlines()) == 3


@pytest.mark.parametrize("step", ["torch", "fairseq-fixed", "--editable"])
def test_a_step_that_fails_is_the_last_and_the_same_command_continues(checkout, fake, step):
    folder = fake("python", 3, 12, 1)
    done = setup(checkout, PYTHON="python", PATH=str(folder), FAILS=step)
    assert done.returncode == 1 and "pip failed" in done.stderr
    calls = (checkout / "pip.log").read_text().splitlines()
    assert step in calls[-1] and not (checkout / ".venv/stamp").exists()
    assert setup(checkout, PYTHON="python", PATH=str(folder)).returncode == 0


def test_the_python_may_be_an_argument(checkout, fake):
    folder = fake("python", 3, 9, 1)
    assert found(setup(checkout, "PYTHON=python", PATH=str(folder)).stderr) == f"Python 3.9.1 ({folder}/python)"


@pytest.mark.parametrize("argument", ["tests", "PYTHN=python3", "--hlp"])
def test_an_unknown_argument_is_one_line(checkout, argument):
    done = setup(checkout, argument)
    expected = "Expected PYTHON=NAME, CHROMIUM=NAME or test. For all options, run with --help."
    assert (done.returncode, done.stderr) == (1, f"[setup] {argument}: unknown option. {expected}\n")
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(
    "recipe, words", [("setup", ("recipes/setup test", "PYTHON=", "CHROMIUM=")), ("test", ("quick", "style"))]
)
def test_help_explains_the_arguments_and_installs_nothing(checkout, recipe, words):
    done = subprocess.run([checkout / "recipes" / recipe, "--help"], capture_output=True, text=True, check=True)
    assert all(word in done.stdout for word in words) and "set -euo" not in done.stdout and not done.stderr
    assert not (checkout / ".venv").exists()
