"""fairseq and hydra on Python 3.14.

The patches have the same effect on every version of Python. The tests therefore run on every version.
"""

import argparse
import dataclasses
import importlib
import subprocess
import sys
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Optional

import pytest
from fairseq.dataclass import FairseqDataclass

import fairseq_posenc.host.plugin  # noqa: F401  (the tests also read the plugin's options)
import fairseq_python314

ROOT = Path(__file__).parents[2]


def fresh(name):
    """Return a second, unpatched copy of an installed module."""
    spec = importlib.machinery.PathFinder.find_spec(name, importlib.import_module(name.rpartition(".")[0]).__path__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dataclasses_of_fairseq(root=FairseqDataclass):
    return [root, *(found for kind in root.__subclasses__() for found in dataclasses_of_fairseq(kind))]


def run_python(code, *options):
    return subprocess.run([sys.executable, *options, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("kind", [Optional[int], int | None, None | int], ids=str)  # noqa: UP045
def test_an_optional_option_has_the_type_of_its_values(kind):
    """On Python 3.14, str(Optional[int]) is `int | None`. fairseq must still find the type int."""
    utils = fresh("fairseq.dataclass.utils")
    fairseq_python314.recognise_optional_types(utils)
    assert utils.interpret_dc_type(kind) is int
    assert utils.interpret_dc_type(int) is int
    assert utils.interpret_dc_type(Any) is str
    with pytest.raises(RuntimeError, match="field should be a type"):
        utils.interpret_dc_type("int")


def test_all_options_of_fairseq_have_the_types_that_fairseq_finds():
    """On Python 3.13 and earlier, the patched function returns the same types as fairseq's function.

    On Python 3.14, fairseq's function does not recognise optional types. The text of such a type is `int | None`.
    fairseq searches the text for `typing.Optional` or `Union`.
    """
    utils = fresh("fairseq.dataclass.utils")
    expected = utils.interpret_dc_type
    fairseq_python314.recognise_optional_types(utils)
    fields = [field for kind in dataclasses_of_fairseq() for field in dataclasses.fields(kind) if field.type is not Any]
    optional = [field for field in fields if type(None) in getattr(field.type, "__args__", ())]
    assert len(fields) > 500 and len(optional) > 100
    for field in fields:
        found = utils.interpret_dc_type(field.type)
        assert type(None) not in getattr(found, "__args__", ())
        if sys.version_info < (3, 14) or field not in optional:
            assert found == expected(field.type), field.name


def test_hydra_accepts_a_help_text_that_is_built_later(monkeypatch):
    """When an option is added, argparse of Python 3.14 searches every help text for `%`."""
    utils = fresh("hydra._internal.utils")
    fairseq_python314.accept_lazy_help(utils)
    monkeypatch.setattr(utils, "_get_completion_help", lambda: "complete")
    options = utils.get_args_parser()._actions
    lazy = [option.help for option in options if option.help and not isinstance(option.help, str)]
    assert [repr(text) for text in lazy] == ["Install or Uninstall shell completion:\ncomplete"]
    assert all("%" not in text for text in lazy)
    assert utils.argparse.Namespace is argparse.Namespace


def test_modules_are_changed_once_before_or_after_their_import(monkeypatch):
    changed = []
    names = ("fairseq.dataclass.utils", "hydra._internal.utils")
    monkeypatch.setattr(fairseq_python314, "_CHANGES", {name: changed.append for name in names})
    monkeypatch.setattr(sys, "meta_path", [*filter(lambda finder: finder is not fairseq_python314._Finder, sys.meta_path)])
    later = types.ModuleType("later")
    monkeypatch.delitem(sys.modules, names[1])
    monkeypatch.setattr(importlib.import_module("hydra._internal"), "utils", later)
    for _ in range(2):
        fairseq_python314.change_imports()
        assert changed == [sys.modules[names[0]]]
    imported = importlib.import_module(names[1])
    assert changed == [sys.modules[names[0]], imported] and imported.get_args_parser
    assert sys.meta_path.count(fairseq_python314._Finder) == 1


def test_fairseq_is_changed_while_it_is_imported():
    code = """
import fairseq_python314
fairseq_python314.change_imports()
from fairseq.dataclass import utils
import sys
parser = sys.modules["hydra.main"].get_args_parser()
print(utils.interpret_dc_type(int | None), type(parser))
"""
    assert run_python(code).splitlines()[-1] == "<class 'int'> <class 'fairseq_python314._Parser'>"


def test_only_python_314_and_later_need_it(monkeypatch):
    called = []
    monkeypatch.setattr(fairseq_python314, "change_imports", lambda: called.append(True))
    for version, calls in (((3, 13, 9), 0), ((3, 14, 0), 1), ((3, 15, 0), 2)):
        monkeypatch.setattr(sys, "version_info", version)
        fairseq_python314.install()
        assert len(called) == calls


def test_the_entry_point_does_not_import_the_package():
    """If the package of `--user-dir` is already imported, fairseq does not register the models of this package."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    value = project.split('[project.entry-points."torch.backends"]\n')[1].split('"')[1]
    code = f"""
import sys
from importlib.metadata import EntryPoint
EntryPoint("fairseq_python314", {value!r}, "torch.backends").load()()
print([name for name in sys.modules if name.startswith(("fairseq", "torch", "hydra"))])
"""
    assert run_python(code).splitlines()[-1] == "['fairseq_python314']"
    assert EntryPoint("fairseq_python314", value, "torch.backends").load() is fairseq_python314.install
