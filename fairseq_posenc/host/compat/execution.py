"""Replace functions of fairseq that would execute the content of a checkpoint, or of a file next to a checkpoint."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq.data import fasta_dataset
from fairseq.data.audio import data_cfg
from fairseq.models.speech_to_text import hub_interface

from ...core import Refusal
from .errors import first_line
from .wrappers import wrapper


def refuse_fasta(self: Any, path: str, *args: Any, **kwargs: Any) -> None:
    """Raise an error. This function replaces fairseq's constructor of FASTA data sets.

    The original constructor runs a shell command that contains `path`.
    """
    self.threadlocal = None  # fairseq's __del__ reads this attribute
    raise Refusal(
        f"{path}: the data set format fasta is not supported, because fairseq reads it with a shell command. "
        "Expected --dataset-impl mmap, cached, lazy or raw. Convert the text with fairseq-preprocess."
    )


@wrapper
def refuse_speech_synthesis(
    get_prediction: Callable, cls: type, *args: Any, synthesize_speech: bool = False, **kwargs: Any
) -> Any:
    """Wrap `S2THubInterface.get_prediction`, so that it raises an error if speech is requested.

    Without this wrapper, a request for speech runs code of a repository that the data configuration names.
    """
    if synthesize_speech:
        raise Refusal(
            "synthesize_speech: not supported, because it runs the code of a repository that the model names. "
            "Expected False. Load the text-to-speech model yourself."
        )
    return get_prediction(cls, *args, **kwargs)


def read_yaml(path: Path) -> Any:
    """Read a speech configuration with PyYAML's safe loader. With an old PyYAML, the loader that fairseq uses can run code."""
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise Refusal(f"{path}: cannot be read ({first_line(error)}). Expected plain YAML. Check the file.") from None


def with_safe_unpickling(load: Any) -> Any:
    """Wrap `torch.load`, so that calls from fairseq use the safe loader (weights_only=True). Other calls are not changed."""

    @functools.wraps(load)
    def load_safely(*args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] not in ("fairseq", "examples"):
            return load(*args, **kwargs)
        try:
            return load(*args, **{**kwargs, "weights_only": True})
        except OSError:
            raise
        except Exception as error:
            file = args[0] if args and isinstance(args[0], (str, Path)) else "a file of the model"
            raise Refusal(
                f"{file}: torch's safe loader cannot read it ({first_line(error)[:120]}). Expected a file of tensors that "
                "torch.save wrote. Nothing of it ran."
            ) from None

    return load_safely


def apply() -> None:
    fasta_dataset.FastaDataset.__init__ = refuse_fasta
    hub = hub_interface.S2THubInterface
    hub.get_prediction = classmethod(refuse_speech_synthesis(hub.get_prediction.__func__))
    data_cfg.get_config_from_yaml = read_yaml
    torch.load = with_safe_unpickling(torch.load)
