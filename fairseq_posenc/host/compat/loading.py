"""Load a checkpoint in training: compare its side files with the data of the command, and reorder its optimizer state.

fairseq begins again without a message if a checkpoint has no optimizer state. Such checkpoints are refused here.

The model of the checkpoint may have the same parameters in another order. An optimizer stores its state by the index of the
parameter. With --fp16, it stores one tensor for all parameters. If the order differs, fairseq assigns the state of one parameter
to another parameter. The order of the optimizer state is the order of the names in the checkpoint's model. Up to version 0.1.0,
models of this plugin had another order of parameters: query projections were before key projections, and the feed-forward network
was before the cross-attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import torch
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer
from torch import Tensor, nn

from ...core import Refusal
from .wrappers import wrapper


@wrapper
def _with_present_order(load_checkpoint, self, filename, reset_optimizer=False, *args, **kwargs):
    """Wrap Trainer.load_checkpoint: the task can refuse the checkpoint, and the optimizer state is reordered before loading.

    Raise Refusal for a checkpoint without optimizer state, unless the optimizer is reset.
    """
    read = checkpoint_utils.load_checkpoint_to_cpu

    def read_in_present_order(path, *args, **kwargs) -> dict:
        state = read(path, *args, **kwargs)
        require_same = getattr(self.task, "require_same_structure", None)
        if require_same is not None:  # fairseq does not compare the checkpoint with the options of the command
            require_same(path, state["cfg"].model, self.cfg.model)
        model = self.get_model()
        if "ema_fp32_params" in state["extra_state"]:  # fairseq does not convert the names in this copy of the model
            model.upgrade_state_dict(state["extra_state"]["ema_fp32_params"])
        if not reset_optimizer:
            if state.get("last_optimizer_state") is None:
                raise Refusal(
                    f"{path}: contains no optimizer state. Expected a checkpoint of fairseq-train that can be resumed. To start "
                    "anew from its parameters, use --finetune-from-model and another --save-dir."
                )
            reorder(state["last_optimizer_state"], saved_order(state["model"], model), model)
        return state

    with mock.patch.object(checkpoint_utils, "load_checkpoint_to_cpu", read_in_present_order):
        return load_checkpoint(self, filename, reset_optimizer, *args, **kwargs)


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def saved_order(tensors: Mapping[str, Tensor], model: nn.Module) -> list[int]:
    """Return the indices of the parameters of `model`, in the order of the tensors of a checkpoint."""
    upgraded = dict(tensors)
    model.upgrade_state_dict(upgraded)  # this renames the tensors and changes their order
    names = {id(tensor): name for name, tensor in upgraded.items()}
    numbers = {id(parameter): number for number, parameter in enumerate(_trainable(model))}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    found = (numbers.get(id(parameters.get(names.get(id(tensor))))) for tensor in tensors.values())
    # the position of a shared parameter is the position of its first name
    return list(dict.fromkeys(number for number in found if number is not None))


def reorder(optimizer: dict[str, Any], order: list[int], model: nn.Module) -> None:
    """Reorder an optimizer state, in place, from the saved `order` of the parameters to the order of `model`.

    Raise SystemExit if the state is stored neither per parameter nor as one tensor for all parameters.
    """
    sizes = [parameter.numel() for parameter in _trainable(model)]
    if order == sorted(order) or len(order) < len(sizes):  # the state fits, or it belongs to another model
        return
    states, groups = optimizer["state"], optimizer["param_groups"]
    count = sum(len(group["params"]) for group in groups)
    if len(groups) == 1 and count >= len(sizes):  # additional parameters belong to the criterion
        present = dict(enumerate(order))
        optimizer["state"] = {present.get(number, number): state for number, state in states.items()}
        return
    moments = {name: value for name, value in states.get(0, {}).items() if torch.is_tensor(value) and value.dim() > 0}
    if count != 1 or not all(value.dim() == 1 and value.numel() >= sum(sizes) for value in moments.values()):
        raise SystemExit(
            "fairseq_posenc: the optimizer state of the checkpoint does not fit the order of the parameters of this version. "
            "Add --reset-optimizer, or use the version of fairseq_posenc that wrote the checkpoint."
        )
    states[0].update({name: _reorder_flat(value, order, sizes) for name, value in moments.items()})


def _reorder_flat(value: Tensor, order: list[int], sizes: list[int]) -> Tensor:
    rest = value.numel() - sum(sizes)
    pieces = value.split([*(sizes[number] for number in order), rest])
    return torch.cat([*(pieces[order.index(number)] for number in range(len(sizes))), pieces[-1]])


def apply() -> None:
    Trainer.load_checkpoint = _with_present_order(Trainer.load_checkpoint)
