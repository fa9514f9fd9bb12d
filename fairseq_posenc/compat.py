"""All that fairseq 0.12 needs to load, resume and decode on today's Python, torch and numpy.

Imported before everything else of the plugin. It acts in memory, on the fairseq that is installed; no file changes.
"""

import argparse
import ast
import codecs
import contextlib
import functools
import logging
import os
import re
import sys
import time
import warnings
from pathlib import Path


def _first_line(error: Exception) -> str:
    message = str(error).split("WeightsUnpickler error:")[-1].strip()  # what torch's page of advice is about
    return message.splitlines()[0] if message else type(error).__name__


# Imported, one of its speech tasks asks for a package that translation does not need.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

try:
    import numpy
    import torch
    from fairseq import checkpoint_utils, file_io, utils
    from fairseq.data import data_utils
    from fairseq.distributed import utils as distributed_utils
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
    from fairseq.tasks import FairseqTask
except Exception as error:  # missing, half installed, or PyPI's 0.12.2, which dies of a ValueError on Python 3.11
    raise SystemExit(
        f"fairseq_posenc: fairseq cannot be imported ({_first_line(error)}); "
        "run recipes/setup, or install it with: pip install fairseq-fixed"
    ) from None


def has_fused_encoder(layer: type) -> bool:
    """Whether this encoder layer may hand itself to a fused kernel that never calls `self_attn`, as in PyPI's 0.12.2.

    Such a model trains with positions and decodes without them. Read off the code, because fairseq's main branch calls
    itself 0.12.2 as well and has no such path.
    """
    return "can_use_fastpath" in layer.__init__.__code__.co_names


def require_usable(layer: type = TransformerEncoderLayerBase) -> None:
    if has_fused_encoder(layer):
        raise SystemExit(
            "fairseq_posenc: this fairseq evaluates its encoder with a fused kernel that skips every position method "
            "(PyPI's 0.12.2 does); replace it: pip uninstall fairseq, then pip install fairseq-fixed"
        )
    if not hasattr(torch.serialization, "add_safe_globals"):
        raise SystemExit(
            f"fairseq_posenc: torch {torch.__version__} cannot load fairseq's checkpoints safely; "
            "install a newer one: pip install 'torch>=2.4'"
        )


# --- checkpoints: the safe loader, with the types that fairseq stores and no others ---------------------------------


def _numpy_rebuilders() -> list:
    """The two functions that rebuild numpy values, each under its name in numpy 1 and in numpy 2.

    The safe loader goes by the name in the file, and a file written with the one is read with the other.
    """
    rebuilders = []
    for function in (numpy.float64().__reduce__()[0], numpy.empty(0).__reduce__()[0]):  # scalar and _reconstruct
        for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            alias = functools.partial(function)
            alias.__module__, alias.__name__, alias.__qualname__ = module, function.__name__, function.__name__
            rebuilders.append(alias)
    return rebuilders


def allow_checkpoint_types() -> None:
    """The safe loader, the default of torch >= 2.6, takes tensors and plain containers only. A fairseq checkpoint also
    holds the model's Namespace and, in its meters after --eval-bleu, numbers and arrays of numbers from numpy."""
    numbers = [type(numpy.dtype(name)) for name in ("bool", "int32", "int64", "float32", "float64")]
    arrays = [numpy.ndarray, numpy.dtype, *numbers, *_numpy_rebuilders(), codecs.encode]  # the last for the bytes in them
    torch.serialization.add_safe_globals([argparse.Namespace, *arrays])


def _safely(load):
    """fairseq's `load(path, ...)`, made to use the safe loader: by itself it does so on torch >= 2.6 only, and in
    fairseq's main branch never."""

    @functools.wraps(load)
    def load_safely(path, *args, **kwargs):
        torch_load = torch.load
        torch.load = functools.partial(_read_checkpoint, path, torch_load)
        try:
            return load(path, *args, **kwargs)
        except OSError as error:
            raise SystemExit(f"fairseq_posenc: {path} cannot be opened: {error.strerror or error}") from None
        finally:
            torch.load = torch_load

    return load_safely


