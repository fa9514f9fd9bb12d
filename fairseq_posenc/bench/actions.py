"""The actions that are measured: a training step, a forward pass, decoding, and one attention alone."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn

from ..attention.positional import build_attention
from .models import WORDS, Variant, dictionary

Action = Callable[[], Any]
#: sentences and words of the source of decoding
DECODED = (8, 24)
_PAD, _FIRST = 1, 4


def sentences(batch: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Source and target, [B, T] each; half of the sources are a fifth shorter and left-padded, as in fairseq."""
    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randint(_FIRST, WORDS, (batch, length), generator=generator) for _ in range(2))
    source[: batch // 2, : length // 5] = _PAD
    return source.to(device), target.to(device)


def side_inputs(model: nn.Module, words: Tensor) -> dict[str, Any]:
    """Those that the positions of a model read, where they do, as an argument of the model."""
    declared = getattr(model.encoder, "side_inputs", {})
    made = {name: wanted.example(*words.shape, words.device) for name, wanted in declared.items()}
    return {"side_inputs": made} if made else {}


def training(model: nn.Module, source: Tensor, target: Tensor) -> Action:
    """A training step: forward, loss, backward, and the optimiser's step."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-6, eps=1e-4)  # float16 rounds a smaller eps to 0

    side = side_inputs(model, source)

    def step() -> None:
        model.train()
        logits, _ = model(source, None, target, **side)
        F.cross_entropy(logits.flatten(0, 1).float(), target.flatten()).backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def inference(model: nn.Module, source: Tensor, target: Tensor) -> Action:
    """A forward pass in evaluation."""

    side = side_inputs(model, source)

    @torch.no_grad()
    def forward() -> None:
        model.eval()
        model(source, None, target, **side)

    return forward


def decoding(model: nn.Module, source: Tensor, steps: int, beam: int = 4) -> Action:
    """Beam search of a fixed number of steps, prepared as by fairseq-generate; the model cannot be trained afterwards."""
    model.make_generation_fast_(need_attn=False)
    generator = SequenceGenerator([model], dictionary(), beam_size=beam, max_len_a=0, max_len_b=steps, min_len=steps - 2)
    sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(_PAD).sum(1), **side_inputs(model, source)}}

    def generate() -> None:
        model.eval()
        generator.generate([model], sample)

    return generate


def attention(variant: Variant, width: int, heads: int, length: int, device: torch.device, dtype: torch.dtype) -> Action:
    """One self-attention of an encoder over one sentence, forwards and backwards."""
    torch.manual_seed(1)
    if variant.specs is None:
        module: nn.Module = MultiheadAttention(width, heads, self_attention=True)
    else:
        module = build_attention(variant.specs["encoder"], width, heads, max_positions=length)
    module.to(device, dtype)
    x = torch.randn(length, 1, width, device=device, dtype=dtype, requires_grad=True)

    def both_ways() -> None:
        out, _ = module(x, x, x, need_weights=False)
        out.float().square().mean().backward()
        module.zero_grad()
        x.grad = None

    return both_ways
