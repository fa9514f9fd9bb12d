"""The complex Transformer as a fairseq model."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from fairseq.models import register_model
from torch import Tensor, nn

from ....attention.site_positions import SitePositions
from ....core import PositionError, Refusal
from ....core.hooks import BEFORE_LAYERS
from ....registry.architectures import COMPLEX_MODEL
from ..transformer.decoder import Decoder
from ..transformer.encoder import Encoder
from ..transformer.model import PositionTransformer
from ..transformer.stack import Stack
from .layers import ComplexDecoderLayer, ComplexEncoderLayer, ComplexNorm

#: options of other models -> the only value that this model supports
_SUPPORTED = {
    "encoder_ffn_kernel": 1,
    "encoder_halting": None,
    "decoder_ffn_kernel": 1,
    "decoder_halting": None,
    "length_loss_weight": None,
}


class _ComplexStack(Stack):
    """A stack with complex hidden states. Embeddings are real; a method such as `complex` then changes their phases."""

    norm = ComplexNorm

    def build_stack(self, cfg: Any, side: Any, embed_tokens: nn.Embedding, positions: SitePositions, *args: Any) -> None:
        _refuse_methods(positions)
        super().build_stack(cfg, side, embed_tokens, positions, *args)

    def as_states(self, embedded: Tensor) -> Tensor:
        return torch.cat([embedded, torch.zeros_like(embedded)], -1)  # [B, T, C] -> [B, T, 2C]


class ComplexEncoder(_ComplexStack, Encoder):
    """An encoder with complex hidden states. It returns fairseq's dictionary with an output [S, B, 2C]."""

    layer = ComplexEncoderLayer


class ComplexDecoder(_ComplexStack, Decoder):
    """A decoder with complex hidden states. The output projection reads their squared moduli."""

    layer = ComplexDecoderLayer

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, positions: SitePositions, cross: SitePositions):
        _refuse_methods(cross)
        super().__init__(cfg, dictionary, embed_tokens, positions, cross)

    def output_layer(self, features: Tensor) -> Tensor:
        return self.output_projection(features.unflatten(-1, (2, -1)).square().sum(-2))  # [B, T, 2C] -> [B, T, C] -> [B, T, V]


@register_model(COMPLEX_MODEL)
class ComplexTransformer(PositionTransformer):
    """A Transformer with complex hidden states, after Wang et al. (2020).

    Equation: x_t = r(u_t) exp(i (w t + th)), with the embedding r(u_t) of a token, frequencies w and phases th. Attention scores
        are moduli (`ComplexAttention`). Feed-forward networks have complex weights, and apply ReLU to real and imaginary parts.
        Both parts share one layer norm. The logits are computed from the squared moduli of the last hidden states.
    Source: translation model of iclr-complex-order/complex-order. The method `complex` provides the frequencies
        (--encoder-position complex:frequencies=word). Embeddings are real, so that all th are 0.
    Deviations: dropout is also applied to the embeddings. With --encoder-normalize-before, layer norms are applied before
        attention and before feed-forward networks.
    Cost: compared with real hidden states, feed-forward networks have twice the parameters and four times the operations.
        The projections of attention and the sums of values need twice the operations. The scores need four times the
        operations.
    """

    encoder_class, decoder_class = ComplexEncoder, ComplexDecoder
    parts = 2

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        super().add_args(parser)
        parser.add_argument(
            "--conjugate-scores", action="store_true",
            help="scores with conjugate keys, as in the paper, which depend on distances "
            "(default: keys without conjugation, as in the authors' code)",
        )  # fmt: skip

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> ComplexTransformer:
        for option, supported in _SUPPORTED.items():
            if (getattr(args, option, None) or supported) != supported:
                raise Refusal(f"--{option.replace('_', '-')} is not supported by {COMPLEX_MODEL}. Remove this option.")
        return super().build_model(args, task)


def _refuse_methods(positions: SitePositions) -> None:
    """Raise PositionError for methods that change the attention, because this model computes attention differently."""
    for method in positions.methods:
        if not method.hooks <= BEFORE_LAYERS:
            raise PositionError(
                f"{COMPLEX_MODEL}: {method.card.name} acts in the attention, which is complex here. Expected methods that act on "
                "the embeddings. Use for example complex, sinusoidal or none."
            )
