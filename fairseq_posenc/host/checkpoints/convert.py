"""Convert a checkpoint: increase maximum lengths, or create the initial checkpoint of a training run with another method."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core import SITES, PositionError
from ...data.side.examples import random_sentence, side_inputs
from ...registry import card
from ...registry.architectures import MODEL, SIZES, TASK, architecture
from ...registry.spec import parse
from .average import for_inference
from .read import load

#: tensors with these parts in their names belong to position methods, or to stock fairseq's position encodings
_POSITIONS = (".position.", ".cross_position.", "positions_version", ".embed_positions.")
#: parts of the names of parameters: of a global attention, and of the local attention of the same layer
_GLOBAL, _LOCAL = "_attn_global.", "_attn."
#: the seed of new parameters, and of the random tokens with which two models are compared
_SEED = 1
_TOLERANCE = 1e-4  # maximum difference between the outputs of two equal models
_LONGEST = 1024  # maximum number of tokens of a random sentence. This limit bounds memory and time
#: options that turn a checkpoint of stock fairseq's `transformer` into a model of this plugin
_FROM_STOCK = {
    "_name": MODEL, "arch": MODEL, "encoder_learned_pos": False, "decoder_learned_pos": False,
    "no_token_positional_embeddings": False,
}  # fmt: skip


#: options that a training run with other methods may not support: section, name and value in the new checkpoint
_OF_TRAINING = (
    ("task", "random_structure", None),
    ("task", "length_noise", 0),
    ("model", "encoder_freeze_position", False),
    ("model", "decoder_freeze_position", False),
)


#: a converted checkpoint, for fairseq-generate or for `fairseq-train --finetune-from-model`, and the names of all tensors with
#: at least one untrained row
Converted = tuple[dict[str, Any], list[str]]


def resize_positions(path: Path, source: int, target: int, data: Path | None = None) -> Converted:
    """Increase the maximum lengths of a model. Trained rows of position tables are copied; new rows have initial values.

    Args:
        path: checkpoint of an autoregressive model of this plugin.
        source, target: new maximum lengths in tokens, not shorter than the old maximum lengths.
        data: folder of the dictionaries. Default: the folder that the training run used.

    Raises:
        PositionError: A new maximum length is shorter than the old maximum length, or the model cannot be extended.
        PositionError: The outputs of the new model differ from the outputs of the old model. The test uses random sentences
            that are not longer than the old maximum lengths.
    """
    old = load(path)
    _require_own_model(path, old)
    before = [getattr(old["cfg"].model, f"max_{side}_positions") for side in ("source", "target")]
    for side, given, least in zip(("source", "target"), (source, target), before):
        if given < least:
            raise PositionError(
                f"--max-{side}-positions {given}: {path} has {least}. Expected at least {least}. "
                "Shorter limits need no new checkpoint: give them to fairseq-generate."
            )
    new = load(path, {"max_source_positions": source, "max_target_positions": target})
    task, model = _build(path, new, data)
    if getattr(model, "allow_length_beam", False):  # an attribute of fairseq's non-autoregressive models
        raise PositionError(
            f"{path}: this is a checkpoint of a non-autoregressive model. Expected one of an autoregressive model. "
            "Train a new model with longer limits."
        )
    values, grown = model.state_dict(), []
    of_source, of_target = zip(before, (source, target))
    longest = max(before), max(source, target)
    distances = {
        "encoder": _sizes_of_distances(of_source),
        "decoder": _sizes_of_distances(of_target),
        # such a pair of maximum lengths is more often the size of a table of positions
        "cross": _sizes_of_distances(of_source, of_target, longest) - {of_source, of_target},
    }
    for name, value in old["model"].items():
        if name not in values:
            raise PositionError(f"{path}: the model has no parameter {name}. Expected a checkpoint of this version.")
        if value.shape == values[name].shape:
            values[name] = value
        else:
            site = "cross" if ".cross_position." in name else name.partition(".")[0]
            _copy_rows(path, name, value, values[name], distances[site])
            grown.append(name)
    model.load_state_dict(values)
    _, shorter = _build(path, old, data)
    shorter.load_state_dict(old["model"])
    _require_same_output(path, shorter, model, task)
    return _converted(new, values, grown)


def size_of(path: Path) -> str:
    """Return the size of architectures (a key of `SIZES`) with as many layers as the checkpoint, or the base size."""
    return _suffix(getattr(load(path)["cfg"].model, "encoder_layers", None))


def _suffix(layers: int | None) -> str:
    return next((suffix for suffix, size in SIZES.items() if size.layers == layers), "")


def start_from(path: Path, specs: Mapping[str, str], data: Path | None = None, arch: str | None = None) -> Converted:
    """Build a model with new position encodings, and copy all parameters outside the position encodings from a checkpoint.

    Each new global attention (--*-global-layers) starts with the parameters of the local attention of its layer, as in
    G-Transformer (Bao et al. 2021).

    If a new method reads side inputs, the task posenc_translation replaces fairseq's task translation. The new model has not
    been trained with side files. The result therefore contains no facts about the side files of the earlier training run.

    Args:
        path: checkpoint of this plugin, or of stock fairseq's `transformer`.
        specs: spec of each site. A site that is not in `specs` has no position encoding.
        data: folder of the dictionaries. Default: the folder that the training run used.
        arch: architecture with these specs, which determines the global attentions. Without an architecture, the new model has
            global attentions if the checkpoint has them.

    Raises:
        PositionError: The specs do not fit the model, or the checkpoint has parameters that the model lacks.
        PositionError: The architecture has other layers than a Transformer.
    """
    state = load(path)
    from ..side.load import FACTS  # after `load`, which imports the plugin before fairseq

    trained = state["model"]
    positions: dict[str, Any] = {f"{site}_position": specs.get(site, "none") for site in SITES}
    if arch is not None:
        positions |= _global_layers(arch, getattr(state["cfg"].model, "encoder_layers", None))
    kind = {} if "positions_version" in trained else _FROM_STOCK
    for name, value in {**positions, **kind, **dict.fromkeys(FACTS)}.items():
        _set(state["cfg"].model, name, value)
    if getattr(state["cfg"].task, "_name", None) == "translation" and _reads_side_inputs(specs):
        _set(state["cfg"].task, "_name", TASK)
    for section, name, value in _OF_TRAINING:
        if name in state["cfg"][section]:
            _set(state["cfg"][section], name, value)
    _, model = _build(path, state, data)
    with _open(state["cfg"].model):
        for name in FACTS:
            delattr(state["cfg"].model, name)
    if kind:
        trained = model.with_versions(trained)
    model.upgrade_state_dict(trained)  # convert the names of earlier versions, as in loading
    values, copied = model.state_dict(), set()
    for name, value in trained.items():
        if any(part in name for part in _POSITIONS):
            continue
        if name not in values or values[name].shape != value.shape:
            raise PositionError(
                f"{path}: the parameter {name} does not fit the new model. Expected a checkpoint of a Transformer of this plugin "
                "or of stock fairseq's transformer."
            )
        values[name] = value
        copied.add(name)
    for name in values.keys() - copied:
        if _GLOBAL in name:
            values[name] = trained[name.replace(_GLOBAL, _LOCAL)]
            copied.add(name)
    new = [name for name in values if name not in copied and not name.endswith(("positions_version", ".version"))]
    return _converted(state, values, new)


def _global_layers(arch: str, layers: int | None) -> dict[str, Any]:
    """Return the options --*-global-layers of an architecture, in the size with this number of layers."""
    none: dict[str, Any] = {f"{site}_global_layers": 0 for site in SITES}
    found = architecture(arch.partition(":")[0], _suffix(layers))
    if found.tied_layers or found.model != MODEL or found.options.keys() - none.keys():
        raise PositionError(
            f"--method {arch}: this architecture has other layers than a Transformer. Expected an architecture that differs from "
            "posenc_transformer only in specs and global layers. Train this architecture from the start."
        )
    return none | found.options


def _reads_side_inputs(specs: Mapping[str, str]) -> bool:
    return any(card(method.name).side_inputs for site, spec in specs.items() for method in parse(spec, site).methods)


def _converted(state: dict[str, Any], values: dict[str, Tensor], new: list[str]) -> Converted:
    """Return a checkpoint with these tensors, and with the configuration of `state`.

    Old checkpoints have the entry `args` instead of a configuration. fairseq would read `args` and ignore the configuration.
    """
    return for_inference({**state, "args": None, "model": values}), new


def _require_own_model(path: Path, state: dict[str, Any]) -> None:
    if "positions_version" not in state["model"]:
        raise PositionError(
            f"{path}: this is a checkpoint of stock fairseq. Expected one of this plugin. "
            "Convert it first: posenc checkpoint start-from --method sinusoidal."
        )


def _build(path: Path, state: dict[str, Any], data: Path | None) -> tuple[Any, Any]:
    """Return the task and the model that the configuration of a checkpoint describes."""
    from fairseq import tasks

    if data is not None:
        _set(state["cfg"].task, "data", str(data))
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            try:
                task = tasks.setup_task(state["cfg"].task)
            except Exception as error:  # if fairseq cannot infer the languages, it raises a plain Exception
                if "infer language pair" not in str(error):
                    raise
                raise PositionError(
                    f"{path}: the languages cannot be inferred from the names of files in {state['cfg'].task.data}. Expected the "
                    "prepared data of the training run. Set the folder with --data FOLDER."
                ) from error
            return task, task.build_model(state["cfg"].model, from_checkpoint=True).eval()
    except SystemExit as error:
        raise PositionError(str(error).removeprefix("fairseq_posenc: ")) from None
    except (OSError, AssertionError) as error:  # setup_task could not read the dictionaries
        folder = state["cfg"].task.data
        raise PositionError(
            f"{path}: the dictionaries in {folder} cannot be read. Expected dict.*.txt. Set the folder with --data FOLDER."
        ) from error


def _set(section: Any, name: str, value: Any) -> None:
    with _open(section):
        setattr(section, name, value)


def _open(section: Any) -> contextlib.AbstractContextManager:
    """Inside the `with` block, attributes can be added to a section of a configuration, and removed from it."""
    from omegaconf import OmegaConf, open_dict

    return open_dict(section) if OmegaConf.is_config(section) else contextlib.nullcontext()


def _sizes_of_distances(*limits: tuple[int, int]) -> set[tuple[int, int]]:
    """Return the pairs (old size, new size) of tables of signed distances. `limits` contains pairs of maximum lengths."""
    return {(2 * a - even, 2 * b - even) for a, b in limits for even in (0, 1)}


def _copy_rows(path: Path, name: str, old: Tensor, new: Tensor, distances: set[tuple[int, int]]) -> None:
    """Copy the rows of a table into a longer table.

    The rows of a table of signed distances are copied to the middle. The rows of all other tables are copied to the start.
    `distances` contains the pairs (old size, new size) of tables of signed distances.
    """
    if old.dim() != new.dim() or any(a > b for a, b in zip(old.shape, new.shape)):
        raise PositionError(
            f"{path}: {name} has the shape {tuple(old.shape)} and cannot be resized to {tuple(new.shape)}. "
            "Train a new model with longer limits."
        )
    place = tuple(
        slice((b - a) // 2, (b - a) // 2 + a) if (a, b) in distances else slice(a) for a, b in zip(old.shape, new.shape)
    )
    new[place] = old


def _require_same_output(path: Path, old: Any, new: Any, task: Any) -> None:
    """Raise an error unless both models have the same output for random sentences.

    One sentence pair is short. The other sentence pair has the old maximum lengths, but at most _LONGEST tokens per sentence.
    """
    limits = old.max_positions()
    try:
        with torch.no_grad():
            one, two = (list(_outputs(model, task, limits)) for model in (old, new))
    except (SystemExit, PositionError, TypeError, KeyError, ValueError) as error:
        raise PositionError(
            f"{path}: the longer model cannot be tested ({error}). Train a new model with longer limits."
        ) from None
    if not all(torch.allclose(a, b, atol=_TOLERANCE) for a, b in zip(one, two)):
        raise PositionError(
            f"{path}: the outputs of the longer model differ for short sentences. Expected a method that does not depend on the "
            "maximum lengths. Train a new model with longer limits."
        )


def _outputs(model: Any, task: Any, limits: Sequence[int]) -> Iterator[Tensor]:
    """Return the outputs of the encoder and of the decoder for each sentence pair."""
    generator = torch.Generator().manual_seed(_SEED)
    first = task.source_dictionary.nspecial
    for length in (5, _LONGEST):
        source, target = (
            torch.randint(first, max(len(words), first + 1), (1, min(length, limit)), generator=generator)
            for words, limit in zip((task.source_dictionary, task.target_dictionary), limits)
        )
        source[:, -1], target[:, 0] = task.source_dictionary.eos(), task.target_dictionary.eos()
        side = _side_inputs(model, {"source": source.size(1), "target": target.size(1)})
        encoded = model.encoder(source, torch.tensor([source.size(1)]), side_inputs=side)
        yield from (encoded["encoder_out"][0].float(), model.decoder(target, encoded)[0].float())


def _side_inputs(model: Any, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """Return random side inputs of one sentence pair. `sizes` contains the number of tokens of source and target."""
    methods = model.position_methods
    relations = max((method.dims.relations for method in methods), default=0)
    made = {of: side_inputs(methods, [random_sentence(range(size), max(1, relations))], size) for of, size in sizes.items()}
    return {name: made[side.of][name] for name, side in model.encoder.side_inputs.items()}
