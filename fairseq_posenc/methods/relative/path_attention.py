"""Scores that contain a product of matrices, with one matrix for each token between key and query."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.kernels.unit_length import UnitLength
from ...ops.precision import at_least_float32
from ...ops.running import causal_convolution, order, without_padding

#: standard deviation of the initial weights, as in flash-linear-attention
_DEVIATION = 0.02


class PathAttention(PositionMethod):
    r"""Multiply the query by one matrix for each token after the key, up to and including the query's token. Each matrix is
    the identity minus a matrix of rank 1.

    Equation: $A_{ts} = k_s \cdot (H_{s+1} H_{s+2} \cdots H_t) q_t / \sqrt{d_h}$ for $s \le t$, $H_j = I - \beta_j w_j w_j^T$,
        $\beta_j = 2 \operatorname{sigmoid}(u \cdot x_j + b)$, $w_j$ is
        $\operatorname{SiLU}(\operatorname{conv}(W_2 W_1 x_j))$, normalised to length 1 in each head. Yang et al. (2025).
    Shapes: rescale [B, H, T, S] -> same.
    Source: Yang et al. (2025). Code: fla-org/flash-linear-attention, layers/path_attn.py and ops/path_attn/naive.py. The spec
        path_attention+forgetting is the authors' method PaTH-FoX.
    Deviations:
        * SiLU is from the authors' code. The paper does not mention it.
        * Forget gates of path_attention+forgetting are not scaled, as in the Forgetting Transformer. The authors' code scales
          them by $1/\sqrt{d_h}$.
        * w and the products are in float32. The authors' kernels round w to float16.
        * w has length 1, unless its length before normalisation is at most 1e-12. Then w is 0. The authors' code adds 1e-6 to
          the square of the length.
        * The encoder is an experimental extension of this project. For $s > t$,
          $A_{ts} = q_t \cdot (H_{t+1} \cdots H_s) k_s / \sqrt{d_h}$.
          Each direction has its own parameters of $w$ and $\beta$.
        * In the encoder, the convolutions of both directions read each token and the tokens before it.
        * Padding has $\beta = 0$. The convolution reads zeros at padding.
    Cost: L (2 rank d + conv d + (d + 1) h) parameters per stack, twice as many in the encoder. Each layer computes five products
        [B, H, T, T], and solves one triangular system of T unknowns for each query. The results and their gradients are in
        float32. This needs O(T^2 d_h + T^3) operations per head. The encoder computes all of this once per direction. Decoding
        caches a second set of keys. Each decoding step multiplies these keys by H_t.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        rank: int = option(32, "rank of the projection of w (0: one matrix [d, d])", minimum=0, maximum=65536)
        conv: int = option(
            3, "number of tokens that the convolution of w reads (0: neither convolution nor SiLU)", minimum=0, maximum=64
        )
        beta: float = option(
            2.0, "upper bound of beta: 2 as in the authors' code, or 1 for contractions only", minimum=0.0, maximum=2.0
        )

    card = MethodCard(
        name="path_attention",
        title="PaTH attention",
        citations=("yang-etal-2025-path",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        extended_sites=("encoder",),
        default_specs={"encoder": "rope", "decoder": "path_attention"},
        parameters="L * (1 if causal else 2) * ((2 * rank * d if rank else d**2) + conv * d + (d + 1) * h)",
    )

    rescale_reads = "vectors"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        width, sides = dims.embed_dim, 1 if dims.causal else 2  # one direction to the left, and one to the right

        def table(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(dims.num_layers, sides, *shape).normal_(std=_DEVIATION))

        self.down = table(width, options.rank) if options.rank else None
        self.up = table(options.rank or width, width)
        self.taps = table(width, options.conv) if options.conv else None
        self.weight = table(dims.num_heads, width)
        self.offset = nn.Parameter(torch.zeros(dims.num_layers, sides, dims.num_heads))

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        q, k = at_least_float32(q, contiguous=True) * ctx.scale, at_least_float32(k, contiguous=True)
        queries, keys = order(ctx)
        with torch.autocast(q.device.type, enabled=False):
            left = self._reflections(0, ctx)
            words = keys[:, keys.size(1) - left[0].size(2) :]  # the new keys
            if ctx.state is not None:
                known = ctx.state.get("moved")
                k = k if known is None else torch.cat([known, k[:, :, known.size(2) :]], 2)
                ctx.state.store_per_row("moved", moved_along(k, keys, *left, words))
            found = scores_along(q, queries, k, keys, *left, words)
            if not self.dims.causal:
                right = scores_along(k, keys, q, queries, *self._reflections(1, ctx), words).mT
                after = keys.unsqueeze(-2) > queries.unsqueeze(-1)  # [B or 1, T, S]
                found = torch.where(after.unsqueeze(1), right, found)
        return found

    def _reflections(self, side: int, ctx: AttentionContext) -> tuple[Tensor, Tensor]:
        """Return w and beta of the new keys: [B, H, N, D] and [B, H, N, 1]."""
        assert ctx.inputs is not None

        def of_side(parameter: Tensor) -> Tensor:
            return self.of_layer(parameter, ctx, float32=True)[side]

        # one product reads the words for the vectors and for the factors
        first = self.up if self.down is None else self.down
        x, tables = at_least_float32(ctx.inputs[1]), torch.cat([of_side(first), of_side(self.weight).mT], 1)
        w, beta = (x @ tables).split([first.size(-1), self.dims.num_heads], -1)  # [B, N, rank or C] and [B, N, H]
        w = without_padding(w if self.down is None else w @ of_side(self.up), ctx)  # [B, N, C]
        if self.taps is not None:
            before = None if ctx.state is None else ctx.state.get(f"words{side}")
            w, last = causal_convolution(w, of_side(self.taps), before)
            w = F.silu(w)
            if ctx.state is not None:
                ctx.state.store_per_row(f"words{side}", last)
        # [B, N, C] -> [B, H, N, D], contiguous, because three products read w
        w = UnitLength.apply(w.unflatten(-1, (self.dims.num_heads, -1)).transpose(1, 2).contiguous())
        beta = self.options.beta * (beta + of_side(self.offset)).sigmoid()
        return w, without_padding(beta, ctx).mT.unsqueeze(-1)


def scores_along(
    late: Tensor, late_ids: Tensor, early: Tensor, early_ids: Tensor, w: Tensor, beta: Tensor, word_ids: Tensor
) -> Tensor:
    """Return early_s . H_(s+1) ... H_t late_t: [B, H, T, D], [B, H, S, D] -> [B, H, T, S].

    The product contains one matrix H for each token after s, up to t. For s > t, the product is early_s . late_t. The
    tensors w [B, H, N, D] and beta [B, H, N, 1] contain the vectors and factors of all tokens, in the order of the tokens.
    """
    passed = (word_ids.unsqueeze(-2) <= late_ids.unsqueeze(-1)).unsqueeze(1)  # [B or 1, 1, T, N]
    scaled = w * beta
    # each H subtracts a product. -1 in the mask needs no operator of its own
    of_late, of_early = (late @ w.mT) * -passed.to(late.dtype), _of_early(early, early_ids, scaled, word_ids)
    # only the entries below the diagonal are read. The row of such an entry belongs to a later token than the column
    system = scaled @ w.mT
    if of_late.size(2) <= of_early.size(3):  # solve as few systems as possible: one per query, or one per key
        of_late = torch.linalg.solve_triangular(system, of_late, upper=False, left=False, unitriangular=True)
    else:
        of_early = torch.linalg.solve_triangular(system, of_early, upper=False, unitriangular=True)
    found = torch.baddbmm((late @ early.mT).flatten(0, 1), of_late.flatten(0, 1), of_early.flatten(0, 1))
    return found.unflatten(0, of_late.shape[:2])


def moved_along(early: Tensor, early_ids: Tensor, w: Tensor, beta: Tensor, word_ids: Tensor) -> Tensor:
    """Return H_n ... H_(s+1) early_s, where n is the last token: [B, H, S, D] -> [B, H, S, D]."""
    scaled = w * beta
    of_early = _of_early(early, early_ids, scaled, word_ids)
    return early - torch.linalg.solve_triangular(scaled @ w.mT, of_early, upper=False, unitriangular=True).mT @ w


def _of_early(early: Tensor, early_ids: Tensor, scaled: Tensor, word_ids: Tensor) -> Tensor:
    """Return scaled_j . early_s for tokens j after s: [B, H, N, S]."""
    return (scaled @ early.mT) * (early_ids.unsqueeze(-2) < word_ids.unsqueeze(-1)).unsqueeze(1)
