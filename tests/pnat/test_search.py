"""The search of positions: exact values, permutations, and loops that follow the definitions."""

import itertools

import pytest
import torch

from fairseq_posenc.host.models.pnat.search import (
    MATCHINGS,
    accuracy,
    alignment_loss,
    greedy,
    hungarian,
    inner_words,
    log_probabilities,
    moved,
    similarity,
)


def free(batch: int, length: int) -> torch.Tensor:
    """Return a mask in which all inputs may move."""
    return torch.ones(batch, length, dtype=torch.bool)


@pytest.mark.parametrize("name, expected", [("greedy", [0, 2, 1]), ("authors", [1, 0, 2]), ("hungarian", [1, 0, 2])])
def test_golden_values(name, expected):
    scores = torch.tensor([[[0.9, 0.8, 0.1], [0.85, 0.2, 0.3], [0.4, 0.7, 0.6]]])
    assert MATCHINGS[name](scores, free(1, 3)).tolist() == [expected]


def test_greedy_takes_the_largest_score_that_is_left():
    scores = torch.rand(300, 7, 7, generator=torch.Generator().manual_seed(1))
    for table, found in zip(scores, greedy(scores, free(300, 7))):
        rows, columns, expected = set(range(7)), set(range(7)), [0] * 7
        while rows:
            i, j = max(itertools.product(rows, columns), key=lambda pair: table[pair])
            expected[i] = j
            rows.remove(i)
            columns.remove(j)
        assert found.tolist() == expected


def test_the_authors_search_normalises_over_free_columns_in_every_round():
    """Rows are inputs, and columns are positions. A pair is one input and one position.

    In every round, a pair is assigned if its normalised score is the largest of its row and of its column.
    The remaining rows are then normalised over the remaining columns.
    """
    scores = 3 * torch.randn(300, 7, 7, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    for table, found in zip(scores.float(), MATCHINGS["authors"](scores, free(300, 7))):
        rows, columns, expected = list(range(7)), list(range(7)), [0] * 7
        while rows:
            shares = {i: [float(table[i, j].double().exp()) for j in columns] for i in rows}
            p = {i: {j: share / sum(shares[i]) for j, share in zip(columns, shares[i])} for i in rows}
            pairs = [
                (i, j)
                for i in rows
                for j in columns
                if p[i][j] == max(p[i].values()) and p[i][j] == max(p[other][j] for other in rows)
            ]
            for i, j in pairs:
                expected[i] = j
            rows = [i for i in rows if i not in {i for i, _ in pairs}]
            columns = [j for j in columns if j not in {j for _, j in pairs}]
        assert found.tolist() == expected


def test_hungarian_has_the_largest_sum_of_all_permutations():
    scores = torch.rand(20, 5, 5, generator=torch.Generator().manual_seed(2))
    for table, found in zip(scores, hungarian(scores, free(20, 5))):
        best = max(itertools.permutations(range(5)), key=lambda z: sum(table[i, j] for i, j in enumerate(z)))
        assert found.tolist() == list(best)


@pytest.mark.parametrize("ties", [False, True], ids=["all-differ", "with-equal-scores"])
@pytest.mark.parametrize("name", MATCHINGS)
def test_every_row_is_a_permutation_that_leaves_ends_and_padding_alone(name, ties):
    draw = torch.Generator().manual_seed(3)
    count, length = 1000, 9
    words = torch.arange(length) < torch.randint(2, length + 1, (count, 1), generator=draw)
    scores = torch.randn(count, length, length, generator=draw)
    scores = scores.round() if ties else scores
    inner = inner_words(words)
    z = MATCHINGS[name](scores, inner)
    assert torch.equal(z.sort(1).values, torch.arange(length).expand(count, -1))
    assert torch.equal(z[~inner], torch.arange(length).expand(count, -1)[~inner])
    assert (z != torch.arange(length)).any()


def test_scores_that_are_no_numbers_end_the_search():
    scores = torch.full((1, 5, 5), float("nan"))
    scores[:, 1] = float("-inf")
    assert sorted(greedy(scores, free(1, 5))[0].tolist()) == [0, 1, 2, 3, 4]


def test_inner_words_lie_between_the_ends():
    words = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]).bool()
    assert inner_words(words).int().tolist() == [[0, 1, 1, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]


@pytest.mark.parametrize("name", MATCHINGS)
def test_inputs_that_are_the_target_words_find_their_places(name):
    draw = torch.Generator().manual_seed(4)
    targets = torch.randn(3, 8, 16, generator=draw)
    inner = inner_words(free(3, 8))
    wanted = torch.stack(
        [torch.cat([torch.tensor([0]), 1 + torch.randperm(6, generator=draw), torch.tensor([7])]) for _ in "123"]
    )
    inputs = targets.gather(1, wanted.unsqueeze(-1).expand(-1, -1, 16))
    assert torch.equal(MATCHINGS[name](similarity(inputs, 5 * targets), inner), wanted)


def test_every_input_says_how_likely_every_target_word_is():
    logits, target = torch.randn(2, 4, 7), torch.tensor([[1, 6, 2, 2], [0, 3, 3, 5]])
    found = log_probabilities(logits, target)
    for b, i, j in itertools.product(range(2), range(4), range(4)):
        expected = (logits[b, i, target[b, j]].exp() / logits[b, i].exp().sum()).log()
        assert found[b, i, j].item() == pytest.approx(expected.item(), abs=1e-5)


def test_the_alignment_loss_is_that_of_ibm_model_1():
    words = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]).bool()  # the last sentence has no inner words
    inner = inner_words(words)
    scores = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(5)).requires_grad_()
    p = scores.detach().exp()
    likelihoods = [p[0, 1:4, j].mean() for j in (1, 2, 3)] + [p[1, 1, 1]]
    loss = alignment_loss(scores, inner)
    assert loss.item() == pytest.approx(-sum(x.log().item() for x in likelihoods) / 4, abs=1e-6)
    loss.backward()
    assert scores.grad.isfinite().all() and scores.grad[2].eq(0).all() and scores.grad[0, 1:4, 1:4].ne(0).all()