def _read_checkpoint(path, torch_load, *args, **kwargs) -> dict:
    """What torch reads from a checkpoint, or one clear line instead of a traceback through torch."""
    try:
        state = torch_load(*args, **{**kwargs, "weights_only": True})
    except Exception as error:  # a damaged file can make the loader fail in any way
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused:
            raise SystemExit(
                f"fairseq_posenc: {path} was refused: it holds {refused[1]}, which no fairseq checkpoint needs and "
                "which may run code when it is loaded; nothing of it ran. Use a checkpoint that you trained yourself."
            ) from None
        raise SystemExit(_unreadable(path, _first_line(error))) from None
    if not (isinstance(state, dict) and "model" in state and ("cfg" in state or "args" in state)):
        raise SystemExit(_unreadable(path, "it holds no fairseq model"))
    return state


def _unreadable(path, reason: str) -> str:
    siblings = [p for p in Path(path).parent.glob("checkpoint*.pt") if p.is_file() and p.name != Path(path).name]
    newest = sorted(siblings, key=lambda p: p.stat().st_mtime, reverse=True)[:3]
    others = ", ".join(map(str, newest)) or "checkpoint_best.pt or checkpoint1.pt"
    return (
        f"fairseq_posenc: {path} is damaged, cut off or no checkpoint at all ({reason}). "
        f"Use an older one ({others}): --restore-file goes on training from it, --path decodes with it."
    )


def _evaluate(text: str):
    """fairseq's models evaluate a few options as Python, and a decoder takes them from the checkpoint: a call hidden in
    such text would pass the safe loader. Lists, numbers and arithmetic, as in "[(512, 3)] * 20", are all they need."""
    if any(isinstance(node, (ast.Call, ast.Attribute)) for node in ast.walk(ast.parse(text.strip(), mode="eval"))):
        raise SystemExit(f"fairseq_posenc: an option was refused, for it holds code to run: {text!r}")
    return eval(text, {"__builtins__": {}})


# --- checkpoints on a full disk: the earlier ones stay whole ----------------------------------------------------------


def _write_checkpoint(state, file) -> None:
    """fairseq tries thrice, but each time behind what the last try has left: a file that nobody can read then counts as saved."""
    for pause in (2.5, 2.5, None):
        try:
            return torch.save(state, file)
        except Exception:
            if pause is None:
                raise
            time.sleep(pause)
            file.seek(0)
            file.truncate()


def _persistently(save):
    """fairseq's torch_persistent_save, of which an error is one line and leaves no half file behind."""

    @functools.wraps(save)
    def save_persistently(state, filename, *args, **kwargs):
        try:
            return save(state, filename, *args, **kwargs)
        except (OSError, RuntimeError) as error:
            raise SystemExit(_unwritten(filename, error)) from None

    return save_persistently


def _atomically(copy):
    """fairseq copies a new checkpoint over the best or the last one, and a copy that fails has lost the old one."""

    @functools.wraps(copy)
    def copy_atomically(source, target, overwrite=False):
        if file_io.PathManager.path_requires_pathmanager(target):
            return copy(source, target, overwrite)
        try:
            copied = copy(source, f"{target}.tmp", overwrite)
            os.replace(f"{target}.tmp", target)
        except OSError as error:
            raise SystemExit(_unwritten(target, error)) from None
        return copied

    return copy_atomically


def _unwritten(path, error: BaseException) -> str:
    with contextlib.suppress(OSError):
        os.remove(f"{path}.tmp")
    while error.__context__ is not None and not isinstance(error, OSError):  # torch's own error hides that of the disk
        error = error.__context__
    reason = error.strerror if isinstance(error, OSError) and error.strerror else _first_line(error)
    return (
        f"fairseq_posenc: {path} could not be written ({reason}). The checkpoints before it are whole: "
        "make room on the disk and give the same command again, and training goes on from there."
    )


# --- batches ---------------------------------------------------------------------------------------------------------


def _keeps_the_rest(batch_by_size):
    """Later versions of fairseq drop the last batch where it is no multiple of 8, in training, and without a word also of a
    test set: up to seven sentences would have no translation."""

    @functools.wraps(batch_by_size)
    def batch_all(indices, *args, **kwargs):
        indices = numpy.asarray(indices if hasattr(indices, "__len__") else list(indices), dtype=numpy.int64)
        if not len(indices):
            return []
        batches = list(batch_by_size(indices, *args, **kwargs))
        if kwargs.get("fixed_shapes") is None:
            rest = indices[sum(map(len, batches)) :]
            batches += [rest] if len(rest) else []
        return batches

    return batch_all


