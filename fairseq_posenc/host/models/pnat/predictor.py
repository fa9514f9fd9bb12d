"""The position predictor: a reader of the decoder inputs, and one of three heads that compute positions.

The reader computes r [B, T, C]. In training, `terms(r, z, inner)` of the head returns logits, classes and a mask for the
cross-entropy. In decoding, `positions(r, inner)` of the head returns the positions z [B, T] of all inputs. z is a permutation
that moves only the inner inputs. `inner` [B, T] is True at all inputs except the start symbol, the end symbol and the padding.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import LayerNorm
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from ....attention.site_positions import SitePositions
from ....core import AttentionContext, Positions
from ....ops.precision import at_least_float32
from ....ops.sinusoids import sinusoid
from ..layers.transformer import DecoderLayer, LayerOptions, Masks
from .search import MATCHINGS, moved

Terms = tuple[Tensor, Tensor, Tensor]


class Reader(nn.Module):
    """Transformer layers that read all decoder inputs and the source: [B, T, C], [B, S, C] -> [B, T, C].

    The position encoding of the option --predictor-position encodes the order of the inputs.
    """

    def __init__(self, cfg: Any, positions: SitePositions, cross_positions: SitePositions):
        super().__init__()
        options = LayerOptions(causal=positions.dims.causal)
        self.position, self.cross_position = positions, cross_positions
        self.dropout_module = FairseqDropout(cfg.dropout, module_name=type(self).__name__)
        self.layers = nn.ModuleList(
            DecoderLayer(cfg, positions.projections(layer), cross_positions.projections(layer), options)
            for layer in range(positions.dims.num_layers)
        )
        self.layer_norm = LayerNorm(cfg.decoder.embed_dim) if cfg.decoder.normalize_before else None

    def forward(self, inputs: Tensor, tokens: Tensor, words: Tensor, source: Tensor, source_padding: Tensor | None) -> Tensor:
        """Return the states of the inputs [B, T, C].

        `words` [B, T] is True at inputs, and False at padding. `source_padding` [B, S] is True at padding.
        """
        at, source_at = (Positions.counted(0, x.size(1), x.device) for x in (inputs, source))
        rows = len(inputs)
        own = self.position.begin(AttentionContext(at, at, key_padding=~words), rows)
        cross = self.cross_position.begin(AttentionContext(at, source_at, cross=True, key_padding=source_padding), rows)
        positions = (self.position, self.cross_position)
        masks = [of.masks(ctx) for of, ctx in zip(positions, (own, cross))]
        x = self.dropout_module(self.position.embed(inputs, tokens, own))
        for index, layer in enumerate(self.layers):
            contexts = tuple(of.at_layer(ctx, index) for of, ctx in zip(positions, (own, cross)))
            x = self.position.apply_chain("before_layer", x, ctx=contexts[0])
            x, _ = layer(x, source, positions, contexts, (Masks(masks[0][index]), Masks(masks[1][index])))
        return x if self.layer_norm is None else self.layer_norm(x)


class Matching(nn.Module):
    """The non-autoregressive head. It computes a score for every pair of input and position, and then a matching.

    Equation: p(z_i = j) = softmax_j(r_i W . U s_j / sqrt(d)), where s_j is the sinusoid of position j. The first and the last
        position of a sentence are excluded.
    """

    def __init__(self, width: int, matching: str):
        super().__init__()
        self.match = MATCHINGS[matching]
        self.input_proj = nn.Linear(width, width, bias=False)
        self.slot_proj = nn.Linear(width, width, bias=False)

    def terms(self, r: Tensor, z: Tensor, inner: Tensor) -> Terms:
        return self._logits(r, inner), z, inner

    def positions(self, r: Tensor, inner: Tensor) -> Tensor:
        return self.match(self._logits(r, inner).log_softmax(-1), inner)

    def _logits(self, r: Tensor, inner: Tensor) -> Tensor:
        slots = torch.arange(r.size(1), device=r.device)
        slots = self.slot_proj(sinusoid(slots, r.size(2), "halves", "fairseq").to(r.dtype))  # [T, C]
        logits = at_least_float32(self.input_proj(r) @ slots.T / r.size(2) ** 0.5)  # [B, T, T]
        return logits.masked_fill(~inner.unsqueeze(1), float("-inf"))


class Pointer(nn.Module):
    """The autoregressive head: a pointer network that selects one input for each position, from left to right.

    Equation: score_t(i) = v . tanh(W h_t + U c_i) for each input i that has no position yet. c is the output of two LSTM layers
        over r. h_t is the state of an LSTM cell after it has read the input selected for position t-1. For the first position,
        the cell reads a learned vector. Inference is greedy.
    Deviations:
        * The authors' score has no tanh, so that the ranking of the inputs does not depend on h_t.
        * In the authors' LSTM cell, h is replaced with tanh(W [context; h]) for the next step. The context is the output of the
          pointer's attention. Here, h is not replaced.
    """

    def __init__(self, width: int):
        super().__init__()
        self.candidates = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.steps = nn.LSTM(width, width, batch_first=True)
        self.start = nn.Parameter(torch.randn(width) * width**-0.5)
        self.step_proj = nn.Linear(width, width, bias=False)
        self.input_proj = nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def terms(self, r: Tensor, z: Tensor, inner: Tensor) -> Terms:
        keys, state = self._candidates(r, inner)
        end = max(r.size(1) - 1, 2)  # positions 1 to end - 1 are predicted. If all sentences are empty, position 1 is unused
        read = torch.cat([self.start.expand(len(r), 1, -1), moved(r, z)[:, 1 : end - 1]], 1)
        out, _ = self.steps(read, state)
        logits = self.score(torch.tanh(self.step_proj(out).unsqueeze(2) + keys.unsqueeze(1))).squeeze(-1)  # [B, T - 2, T]
        free = z.unsqueeze(1) >= torch.arange(1, end, device=r.device).view(1, -1, 1)  # inputs that have no position yet
        logits = at_least_float32(logits).masked_fill(~(free & inner.unsqueeze(1)), float("-inf"))
        return logits, z.argsort(1)[:, 1:end], inner[:, 1:end]

    def positions(self, r: Tensor, inner: Tensor) -> Tensor:
        keys, state = self._candidates(r, inner)
        z = torch.arange(r.size(1), device=r.device).repeat(len(r), 1)
        x, free = self.start.expand(len(r), 1, -1), inner
        for position in range(1, r.size(1) - 1):
            out, state = self.steps(x, state)
            logits = self.score(torch.tanh(self.step_proj(out) + keys)).squeeze(-1)  # [B, T]
            chosen = logits.masked_fill(~free, float("-inf")).argmax(1, keepdim=True)  # [B, 1]
            # in a sentence that has ended, no input is free, and z must not change
            here = inner[:, position : position + 1]
            z.scatter_(1, chosen, torch.where(here, position, z.gather(1, chosen)))
            free = free.scatter(1, chosen, free.gather(1, chosen) & ~here)
            x = r.gather(1, chosen.unsqueeze(-1).expand(-1, -1, r.size(2)))
        return z

    def _candidates(self, r: Tensor, inner: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return U c_i of every input, and the initial state of the LSTM cell.

        The initial state is the state of the second LSTM layer after the last input.
        """
        lengths = inner.sum(1).cpu() + 2
        packed = nn.utils.rnn.pack_padded_sequence(r, lengths, batch_first=True, enforce_sorted=False)
        out, (hidden, cell) = self.candidates(packed)
        out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=r.size(1))
        return self.input_proj(out), (hidden[-1:].contiguous(), cell[-1:].contiguous())


