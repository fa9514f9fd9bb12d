"""Actions that a benchmark measures: a training step, a forward pass, decoding, and one attention module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn

from ..attention.positional import build_attention
from ..core import PositionMethod
from ..data.side import examples
from .models import WORDS, Variant, dictionary

Action = Callable[[], Any]
#: number of source sentences in decoding, and number of words per source sentence
DECODED = (8, 24)
_PAD, _FIRST = 1, 4


def sentences(batch: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return source and target, [B, T] each.

    One half of the source sentences is shorter by one fifth. The padding is on the left, as in fairseq.
    """
    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randint(_FIRST, WORDS, (batch, length), generator=generator) for _ in range(2))
    source[: batch // 2, : length // 5] = _PAD
    return source.to(device), target.to(device)


def extras(given: Iterable[PositionMethod], source: Tensor) -> dict[str, Any]:
    """Return the side inputs of these methods, computed from random trees, graphs and reorderings, and from sentence lengths."""
    sentences = (examples.random_sentence(row[row.ne(_PAD)].tolist()) for row in source.cpu())
    made = examples.side_inputs(given, sentences, source.size(1), bool(source[:, 0].eq(_PAD).any()))
    return {"side_inputs": {name: tensor.to(source.device) for name, tensor in made.items()}} if made else {}


def training(model: nn.Module, source: Tensor, target: Tensor) -> Action:
    """Return a training step: forward pass, loss, backward pass, and optimizer step."""
    given = extras(methods(model), source)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-6, eps=1e-4)  # float16 rounds a smaller eps to 0

    def step() -> None:
        model.train()
        logits, _ = model(source, None, target, **given)
        F.cross_entropy(logits.flatten(0, 1).float(), target.flatten()).backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def inference(model: nn.Module, source: Tensor, target: Tensor, given: dict[str, Any] | None = None) -> Action:
    """Return a forward pass in evaluation.

    `given` is the result of `extras`. If `given` is None, this function calls `extras`.
    """
    given = extras(methods(model), source) if given is None else given

    @torch.no_grad()
    def forward() -> None:
        model.eval()
        model(source, None, target, **given)

    return forward


def decoding(model: nn.Module, source: Tensor, steps: int, beam: int = 4) -> Action:
    """Return a function that runs beam search, as in fairseq-generate. The model cannot be trained afterwards.

    The number of decoding steps is between `steps` - 1 and `steps` + 1 for every model.
    """
    model.make_generation_fast_(need_attn=False)
    generator = SequenceGenerator([model], dictionary(), beam_size=beam, max_len_a=0, max_len_b=steps, min_len=steps - 2)
    sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(_PAD).sum(1), **extras(methods(model), source)}}

    def generate() -> list[list[dict[str, Tensor]]]:
        model.eval()
        return generator.generate([model], sample)

    return generate


def attention(variant: Variant, width: int, heads: int, length: int, device: torch.device, dtype: torch.dtype) -> Action:
    """Return the forward and backward pass of one encoder self-attention over one sentence."""
    torch.manual_seed(1)
    if variant.specs is None:
        module: nn.Module = MultiheadAttention(width, heads, self_attention=True)
    else:
        module = build_attention(variant.specs["encoder"], width, heads, max_positions=length, relations=examples.RELATIONS)
    given = extras(methods(module), _FIRST + torch.arange(length, device=device)[None])
    module.to(device, dtype)
    x = torch.randn(length, 1, width, device=device, dtype=dtype, requires_grad=True)

    return both_passes(module, lambda x: module(x, x, x, need_weights=False, **given)[0], x)


def both_passes(module: nn.Module, attend: Callable[[Tensor], Tensor], x: Tensor) -> Action:
    """Return the forward and backward pass of `attend`, a call of `module`."""

    def run() -> None:
        attend(x).float().square().mean().backward()
        module.zero_grad()
        x.grad = None

    return run


def methods(model: nn.Module) -> list[PositionMethod]:
    """Return all methods of a model."""
    return [module for module in model.modules() if isinstance(module, PositionMethod)]
