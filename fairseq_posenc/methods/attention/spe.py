"""Stochastic positional encoding, by sines and by filtered noise: relative positions that work with linear attention."""

import math
from dataclasses import dataclass
from typing import Literal, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ...contract import AttentionContext, MethodCard, Options, PositionError, PositionMethod, Positions, option
from ...ops.distances import whole
from ...ops.precision import widen

_EVALUATION_SEED = 1_000_003
#: positions of linear attention that see one another at a time, of noise that is drawn, and of waves that noise is turned for
_CHUNK, _BLOCK, _TURNED = 64, 128, 256
_CITATION = """@inproceedings{liutkus-etal-2021-relative,
  title = {Relative Positional Encoding for Transformers with Linear Complexity},
  author = {Liutkus, Antoine and C{\\'i}fka, Ond{\\v{r}}ej and Wu, Shih-Lun and {\\c{S}}im{\\c{s}}ekli, Umut and
            Yang, Yi-Hsuan and Richard, Ga{\\"e}l},
  booktitle = {ICML}, year = {2021}}"""

#: angles from one position to the next, offsets and gains, [H, K, D] each, and the factor of the plain product, [H, D]
Sines = tuple[Tensor, Tensor, Tensor, Tensor]


class _Spe(PositionMethod):
    """What both forms have in common: the gate of every channel, fixed noise in evaluation, and linear attention."""

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.keeps_keys = options.attention == "softmax"
        gate = torch.randn(dims.num_layers, dims.num_heads, dims.head_dim)
        self.gates = nn.Parameter(gate) if options.gated else None

    def generator(self, number: int, device: torch.device) -> Optional[torch.Generator]:
        """For the noise of this number: fixed in evaluation, so that results repeat, and none in training."""
        return None if self.training else torch.Generator(device).manual_seed(_EVALUATION_SEED + number)

    def gate(self, ctx: AttentionContext) -> Tensor:
        """[H, 1, D, 1], the share of the plain product in that of every channel."""
        return widen(self.gates[ctx.layer]).sigmoid()[:, None, :, None]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        least = 1e-3 * self.dims.head_dim**0.25  # phi of queries and keys divided by their scales, which cancel
        q, k, values = F.relu(widen(q)) + least, F.relu(widen(k)) + least, widen(v)
        if ctx.key_padding is not None:
            k = k.masked_fill(ctx.key_padding[:, None, -k.size(2) :, None], 0.0)  # decoding step by step, of the new ones
        values = torch.cat([values, torch.ones_like(values[..., :1])], -1)  # the last column sums the weights
        summed = self._causal(q, k, values, ctx) if ctx.causal else q @ (k.transpose(-1, -2) @ values)
        found, weight = summed.split([v.size(-1), 1], -1)
        return (found * weight.clamp(min=1e-30).reciprocal()).to(v.dtype)  # zero where there is nothing to see

    def _causal(self, q: Tensor, k: Tensor, values: Tensor, ctx: AttentionContext) -> Tensor:
        """Chunk by chunk: the sums of earlier chunks, and a masked product inside the chunk."""
        past = None if ctx.state is None else ctx.state.get("spe")
        if past is None:
            past = q.new_zeros(q.size(0), q.size(1), k.size(-1), values.size(-1))
        done = []
        for queries, keys, carried in zip(q.split(_CHUNK, 2), k.split(_CHUNK, 2), values.split(_CHUNK, 2)):
            inside = (queries @ keys.transpose(-1, -2)).tril() @ carried
            done.append(queries @ past + inside)
            past = past + keys.transpose(-1, -2) @ carried
        if ctx.state is not None:
            ctx.state.keep("spe", past)
        return torch.cat(done, 2)