def _repeatably(get_batch_iterator):
    """Later versions of fairseq draw from seed and epoch which sentences share a batch, but only once: a training that is resumed
    in another epoch than the first would have other batches to its end than without the interruption."""

    @functools.wraps(get_batch_iterator)
    def get_same_batches(self, dataset, *args, **kwargs):
        anew = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
        if anew or "epoch" not in kwargs or not self.can_reuse_epoch_itr(dataset):
            return get_batch_iterator(self, dataset, *args, **kwargs)
        kept = self.dataset_to_epoch_iter.get(dataset)
        epoch = kwargs.pop("epoch")
        iterator = get_batch_iterator(self, dataset, *args, epoch=1, **kwargs)
        if iterator is not kept:
            iterator.epoch = max(epoch, 1)
            dataset.set_epoch(epoch)
        return iterator

    return get_same_batches


def _in_one_line(filter_indices):
    """A sentence that is too long to validate or decode stops fairseq with a traceback around its clear message."""

    @functools.wraps(filter_indices)
    def filter_clearly(*args, **kwargs):
        try:
            return filter_indices(*args, **kwargs)
        except Exception as error:
            if "since max_positions=" not in str(error):
                raise
            raise SystemExit(f"fairseq_posenc: {error}") from None

    return filter_clearly


# --- several workers ------------------------------------------------------------------------------------------------


def _broadcast_object(obj, src_rank, group, dist_device):
    """fairseq sends a checkpoint from rank 0 to the other ranks through torch.load, which by now refuses the
    configuration in it, and resuming on several devices fails. torch's own function sends any object; this one comes
    from a worker of the same job, which has read it with the safe loader."""
    box = [obj]
    torch.distributed.broadcast_object_list(box, src=src_rank, group=group, device=dist_device)
    return box[0]


# --- precision ------------------------------------------------------------------------------------------------------


def _without_tpu(call_main):
    """--bf16 sets --tpu in fairseq 0.12, and without torch_xla nothing runs; GPUs and CPUs have bfloat16 by now."""

    @functools.wraps(call_main)
    def call(cfg, *args, **kwargs):
        if utils.xm is None and cfg.common.tpu and cfg.common.bf16:
            cfg.common.tpu = cfg.distributed_training.tpu = False
        return call_main(cfg, *args, **kwargs)

    return call


# --- warnings -------------------------------------------------------------------------------------------------------

# About fairseq's own code and its way of calling hydra and torch, with nothing that its user could change.
_WARNINGS = (
    (UserWarning, r"hydra\.experimental\.\w+\(\) is no longer experimental", r"hydra\."),
    (UserWarning, r"\sThe version_base parameter is not specified", r"hydra\."),
    (UserWarning, r"\sThe strict flag in the compose API is deprecated", r"hydra\."),
    (UserWarning, r"In 'config': Usage of deprecated keyword in package header", r"hydra\."),
    (UserWarning, r"\s'config' is validated against ConfigStore schema", r""),
    (FutureWarning, r"`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated", r"fairseq\."),
    (UserWarning, r"'pin_memory' argument is set as true but no accelerator", r"torch\.utils\.data\.dataloader$"),
    (UserWarning, r"Support for mismatched key_padding_mask and attn_mask is deprecated", r"torch\.nn\.functional$"),
)


def silence_warnings() -> None:
    for category, message, module in _WARNINGS:
        warnings.filterwarnings("ignore", message, category, module)


@functools.cache
def apply() -> None:
    """Do all of it, once."""
    require_usable()
    allow_checkpoint_types()
    checkpoint_utils.load_checkpoint_to_cpu = _safely(checkpoint_utils.load_checkpoint_to_cpu)
    checkpoint_utils.load_ema_from_checkpoint = _safely(checkpoint_utils.load_ema_from_checkpoint)
    checkpoint_utils._torch_persistent_save = _write_checkpoint
    checkpoint_utils.torch_persistent_save = _persistently(checkpoint_utils.torch_persistent_save)
    file_io.PathManager.copy = staticmethod(_atomically(file_io.PathManager.copy))
    for name, module in list(sys.modules.items()):
        if name == "fairseq.utils" or name.startswith("fairseq.models."):
            module.eval = _evaluate
    distributed_utils._broadcast_object_slow = _broadcast_object
    distributed_utils.call_main = _without_tpu(distributed_utils.call_main)
    FairseqTask.filter_indices_by_size = _in_one_line(FairseqTask.filter_indices_by_size)
    data_utils.batch_by_size = _keeps_the_rest(data_utils.batch_by_size)
    FairseqTask.get_batch_iterator = _repeatably(FairseqTask.get_batch_iterator)
    silence_warnings()


apply()
