"""The statistics of reports are compared with scipy and sacreBLEU.

Other tests generate many tables of methods with equal true scores, and count the tables that show a difference.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from fairseq_posenc.evaluation.report import reproduction, statistics
from fairseq_posenc.evaluation.report.sentences import SCORES
from fairseq_posenc.evaluation.report.statistics import LOGIT, compare, holm, logit, pool, sentence_test
from fairseq_posenc.evaluation.scoring.sentences import sacrebleu_metric

NAN = float("nan")
TABLES = 2000
ROWS = (9, 26, 83)


def table(*rows):
    """Return the table [rows, seeds]. Missing seeds of a row are NaN."""
    width = max(map(len, rows))
    return np.array([[*row, *[NAN] * (width - len(row))] for row in rows], float)


ONE, OTHER = [34.2, 35.1, 36.0, 34.9], [36.1, 37.9, 36.8]


def test_three_seeds_on_both_sides_are_compared_by_welch():
    found = compare(table(ONE, OTHER), 0)
    wanted = scipy.stats.ttest_ind(OTHER, ONE, equal_var=False)
    interval = wanted.confidence_interval()
    assert found.p[1] == pytest.approx(wanted.pvalue) and found.test.tolist() == ["", "Welch"]
    assert (found.difference_low[1], found.difference_high[1]) == pytest.approx((interval.low, interval.high))
    assert found.difference[1] == pytest.approx(np.mean(OTHER) - np.mean(ONE)) and np.isnan(found.p[0])


def test_fewer_seeds_are_compared_by_the_pooled_variance():
    scores = table(ONE, OTHER, [38.0])
    found = compare(scores, 0, pool(scores))
    squares = 3 * np.var(ONE, ddof=1) + 2 * np.var(OTHER, ddof=1)
    error = np.sqrt(squares / 5 * (1 + 1 / 4))
    difference = 38.0 - np.mean(ONE)
    assert found.test.tolist() == ["", "Welch", "pooled"]
    assert found.p[2] == pytest.approx(2 * scipy.stats.t.sf(difference / error, 5))
    assert found.difference_low[2] == pytest.approx(difference - scipy.stats.t.ppf(0.975, 5) * error)
    two = compare(table(ONE[:2], OTHER[:2]), 0, pool(table(ONE[:2], OTHER[:2])))
    assert two.p[1] == pytest.approx(scipy.stats.ttest_ind(ONE[:2], OTHER[:2]).pvalue)


def test_the_same_seeds_can_be_compared_in_pairs():
    """For two rows, the comparison in pairs is the paired t-test."""
    other = [36.1, 37.9, 36.8, 36.4]
    found = compare(table(ONE, other), 0, paired=True)
    assert found.p[1] == pytest.approx(scipy.stats.ttest_rel(other, ONE).pvalue) and found.test[1] == "paired"


def test_rows_at_the_floor_do_not_narrow_a_comparison_in_pairs():
    rows = [60.1, 58.9, 61.0], [64.0, 63.0, 66.5]
    floor = [1.0, 1.1, 1.05], [0.9, 0.95, 0.9]
    alone, among = (compare(table(*found), 0, paired=True, scale=LOGIT) for found in (rows, (*rows, *floor)))
    assert among.p[1] == pytest.approx(alone.p[1]) and among.difference_low[1] == pytest.approx(alone.difference_low[1])


def test_the_interval_of_a_mean_is_not_that_of_a_pair():
    """A comparison in pairs removes the effect that a seed has on all rows. The interval of a mean includes this effect."""
    scores = table([27.0, 35.0], [28.0, 36.5])
    known = pool(scores)
    in_pairs, plain = compare(scores, 0, known, paired=True), compare(scores, 0, known)
    assert in_pairs.low.tolist() == plain.low.tolist() and in_pairs.high.tolist() == plain.high.tolist()


@pytest.mark.parametrize("paired", (False, True))
def test_equal_scores_of_all_seeds_have_no_p(paired):
    """Because of rounding, the mean of three equal scores is not exactly equal to the scores."""
    found = compare(table([36.1] * 3, [34.7] * 3, [35.3] * 3), 0, paired=paired)
    assert np.isnan(found.p).all() and found.low.tolist() == pytest.approx([36.1, 34.7, 35.3])


def test_the_interval_of_a_mean_is_students():
    scores = table(ONE, [38.0])
    found = compare(scores, 0, pool(scores))
    wanted = scipy.stats.t.interval(0.95, 3, np.mean(ONE), scipy.stats.sem(ONE))
    assert (found.low[0], found.high[0]) == pytest.approx(wanted)
    assert found.high[1] - 38.0 == pytest.approx(scipy.stats.t.ppf(0.975, 3) * np.std(ONE, ddof=1))


def test_holm_by_hand():
    assert holm(np.array([0.01, NAN, 0.04, 0.03])) == pytest.approx([0.03, NAN, 0.06, 0.06], nan_ok=True)
    assert holm(np.array([0.6, 0.7])).tolist() == [1.0, 1.0]
    assert holm(np.array([[0.02, 0.04], [0.9, NAN]])) == pytest.approx(np.array([[0.04, 0.04], [0.9, NAN]]), nan_ok=True)


def test_rows_at_the_floor_or_ceiling_do_not_shrink_the_pooled_variance():
    wide = [30.0, 34.0, 32.0]
    assert pool(table(wide, [99.0, 99.1, 99.0], [0.1, 0.2, 0.1])).variance == pytest.approx(np.var(wide, ddof=1))


def test_the_interval_of_a_mean_contains_the_mean_on_the_logit_scale():
    scores = np.array([[1.0, 3.0], [0.2, 6.0], [34.0, 34.4], [99.0, 99.9], [50.0, 52.0]])
    found = compare(scores, 2, pool(scores, LOGIT), LOGIT)
    assert np.all((found.low < found.mean) & (found.mean < found.high))
    tested = np.isfinite(found.p)
    assert tested.sum() == 4
    inside = (found.difference_low < found.difference) & (found.difference < found.difference_high)
    assert np.all(inside[tested])


@pytest.mark.parametrize("limit", [0.0, 100.0])
def test_the_intervals_of_a_row_at_a_limit_contain_its_score(limit):
    """`logit` clips scores at 0.01 and 99.99."""
    scores = table([61.0, 62.0, 63.0], [limit])
    found = compare(scores, 0, pool(scores, LOGIT), LOGIT)
    assert (found.low <= found.mean).all() and (found.mean <= found.high).all()
    assert found.difference_low[1] <= found.difference[1] == limit - 62 <= found.difference_high[1]
    spread = SimpleNamespace(deviation=0.05, degrees=2, scale=LOGIT)
    low, high = reproduction._score_range(limit, spread, 3)
    assert low <= limit <= high


def test_rows_of_very_different_level_are_pooled_on_the_logit_scale():
    """Bartlett's test finds unequal variances on the scale of BLEU, and equal variances on the logit scale."""
    rows = [[12.0, 12.6, 11.4], [80.4, 83.9, 83.3, 81.0, 82.7], [68.8, 65.0, 65.7], [93.6, 94.4, 93.4]]
    scores = table(*rows, [50.0])
    assert statistics.choose_scale(np.nanmean(scores, -1)) == LOGIT
    known = pool(scores, LOGIT)
    variances = [(len(row) - 1) * np.var(logit(np.array(row)), ddof=1) for row in rows]
    assert known.variance == pytest.approx(sum(variances) / 10) and known.degrees == 10
    found = compare(scores, 1, known, LOGIT)
    margin = scipy.stats.t.ppf(0.975, 10) * np.sqrt(known.variance)
    low = 100 * scipy.special.expit(logit(np.array(50.0)) - margin)
    assert found.low[4] == pytest.approx(low) and 0 < found.low[4] < 50 < found.high[4] < 100
    assert found.difference[4] == pytest.approx(50 - np.mean(rows[1]))
    assert found.difference_low[4] < found.difference[4] < found.difference_high[4] < 0


