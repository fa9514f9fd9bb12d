"""Checks of half precision, autocast, repeatability, and recomputed activations."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .cases import Case
from .checks_decoding import run
from .models import build_for, close, logits, other_stack, sentences, side_inputs

#: type -> maximum difference to float32, divided by the standard deviation of the output. The maximum is about 20 times
#: (float16) and 15 times (bfloat16) the machine epsilon of the type
HALF = {torch.float16: 0.02, torch.bfloat16: 0.12}


def check_half(case: Case, length: int = 300) -> None:
    """Check that the output of a half-precision model has half precision, and is close to the output of the float32 model.

    The sentences have more than 256 words, because bfloat16 cannot represent all integers above 256. Encoder and decoder have two
    layers, because the errors of all layers add up.
    """
    source, target = torch.stack(sentences(32, length)), torch.stack(sentences(33, length))
    changes = {"max_source_positions": length, "max_target_positions": length, f"{other_stack(case)}_layers": 2}
    half, wide = (build_for(case, **changes) for _ in range(2))
    for dtype, tolerance in HALF.items():
        half.to(dtype)
        wide.load_state_dict({name: x.float() if x.is_floating_point() else x for name, x in half.state_dict().items()})
        with torch.no_grad():
            pairs = [run(model.eval(), source, target) for model in (half, wide)]
        for name in ("encoder", "logits"):
            found, expected = (pair[name] for pair in pairs)
            assert found.dtype == dtype
            far = ((found.float() - expected).abs() / expected.std()).max()
            assert far < tolerance, f"{name} in {dtype}: {far:.3f} of the output's size"


def check_autocast(case: Case) -> None:
    """Check that a float32 model has nearly the same output under torch.autocast, and finite gradients."""
    model = build_for(case).train()
    source, target = torch.stack(sentences(36, 9, 9)), torch.stack(sentences(37, 8, 8))
    given, found = side_inputs(model, source), []
    for enabled in (False, True):
        torch.manual_seed(38)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            out = model(source, None, target, side_inputs=given)[0]
        found.append(out.detach().float())
    out.float().square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    far = ((found[1] - found[0]).abs() / found[0].std()).max()
    assert far < HALF[torch.bfloat16], f"logits under autocast: {far:.3f} of the output's size"


def check_repeatable(case: Case) -> None:
    """Check that two evaluations have exactly the same output, and that a forward pass does not change the model."""
    model = build_for(case)
    source, target = torch.stack(sentences(34, 7, 7)), torch.stack(sentences(35, 6, 6))
    with torch.no_grad():
        first = logits(model, source, target)
        torch.manual_seed(99)
        before = _memory(model)
        close(logits(model, source, target), first, 0)
    logits(model.train(), source, target)
    with torch.no_grad():
        logits(model.eval(), source[:, :4], target[:, :3])
        after = _memory(model)
        assert after.keys() == before.keys(), "a forward pass changed the names of the attributes or buffers"
        for name, (value, content) in after.items():
            assert value is before[name][0] and content == before[name][1], f"a forward pass changed {name}"
        close(logits(model, source, target), first, 0)


def _memory(model: nn.Module) -> dict[str, tuple[Any, Any]]:
    """Return each attribute and buffer of all modules, with its contents if it can be changed in place.

    The objects themselves are kept, because Python may give the address of a deleted object to another one.
    """
    attributes = {
        f"{name}.{key}": value
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if key not in ("training", "_modules", "_parameters", "_buffers")
    }
    return {name: (value, _content(value)) for name, value in {**attributes, **dict(model.named_buffers())}.items()}


def _content(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return repr(value) if isinstance(value, (dict, list, set)) else None


def check_checkpointing(case: Case) -> None:
    """Check that --checkpoint-activations does not change gradients, with dropout and LayerDrop."""
    found, stack = [], "encoder" if case.site == "encoder" else "decoder"
    for recomputed in (False, True):
        changes = {f"{stack}_layerdrop": 0.3, f"{stack}_layers": 4}
        model = build_for(case, checkpoint_activations=recomputed, **changes).train()
        for module in model.modules():
            if hasattr(module, "dropout_module"):
                module.dropout_module.p = 0.3
            if isinstance(getattr(module, "dropout", None), float):
                module.dropout = 0.3
        source, target = torch.stack(sentences(38, 7, 7)), torch.stack(sentences(39, 6, 6))
        torch.manual_seed(40)
        model(source, None, target, side_inputs=side_inputs(model, source))[0].square().sum().backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys() and any(name.startswith("encoder.layers") for name in found[0])
    for name, grad in found[0].items():
        close(found[1][name], grad, 1e-6)
