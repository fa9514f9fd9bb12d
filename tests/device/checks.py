"""Checks of a method on a device: results compared with the CPU, half precision, decoding, and compilation.

A check returns its measured values. If something is wrong, it raises `Finding` with one line. Without a GPU, the check
`branches` runs the code for a GPU on torch's meta device, which does not compute numbers. The other checks run on the CPU.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fairseq_posenc.host.plugin  # noqa: F401  registers the architectures
from fairseq_posenc.bench import actions, counts, models
from fairseq_posenc.bench.models import Variant
from fairseq_posenc.bench.settings import Settings

CPU = torch.device("cpu")
SIZE, BATCH, LENGTH = "_tiny", 4, 24
#: maximum difference between a result and the expected result, divided by the largest expected number
TOLERANCE = 1e-3
#: gradients below this share of the largest gradient are not compared with their own largest value
SMALL = 1e-3
#: how often the host may wait for the device in one training step
WAITS = 1


class Finding(Exception):
    """One line about a problem."""


@dataclass(frozen=True)
class Given:
    """A model in evaluation mode, in which dropout is off, and one batch.

    The model has a smooth activation function. With ReLU, a rounding error can change a gradient from 0 to 1. Recurrent networks
    are in training mode, because cuDNN computes their gradients only in this mode. They have no dropout.
    """

    model: nn.Module
    source: Tensor
    target: Tensor
    extras: dict[str, Any]

    def logits(self) -> Tensor:
        """Return the logits, [B, T, V]."""
        return self.model(self.source, None, self.target, **self.extras)[0]


def given(variant: Variant, device: torch.device, dtype: torch.dtype = torch.float32) -> Given:
    """Return a model and a batch on a device. Parameters and batch are equal on every device."""
    model = models.build(variant, SIZE, LENGTH + 2, CPU, dtype).to(device).eval()
    for module in model.modules():
        if hasattr(module, "activation_fn"):
            module.activation_fn = F.gelu
        if isinstance(module, nn.RNNBase):
            module.train()
    source, target = actions.sentences(BATCH, LENGTH, device)
    return Given(model, source, target, actions.extras(actions.methods(model), source))


@contextmanager
def noise_of_the_cpu() -> Iterator[None]:
    """Draw random numbers with a given seed on the CPU. A GPU draws other numbers with the same seed."""
    drawn = torch.randn

    def on_cpu(*size: Any, generator: torch.Generator | None = None, device: Any = None, **options: Any) -> Tensor:
        if generator is None:
            return drawn(*size, device=device, **options)
        return drawn(*size, generator=torch.Generator().manual_seed(generator.initial_seed()), **options).to(device)

    with patch.object(torch, "randn", on_cpu):
        yield


@noise_of_the_cpu()
def numbers(variant: Variant, device: torch.device) -> dict[str, Any]:
    """Check that logits and gradients in float32 equal the results of the CPU.

    Some exact gradients are 0, for example of a bias that changes all scores of a query by the same number. The check therefore
    divides a difference at least by `SMALL` times the largest gradient of the model.
    """
    found = []
    for place in (CPU, device):
        run = given(variant, place)
        logits = run.logits()
        F.cross_entropy(logits.flatten(0, 1), run.target.flatten()).backward()
        gradients = {name: value.grad.cpu() for name, value in run.model.named_parameters() if value.grad is not None}
        found.append({"logits": logits.detach().cpu(), **gradients})
    small = SMALL * max(value.abs().max() for name, value in found[0].items() if name != "logits")
    differences = {}
    for name, expected in found[0].items():
        scale = expected.abs().max().clamp(min=small)
        differences[name] = float((found[1][name] - expected).abs().max() / scale)
    worst = max(differences, key=lambda name: differences[name])
    if not differences[worst] <= TOLERANCE:
        raise Finding(f"{worst} differs from the CPU by {differences[worst]:.1e} of its largest value, more than {TOLERANCE}")
    return {"largest_difference": differences[worst]}


def half(dtype: torch.dtype) -> Callable[[Variant, torch.device], dict[str, Any]]:
    """Return a check that logits and gradients are finite in this precision. Parameters have their initial values."""

    def check(variant: Variant, device: torch.device) -> dict[str, Any]:
        run = given(variant, device, dtype)
        logits = run.logits()
        F.cross_entropy(logits.flatten(0, 1).float(), run.target.flatten()).backward()
        if not logits.isfinite().all():
            raise Finding(f"{int((~logits.isfinite()).sum())} of {logits.numel()} logits are not finite")
        for name, value in run.model.named_parameters():
            if value.grad is not None and not value.grad.isfinite().all():
                raise Finding(f"the gradient of {name} is not finite")
        return {"largest_logit": round(float(logits.detach().abs().max()), 3)}

    return check


def step(variant: Variant, device: torch.device) -> dict[str, Any]:
    """Check that all parameters are finite after two steps of training with dropout."""
    model = models.build(variant, SIZE, LENGTH + 2, CPU, torch.float32).to(device)
    source, target = actions.sentences(BATCH, LENGTH, device)
    action = actions.training(model, source, target)
    for _ in range(2):
        action()
    broken = [name for name, value in model.named_parameters() if not value.isfinite().all()]
    if broken:
        raise Finding(f"{broken[0]} is not finite after two updates")
    return {}


def waits(variant: Variant, device: torch.device) -> dict[str, Any]:
    """Check that the host waits at most once for the GPU in a training step in bfloat16, according to PyTorch."""
    model = models.build(variant, SIZE, LENGTH + 2, CPU, torch.bfloat16).to(device)
    action = actions.training(model, *actions.sentences(BATCH, LENGTH, device))
    action()  # the first step creates tables and the state of the optimizer
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            action()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waited = [warning for warning in found if "synchronizing CUDA operation" in str(warning.message)]
    if len(waited) > WAITS:
        places = ", ".join(f"{Path(warning.filename).name}:{warning.lineno}" for warning in waited)
        raise Finding(f"the host waits {len(waited)} times for the GPU in a training step, more than {WAITS}: {places}")
    return {"waits": len(waited)}


@noise_of_the_cpu()
def search(variant: Variant, device: torch.device) -> dict[str, Any]:
    """Check that beam search on the device finds translations with the same scores as beam search on the CPU."""
    scores = []
    for place in dict.fromkeys([CPU, device]):
        model = models.build(variant, SIZE, LENGTH + 2, CPU, torch.float32).to(place)
        found = actions.decoding(model, actions.sentences(BATCH, LENGTH, place)[0], steps=8)()
        scores.append(torch.stack([sentence[0]["score"].cpu() for sentence in found]))
    if not scores[-1].isfinite().all():
        raise Finding("the score of a translation is not finite")
    difference = float((scores[-1] - scores[0]).abs().max() / scores[0].abs().max())
    if difference > TOLERANCE:
        raise Finding(f"the best scores differ from the CPU by {difference:.1e} of the largest, more than {TOLERANCE}")
    return {"largest_difference": difference}


def compiled(variant: Variant, device: torch.device) -> dict[str, Any]:
    """Check that a compiled model has the logits of the uncompiled model."""
    torch._dynamo.reset()
    run = given(variant, device)
    with torch.no_grad():
        expected = run.logits()
        found = torch.compile(copy.deepcopy(run.model))(run.source, None, run.target, **run.extras)[0]
    difference = float((found - expected).abs().max() / expected.abs().max())
    if not difference <= TOLERANCE:
        raise Finding(f"compiled logits differ by {difference:.1e} of the largest, more than {TOLERANCE}")
    return {"largest_difference": difference}


def branches(variant: Variant, device: torch.device) -> dict[str, Any]:
    """Check that a training step, a forward pass and a step of beam search run the code for a GPU, without float64.

    In the training step, the host may wait only once.
    """
    found = {}
    settings = Settings(
        specs=[],
        sites=["model"],
        shapes=[(BATCH, LENGTH)],
        lengths=[],
        steps=3,
        rounds=1,
        size=SIZE,
        device=torch.device("meta"),
        dtype=torch.bfloat16,
        threads=1,
        profile=False,
        output=None,
    )
    for measure, count in counts.measured(variant, settings):
        kind = measure.split()[0]
        found[kind] = count.totals()
        if kind == "training" and count.waits > WAITS:
            raise Finding(f"the host waits {count.waits} times for the device in a training step, more than {WAITS}")
        if count.float64:
            raise Finding(f"{kind} computes {count.float64} times in float64 on the device")
    return found


#: checks that run on a GPU
ON_DEVICE = {
    "numbers": numbers,
    "step": step,
    "fp16": half(torch.float16),
    "bf16": half(torch.bfloat16),
    "waits": waits,
    "search": search,
    "compile": compiled,
}
#: checks that run without a GPU. `numbers` is left out, because it would compare the CPU with itself. `compile` is left out, so
#: nothing is compiled. `branches` runs the code for a GPU on the meta device
WITHOUT_GPU = {"step": step, "fp16": half(torch.float16), "bf16": half(torch.bfloat16), "search": search, "branches": branches}