@pytest.mark.parametrize("means", [[30.0, 45.0], [20.0, 150.0], [-30.0, 45.0], []])
def test_other_tables_are_compared_in_points(means):
    assert statistics.choose_scale(np.array(means)) == "points"


def test_too_few_seeds_say_nothing():
    scores = table([30.0, 30.1], [40.0], [50.0])
    found = compare(scores, 0, pool(scores))
    assert np.isnan(found.p).all() and not any(found.test) and np.isnan(found.low).all()
    same = table([30.0] * 3, [31.0] * 3)
    assert np.isnan(compare(same, 0, pool(same)).p).all()


# --- how often tables of methods with equal true scores show a difference ---


def shown(found):
    """Return the fraction of tables with at least one row that differs from the baseline."""
    return float((np.nanmin(found.holm, -1) <= statistics.ALPHA).mean())


def drawn(rows, seeds, deviations=1.0):
    return 40 + deviations * np.random.default_rng(rows).standard_normal((TABLES, rows, seeds))


@pytest.mark.parametrize("rows", ROWS)
def test_one_table_of_twenty_shows_a_difference_between_equal_methods(rows):
    """Each method has one seed. The baseline has thirty seeds, so the comparisons are nearly independent."""
    scores = drawn(rows, 30)
    scores[:, 1:, 1:] = NAN
    found = compare(scores, 0, pool(scores))
    assert set(found.test[:, 1:].ravel()) == {"pooled"} and 0.03 <= shown(found) <= 0.07
    assert (np.nanmin(found.p, -1) <= 0.05).mean() > 0.2  # without the correction


