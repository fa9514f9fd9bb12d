"""Methods outside this package: found by path and by entry point, available in all commands.

Wrong files lead to one-line errors.
"""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_posenc import registry
from fairseq_posenc.cli import main
from fairseq_posenc.registry import citations as bibliography
from fairseq_posenc.registry import external
from fairseq_posenc.registry.declarations import declarations

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Forget the methods of other tests, and the methods in the environment variable POSENC_METHODS of this process."""
    monkeypatch.delenv(external.VARIABLE, raising=False)
    for cache in (declarations, bibliography.entries):
        cache.cache_clear()
    yield
    monkeypatch.undo()
    for cache in (declarations, bibliography.entries):
        cache.cache_clear()


@pytest.fixture
def slope(tmp_path):
    """Write a method file with posenc new. Return its path."""
    assert main(["new", "slope", "--folder", str(tmp_path)]) == 0
    return tmp_path / "slope.py"


def known(monkeypatch, *paths):
    monkeypatch.setenv(external.VARIABLE, os.pathsep.join(map(str, paths)))
    declarations.cache_clear()


def python(code, **environment):
    """Run Python in a new process with these environment variables."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )


def test_a_citation_without_an_entry_is_one_line(monkeypatch, capsys, slope):
    slope.write_text(slope.read_text().replace("citations=()", 'citations=("me-2026",)'))
    known(monkeypatch, slope)
    assert main(["show", "slope"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "citation me-2026: no entry in references.bib" in error


@pytest.mark.parametrize("given", ["file", "folder"])
def test_found_by_path_it_is_a_method_like_ours(monkeypatch, capsys, slope, given):
    known(monkeypatch, slope if given == "file" else slope.parent)
    assert "slope" in registry.names() and registry.declaration("slope").family == "external"
    capsys.readouterr()
    assert main(["check", "slope:start=2+t5", "posenc_slope"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("posenc_slope\tencoder slope\tdecoder slope\tcross none\tcode ")
    assert main(["show", "slope"]) == 0
    assert "- Equation: A_ts = q_t · k_s / √(d_h) - w_h |s-t|" in capsys.readouterr().out
    assert main(["list", "--format", "tsv"]) == 0
    assert "slope\texternal\trelative\t8\tpaper" in capsys.readouterr().out


def test_several_paths_and_a_bibliography_beside_them(monkeypatch, capsys, slope, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    main(["new", "second", "--folder", str(other)])
    file = other / "second.py"
    file.write_text(file.read_text(encoding="utf-8").replace("citations=()", 'citations=("me-2026",)'), encoding="utf-8")
    (other / "references.bib").write_text("@misc{me-2026,\n  title = {Mine},\n}\n", encoding="utf-8")
    known(monkeypatch, slope, other)
    bibliography.entries.cache_clear()
    capsys.readouterr()
    assert {"slope", "second"} <= set(registry.names())
    assert main(["show", "--bibtex", "second"]) == 0
    assert capsys.readouterr().out == "@misc{me-2026,\n  title = {Mine},\n}\n"


@pytest.mark.parametrize("module", ["single", "package.inner"])
def test_found_by_entry_point_without_importing_it(slope, module):
    """The entry point is declared as in an installed package.

    Reading the card imports neither the package with the method file nor torch.
    """
    folder, text = slope.parent, slope.read_text(encoding="utf-8")
    file = folder.joinpath(*module.split(".")).with_suffix(".py")
    file.parent.mkdir(exist_ok=True)
    if file.parent != folder:
        (file.parent / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    file.write_text(text.replace('name="slope"', 'name="installed"'), encoding="utf-8")
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{external.GROUP}]\nmine = {module}\n", encoding="utf-8")
    code = "import sys; from fairseq_posenc import registry; print(registry.card('installed').title, 'torch' in sys.modules)"
    done = python(code, PYTHONPATH=f"{folder}{os.pathsep}{ROOT}")
    assert done.stdout == "Slope False\n", done.stderr


def test_it_may_extend_one_of_ours(monkeypatch, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import dataclasses\nimport fairseq_posenc as posenc\nfrom fairseq_posenc.methods.bias.t5 import T5 as Base\n"
        "class Mine(Base):\n    card = posenc.MethodCard(name='mine', title='Mine', citations=(), survey='',"
        " reference='relative', injection='MAM', learnable=True, recurring=True, extrapolation='clips',"
        " evidence='paper', sites=('encoder',),"
        " parameters='tables * buckets')\n",
        encoding="utf-8",
    )
    known(monkeypatch, file)
    assert registry.declaration("mine").options.__qualname__ == registry.declaration("t5").options.__qualname__
    assert issubclass(registry.method_class("mine"), registry.method_class("t5"))


def test_a_card_may_be_a_changed_copy_of_another(monkeypatch, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import replace\nfrom fairseq_posenc.methods.bias.t5 import T5\n"
        "class Mine(T5):\n    card = replace(T5.card, name='mine', title='Mine', recurring=False)\n",
        encoding="utf-8",
    )
    known(monkeypatch, file)
    t5 = registry.card("t5")
    assert registry.card("mine") == dataclasses.replace(t5, name="mine", title="Mine", recurring=False) != t5
    assert registry.method_class("mine").card == registry.card("mine")


WRONG = {
    "no method": (
        lambda text: text.replace("    card = ", "    cart = "),
        "no method found. Expected a class with a card.",
    ),
    "taken name": (lambda text: text.replace('name="slope"', 'name="shaw"'), "fairseq_posenc has a method 'shaw' already"),
    "unknown field": (lambda text: text.replace("survey=", "surveys="), "unexpected keyword argument 'surveys'"),
    "no such choice": (
        lambda text: text.replace('reference="relative"', 'reference="relativ"'),
        "reference='relativ' is not allowed",
    ),
    "no text": (lambda text: text.replace('title="Slope"', "title=7"), "title=7 is not allowed. Expected a value of type str"),
    "no site": (
        lambda text: text.replace('("encoder", "decoder")', '("encodr",)'),
        "Expected one or more of encoder, decoder, cross",
    ),
    "one site": (
        lambda text: text.replace('("encoder", "decoder")', '("encoder")'),
        "sites='encoder' is not allowed. Expected a value of type tuple",
    ),
    "formula": (lambda text: text.replace('parameters="h"', 'parameters="hh"'), "parameters='hh' cannot be evaluated"),
    "bad name": (lambda text: text.replace('name="slope"', 'name="My-Slope"'), "Expected lower-case letters, digits and _"),
    "size": (lambda text: text.replace('name="slope"', 'name="slope_tiny"'), "is reserved for architectures"),
    "computed": (
        lambda text: text.replace('title="Slope"', "title=name()"),
        "Cards and options are read without running",
    ),
    "syntax": (lambda text: text.replace("class Slope(", "class Slope["), "line 10: "),
    "null bytes": (lambda text: text + "\0", "slope.py"),
}


@pytest.mark.parametrize("change, says", WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_file_is_one_line(monkeypatch, capsys, slope, change, says):
    slope.write_text(change(slope.read_text(encoding="utf-8")), encoding="utf-8")
    known(monkeypatch, slope)
    capsys.readouterr()
    for command in (["list"], ["check", str(slope)]):
        assert main(command) == 2
        out, error = capsys.readouterr()
        assert out == "" and error.count("\n") == 1 and says in error and "slope.py" in error


@pytest.mark.parametrize("path, says", [("nowhere.py", "no such file or folder"), ("setup.cfg", "not a Python file")])
def test_a_path_that_holds_nothing_is_one_line(monkeypatch, capsys, tmp_path, path, says):
    if path == "setup.cfg":
        (tmp_path / path).touch()
    known(monkeypatch, tmp_path / path)
    assert main(["show", "t5"]) == 2
    error = capsys.readouterr().err
    assert says in error and path in error and error.count("\n") == 1


def test_a_file_that_cannot_be_imported_is_one_line(monkeypatch, capsys, slope):
    slope.write_text("import nothing_of_this_name\n" + slope.read_text(encoding="utf-8"), encoding="utf-8")
    known(monkeypatch, slope)
    capsys.readouterr()
    assert main(["check", "slope"]) == 2
    error = capsys.readouterr().err
    assert (
        "slope.py: the import failed (ModuleNotFoundError: No module named 'nothing_of_this_name')" in error
        and error.count("\n") == 1
    )


def test_a_wrong_file_ends_fairseq_with_one_line(slope):
    slope.write_text(slope.read_text(encoding="utf-8").replace('"relative"', '"relativ"'), encoding="utf-8")
    done = python("import fairseq_posenc.host.plugin", POSENC_METHODS=str(slope))
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("fairseq_posenc: ")] == done.stderr.splitlines()[-1:]
    assert "reference='relativ' is not allowed" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["shaw"], "'shaw': this method exists"),
        (["My-Method"], "not a valid name"),
        (["mine_tiny"], "no size such as _tiny"),
        (["mine", "--folder", "nowhere"], "--folder nowhere: no such folder"),
        (["true"], "'true': the name of the class would be True, which Python or this package uses"),
        (["dims"], "'dims': the name of the class would be Dims, which Python or this package uses"),
    ],
)
def test_new_refuses_in_one_line(capsys, arguments, says):
    assert main(["new", *arguments]) == 2
    out, error = capsys.readouterr()
    assert out == "" and says in error and error.count("\n") == 1


def test_new_overwrites_nothing(capsys, slope):
    before = slope.read_text(encoding="utf-8")
    assert main(["new", "slope", "--folder", str(slope.parent)]) == 2
    assert "slope.py: this file exists" in capsys.readouterr().err and slope.read_text(encoding="utf-8") == before


def test_an_unknown_method_names_the_door(capsys):
    assert main(["show", "slope"]) == 2
    assert external.VARIABLE in capsys.readouterr().err