def test_alignments_are_learnt_from_sentences_alone():
    """Every source word has one translation, and the target words of each sentence have a random order.

    The model learns the translations from pairs of sentences only.
    """
    draw = torch.Generator().manual_seed(6)
    vocabulary, length = 12, 6
    source = torch.stack([torch.randperm(vocabulary, generator=draw)[:length] for _ in range(200)])
    wanted = torch.stack([torch.randperm(length, generator=draw) for _ in range(200)])  # input i -> its target position
    target = torch.empty_like(source).scatter_(1, wanted, vocabulary - 1 - source)
    table = torch.zeros(vocabulary, vocabulary, requires_grad=True)
    optimiser = torch.optim.Adam([table], lr=0.3)
    for _ in range(60):
        loss = alignment_loss(log_probabilities(table[source], target), free(200, length))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert torch.equal(greedy(log_probabilities(table[source], target), free(200, length)), wanted)


def test_an_input_is_put_at_its_position():
    z = torch.tensor([[0, 3, 1, 2, 4]])
    x = torch.arange(5.0).view(1, 5, 1)
    assert moved(x, z).flatten().tolist() == [0, 2, 3, 1, 4]


def test_accuracies_count_positions_and_pairs():
    wanted = torch.tensor([[0, 1, 2, 3, 4, 5]])
    found = torch.tensor([[0, 2, 1, 3, 4, 5]])
    inner = inner_words(free(1, 6))
    assert {name: counts.tolist() for name, counts in accuracy(found, wanted, inner, near=1).items()} == {
        "position": [2, 4],
        "order": [5, 6],
        "near_order": [2, 3],
    }