@pytest.mark.parametrize("seeds", (2, 5))
@pytest.mark.parametrize("rows", ROWS)
def test_rows_that_share_a_baseline_with_few_seeds_show_fewer(rows, seeds):
    """All differences contain the same baseline. Holm's correction ignores this, so fewer tables show a difference."""
    scores = drawn(rows, seeds)
    found = compare(scores, 0, pool(scores))
    assert set(found.test[:, 1:].ravel()) == {"pooled" if seeds == 2 else "Welch"} and 0.01 <= shown(found) <= 0.07


@pytest.mark.parametrize("seeds", (3, 5))
@pytest.mark.parametrize("rows", ROWS)
def test_variances_that_differ_from_row_to_row_do_no_harm(rows, seeds):
    """Standard deviations are 0.5 to 2. The baseline has the smallest, the middle or the largest deviation."""
    scores = drawn(rows, seeds, np.geomspace(0.5, 2, rows)[:, None])
    for baseline in (0, rows // 2, rows - 1):
        assert 0.005 <= shown(compare(scores, baseline, pool(scores))) <= 0.08


@pytest.mark.parametrize("rows", ROWS)
def test_equal_methods_compared_in_pairs(rows):
    """A seed has the same effect on all rows."""
    scores = drawn(rows, 5) + 3 * np.random.default_rng(1).standard_normal((TABLES, 1, 5))
    assert 0.02 <= shown(compare(scores, 0, paired=True)) <= 0.07


# --- over sentences ---


def share(sums):
    return 100 * sums[:, 0] / sums[:, 1]


@pytest.mark.parametrize(("metric", "columns"), [("bleu", 10), ("chrf", 18)])
def test_scores_of_many_samples_are_sacrebleus(metric, columns):
    rng = np.random.default_rng(4)
    sums = rng.integers(0, 40, (400, columns)).astype(float)
    sums[rng.random(sums.shape) < 0.15] = 0
    sums[:100] = np.sort(sums[:100])
    sums[0] = 0
    wanted = [sacrebleu_metric(metric)._compute_score_from_stats(row.tolist()).score for row in sums]
    assert SCORES[metric](sums) == pytest.approx(wanted, abs=1e-9) and 0 < np.count_nonzero(wanted) < 400


@pytest.mark.parametrize("test", ["bs", "ar"])
def test_equal_systems_differ_in_one_test_set_of_twenty(test):
    """sentence_test finds a difference in about one of 20 test sets, and sacreBLEU's bootstrap in about one of 11."""
    rng, found = np.random.default_rng(2), []
    for _ in range(600):
        words = rng.integers(5, 30, 60)
        one, other = (np.stack([rng.binomial(words, 0.5 + 0.1 * rng.standard_normal(60).clip(-2, 2)), words], 1) for _ in "ab")
        found.append(sentence_test(one, other, share, test, 199, 1))
    assert 0.03 <= np.mean(np.array(found) <= 0.05) <= 0.07


def test_a_system_does_not_differ_from_itself():
    counts = np.array([[3, 5], [2, 7], [9, 9]])
    assert sentence_test(counts, counts, share, "ar", 99, 1) == sentence_test(counts, counts, share, "bs", 99, 1) == 1


def test_seed_0_is_a_seed():
    rng = np.random.default_rng(1)
    one, other = (np.stack([rng.integers(0, 9, 80), np.full(80, 9)], 1) for _ in "ab")
    assert len({sentence_test(one, other, share, "ar", 500, 0) for _ in range(3)}) == 1
    assert len({sentence_test(one, other, share, "ar", 500, seed) for seed in range(6)}) > 1
