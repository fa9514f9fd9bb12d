"""Heads that look in one direction, and attention with a score for every channel."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...contract import AttentionContext, MethodCard, Options, PositionError, PositionMethod, option
from ...ops.distances import distances


class Disan(PositionMethod):
    """Some heads look to the left of a token only, the others to its right, and none at the token itself.

    Equation: M_ts = 0 for s < t in forward heads and for s > t in backward heads, else -inf; Shen et al. (2018), equation 13.
        multi_dimensional: f_ts = c tanh((W_1 h_s + W_2 h_t + b) / c) + M_ts, a score for every channel, h = ELU(v);
        s_t = sum_s softmax_s(f_ts) * h_s; F = sigmoid(W_f1 h_t + W_f2 s_t + b_f); o_t = F * h_t + (1 - F) * s_t; equations 9-16.
    Shapes: mask -> bool [1, H, T, S]; attend -> [B, H, T, D].
    Source: Shen et al. (2018); taoshen58/DiSAN.
    Deviations: directions belong to heads of one attention, where the authors have two blocks; the multi-dimensional block works
        on each head's channels, the value projection is its W_h and the output projection joins the directions.
    Cost: no parameters; multi_dimensional: L h (4 d_h^2 + 2 d_h) a stack in place of the query and key projections, and
        c tanh on B H T S D numbers, evaluated in blocks of queries that hold at most B H S^2 of them.
    """

    @dataclass(frozen=True)
    class Options(Options):
        directions: Literal["both", "forward", "backward"] = option("both", "half of the heads each way, or all heads one way")
        diagonal: bool = option(False, "let a token look at itself")
        multi_dimensional: bool = option(False, "a score for every channel in place of the product of queries and keys")
        temperature: float = option(5.0, "c of the multi-dimensional scores", minimum=0.1)

    card = MethodCard(
        name="disan",
        title="Directional masks (DiSAN)",
        citation="""@inproceedings{shen-etal-2018-disan,
  title = {DiSAN: Directional Self-Attention Network for RNN/CNN-Free Language Understanding},
  author = {Shen, Tao and Zhou, Tianyi and Long, Guodong and Jiang, Jing and Pan, Shirui and Zhang, Chengqi},
  booktitle = {AAAI}, year = {2018}}""",
        equation="M_ts = 0 for s < t in forward heads and s > t in backward heads, else -inf",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("encoder",),
        our_sites=("decoder",),
        parameters="0 (multi_dimensional: L h (4 d_h^2 + 2 d_h))",
        count=lambda options, dims, site: (
            dims.num_layers * dims.num_heads * (4 * dims.head_dim**2 + 2 * dims.head_dim) if options.multi_dimensional else 0
        ),
        survey_parameters="0",
        deviations=(
            "directions belong to heads of one attention, not to two blocks",
            "the decoder, where all heads look forward, is our extension",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        if site == "decoder" and options.directions == "backward":
            raise PositionError("disan: directions=backward would read words that the decoder does not know yet")
        if site == "encoder" and options.directions == "both" and dims.num_heads % 2:
            raise PositionError(f"disan: directions=both needs an even number of heads, not {dims.num_heads}")
        if site == "decoder" and options.diagonal and not options.multi_dimensional:
            raise PositionError("disan: diagonal=true in the decoder is the causal mask that every decoder has; use none")
        half = dims.num_heads // 2
        forward = {"forward": dims.num_heads, "backward": 0, "both": half if site == "encoder" else dims.num_heads}
        self.forward_heads = forward[options.directions]
        if options.multi_dimensional:
            self.projections = frozenset({"value"})
            shape = (dims.num_layers, dims.num_heads, dims.head_dim, dims.head_dim)
            for name in ("of_key", "of_query", "gate_of_input", "gate_of_sum"):
                weight = nn.Parameter(torch.empty(shape))
                nn.init.uniform_(weight, -((3 / dims.head_dim) ** 0.5), (3 / dims.head_dim) ** 0.5)
                self.register_parameter(name, weight)
            self.score_bias = nn.Parameter(torch.zeros(shape[:3]))
            self.gate_bias = nn.Parameter(torch.zeros(shape[:3]))

    @property
    def hooks(self):
        return super().hooks - {"mask" if self.options.multi_dimensional else "attend"}

    def mask(self, ctx: AttentionContext) -> Tensor:
        delta = distances(ctx.queries, ctx.keys).unsqueeze(1)  # [B or 1, 1, T, S]
        before, after = (delta <= 0, delta >= 0) if self.options.diagonal else (delta < 0, delta > 0)
        backward_heads = self.dims.num_heads - self.forward_heads
        return torch.cat([before.expand(-1, self.forward_heads, -1, -1), after.expand(-1, backward_heads, -1, -1)], 1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        """`q` and `k` are not projected in this form; the newest rows of `v` are the queries."""
        hidden = F.elu(v)  # [B, H, S, D]
        here = hidden[:, :, -q.size(2) :]
        layer = ctx.layer
        of_key = hidden @ self.of_key[layer]
        of_query = here @ self.of_query[layer] + self.score_bias[layer].unsqueeze(1)
        allowed = self.mask(ctx)
        if ctx.key_padding is not None:
            allowed = allowed & ~ctx.key_padding[:, None, None, :]
        summed = self._in_blocks(of_query, of_key, hidden, allowed.expand(-1, hidden.size(1), -1, -1))
        gate = here @ self.gate_of_input[layer] + summed @ self.gate_of_sum[layer] + self.gate_bias[layer].unsqueeze(1)
        return torch.lerp(summed, here, gate.sigmoid())

    def _in_blocks(self, of_query: Tensor, of_key: Tensor, hidden: Tensor, allowed: Tensor) -> Tensor:
        """Blocks of queries, recomputed in the backward pass, so that no [B, H, T, S, D] is held."""
        rows = max(1, hidden.size(2) // hidden.size(3))
        blocks = zip(of_query.split(rows, 2), allowed.split(rows, 2))
        done = [checkpoint(self._block, query, of_key, hidden, seen, use_reentrant=False) for query, seen in blocks]
        return torch.cat(done, 2)

    def _block(self, of_query: Tensor, of_key: Tensor, hidden: Tensor, allowed: Tensor) -> Tensor:
        c = self.options.temperature
        scores = c * torch.tanh((of_query.unsqueeze(3) + of_key.unsqueeze(2)) / c)  # [B, H, rows, S, D]
        blind = ~allowed.any(-1, keepdim=True)
        scores = scores.masked_fill(~(allowed | blind).unsqueeze(-1), float("-inf"))
        summed = (scores.softmax(3) * hidden.unsqueeze(2)).sum(3)
        return summed.masked_fill(blind, 0.0)
