"""The wheel contains every file of the package, and the recipes."""

import os
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import fairseq_posenc
from fairseq_posenc.cli import main

ROOT = Path(__file__).parents[2]


def files(folder: Path) -> dict[Path, tuple[bytes, bool]]:
    """Return the content of every file, and whether it is executable."""
    found = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(folder): (path.read_bytes(), os.access(path, os.X_OK)) for path in found}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    place = tmp_path_factory.mktemp("wheel")
    build = ["egg_info", "--egg-base", place, "build", "--build-base", place / "build"]
    build += ["bdist_wheel", "--bdist-dir", place / "unpacked", "--dist-dir", place]
    subprocess.run([sys.executable, "setup.py", "-q", *build], cwd=ROOT, check=True, capture_output=True)
    return next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel):
    target = wheel.parent / "installed"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile", "--target", target, wheel]
    subprocess.run(install, check=True, capture_output=True)
    return target


def test_an_installation_has_every_file_of_the_package_and_the_recipes(installed):
    package = files(ROOT / "fairseq_posenc")
    recipes = {Path("recipes", path): content for path, content in files(ROOT / "recipes").items()}
    assert package and recipes
    assert files(installed / "fairseq_posenc") == package | recipes
    assert Path("py.typed") in package


def test_pytorch_imports_the_changes_for_python_314(installed, tmp_path):
    """PyTorch imports the module fairseq_python314, which does not import the package fairseq_posenc.

    fairseq ignores a `--user-dir` that is already imported. Therefore, PyTorch must not import fairseq_posenc.
    """
    code = "import sys, torch; print(*(name in sys.modules for name in ('fairseq_python314', 'fairseq_posenc')))"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_the_metadata_is_that_of_the_project(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert metadata["Version"] == fairseq_posenc.__version__ and f"version: {metadata['Version']}\n" in citation
    assert f"- name: {metadata['Author']}\n" in citation
    assert metadata["Requires-Python"] == ">=3.10"


def test_recipes_of_a_wheel_run_from_a_copied_folder(installed, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    copy = [sys.executable, "-m", "fairseq_posenc.cli", "recipes", tmp_path / "mine"]
    done = subprocess.run(copy, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    line = done.stdout.splitlines()[-1].strip()
    assert line == f"POSENC_BIN={Path(sys.executable).parent} {tmp_path}/mine/recipes/quickstart"
    environment["DRY_RUN"] = "1"
    shown = subprocess.run(line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert "fairseq-train" in shown and "recipes/setup" not in shown
    assert set(re.findall(r"--user-dir (\S+)", shown)) == {f"{installed}/fairseq_posenc"}
    assert f"{installed}/fairseq_posenc/evaluation/scoring/memory.py" in shown
    again = subprocess.run(copy, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert again.returncode == 2 and again.stderr.startswith(f"posenc: {tmp_path}/mine/recipes: this folder exists.")


def test_a_checkout_copies_its_own_recipes(tmp_path):
    assert main(["recipes", str(tmp_path)]) == 0
    ours, copied = files(ROOT / "recipes"), files(tmp_path / "recipes")
    assert {path: ours[path] for path in copied} == copied
    assert {str(path) for path in ours.keys() - copied.keys()} == {"setup", "test", "lib/interpreter.py"}


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["recipes", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith(f"posenc: {tmp_path}/file/recipes: cannot be written (")


def test_supported_versions_are_the_same_everywhere():
    """Compare the versions of Python in the metadata, in recipes/setup, in recipes/test, and in the settings of ruff."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    classified = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    versions = [tuple(map(int, version.split("."))) for version in classified]
    checks = {}
    exec((ROOT / "recipes/lib/interpreter.py").read_text(encoding="utf-8").partition("if __name__")[0], checks)
    assert versions == [(3, minor) for minor in range(checks["OLDEST"][1], checks["NEWEST"][1] + 1)]
    assert f'supported="Python {classified[0]} to {classified[-1]}"' in (ROOT / "recipes/setup").read_text(encoding="utf-8")
    assert f'requires-python = ">={classified[0]}"' in project
    assert f'target-version = "py{classified[0].replace(".", "")}"' in project
    assert f"--target={classified[0]}-" in (ROOT / "recipes/test").read_text(encoding="utf-8")
