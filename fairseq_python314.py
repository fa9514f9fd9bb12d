"""fairseq 0.12 and hydra 1.3 on Python 3.14.

fairseq's commands import fairseq before the package of `--user-dir`. On Python 3.14 this import fails. fairseq imports PyTorch
first, and PyTorch calls the entry points of the group `torch.backends`. Every installation of this project has such an entry
point, which calls `install`. The module is outside the package, because fairseq ignores a `--user-dir` that is already imported.
"""

import argparse
import functools
import importlib.machinery
import sys
import types
import typing


def recognise_optional_types(utils: types.ModuleType) -> None:
    """Let fairseq recognise `Optional[int]`, of which Python 3.14 prints `int | None`. argparse rejects this type."""
    interpret = utils.interpret_dc_type

    @functools.wraps(interpret)
    def interpret_option(field_type: typing.Any) -> typing.Any:
        kinds = typing.get_args(field_type)
        if typing.get_origin(field_type) in (typing.Union, types.UnionType) and type(None) in kinds:
            return next(kind for kind in kinds if kind is not type(None))
        return interpret(field_type)

    utils.interpret_dc_type = interpret_option


class _Parser(argparse.ArgumentParser):
    """argparse of Python 3.14 searches each help text for `%`. hydra's help for completion is an object without text."""

    def add_argument(self, *names: typing.Any, **options: typing.Any) -> argparse.Action:
        text = options.get("help")
        if text is not None and not hasattr(text, "__contains__"):
            type(text).__contains__ = lambda _, part: False
        return super().add_argument(*names, **options)


def accept_lazy_help(utils: types.ModuleType) -> None:
    """Let hydra's parser accept a help text that is built when it is printed."""
    utils.argparse = types.SimpleNamespace(**{**vars(argparse), "ArgumentParser": _Parser})


_CHANGES = {"fairseq.dataclass.utils": recognise_optional_types, "hydra._internal.utils": accept_lazy_help}


class _Finder:
    """Change a module of `_CHANGES` when it is imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name in _CHANGES else None
        if spec is not None:
            execute = spec.loader.exec_module

            def execute_and_change(module):
                execute(module)
                _CHANGES[name](module)

            spec.loader.exec_module = execute_and_change
        return spec


def change_imports() -> None:
    """Change the modules that are imported already, and all others at their import. A second call does nothing."""
    if _Finder in sys.meta_path:
        return
    sys.meta_path.insert(0, _Finder)
    for name, change in _CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])


def install() -> None:
    """Change fairseq and hydra if this Python requires it. PyTorch calls this function when it is imported."""
    if sys.version_info >= (3, 14):
        change_imports()
