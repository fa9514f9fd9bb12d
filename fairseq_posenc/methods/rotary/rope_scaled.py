"""Rotations with frequencies that are scaled for sentences longer than in training."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, PositionError, PositionMethod, Positions, Projection, option
from ...ops.precision import at_least_float32
from ...ops.rotation import Waves, every_channel, rotate
from ...ops.sinusoids import Frequencies, frequencies
from ...ops.spans import from_first_key
from .rope import RotaryOptions, rotated_width, turning_pairs


class RopeScaled(PositionMethod):
    r"""Rotate queries and keys with lower frequencies, for sentences longer than the training sentences.

    Equation: `rope` with $\theta'_i$ in place of $\theta_i = \mathrm{base}^{-2i/d_r}$. $d_r$ is the number of rotated
        channels of a head, $f$ is the option `factor`, and $L_0$ is the option `trained`. `linear`: $\theta_i / f$. `ntk`:
        $\mathrm{base}' = \mathrm{base} \cdot f^{d_r/(d_r-2)}$. `dynamic`: $\mathrm{base}' = \mathrm{base} \cdot (f n / L_0 - f +
        1)^{d_r/(d_r-2)}$ for lengths $n > L_0$. `yarn`: $\theta_i ((1 - r_i) + r_i / f)$. $r_i$ rises from 0 at the wavelength
        $L_0/32$ to 1 at the wavelength $L_0$, and sines and cosines are multiplied by $0.1 \ln f + 1$. `llama3`: $n_i = L_0
        \theta_i / (2 \pi)$ is the number of turns within $L_0$. The frequency is $\theta_i$ for $n_i > \mathrm{high}$,
        $\theta_i / f$ for $n_i < \mathrm{low}$, else $\theta_i ((1 - a_i) / f + a_i)$ with $a_i = (n_i - \mathrm{low}) /
        (\mathrm{high} - \mathrm{low})$. The options `keep` and `cutoff` select pairs of channels as in `rope`. `cutoff` is
        compared with the wavelengths of $\theta_i$, not of $\theta'_i$.
    Shapes: rotate [B, H, T, D] -> same. With scaling=dynamic in the decoder, rescale -> [B, H, T, S].
    Source: Chen et al. (2023), linear. bloc97 (2023), ntk and dynamic. Peng et al. (2024), yarn. Code: Hugging Face's rope
        utilities, also for llama3.
    Deviations:
        * yarn's ramp is linear in the index i of the pair, as in the authors' code and in the code of Hugging Face. The
          paper's ramp is linear in the number of turns within L_0.
        * The index at which yarn's ramp starts (wavelength L_0/32) is rounded down. The index at which the ramp ends (L_0) is
          rounded up. Both indices are at least 0. For L_0 of at most 201, the ramp therefore starts at pair 0.
        * In the code of the authors and of Hugging Face, the index at which the ramp ends can be negative. For L_0 of at most
          6, their code can leave all frequencies unchanged.
        * Hugging Face's options truncate and attention_factor of yarn are left out. This project always rounds the two indices,
          and always multiplies by 0.1 ln f + 1, as the authors do.
        * In the encoder, dynamic uses the length of each source sentence.
        * In the decoder, dynamic uses the number of tokens up to the query. Incremental decoding and teacher forcing therefore
          compute equal scores. The authors do not rotate cached keys again.
        * If another method changes the positions of the tokens, n is the number of positions from the first to the last source
          token. In the decoder, n is then the number of positions from the first token to the query.
        * Cross-attention is an extension of this project.
    Cost: as for rope. In the decoder, dynamic rotates all keys again for every query beyond L_0.
    Raises: PositionError if no pair of channels is rotated, or if d_r is 2 with ntk or dynamic. PositionError for trained= with
        linear or ntk, for low= or high= without llama3, and if high is not larger than low. PositionError for base=1 with yarn.
    """

    @dataclass(frozen=True)
    class Options(RotaryOptions):
        scaling: Literal["linear", "ntk", "dynamic", "yarn", "llama3"] = option(
            "linear",
            "frequencies that are lowered: all by the factor f (linear), low frequencies more than high frequencies (ntk, and "
            "dynamic, which depends on the length), or only low frequencies (yarn, llama3)",
        )
        factor: float = option(2.0, "factor f between the supported length and the training length", minimum=1.0)
        trained: int = option(512, "training length L_0 in positions, for dynamic, yarn and llama3", minimum=1)
        low: float = option(1.0, "number of turns within L_0 below which llama3 divides a frequency by f", minimum=0.0)
        high: float = option(4.0, "number of turns within L_0 above which llama3 keeps a frequency", minimum=0.0)

        def __post_init__(self) -> None:
            if self.scaling in ("linear", "ntk") and self.trained != type(self).trained:
                raise PositionError(
                    f"trained has no effect with scaling={self.scaling}. Expected dynamic, yarn or llama3. Remove trained."
                )
            if self.scaling != "llama3" and (self.low, self.high) != (type(self).low, type(self).high):
                raise PositionError(
                    f"low and high have no effect with scaling={self.scaling}. Expected scaling=llama3. Remove low and high."
                )
            if self.scaling == "yarn" and self.base == 1:
                raise PositionError(
                    f"base={self.base} cannot be combined with scaling=yarn, because all pairs have the same wavelength. "
                    "Expected base above 1. Increase base."
                )
            if self.high <= self.low:
                raise PositionError(f"high={self.high} is too small. Expected more than low={self.low}. Increase high.")

    card = MethodCard(
        name="rope_scaled",
        title="Rotary position embedding, stretched (position interpolation, NTK, YaRN, Llama 3)",
        citations=("peng-etal-2024-yarn",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="peer",
        sites=("encoder", "decoder"),
        extended_sites=("cross",),
    )

    rescale_reads = "vectors"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.width = rotated_width(options, dims)
        self.turning = turning_pairs(options, self.width)
        self.by_query = options.scaling == "dynamic" and dims.causal
        if options.scaling in ("ntk", "dynamic") and self.width < 4:
            raise PositionError(
                f"rope_scaled: scaling={options.scaling} with one rotated pair of channels. Expected at least two pairs. "
                "Increase fraction, or use fewer heads."
            )
        self.frequencies = None if options.scaling == "dynamic" else Frequencies(self._frequencies(None))

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - ({"rotate"} if self.by_query else {"rescale"})

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        waves = ctx.once((self, at), lambda: self._waves(x, at.ids, self._lengths(ctx)))
        return rotate(x, waves, self.width // 2, self.options.layout)

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the scores of rotated queries and keys.

        For each query beyond the trained length, all keys are rotated again, because the frequencies depend on the position of
        the query.
        """
        trained = torch.full((1, 1), self.options.trained, device=q.device)
        q = q * ctx.scale
        plain = self._rotate_for(q, ctx.queries.ids, trained) @ self._rotate_for(k, ctx.keys.ids, trained).mT
        last, rows = from_first_key(ctx.queries.ids, ctx), []
        for t in range(q.size(2)):
            at, before = ctx.queries.ids[:, t : t + 1], last[:, t : t + 1]
            if int(before.max()) < self.options.trained:
                rows.append(plain[:, :, t : t + 1])
            else:
                lengths = before + 1
                rows.append(self._rotate_for(q[:, :, t : t + 1], at, lengths) @ self._rotate_for(k, ctx.keys.ids, lengths).mT)
        return torch.cat(rows, 2)

    def _lengths(self, ctx: AttentionContext) -> Tensor | None:
        """Return the number of positions from the first to the last key of every sentence: [B or 1, 1].

        Return None without scaling=dynamic.
        """
        if self.options.scaling != "dynamic":
            return None
        ids = from_first_key(ctx.keys.ids, ctx)
        ids = ids if ctx.key_padding is None else ids.masked_fill(ctx.key_padding, 0)
        return ids.amax(-1, keepdim=True) + 1

    def _rotate_for(self, x: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Rotate x [B, H, T, D] at the positions `ids` [B or 1, T], for sentences with the lengths `lengths` [B or 1, 1]."""
        return rotate(x, self._waves(x, ids, lengths), self.width // 2, self.options.layout)

    def _waves(self, x: Tensor, ids: Tensor, lengths: Tensor | None) -> Waves:
        """Return cosines and signed sines (see `Waves`), [B or 1, 1, T, D] each.

        Frequencies that depend on lengths are in float64, also on accelerators.
        """
        fixed = self.frequencies
        angles = ids.double().unsqueeze(-1) * self._frequencies(lengths) if fixed is None else fixed(ids)  # [B or 1, T, pairs]
        if self.turning < self.width // 2:
            angles = F.pad(angles[..., : self.turning], (0, self.width // 2 - self.turning))
        size = 0.1 * math.log(self.options.factor) + 1 if self.options.scaling == "yarn" else 1.0
        sin, cos = ((size * wave).unsqueeze(1).to(at_least_float32(x).dtype) for wave in (angles.sin(), angles.cos()))
        return every_channel(sin, cos, self.options.layout, x.size(-1))

    def _frequencies(self, lengths: Tensor | None) -> Tensor:
        """Return the frequencies in float64.

        Shapes: [pairs], or [B or 1, 1, pairs] if `lengths` is given. `lengths` contains the lengths of the sentences.
        """
        width, base, factor = self.width, self.options.base, self.options.factor
        device = None if lengths is None else lengths.device
        plain = frequencies(width // 2, width, "paper", base, device)
        if self.options.scaling == "linear":
            return plain / factor
        if self.options.scaling == "yarn":
            ramp = self._ramp()
            return plain * (1 - ramp + ramp / factor)
        if self.options.scaling == "llama3":
            low, high = self.options.low, self.options.high
            kept = ((self.options.trained * plain / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
            return plain * (kept + (1 - kept) / factor)
        grown = torch.full((), factor, dtype=torch.float64, device=device)
        if lengths is not None:
            grown = (factor * lengths.double().unsqueeze(-1) / self.options.trained - (factor - 1)).clamp(min=1.0)
        # base'^(-2i/d_r) = base^(-2i/d_r) grown^(-2i/(d_r - 2))
        return plain * grown ** (-2 / (width - 2) * torch.arange(width // 2, dtype=torch.float64, device=device))

    def _ramp(self) -> Tensor:
        """Return one number between 0 and 1 per pair of channels: [pairs].

        The number is 0 for pairs with at least 32 turns within the trained length. It is 1 for pairs with less than one turn.
        Between these limits, the number rises linearly with the index of the pair. The number of pair 0 is always 0.
        """

        def pair(turns: float) -> float:
            return self.width * math.log(self.options.trained / (turns * 2 * math.pi)) / (2 * math.log(self.options.base))

        low, high = max(math.floor(pair(32)), 0), min(max(math.ceil(pair(1)), 0), self.width - 1)
        width = high - low if low != high else 0.001
        return ((torch.arange(self.width // 2, dtype=torch.float64) - low) / width).clamp(0, 1)
