"""Statistical tests over training seeds and over test sentences, as functions of numpy arrays.

Scores have the shape [..., M, S]: M rows of a table and S seeds, with NaN if a row has no training run of a seed. The
entries of the leading axes are different tables. A simulation of many tables therefore uses the same functions as a report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .options import BOOTSTRAP, RANDOMIZATION

Array = NDArray[Any]

ALPHA = 0.05  # level of every test after Holm's correction. Intervals have the level 1 - ALPHA
WELCH_SEEDS = 3  # minimum number of seeds for Welch's test, in which each row has its own variance
FEWEST_DEGREES = 2  # minimum degrees of freedom of a pooled variance
FLOOR, CEILING = 5.0, 95.0  # rows whose mean is outside these limits are not pooled, because their variance is small
_ROUNDING = 1e-9  # a standard error of at most this value counts as 0, and the row then has no p-value
WIDE = 20.0  # if the means of a table differ by more than this number of points, the logit scale is used

POINTS, LOGIT = "points", "logit"  # scales on which variances are pooled
WELCH, POOLED, PAIRED = "Welch", "pooled", "paired"


@dataclass(frozen=True)
class Comparison:
    """The rows of a table, and their differences to a baseline row. All arrays have the shape [..., M]. NaN means unknown."""

    n: Array  # number of seeds
    mean: Array
    low: Array  # lower limit of the interval of the mean
    high: Array
    difference: Array  # mean of the row minus mean of the baseline
    difference_low: Array  # lower limit of the interval of the difference
    difference_high: Array
    p: Array  # two-sided p-value without correction
    holm: Array  # p-value after Holm's correction for the number of rows
    test: Array  # WELCH, POOLED or PAIRED. "" if p is unknown


@dataclass(frozen=True)
class Pool:
    """The pooled variance over seeds, which is assumed to be equal for all rows.

    M is the number of rows, and S is the number of seeds. If the scores have the shape [..., M, S], `variance` and `degrees`
    have the shape [...].
    """

    variance: Array
    degrees: Array  # degrees of freedom


def logit(scores: Array) -> Array:
    """Return log(x / (1 - x)), where x is score / 100. Scores below 0.01 or above 99.99 are clipped to these limits."""
    from scipy import special

    return special.logit(np.clip(scores, 0.01, 99.99) / 100)


def choose_scale(means: Array) -> str:
    """Return LOGIT if the means of a table are between 0 and 100 and differ by more than WIDE points. Otherwise return POINTS."""
    known = means[np.isfinite(means)]
    return LOGIT if len(known) and known.min() >= 0 and known.max() <= 100 and np.ptp(known) > WIDE else POINTS


def pool(scores: Array, scale: str = POINTS, percent: bool = True) -> Pool:
    """Pool the variance over seeds. Only the rows that `poolable` selects are used.

    Equation: s_p^2 = sum_i (n_i - 1) s_i^2 / nu, nu = sum_i (n_i - 1)

    Args:
        scores: [..., M, S], in points.
        scale: POINTS, or LOGIT for the variance of logit(score / 100).
        percent: whether the scores are between 0 and 100.
    """
    n, mean, _ = _moments(scores)
    _, _, variance = _moments(_on(scale, scores))
    used = poolable(n, mean, percent)
    degrees = np.where(used, n - 1, 0).sum(-1)
    squares = np.where(used, (n - 1) * variance, 0.0).sum(-1)
    return Pool(np.where(degrees >= FEWEST_DEGREES, squares / np.maximum(degrees, 1), np.nan), degrees)


def poolable(n: Array, mean: Array, percent: bool = True) -> Array:
    """Return for each row whether its variance is used in the pooled variance.

    The row must have several seeds. With `percent`, the mean of the row must also be between FLOOR and CEILING.
    """
    return (n > 1) & _inside(mean, percent)


def _inside(mean: Array, percent: bool) -> Array:
    """Return for each row whether its mean is between FLOOR and CEILING. If the scores are not percentages, return True."""
    return (mean > FLOOR) & (mean < CEILING) | (not percent)


def compare(
    scores: Array,
    baseline: int,
    known: Pool | None = None,
    scale: str = POINTS,
    paired: bool = False,
    percent: bool = True,
    tested: Array | None = None,
) -> Comparison:
    """Compute the interval of every mean. Also compute the difference of every row to the baseline.

    Each difference has an interval and a p-value.

    Equation: D = mean_a - mean_b, p = 2 T_nu(-|D| / SE), interval D +- t_nu SE, with one of three forms of SE and nu.
        Welch, if n_a and n_b are at least three: SE^2 = s_a^2 / n_a + s_b^2 / n_b, nu = SE^4 / sum_i (s_i^2 / n_i)^2 / (n_i - 1).
        Pooled, if n_a or n_b is below three: SE = s_p sqrt(1 / n_a + 1 / n_b). All rows are assumed to have the same variance.
        Paired, for M rows with the same S seeds: s_e^2 = sum (y - mean_m - mean_s + mean)^2 / ((M - 1)(S - 1)), SE = s_e sqrt(2 /
            S). With `percent`, only rows whose mean is between FLOOR and CEILING are counted in the sum and in M.
        Interval of a mean: mean +- t_nu s / sqrt(n), with the pooled s if n < 3.

    Args:
        scores: [..., M, S], in points.
        baseline: index of the row with which other rows are compared.
        known: the pooled variance of the scores on the scale `scale`.
        scale: the scale on which variances are pooled: POINTS or LOGIT. On the logit scale, means are replaced by logit(mean),
            and intervals are transformed back to points.
        paired: use the paired form, on the scale `scale`. Rows that lack one of the S seeds then have no p-value.
        percent: whether the scores are between 0 and 100.
        tested: bool [M], True at rows that are compared with the baseline (default: all rows). The other rows have no p-value.

    Source: Welch (1947); Holm (1979).
    """
    from scipy.special import expit, stdtr, stdtrit

    at = np.s_[..., baseline, None]
    n, mean, variance = _moments(scores)
    on_scale, z = _on(scale, scores), _on(scale, mean)  # the interval of a mean contains the mean
    unknown = np.full(n.shape[:-1], np.nan)
    s2, nu = pooled = (unknown, unknown) if known is None else (known.variance, known.degrees)
    with np.errstate(invalid="ignore", divide="ignore"):
        own, sides = n >= WELCH_SEEDS, variance / n
        welch = own & own[at] & ~np.bool_(paired)
        by_welch = sides + sides[at]
        welch_degrees = by_welch**2 / (sides**2 / (n - 1) + sides[at] ** 2 / (n[at] - 1))
        if paired:
            s2, nu = _residuals(on_scale, _inside(mean, percent))
        error = np.sqrt(np.where(welch, by_welch, s2[..., None] * (1 / n + 1 / n[at])))
        if paired:
            error = np.where((n == scores.shape[-1]) & (n == n[at]), error, np.nan)
        degrees = np.where(welch, welch_degrees, nu[..., None])
        distance = np.where(welch, mean - mean[at], z - z[at])
        p = np.where(error > _ROUNDING, 2 * stdtr(degrees, -np.abs(distance) / error), np.nan)
        p[..., baseline] = np.nan
        p[..., ~(np.ones(p.shape[-1], bool) if tested is None else tested)] = np.nan
        margin = np.where(np.isnan(p), np.nan, stdtrit(degrees, 1 - ALPHA / 2) * error)
        pooled_margin = stdtrit(pooled[1], 1 - ALPHA / 2)[..., None] * np.sqrt(pooled[0][..., None] / n)
        of_mean = np.where(own, stdtrit(n - 1, 1 - ALPHA / 2) * np.sqrt(sides), pooled_margin)

    def back(values: Array) -> Array:
        return 100 * expit(values) if scale == LOGIT else values

    low, high = (np.where(own, mean + sign * of_mean, back(z + sign * of_mean)) for sign in (-1, 1))
    d_low, d_high = (
        np.where(welch, distance + sign * margin, back(z[at] + distance + sign * margin) - back(z[at])) for sign in (-1, 1)
    )
    # near 0 and 100, `logit` limits the scores, so that an interval could exclude its own estimate
    low, high = np.minimum(low, mean), np.maximum(high, mean)
    d_low, d_high = np.minimum(d_low, mean - mean[at]), np.maximum(d_high, mean - mean[at])
    test = np.where(np.isnan(p), "", np.where(welch, WELCH, PAIRED if paired else POOLED))
    return Comparison(n, mean, low, high, mean - mean[at], d_low, d_high, p, holm(p), test)


def holm(p: Array) -> Array:
    """Return p-values after Holm's (1979) step-down correction over the last axis.

    Equation: the running maximum of p_(i) (M - i + 1), where p_(i) is the i-th smallest of M p-values. The
        result is at most 1. NaN remains NaN, and is not counted in M.
    """
    order = np.argsort(p, -1)  # NaN last
    sorted_p = np.take_along_axis(p, order, -1)
    left = np.isfinite(p).sum(-1, keepdims=True) - np.arange(p.shape[-1])
    corrected = np.minimum(np.maximum.accumulate(sorted_p * left, -1), 1.0)
    found = np.empty_like(p)
    np.put_along_axis(found, order, corrected, -1)
    return found


def equal_variance(scores: Array, scale: str = POINTS, percent: bool = True) -> float | None:
    """Return the p-value of Bartlett's test that the poolable rows of scores [M, S] have the same variance.

    A row is tested only if it has at least WELCH_SEEDS seeds and its scores are not all equal.
    Return None if fewer than two rows are tested.
    """
    from scipy import stats

    n, mean, _ = _moments(scores)
    rows = [row[np.isfinite(row)] for row in _on(scale, scores[poolable(n, mean, percent)])]
    several = [row for row in rows if len(row) >= WELCH_SEEDS and np.ptp(row) > 0]
    return float(stats.bartlett(*several).pvalue) if len(several) > 1 else None


#: number of samples per block. The number is a multiple of 32. All blocks together then draw the same random bits as a single
#: call for all samples
_BLOCK = 1024


def sentence_test(
    baseline: Array, other: Array, score: Callable[[Array], Array], test: str, samples: int, seed: int | None
) -> float:
    """Return the two-sided p-value of the difference between two systems, with respect to the choice of test sentences.

    Equation: p = (1 + number of extreme samples) / (samples + 1). D is the absolute difference between the scores of the two
        systems on the test set. d* is the difference between the scores in one sample.
        RANDOMIZATION: each sentence is exchanged between the systems with probability 1/2. A sample is extreme if |d*| >= D.
        BOOTSTRAP: sentences are drawn with replacement. A sample is extreme if |d* - mean d*| >= D.

    Args:
        baseline, other: [N, K], K counts for each of N sentences.
        score: function that computes scores [samples] from summed counts [samples, K].
        seed: seed of the random numbers. None: a different seed in every call.

    Source: Riezler and Maxwell (2005); Koehn (2004). RANDOMIZATION uses the same random numbers as sacreBLEU. sacreBLEU's
        bootstrap is not two-sided: it computes absolute differences before it subtracts their mean.
    """
    rng = np.random.default_rng(seed)
    one, two = score(np.stack([baseline.sum(0), other.sum(0)]).astype(float))
    blocks = _exchanged if test == RANDOMIZATION else _resampled
    drawn = blocks(rng, baseline.astype(float), other.astype(float), samples)
    found = np.concatenate([score(second) - score(first) for first, second in drawn])
    if test == BOOTSTRAP:
        found = found - found.mean()
    return float((1 + (np.abs(found) >= abs(two - one) - 1e-9).sum()) / (samples + 1))


def _exchanged(rng: np.random.Generator, baseline: Array, other: Array, samples: int) -> Iterator[tuple[Array, Array]]:
    total = baseline.sum(0) + other.sum(0)
    for size in _sizes(samples):
        first = rng.integers(2, size=(size, len(baseline)), dtype=bool) @ (baseline - other) + other.sum(0)
        yield first, total - first


def _resampled(rng: np.random.Generator, baseline: Array, other: Array, samples: int) -> Iterator[tuple[Array, Array]]:
    n = len(baseline)
    for size in _sizes(samples):
        drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(float)
        yield times @ baseline, times @ other


def _sizes(samples: int) -> list[int]:
    return [min(_BLOCK, samples - first) for first in range(0, samples, _BLOCK)]


def _on(scale: str, scores: Array) -> Array:
    return logit(scores) if scale == LOGIT else scores


def _moments(scores: Array) -> tuple[Array, Array, Array]:
    """Return the number, the mean and the sample variance of the values along the last axis. NaN values are ignored."""
    there = np.isfinite(scores)
    n = there.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(there, scores, 0.0).sum(-1) / n
        squares = np.where(there, scores - mean[..., None], 0.0) ** 2
        return n, mean, np.where(n > 1, squares.sum(-1) / (n - 1), np.nan)


def _residuals(scores: Array, used: Array) -> tuple[Array, Array]:
    """Return the residual variance of scores [..., M, S], and the degrees of freedom of this variance.

    The means of rows and seeds are subtracted. A row is included only if it has a score for every seed and if `used` [..., M]
    is True.
    """
    complete = np.isfinite(scores).all(-1) & used
    rows, seeds = complete.sum(-1), scores.shape[-1]
    kept = np.where(complete[..., None], scores, 0.0)
    by_seed = kept.sum(-2, keepdims=True) / np.maximum(rows, 1)[..., None, None]
    left = kept - kept.mean(-1, keepdims=True) - by_seed + by_seed.mean(-1, keepdims=True)
    left = np.where(complete[..., None], left, 0.0)
    degrees = np.maximum(rows - 1, 0) * (seeds - 1)
    return np.where(degrees >= FEWEST_DEGREES, (left**2).sum((-2, -1)) / np.maximum(degrees, 1), np.nan), degrees