class RelativeClasses(nn.Module):
    """The relative head. It predicts the distance z_i - z_j of each pair of inputs, as one of the classes -K to -1 and 1 to K.

    Equation: l_ij = f(r_i - r_j), where f is a feed-forward network. The logit of class c is l_ij[c] + l_ji[-c]. The inner inputs
        are all inputs except the start symbol, the end symbol and padding. Each inner input has a rank: the number of inner
        inputs that are predicted to be before this input. The inner inputs are sorted by this rank.
    Deviations:
        * In the authors' code, the loss of this head is 0, so the head cannot be trained. Here, the loss is the mean
          cross-entropy over the pairs of a batch.
        * Input i is after input j if the positive classes have a total probability above 0.5. The authors' code uses the sign
          of the most probable class.
    """

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.classes = classes  # K
        self.fc1 = nn.Linear(width, width)
        self.fc2 = nn.Linear(width, 2 * classes)

    def terms(self, r: Tensor, z: Tensor, inner: Tensor) -> Terms:
        k = self.classes
        distance = (z.unsqueeze(2) - z.unsqueeze(1)).clamp(-k, k)  # [B, T, T]
        wanted = torch.where(distance > 0, distance + k - 1, distance + k)
        return self._logits(r), wanted, self._pairs(inner)

    def positions(self, r: Tensor, inner: Tensor) -> Tensor:
        later = self._logits(r).softmax(-1)[..., self.classes :].sum(-1) > 0.5  # probability that i is after j
        rank = (later & self._pairs(inner)).sum(2)  # [B, T]
        last = inner.size(1)
        # sort by rank. Equal ranks keep their order, so that the end symbol and the padding are not moved
        index = torch.arange(last, device=r.device)
        key = torch.where(inner, rank, index.ge(inner.sum(1, keepdim=True) + 1).long() * last)
        key = torch.where(index.eq(0), -1, key)
        return key.argsort(dim=1, stable=True).argsort(1)

    def _logits(self, r: Tensor) -> Tensor:
        pairs = self.fc2(F.relu(self.fc1(r.unsqueeze(2) - r.unsqueeze(1))))  # [B, T, T, 2K]
        return at_least_float32(pairs + pairs.transpose(1, 2).flip(-1))

    @staticmethod
    def _pairs(inner: Tensor) -> Tensor:
        apart = ~torch.eye(inner.size(1), dtype=torch.bool, device=inner.device)
        return inner.unsqueeze(2) & inner.unsqueeze(1) & apart
