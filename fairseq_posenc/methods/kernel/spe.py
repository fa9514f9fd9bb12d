"""Stochastic positional encoding, with sinusoids and with filtered noise.

Queries and keys can be encoded as random vectors, called codes. Linear attention requires codes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import (
    AttentionContext,
    Dims,
    MethodCard,
    MethodOptions,
    PositionError,
    PositionMethod,
    Positions,
    Projection,
    option,
    recurrent,
)
from ...ops.distances import require_integer
from ...ops.kernels.derivatives import first_derivative_only
from ...ops.kernels.outputs import write
from ...ops.precision import at_least_float32

_EVALUATION_SEED = 1_000_003
#: number of positions per block. _CHUNK: linear attention and convolutions. _NOISE_BLOCK: noise of spe_conv. _WAVE_BLOCK: codes
#: of spe_sine
_CHUNK, _NOISE_BLOCK, _WAVE_BLOCK = 64, 128, 256

#: tensors that the decoding state stores, because they do not depend on tokens
_KEPT = ("spe_frequencies", "spe_gains", "spe_plain")
#: angular frequencies, offsets and gains, [H, K, D] each, and the factor [H, D] of the plain product. The plain product is the
#: product of query and key without positions
Sines = tuple[Tensor, Tensor, Tensor, Tensor]


class _Spe(PositionMethod):
    """Implement gates of channels, noise with fixed seeds in evaluation, and linear attention, for spe_sine and spe_conv."""

    def __init__(self, options: Any, dims: Dims):
        super().__init__(options, dims)
        gate = torch.randn(dims.num_layers, dims.num_heads, dims.head_dim)
        self.gates = nn.Parameter(gate) if options.gated else None

    def generator(self, number: int, device: torch.device) -> torch.Generator | None:
        """In evaluation, return the generator of the noise block `number`, with a fixed seed. In training, return None."""
        return None if self.training else torch.Generator(device).manual_seed(_EVALUATION_SEED + number)

    def gate(self, ctx: AttentionContext) -> Tensor:
        """Return, for each channel, the weight of the product of query and key without positions: [H, 1, D, 1]."""
        return self.of_layer(self.get_parameter("gates"), ctx, float32=True).sigmoid()[:, None, :, None]

    @recurrent
    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        if ctx.dropout:
            raise PositionError(
                f"{self.card.name}: attention=linear does not support attention dropout. Expected --attention-dropout 0."
            )
        # the authors divide queries and keys by the fourth root of d_h, then apply ReLU and add 0.001. Here, the added number is
        # multiplied by this root instead. The outputs are equal, because the common factor of all weights cancels
        least = 1e-3 * self.dims.head_dim**0.25
        q, k, values = F.relu(at_least_float32(q)) + least, F.relu(at_least_float32(k)) + least, at_least_float32(v)
        if ctx.key_padding is not None:
            # in step-by-step decoding, only the new keys are given
            k = k.masked_fill(ctx.key_padding[:, None, -k.size(2) :, None], 0.0)
        values = torch.cat([values, torch.ones_like(values[..., :1])], -1)  # the last column sums the weights
        summed = self._causal(q, k, values, ctx) if ctx.causal else q @ (k.transpose(-1, -2) @ values)
        out, weight = summed.split([v.size(-1), 1], -1)
        return (out * weight.clamp(min=1e-30).reciprocal()).to(v.dtype)  # zero if all keys are masked

    def _causal(self, q: Tensor, k: Tensor, values: Tensor, ctx: AttentionContext) -> Tensor:
        """Return, for each query, the sum of the weighted values of the keys up to the query.

        The result is the sum over all earlier chunks, plus a masked product within the chunk of the query.
        """
        past = None if ctx.state is None else ctx.state.get("spe")
        if past is None:
            past = q.new_zeros(q.size(0), q.size(1), k.size(-1), values.size(-1))
        outputs = []
        for queries, keys, own in zip(q.split(_CHUNK, 2), k.split(_CHUNK, 2), values.split(_CHUNK, 2)):
            inside = (queries @ keys.transpose(-1, -2)).tril() @ own
            outputs.append(queries @ past + inside)
            past = past + keys.transpose(-1, -2) @ own
        if ctx.state is not None:
            ctx.state.store_per_row("spe", past)
        return torch.cat(outputs, 2)


class SineSpe(_Spe):
    r"""Weight every channel of the product of query and key by a learned sum of cosines of the distance.

    Equation: $A_{ts} = \sum_i q_{ti} k_{si} P'_i(t-s) / \sqrt{d_h}$, $P_i(x) = 1/(2K) \sum_k g_{ik}^2 \cos(2 \pi f_{ik} x +
        \theta_{ik})$, $P' = (1 - \mathrm{gate}) P + \mathrm{gate}$. Liutkus et al. (2021), equations 17 to 19. With
        `exact=false`, queries and keys are encoded as random codes of width $R$. The product of two codes has the expectation
        $\sum_i q_{ti} k_{si} P'_i(t-s)$. With `attention=linear`, $o_t = \phi(q_t) M_t / (\phi(q_t) \cdot Z_t)$ with $\phi(x)
        = \operatorname{ReLU}(x / d_h^{1/4}) + 0.001$. $M_t$ is the sum of $\phi(k_s) v_s$ over the keys, and $Z_t$ is the sum
        of $\phi(k_s)$ over the keys. Here, $q_t$ and $k_s$ are the codes of query and key.
    Shapes: rotate [B, H, T, D] -> [B, H, T, (2K + 1) D] exact, [B, H, T, R] with codes. attend -> [B, H, T, D].
    Source: Liutkus et al. (2021). Code: aliutkus/spe (PyTorch).
    Deviations:
        * Softmax attention with the exact expectation is the default. The authors draw random codes (exact=false).
        * Codes have the factor $1/\sqrt{R}$, so that attention keeps the scale $1/\sqrt{d_h}$. The authors' codes require an
          attention with the scale $1/\sqrt{R}$.
        * In evaluation, the noise has a fixed seed, so that results are repeatable.
        * The gate is the gate of the authors' PyTorch code. Their JAX code exchanges gate and 1 - gate.
        * K is 5 and R is 64, as in the authors' music experiments. The defaults of their code are 1 and 256.
        * attention=linear has the ReLU features of the authors' experiments on long sequences. Their music experiments have
          random features.
        * The survey counts 3 K d parameters for every head. The authors' code has 3 K d parameters for all heads together.
        * The survey calls the method bounded. Sines are, however, defined for sentences of any length.
        * Cross-attention is an extension of this project.
    Cost: 3 K d parameters per stack, and d gates per layer. With exact=true, encoded queries and keys have
        width (2K + 1) d_h. With exact=false, codes take O(T (2K + 1) d_h R) time and O(T (2K + 1) d_h) memory. With
        attention=linear, no tensor has T S entries.
    Raises: PositionError for attention=linear with exact=true. PositionError for attention=linear with attention dropout, because
        linear attention computes no attention weights. PositionError for realizations with exact=true.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        sines: int = option(5, "number K of cosines in the sum of each channel", minimum=1, maximum=65536)
        attention: Literal["softmax", "linear"] = option("softmax", "attention of the encoded queries and keys")
        exact: bool = option(True, "exact expectation instead of random codes (only with attention=softmax)")
        realizations: int = option(64, "number R of random codes (only with exact=false)", minimum=1, maximum=65536)
        gated: bool = option(True, "learned mixture with the plain product, per channel and layer")

        def __post_init__(self) -> None:
            if self.exact and self.attention == "linear":
                raise PositionError("attention=linear requires random codes. Add exact=false.")
            if self.exact and self.realizations != type(self).realizations:
                raise PositionError(f"realizations={self.realizations} has no effect with exact=true. Add exact=false.")

    card = MethodCard(
        name="spe_sine",
        title="Stochastic positional encoding, sines",
        citations=("liutkus-etal-2021-relative",),
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        extended_sites=("cross",),
        parameters="3 * sines * d + gated * L * d",
        survey_parameters="3 K d h + d L",
        stochastic=True,
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        shape = (dims.num_heads, dims.head_dim, options.sines)
        self.frequencies = nn.Parameter(torch.randn(shape) - 4)
        self.offsets = nn.Parameter(torch.randn(shape))
        gains = torch.randn(shape)
        self.gains = nn.Parameter(2 * gains / gains.norm(dim=-1, keepdim=True).sqrt())

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - {hook for hook, unused in self._unused() if unused}

    def _unused(self) -> tuple[tuple[str, bool], ...]:
        return ("attend", self.options.attention == "softmax"), ("prepare", self.options.exact)

    def prepare(self, ctx: AttentionContext) -> Tensor:
        """Return standard normal noise [H, D, 2K + 1, R] for K cosines, K sines and the plain product.

        The plain product is the product of query and key without positions.
        """
        device = self.gains.device
        shape = (self.dims.num_heads, self.dims.head_dim, 2 * self.options.sines + 1, self.options.realizations)
        return torch.randn(shape, generator=self.generator(0, device), device=device)

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """Encode queries or keys: [B, H, T, D] -> [B, H, T, D'].

        With exact=true, the product of an encoded query and an encoded key is sum_i q_i k_i P'_i. With exact=false, the encoded
        vectors are random codes, so the product is random. The expectation of the product is then sum_i q_i k_i P'_i.
        """
        frequencies, gains, plain = self._shared_sines(which, ctx)
        offsets = at_least_float32(self.offsets).mT if which == "query" else None  # theta, for queries only
        if self.options.exact:
            return self._features(x, at, frequencies, offsets, gains, plain)
        offsets = torch.zeros_like(frequencies) if offsets is None else offsets
        return self._codes(at_least_float32(x), at, (frequencies, offsets, gains, plain), ctx).to(x.dtype)

    def _shared_sines(self, which: Projection, ctx: AttentionContext) -> Sequence[Tensor]:
        """Return the result of `_sines`, computed once for queries and keys. The decoding state stores the result."""
        if ctx.state is not None:
            known = [found for name in _KEPT if (found := ctx.state.get(name)) is not None]
            return known or [ctx.state.store_shared(name, tensor) for name, tensor in zip(_KEPT, self._sines(ctx))]
        if which == "query":  # `rotate` is called for queries before keys
            made = self._sines(ctx)
            for name, tensor in zip(_KEPT, made):
                ctx.hand_over((self, name), tensor)
            return made
        handed = [tensor for name in _KEPT if (tensor := ctx.take((self, name))) is not None]
        return handed or self._sines(ctx)

    def _sines(self, ctx: AttentionContext) -> tuple[Tensor, Tensor, Tensor]:
        """Return the frequencies and gains of the cosines, [H, K, D] each, and the factor of the plain product, [H, D].

        The plain product is the product of query and key without positions.
        """
        frequencies = math.pi * at_least_float32(self.frequencies).sigmoid()  # [H, D, K]
        gains = F.softplus(at_least_float32(self.gains)) / (2 * self.options.sines) ** 0.5
        plain = gains.new_zeros(gains.shape[:2]) if self.gates is None else self.gate(ctx)[:, 0, :, 0]  # [H, D]
        gains = gains * (1 - plain).sqrt().unsqueeze(-1)
        return frequencies.mT, gains.mT, plain.sqrt()

    def _features(
        self, x: Tensor, at: Positions, frequencies: Tensor, offsets: Tensor | None, gains: Tensor, plain: Tensor
    ) -> Tensor:
        """Multiply every channel by its 2K + 1 waves (see `_Features`): [B, H, T, D] -> [B, H, T, (2K + 1) D]."""
        angles = _angles(at.ids, frequencies)
        angles = angles if offsets is None else angles + offsets[:, None, None]
        waves = _waves(angles.cos(), angles.sin(), gains, plain)  # [H, B or 1, T, M, D]
        return _Features.apply(x, waves.transpose(0, 1))

    def _codes(self, x: Tensor, at: Positions, sines: Sines, ctx: AttentionContext) -> Tensor:
        """Project the result of `_features` onto random noise: [B, H, T, R].

        If `at.start` is set (see `Positions`), the codes are computed in blocks. All blocks use the same waves (see `_Codes`).
        `_Features` describes the waves.
        """
        noise = ctx.prepared[self].to(x.dtype).movedim(1, 2) * self.options.realizations**-0.5  # [H, M, D, R]
        counted = at.start is not None
        ids = at.ids[:, :_WAVE_BLOCK] - at.start if counted else at.ids
        starts = range(at.start, at.start + x.size(2), _WAVE_BLOCK) if counted else range(1)
        return _Codes.apply(x, *sines, noise, ids, starts)


class _Features(torch.autograd.Function):
    """Multiply every channel by its waves: [B, H, T, D], [B or 1, H, T, M, D] -> [B, H, T, M D].

    A channel has M = 2K + 1 waves: K cosines and K sines, multiplied by their gains, and the factor of the plain product. The
    plain product is the product of query and key without positions. The result has the precision of x.

    Equation: y_md = x_d w_md. With g the gradient of y, the gradient of x_d is sum_m g_md w_md, and the gradient of w_md is
        g_md x_d, summed over the sentences that share the waves.
    """

    @staticmethod
    def forward(ctx, x: Tensor, waves: Tensor) -> Tensor:
        ctx.save_for_backward(x, waves)
        out = x.new_empty(*x.shape[:-1], *waves.shape[-2:])
        return write(out, torch.mul, x.unsqueeze(-2), waves).flatten(-2)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        x, waves = ctx.saved_tensors
        grad = grad.unflatten(-1, waves.shape[-2:])
        products = write(torch.empty_like(grad), torch.mul, grad, waves)
        of_x = products.sum(-2)
        write(products, torch.mul, grad, x.unsqueeze(-2))
        of_waves = products.sum(0, keepdim=True, dtype=waves.dtype) if waves.size(0) == 1 else products.to(waves.dtype)
        return of_x, of_waves


class _Codes(torch.autograd.Function):
    """Compute sum_md x_d wave_md noise_md at every position, with M = 2K + 1: [B, H, T, D] -> [B, H, T, R].

    The result is computed in blocks of t positions. `ids` [B or 1, t] contains the positions relative to the start of a block,
    so that all blocks use the same waves. `starts` contains the first position of each block. For each block, the noise
    [H, M, D, R] is rotated by the angles of the first position plus the offsets. The products of x and the waves are M times as
    large as x. The products are not stored, because the backward pass does not need the products. The noise has no gradient.
    """

    @staticmethod
    def forward(
        ctx,
        x: Tensor,
        frequencies: Tensor,
        offsets: Tensor,
        gains: Tensor,
        plain: Tensor,
        noise: Tensor,
        ids: Tensor,
        starts: range,
    ) -> Tensor:
        angles = _angles(ids, frequencies)
        waves = _waves(angles.cos(), angles.sin(), gains, plain)
        rotated = [_rotated(noise, frequencies * start + offsets) for start in starts]
        ctx.save_for_backward(x, angles, gains, waves, ids, *rotated)
        ctx.starts = starts
        out, memory = x.new_empty(*x.shape[:3], noise.size(-1)), _memory(x, waves)
        for block_noise, rows in zip(rotated, _blocks(x, waves)):
            own, wave = _within(x, waves, rows)
            products = torch.mul(own, wave, out=_shaped(memory, own, wave)).flatten(-2)  # [H, B, t, M D]
            codes = products.flatten(1, 2) @ block_noise  # [H, B t, R]
            out[:, :, rows] = codes.unflatten(1, products.shape[1:3]).transpose(0, 1)
        return out

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        x, angles, gains, waves, ids, *rotated = ctx.saved_tensors
        cosine, sine = angles.cos(), angles.sin()
        # the gradient of a frequency contains the position as a factor. The position is the start of the block plus `ids`
        grad_x, grad_waves, by_start = torch.empty_like(x), torch.zeros_like(waves), torch.zeros_like(waves)
        memory, other = _memory(x, waves), _memory(x, waves)
        for start, block_noise, rows in zip(ctx.starts, rotated, _blocks(x, waves)):
            own, wave = _within(x, waves, rows)
            grad_products = _shaped(memory, own, wave)  # [H, B, t, M, D]
            grad_codes = grad[:, :, rows].transpose(0, 1).flatten(1, 2)  # [H, B t, R]
            torch.bmm(grad_codes, block_noise.mT, out=grad_products.flatten(-2).flatten(1, 2))
            grad_x[:, :, rows] = torch.mul(grad_products, wave, out=_shaped(other, own, wave)).sum(-2).transpose(0, 1)
            grad_wave = grad_products.mul_(own).sum_to_size(wave.shape)
            grad_waves[:, :, : grad_wave.size(2)] += grad_wave
            by_start[:, :, : grad_wave.size(2)].add_(grad_wave, alpha=start)
        by_position = by_start.addcmul_(grad_waves, ids[..., None, None])[..., :-1, :]
        grad_waves, grad_plain = grad_waves.split([2 * gains.size(1), 1], -2)
        wave, slope = torch.cat([cosine, sine], -2), torch.cat([-sine, cosine], -2)

        def along(direction: Tensor, gradient: Tensor) -> Tensor:
            """Multiply two tensors [H, B or 1, t, 2K, D]. Sum the product.

            The sum runs over the batch, over positions, and over the cosine and the sine of each frequency: [H, K, D].
            """
            return (direction * gradient).sum((1, 2)).unflatten(1, (2, -1)).sum(1)

        grad_frequencies, grad_offsets = gains * along(slope, by_position), gains * along(slope, grad_waves)
        grad_gains, grad_plain = along(wave, grad_waves), grad_plain.sum((1, 2, 3))
        return grad_x, grad_frequencies, grad_offsets, grad_gains, grad_plain, None, None, None


def _angles(ids: Tensor, frequencies: Tensor) -> Tensor:
    """Return angles from positions [B or 1, T] and frequencies [H, K, D]: [H, B or 1, T, K, D]."""
    return frequencies[:, None, None] * ids[..., None, None].to(frequencies.dtype)


def _waves(cosine: Tensor, sine: Tensor, gains: Tensor, plain: Tensor) -> Tensor:
    """Return the waves of every channel (see `_Features`): [H, B or 1, T, M, D].

    Axis M contains K cosines, K sines, and the factor `plain` of the plain product. The plain product is the product of query
    and key without positions.

    Arguments: cosines and sines [H, B or 1, T, K, D], gains [H, K, D], and the factor of the plain product [H, D].
    """
    gains, plain = gains[:, None, None], plain[:, None, None, None].expand_as(cosine[..., :1, :])
    return torch.cat([gains * cosine, gains * sine, plain], -2)


def _rotated(noise: Tensor, angles: Tensor) -> Tensor:
    """Rotate the noise of cosines and sines [H, M, D, R] by angles [H, K, D]: [H, M D, R].

    The noise of the plain product is unchanged. The plain product is the product of query and key without positions.
    """
    cosine, sine = angles.cos().unsqueeze(-1), angles.sin().unsqueeze(-1)
    rotated = noise.clone()
    (of_cosines, of_sines), (first, second) = (x[:, :-1].chunk(2, 1) for x in (noise, rotated))
    first.mul_(cosine).addcmul_(of_sines, sine)
    second.mul_(cosine).addcmul_(of_cosines, sine, value=-1)
    return rotated.flatten(1, 2)  # [H, M, D, R] -> [H, M D, R]


def _blocks(x: Tensor, waves: Tensor) -> list[slice]:
    return [slice(row, row + waves.size(2)) for row in range(0, x.size(2), waves.size(2))]


def _within(x: Tensor, waves: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """Return the rows of x and the waves (see `_Features`) of one block: [H, B, t, 1, D] and [H, B or 1, t, M, D]."""
    own = x[:, :, rows].transpose(0, 1).unsqueeze(-2)  # [B, H, t, D] -> [H, B, t, 1, D]
    return own, waves[:, :, : own.size(2)]


def _memory(x: Tensor, waves: Tensor) -> Tensor:
    """Return a memory buffer. Each block writes its products to this buffer, over the products of the previous block.

    On a CPU, allocating memory for each block takes longer than computing the products.
    """
    return x.new_empty(waves[:, 0].numel() * x.size(0))


def _shaped(memory: Tensor, *factors: Tensor) -> Tensor:
    """Return the first elements of `memory` as a tensor. This tensor has the shape of the elementwise product of `factors`."""
    shape = torch.broadcast_shapes(*(factor.shape for factor in factors))
    return memory[: math.prod(shape)].view(shape)


class ConvolutionalSpe(_Spe):
    r"""Weight every channel of the product of query and key by the cross-correlation of two learned filters.

    Equation: $\operatorname{E}[A_{ts}] = \sum_i q_{ti} k_{si} P'_i(t-s) / \sqrt{d_h}$, $P_i(x) = \sum_p w_{ip}^k w_i^q(p+x)$,
        $P' = (1 - \mathrm{gate}) P + \mathrm{gate}$. Liutkus et al. (2021), convolutional SPE. Each position has one random
        code of width $R$ for queries, and one for keys. Both codes are the same white noise, filtered by $w^q$ for queries and
        by $w^k$ for keys. $P_i(t-s)$ is the expectation of the product of two codes: the query code of position $t$ and
        the key code of position $s$. `attention=linear` is defined as in `spe_sine`.
    Shapes: rotate [B, H, T, D] -> [B, H, T, R]. attend -> [B, H, T, D].
    Source: Liutkus et al. (2021). Code: aliutkus/spe (PyTorch).
    Deviations:
        * Softmax attention is the default.
        * Codes have the factor $1/\sqrt{R}$, so that attention keeps the scale $1/\sqrt{d_h}$. The authors' codes require an
          attention with the scale $1/\sqrt{R}$.
        * In evaluation, the noise has fixed seeds, so that results are repeatable.
        * The gate is the gate of the authors' PyTorch code. Their JAX code exchanges gate and 1 - gate.
        * The filter length P is 128 and R is 64, as in the authors' music experiments. The defaults of their code are 200 and
          256. This number P is not the function $P_i$ of the equation.
        * attention=linear has the ReLU features of the authors' experiments on long sequences. Their music experiments have
          random features.
        * The formula in the survey belongs to spe_sine.
        * Cross-attention is an extension of this project.
    Cost: 2 P d parameters per stack, and d gates per layer. A forward pass computes one convolution for queries and one for
        keys, each in O(T P d R) time. Decoding computes both convolutions in every layer.
    Raises: PositionError for attention=linear with attention dropout, because linear attention computes no attention weights.
        PositionError for positions that are not integers.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        length: int = option(
            128, "length P of the filters (the weight is zero at distances of P and more)", minimum=1, maximum=65536
        )
        attention: Literal["softmax", "linear"] = option("softmax", "attention of the encoded queries and keys")
        realizations: int = option(64, "number R of random codes", minimum=1, maximum=65536)
        gated: bool = option(True, "learned mixture with the plain product, per channel and layer")

    card = replace(
        SineSpe.card,
        name="spe_conv",
        title="Stochastic positional encoding, convolutional",
        extrapolation="clips",
        parameters="2 * length * d + gated * L * d",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        shape = (dims.num_heads, dims.head_dim, options.length)
        self.query_filter = nn.Parameter(torch.rand(shape) * (2 / options.length) ** 0.5)
        self.key_filter = nn.Parameter(torch.rand(shape) * (2 / options.length) ** 0.5)

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - ({"attend"} if self.options.attention == "softmax" else set())

    def prepare(self, ctx: AttentionContext) -> tuple[Tensor, Tensor, dict[tuple[str, Positions], Tensor]]:
        """Return three values: the noise, the column of the noise for the plain product [H, D, R], and the codes.

        The plain product is the product of query and key without positions.

        The noise is normal with variance 1 / R. The codes are the filtered noise at the positions of queries and keys. In one
        forward pass, all layers share the codes. In step-by-step decoding, `prepare` returns no codes. `rotate` then computes
        the codes in each layer.

        The noise [R, d, columns] has one column for the product of query and key without positions, and P - 1 + n columns for n
        positions. The number of columns is rounded up to a multiple of _NOISE_BLOCK.
        """
        columns = max(ctx.queries.last, ctx.keys.last) + 1 + self.options.length
        known = None if ctx.state is None else ctx.state.get("spe_noise")
        drawn = [] if known is None else [known]
        for block in range(0 if known is None else known.size(-1) // _NOISE_BLOCK, -(-columns // _NOISE_BLOCK)):
            shape, device = (self.options.realizations, self.dims.embed_dim, _NOISE_BLOCK), self.query_filter.device
            drawn.append(torch.randn(shape, generator=self.generator(block, device), device=device).mul_(shape[0] ** -0.5))
        noise = torch.cat(drawn, -1)
        plain = noise[..., 0].unflatten(1, (self.dims.num_heads, -1)).permute(1, 2, 0).contiguous()
        if ctx.state is not None:
            return ctx.state.store_shared("spe_noise", noise), plain, {}
        sides = ("query", ctx.queries), ("key", ctx.keys)
        dtype = self.query_filter.dtype
        return noise, plain, {(which, at): self._codes(which, noise, at).to(dtype).contiguous() for which, at in sides}

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """Encode queries or keys: [B, H, T, D] -> [B, H, T, R].

        The expectation of the product of an encoded query and an encoded key is sum_i q_i k_i P'_i.
        """
        noise, plain, known = ctx.prepared[self]
        codes = known[which, at] if (which, at) in known else self._codes(which, noise, at)
        rows = "htdr" if codes.size(0) == 1 else "bhtdr"  # one product for all sentences with the same positions
        codes = codes.reshape(codes.shape[-len(rows) :]).to(x.dtype)
        if self.gates is None:
            return torch.einsum(f"bhtd,{rows}->bhtr", x, codes)
        gate = self.gate(ctx).squeeze(-1)  # [H, 1, D]
        encoded = torch.einsum(f"bhtd,{rows}->bhtr", x * (1 - gate).sqrt().to(x.dtype), codes)
        return encoded + x @ (gate.sqrt().mT * plain).to(x.dtype)

    def _codes(self, which: str, noise: Tensor, at: Positions) -> Tensor:
        """Return the filtered noise of positions: [B or 1, H, T, D, R]."""
        taps = at_least_float32(self.query_filter if which == "query" else self.key_filter)
        ids = require_integer(at.ids)
        first = int(ids.min()) if at.start is None else at.start
        span = noise[..., 1 + first : 1 + at.last + self.options.length].to(taps.dtype)
        codes = filtered(span, taps.flatten(0, 1))  # [R, d, positions]
        return codes[..., ids - first].unflatten(1, (self.dims.num_heads, -1)).permute(3, 1, 4, 2, 0)


def filtered(x: Tensor, taps: Tensor) -> Tensor:
    """Convolve along the last axis, sum_p taps_p x_(t-p), without padding: [R, d, N + P - 1], [d, P] -> [R, d, N].

    Blocks of entries along the last axis are multiplied by one Toeplitz matrix per channel. The reason is that the gradient of
    torch's depthwise convolution is slow on a CPU.
    """
    count = x.size(-1) - taps.size(-1) + 1
    block = min(count, _CHUNK)
    width = block + taps.size(-1) - 1
    matrix = F.pad(taps.flip(-1), (block - 1, block - 1)).unfold(-1, width, 1).flip(-2)  # [d, block, width]
    windows = F.pad(x, (0, -count % block)).unfold(-1, width, block)  # [R, d, blocks, width]
    return torch.einsum("dtw,rdnw->rdnt", matrix, windows).flatten(-2)[..., :count]
