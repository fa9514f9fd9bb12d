"""TorchScript and ONNX, which no module with positions can become."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from .errors import Refusal


def refuse_script(module: Any = None) -> NoReturn:
    """End torch.jit.script; as `__prepare_scriptable__` of a module it is called before torch reads any code."""
    raise Refusal(
        "TorchScript and ONNX: not supported for modules with position methods, whose hooks are chosen in Python. "
        "Run the module in Python, with torch.compile for speed."
    )


def refuse_trace() -> None:
    """End torch.jit.trace and torch.onnx.export, whose graph would keep the positions of the one example."""
    if torch.jit.is_tracing() or (torch.compiler.is_compiling() and torch.onnx.is_in_onnx_export()):
        refuse_script()
