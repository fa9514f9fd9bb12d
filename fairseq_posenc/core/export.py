"""Raise an error if a module with position methods is exported to TorchScript or ONNX."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from .errors import Refusal


def refuse_script(module: Any = None) -> NoReturn:
    """Raise the error for torch.jit.script.

    Modules use this function as `__prepare_scriptable__`, which torch calls before it reads the code of a module.
    """
    raise Refusal(
        "TorchScript and ONNX: not supported for modules with position methods, whose hooks are chosen in Python. "
        "Run the module in Python, with torch.compile for speed."
    )


def refuse_trace() -> None:
    """Raise the error for torch.jit.trace and torch.onnx.export.

    The exported graph would contain the positions of the example input as constants.
    """
    if torch.jit.is_tracing() or (torch.compiler.is_compiling() and torch.onnx.is_in_onnx_export()):
        refuse_script()
