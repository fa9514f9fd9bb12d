"""The numbers of the analyses, compared with their formulas and with expected values that are written in the tests."""

import itertools
import math
from random import Random

import pytest
import torch

from fairseq_posenc.evaluation.analysis import identical, lengths, moved, moves, reordering, sinusoids, vectors
from fairseq_posenc.evaluation.scoring.sentences import corpus_score, count
from fairseq_posenc.ops.sinusoids import sinusoid

# --- sinusoids -------------------------------------------------------------------------------------------------------

GOLDEN = {0: 256.0, 1: 249.128125, 2: 231.825602, 5: 189.854769, 10: 174.107394, 50: 131.578963}


@pytest.mark.parametrize("t", [0, 5, 50])
def test_products_of_sinusoids(t):
    table = sinusoid(torch.arange(101), 512, "halves", "fairseq").double()
    for k, product in GOLDEN.items():
        assert float(table[t] @ table[t + k]) == pytest.approx(product, abs=1e-4)


def test_the_figure_of_tener():
    alone, *projected = sinusoids.products(512, 50, "fairseq", 1).values()
    for k, product in GOLDEN.items():
        assert [alone[50 + k], alone[50 - k]] == pytest.approx([product, product], abs=1e-4)
    for values in projected:  # with a projection, the products for distances -k and k differ
        assert len(values) == 101 and max(abs(a - b) for a, b in zip(values, values[::-1])) > 5


# --- position vectors ------------------------------------------------------------------------------------------------