class SineSpe(_Spe):
    """Every channel of the product of queries and keys weighted by a learned sum of cosines of the distance.

    Equation: A_ts = sum_i q_ti k_si P'_i(t-s) / sqrt(d_h), P_i(x) = 1/(2K) sum_k g_ik^2 cos(2 pi f_ik x + theta_ik),
        P' = (1 - gate) P + gate; Liutkus et al. (2021), equations 17 to 19. exact=false replaces P by R random codes qbar, kbar
        with E[qbar kbar] = P. attention=linear: o_t = phi(q_t) M_t / (phi(q_t) . Z_t), phi = ReLU + 0.001.
    Shapes: rotate_query [B, H, T, D] -> [B, H, T, (2K + 1) D] exact, [B, H, T, R] with codes; attend -> [B, H, T, D].
    Source: Liutkus et al. (2021); aliutkus/spe (PyTorch).
    Deviations: codes carry 1/sqrt(R), so the product keeps 1/sqrt(d_h); exact and noise-free by default with softmax attention;
        in evaluation the noise comes from a fixed seed, so that results repeat; cross-attention is ours.
    Cost: 3 K d parameters a stack and a gate of d a layer; exact: products of width (2K + 1) d_h; codes: O(T (2K + 1) d_h R)
        in time and O(T (2K + 1) d_h) in memory, and with attention=linear nothing of the size T S.
    """

    @dataclass(frozen=True)
    class Options(Options):
        sines: int = option(5, "number K of cosines of each channel", minimum=1)
        attention: Literal["softmax", "linear"] = option("softmax", "the kernel that uses the encoded queries and keys")
        exact: bool = option(True, "the expectation itself instead of random codes; with attention=softmax only")
        realizations: int = option(64, "number R of random codes, with exact=false", minimum=1)
        gated: bool = option(True, "a learned gate between the encoded and the plain product, for every channel and layer")

        def __post_init__(self):
            if self.exact and self.attention == "linear":
                raise PositionError("attention=linear needs the random codes of exact=false")
            if self.exact and self.realizations != type(self).realizations:
                raise PositionError("realizations counts random codes and needs exact=false")

    card = MethodCard(
        name="spe_sine",
        title="Stochastic positional encoding, sines",
        citation=_CITATION,
        equation="A_ts = sum_i q_ti k_si P_i(t-s) / sqrt(d_h), P_i(x) = 1/(2K) sum_k g_ik^2 cos(2 pi f_ik x + theta_ik)",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        our_sites=("cross",),
        parameters="3 K d + L d",
        count=lambda options, dims, site: 3 * options.sines * dims.embed_dim + options.gated * dims.num_layers * dims.embed_dim,
        survey_parameters="3 K d h + d L",
        deviations=(
            "noise-free by default; the authors draw random codes",
            "in evaluation the noise comes from a fixed seed",
            "the survey counts 3 K d for every head; the code for all heads together",
            "the survey calls it bounded; sines reach any length",
            "cross-attention is our extension",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        shape = (dims.num_heads, dims.head_dim, options.sines)
        self.frequencies = nn.Parameter(torch.randn(shape) - 4)
        self.offsets = nn.Parameter(torch.randn(shape))
        gains = torch.randn(shape)
        self.gains = nn.Parameter(2 * gains / gains.norm(dim=-1, keepdim=True).sqrt())

    @property
    def hooks(self):
        return super().hooks - {hook for hook, unused in self._unused() if unused}

    def _unused(self):
        return ("attend", self.options.attention == "softmax"), ("draw", self.options.exact)

    def draw(self, ctx: AttentionContext) -> Tensor:
        """Standard normal noise [H, D, 2K + 1, R]; the last of the middle axis is the gate's."""
        device = self.gains.device
        shape = (self.dims.num_heads, self.dims.head_dim, 2 * self.options.sines + 1, self.options.realizations)
        return torch.randn(shape, generator=self.generator(0, device), device=device)

    def rotate_query(self, q: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self._encode(q, at, widen(self.offsets), ctx)

    def rotate_key(self, k: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self._encode(k, at, torch.zeros_like(widen(self.offsets)), ctx)

    def _encode(self, x: Tensor, at: Positions, offsets: Tensor, ctx: AttentionContext) -> Tensor:
        """[B, H, T, D] -> [B, H, T, D'], whose products are sum_i q_i k_i P'_i, of random codes on average."""
        frequencies = math.pi * widen(self.frequencies).sigmoid()  # [H, D, K]
        gains = F.softplus(widen(self.gains)) / (2 * self.options.sines) ** 0.5
        plain = gains.new_zeros(gains.shape[:2]) if self.gates is None else self.gate(ctx)[:, 0, :, 0]  # [H, D]
        gains = gains * (1 - plain).sqrt().unsqueeze(-1)
        sines = frequencies.mT, offsets.mT, gains.mT, plain.sqrt()
        encode = self._features if self.options.exact else self._codes
        return encode(widen(x), at, sines, ctx).to(x.dtype)

    def _features(self, x: Tensor, at: Positions, sines: Sines, ctx: AttentionContext) -> Tensor:
        """[B, H, T, D] -> [B, H, T, (2K + 1) D]."""
        frequencies, offsets, gains, plain = sines
        angles = _angles(at.ids, frequencies) + offsets[:, None, None]
        waves = _waves(angles.cos(), angles.sin(), gains, plain)  # [H, B or 1, T, M, D]
        return (x.unsqueeze(-2) * waves.transpose(0, 1)).flatten(-2)

    def _codes(self, x: Tensor, at: Positions, sines: Sines, ctx: AttentionContext) -> Tensor:
        """The same, met by noise: [B, H, T, R]; blocks of positions have their waves in common."""
        noise = ctx.drawn[self].to(x.dtype).movedim(1, 2) * self.options.realizations**-0.5  # [H, M, D, R]
        counted = at.start is not None
        ids = at.ids[:, :_TURNED] - at.start if counted else at.ids
        first = range(at.start, at.start + x.size(2), _TURNED) if counted else range(1)
        return _Codes.apply(x, *sines, noise, ids, first)


class _Codes(torch.autograd.Function):
    """sum_md x_d wave_md noise_md at every position, M = 2K + 1: [B, H, T, D] -> [B, H, T, R].

    Positions go in blocks as long as `ids` [B or 1, t], which count inside a block: the waves are the same in all of them, and
    the noise [H, M, D, R] is turned by the angles of the position that each begins at, in `at`. The products of x and
    waves, M times as large as x, are made again for the gradient. The noise has none.
    """

    @staticmethod
    def forward(
        ctx, x: Tensor, frequencies: Tensor, offsets: Tensor, gains: Tensor, plain: Tensor, noise: Tensor, ids: Tensor, at: range
    ) -> Tensor:
        angles = _angles(ids, frequencies)
        waves = _waves(angles.cos(), angles.sin(), gains, plain)
        turned = [_turned(noise, frequencies * start + offsets) for start in at]
        ctx.save_for_backward(x, angles, gains, waves, ids, *turned)
        ctx.at = at
        out, memory = x.new_empty(*x.shape[:3], noise.size(-1)), _memory(x, waves)
        for of_block, rows in zip(turned, _blocks(x, waves)):
            own, wave = _within(x, waves, rows)
            products = torch.mul(own, wave, out=_shaped(memory, own, wave)).flatten(-2)  # [H, B, t, M D]
            found = products.flatten(1, 2) @ of_block  # [H, B t, R]
            out[:, :, rows] = found.unflatten(1, products.shape[1:3]).transpose(0, 1)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        x, angles, gains, waves, ids, *turned = ctx.saved_tensors
        cosine, sine = angles.cos(), angles.sin()
        of_x, of_waves, by_start = torch.empty_like(x), torch.zeros_like(waves), torch.zeros_like(waves)
        memory, other = _memory(x, waves), _memory(x, waves)
        for start, of_block, rows in zip(ctx.at, turned, _blocks(x, waves)):
            own, wave = _within(x, waves, rows)
            met = _shaped(memory, own, wave)  # [H, B, t, M, D]
            received = grad[:, :, rows].transpose(0, 1).flatten(1, 2)  # [H, B t, R]
            torch.bmm(received, of_block.mT, out=met.flatten(-2).flatten(1, 2))
            of_x[:, :, rows] = torch.mul(met, wave, out=_shaped(other, own, wave)).sum(-2).transpose(0, 1)
            met = met.mul_(own).sum_to_size(wave.shape)
            of_waves[:, :, : met.size(2)] += met
            by_start[:, :, : met.size(2)].add_(met, alpha=start)
        by_position = by_start.addcmul_(of_waves, ids[..., None, None])[..., :-1, :]
        of_waves, of_plain = of_waves.split([2 * gains.size(1), 1], -2)
        wave, slope = torch.cat([cosine, sine], -2), torch.cat([-sine, cosine], -2)

        def along(direction: Tensor, gradient: Tensor) -> Tensor:
            """[H, B or 1, t, 2K, D] twice -> [H, K, D]."""
            return (direction * gradient).sum((1, 2)).unflatten(1, (2, -1)).sum(1)

        of_frequencies, of_offsets = gains * along(slope, by_position), gains * along(slope, of_waves)
        return of_x, of_frequencies, of_offsets, along(wave, of_waves), of_plain.sum((1, 2, 3)), None, None, None


def _angles(ids: Tensor, frequencies: Tensor) -> Tensor:
    """Positions [B or 1, T], [H, K, D] -> [H, B or 1, T, K, D]."""
    return frequencies[:, None, None] * ids[..., None, None].to(frequencies.dtype)


def _waves(cosine: Tensor, sine: Tensor, gains: Tensor, plain: Tensor) -> Tensor:
    """[H, B or 1, T, K, D] twice, [H, K, D], [H, D] -> [H, B or 1, T, M, D], the last of M for the plain product."""
    gains, plain = gains[:, None, None], plain[:, None, None, None].expand_as(cosine[..., :1, :])
    return torch.cat([gains * cosine, gains * sine, plain], -2)


def _turned(noise: Tensor, angles: Tensor) -> Tensor:
    """Noise of cosines and sines, [H, M, D, R], turned by [H, K, D], and that of the plain product as it is: [H, M D, R]."""
    cosine, sine = angles.cos().unsqueeze(-1), angles.sin().unsqueeze(-1)
    turned = noise.clone()
    (of_cosine, of_sine), (first, second) = (x[:, :-1].chunk(2, 1) for x in (noise, turned))
    first.mul_(cosine).addcmul_(of_sine, sine)
    second.mul_(cosine).addcmul_(of_cosine, sine, value=-1)
    return turned.flatten(1, 2)


def _blocks(x: Tensor, waves: Tensor) -> list[slice]:
    return [slice(row, row + waves.size(2)) for row in range(0, x.size(2), waves.size(2))]


def _within(x: Tensor, waves: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """Of one block, [H, B, t, 1, D] and [H, B or 1, t, M, D]."""
    own = x[:, :, rows].transpose(0, 1).unsqueeze(-2)
    return own, waves[:, :, : own.size(2)]


def _memory(x: Tensor, waves: Tensor) -> Tensor:
    """For the products of a block, the same for all of them: a new one each time costs a CPU more than what is done with it."""
    return x.new_empty(waves[:, 0].numel() * x.size(0))


def _shaped(memory: Tensor, *factors: Tensor) -> Tensor:
    """As much of it as the product of the factors needs, in its shape."""
    shape = torch.broadcast_shapes(*(factor.shape for factor in factors))
    return memory[: math.prod(shape)].view(shape)


class ConvolutionalSpe(_Spe):
    """Every channel of the product of queries and keys weighted by the overlap of two learned filters.

    Equation: E[A_ts] = sum_i q_ti k_si P'_i(t-s) / sqrt(d_h), P_i(x) = sum_p wk_ip wq_i(p+x), P' = (1 - gate) P + gate;
        Liutkus et al. (2021), convolutional SPE: queries and keys meet the same white noise, filtered by wq and wk.
    Shapes: rotate_query [B, H, T, D] -> [B, H, T, R]; attend -> [B, H, T, D].
    Source: Liutkus et al. (2021); aliutkus/spe (PyTorch).
    Deviations: codes carry 1/sqrt(R), so the product keeps 1/sqrt(d_h); in evaluation the noise comes from fixed seeds, so that
        results repeat; cross-attention is ours.
    Cost: 2 P d parameters a stack and a gate of d a layer; a convolution of O(T P d R) for queries and keys of every layer.
    """

    @dataclass(frozen=True)
    class Options(Options):
        length: int = option(128, "length P of the filters, from which positions do not meet", minimum=1)
        attention: Literal["softmax", "linear"] = option("softmax", "the kernel that uses the encoded queries and keys")
        realizations: int = option(64, "number R of random codes", minimum=1)
        gated: bool = option(True, "a learned gate between the encoded and the plain product, for every channel and layer")

    card = MethodCard(
        name="spe_conv",
        title="Stochastic positional encoding, convolutional",
        citation=_CITATION,
        equation="E[A_ts] = sum_i q_ti k_si P_i(t-s) / sqrt(d_h), P_i(x) = sum_p wk_ip wq_i(p+x)",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="paper",
        sites=("encoder", "decoder"),
        our_sites=("cross",),
        parameters="2 P d + L d",
        count=lambda options, dims, site: 2 * options.length * dims.embed_dim + options.gated * dims.num_layers * dims.embed_dim,
        survey_parameters="3 K d h + d L",
        deviations=(
            "in evaluation the noise comes from fixed seeds",
            "the survey's formula is that of the sines",
            "cross-attention is our extension",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        shape = (dims.num_heads, dims.head_dim, options.length)
        self.query_filter = nn.Parameter(torch.rand(shape) * (2 / options.length) ** 0.5)
        self.key_filter = nn.Parameter(torch.rand(shape) * (2 / options.length) ** 0.5)

    @property
    def hooks(self):
        return super().hooks - ({"attend"} if self.options.attention == "softmax" else set())

    def draw(self, ctx: AttentionContext) -> Tensor:
        """Standard normal noise [R, d, 1 + n + P - 1]: a column of the gate, and one of every position and of P - 1 before."""
        columns = max(ctx.queries.last, ctx.keys.last) + 1 + self.options.length
        known = None if ctx.state is None else ctx.state.get("spe_noise")
        done = [] if known is None else [known]
        for block in range(0 if known is None else known.size(-1) // _BLOCK, -(-columns // _BLOCK)):
            shape, device = (self.options.realizations, self.dims.embed_dim, _BLOCK), self.query_filter.device
            done.append(torch.randn(shape, generator=self.generator(block, device), device=device))
        noise = torch.cat(done, -1)
        return noise if ctx.state is None else ctx.state.fix("spe_noise", noise)

    def rotate_query(self, q: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self._encode(q, self.query_filter, at, ctx)

    def rotate_key(self, k: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self._encode(k, self.key_filter, at, ctx)

    def _encode(self, x: Tensor, taps: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """[B, H, T, D] -> [B, H, T, R], whose products have the expectation of SPE."""
        taps, ids = widen(taps), whole(at.ids)
        noise = ctx.drawn[self].to(taps.dtype)
        first = int(ids.min()) if at.start is None else at.start
        span = noise[..., 1 + first : 1 + at.last + self.options.length]
        codes = filtered(span, taps.flatten(0, 1))  # [R, d, positions]
        codes = codes[..., ids - first].unflatten(1, (self.dims.num_heads, -1)).permute(3, 1, 4, 2, 0)  # [B or 1, H, T, D, R]
        if self.gates is not None:
            gate = self.gate(ctx)
            own = noise[..., 0].unflatten(1, (self.dims.num_heads, -1)).permute(1, 2, 0).unsqueeze(1)  # [H, 1, D, R]
            codes = codes * (1 - gate).sqrt() + own * gate.sqrt()
        codes = codes * self.options.realizations**-0.5
        rows = "htdr" if codes.size(0) == 1 else "bhtdr"  # one product for all sentences of the same positions
        return torch.einsum(f"bhtd,{rows}->bhtr", widen(x), codes.reshape(codes.shape[-len(rows) :])).to(x.dtype)


def filtered(x: Tensor, taps: Tensor) -> Tensor:
    """sum_p taps_p x_(t-p) where all of them exist: [R, d, N + P - 1], [d, P] -> [R, d, N].

    Products of blocks with one Toeplitz matrix, for the gradient of a depthwise convolution is slow on a CPU.
    """
    count = x.size(-1) - taps.size(-1) + 1
    block = min(count, _CHUNK)
    width = block + taps.size(-1) - 1
    matrix = F.pad(taps.flip(-1), (block - 1, block - 1)).unfold(-1, width, 1).flip(-2)  # [d, block, width]
    windows = F.pad(x, (0, -count % block)).unfold(-1, width, block)  # [R, d, blocks, width]
    return torch.einsum("dtw,rdnw->rdnt", matrix, windows).flatten(-2)[..., :count]