def test_similarity_of_sinusoids_is_that_of_their_distance():
    width = 64
    found = vectors.similarity(sinusoid(torch.arange(40), width, "halves", "fairseq"))
    frequencies = [10000 ** (-i / (width / 2 - 1)) for i in range(width // 2)]
    for t, s in itertools.product(range(40), repeat=2):
        wanted = sum(math.cos((t - s) * w) for w in frequencies) / (width / 2)
        assert float(found[t, s]) == pytest.approx(wanted, abs=1e-5)


def test_positions_are_read_off_vectors_that_hold_them():
    at = torch.arange(100.0)
    line = torch.stack([at / 100, -at, torch.ones(100)], -1)
    assert vectors.absolute_error(line, 1) == 0.0 and vectors.order_error(line, 1) < 0.02
    noise = torch.randn(100, 3, generator=torch.Generator().manual_seed(1))
    assert vectors.absolute_error(noise, 1) > 15 and vectors.order_error(noise, 1) > 0.3


# --- identical words -------------------------------------------------------------------------------------------------


def indicators(score, length=24):
    scores = torch.tensor([[float(score(t, s)) for s in range(length)] for t in range(length)])
    return identical.indicators(scores, scores.softmax(-1))


def test_equal_scores_say_nothing():
    assert indicators(lambda t, s: 3) == identical.Indicators(1.0, 1.0, 0.0, pytest.approx(1.0))


def test_a_penalty_of_distance_is_symmetric_invariant_and_monotonic():
    found = indicators(lambda t, s: -abs(t - s) / 4)
    assert found == identical.Indicators(1.0, pytest.approx(1.0), 1.0, pytest.approx(1.0))


def test_direction_and_asymmetry_are_told():
    assert indicators(lambda t, s: t * s**2 - s * t**2).symmetry == pytest.approx(0.0)
    found = indicators(lambda t, s: s - t)
    assert found.symmetry == pytest.approx(1.0) and found.invariance == pytest.approx(1.0) and found.balance > 2
    assert found.monotonicity == pytest.approx(0.5)  # the score decreases with the distance on one side only


def test_a_shift_of_a_row_that_softmax_ignores_changes_no_symmetry():
    plain = indicators(lambda t, s: (t * 7 + s * s * 3 + t * s) % 11)
    assert 0.1 < plain.symmetry < 0.9
    assert indicators(lambda t, s: (t * 7 + s * s * 3 + t * s) % 11 + 40 * (t % 5)).symmetry == pytest.approx(plain.symmetry)


def test_invariance_by_its_formula():
    length, random = 7, Random(1)
    a = [[random.random() for _ in range(length)] for _ in range(length)]

    def deviation(values):
        mean = sum(values) / len(values)
        return (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5

    diagonals = [[a[t][t + k] for t in range(length) if 0 <= t + k < length] for k in range(2 - length, length - 1)]
    everything = [number for row in a for number in row]
    wanted = 1 - sum(map(deviation, diagonals)) / len(diagonals) / deviation(everything)
    found = identical.indicators(torch.tensor(a), torch.tensor(a).softmax(-1))
    assert found.invariance == pytest.approx(wanted, abs=1e-6)
    rows, columns = [sum(row) / length for row in a], [sum(column) / length for column in zip(*a)]
    mean = sum(rows) / length
    c = [[a[t][s] - rows[t] - columns[s] + mean for s in range(length)] for t in range(length)]
    norm = sum(x**2 for row in c for x in row) ** 0.5
    skew = sum((c[t][s] - c[s][t]) ** 2 for t in range(length) for s in range(length)) ** 0.5
    assert found.symmetry == pytest.approx(1 - skew / (2 * norm), abs=1e-6)


# --- moved words -----------------------------------------------------------------------------------------------------


def test_the_fixture_of_reordering():
    assert moves.move("abcdefg", 4, 2) == list("abecdfg") and moves.labels(4, 2) == (2, 5)


@pytest.mark.parametrize("origin, target", [(o, i) for o in range(7) for i in range(7) if o != i])
def test_a_move_is_undone(origin, target):
    changed = moves.move("abcdefg", origin, target)
    inserted, original = moves.labels(origin, target)
    assert changed[target] == "abcdefg"[origin]
    assert moves.move(changed, inserted, original - 1 if original > inserted else original) == list("abcdefg")


@pytest.mark.parametrize("least", [1, 4])
def test_drawn_moves(least):
    drawn = {moves.draw(7, Random(seed), least) for seed in range(300)}
    assert drawn == {(o, i) for o in range(6) for i in range(6) if abs(o - i) >= least}  # the last word is not moved
    assert moves.draw(least + 1, Random(1), least) is None and moves.draw(least + 2, Random(1), least) is not None


def test_buckets():
    assert [moves.bucket(d) for d in (0, 9, 10, 59, 60, 99)] == [0, 0, 1, 5, 6, 6] and len(moves.bucket_names()) == 7
    assert [moved.bucket(d) for d in (1, 4, 5, 9, 10, 20)] == [0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize(
    "symbols, words",
    [
        ("▁a b ▁c d e", ["▁a b", "▁c d e"]),
        ("a@@ b c d@@ e", ["a@@ b", "c", "d@@ e"]),
        ("a@@ b ▁ c", ["a@@ b", "▁", "c"]),
        ("a b", ["a", "b"]),
    ],
)
def test_words_move_whole(symbols, words):
    pieces = symbols.split()
    found = moved.words_of(range(len(pieces)), pieces)
    assert [" ".join(pieces[number] for number in word) for word in found] == words


# --- detection of reordering -----------------------------------------------------------------------------------------


def test_parameters_of_the_output_layer():
    for d in (8, 16):
        assert sum(p.numel() for p in reordering.Pointers(d).parameters()) == 3 * d * d + 3 * d + d + 1


def test_the_output_layer_is_its_equation():
    d, length = 4, 5
    torch.manual_seed(1)
    layer, states = reordering.Pointers(d).double(), torch.randn(1, length, d, dtype=torch.double)
    outside = torch.tensor([[False, False, False, False, True]])
    inserted, original = layer(states, outside)
    w, b = layer.project.weight.tolist(), layer.project.bias.tolist()
    rows = [[sum(w[r][c] * states[0, s, c].item() for c in range(d)) + b[r] for r in range(3 * d)] for s in range(length)]
    u, bias = layer.score.weight[0].tolist(), layer.score.bias.item()
    logits = [sum(u[c] * math.tanh(row[c]) for c in range(d)) + bias for row in rows][:4]
    total = sum(map(math.exp, logits))
    mean = [sum(math.exp(logit) / total * row[2 * d + c] for logit, row in zip(logits, rows)) for c in range(d)]
    second = [sum(row[d + c] * mean[c] for c in range(d)) / math.sqrt(d) for row in rows]
    assert inserted[0, :4].tolist() == pytest.approx(logits) and original[0, :4].tolist() == pytest.approx(second[:4])
    assert inserted[0, 4] == original[0, 4] == -1e9


# --- lengths ---------------------------------------------------------------------------------------------------------


def test_quality_is_that_of_the_sentences_of_a_bucket():
    references = ["a b c d e", "f g h i j k", "a c e g i"]
    hypotheses = ["a b c d e", "f g h j", "a c e g k"]
    statistics = count(hypotheses, references, [5, 12, 6])
    short = lengths.quality(lengths.select(statistics, 1, 9))
    only = count(hypotheses[::2], references[::2])
    assert short.sentences == 2 and short.bleu == pytest.approx(corpus_score("bleu", only.bleu).score) and short.ratio == 1.0
    long = lengths.quality(lengths.select(statistics, 10, None))
    assert long.ratio == pytest.approx(4 / 6) and long.brevity == pytest.approx(math.exp(1 - 6 / 4))
