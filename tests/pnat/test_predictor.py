"""The three heads of the position predictor: their training targets, and the permutations that they predict."""

import pytest
import torch

from fairseq_posenc.host.models.pnat.predictor import Matching, Pointer, RelativeClasses
from fairseq_posenc.host.models.pnat.search import inner_words
from fairseq_posenc.ops.sinusoids import sinusoid

WIDTH = 8
HEADS = {
    "matching": lambda: Matching(WIDTH, "greedy"),
    "hungarian": lambda: Matching(WIDTH, "hungarian"),
    "pointer": lambda: Pointer(WIDTH),
    "relative": lambda: RelativeClasses(WIDTH, 3),
}


def some(count=6, length=9, seed=1):
    """Return a vector for every input, and a mask that is True at inputs whose position is predicted.

    These are all inputs except the first and the last input of a sentence. The sentences have different lengths.
    """
    draw = torch.Generator().manual_seed(seed)
    words = torch.arange(length) < torch.linspace(2, length, count).round().unsqueeze(1)
    return torch.randn(count, length, WIDTH, generator=draw), inner_words(words)


def permuted(inner, seed=2):
    """Return random positions of the words that may move."""
    z = torch.arange(inner.size(1)).repeat(len(inner), 1)
    draw = torch.Generator().manual_seed(seed)
    for row, free in zip(z, inner):
        places = free.nonzero().flatten()
        row[places] = places[torch.randperm(len(places), generator=draw)]
    return z


@pytest.fixture(params=HEADS)
def head(request):
    torch.manual_seed(0)
    return HEADS[request.param]()


def test_predicted_positions_are_permutations_that_leave_ends_and_padding_alone(head):
    for seed in range(20):
        r, inner = some(seed=seed)
        z = head.positions(4 * r, inner)
        here = torch.arange(inner.size(1)).expand_as(z)
        assert torch.equal(z.sort(1).values, here)
        assert torch.equal(z[~inner], here[~inner])
    assert (z != here).any()


def test_a_batch_of_empty_sentences_is_predicted_and_learned(head):
    r, inner = torch.randn(2, 2, WIDTH), torch.zeros(2, 2, dtype=torch.bool)
    assert head.positions(r, inner).tolist() == [[0, 1], [0, 1]]
    out, tgt, mask = head.terms(r, head.positions(r, inner), inner)
    assert not mask.any() and out.shape[:-1] == tgt.shape == mask.shape


def test_a_sentence_alone_is_predicted_as_in_a_batch(head):
    r, inner = some()
    together = head.positions(r, inner)
    for row, free, z in zip(r, inner, together):
        length = int(free.sum()) + 2
        assert head.positions(row[None, :length], free[None, :length])[0].tolist() == z[:length].tolist()


def test_head_learns_the_positions_that_it_is_taught(head):
    """A head that is trained on some positions predicts these positions. Loss and gradient are finite."""
    r, inner = some(count=3, length=7)
    z = permuted(inner)
    optimizer = torch.optim.Adam(head.parameters(), 0.02)
    for _ in range(200):
        out, tgt, mask = head.terms(r, z, inner)
        loss = torch.nn.functional.cross_entropy(out[mask], tgt[mask])
        optimizer.zero_grad()
        loss.backward()
        assert loss.isfinite() and all(p.grad.isfinite().all() for p in head.parameters())
        optimizer.step()
    assert torch.equal(head.positions(r, inner), z)


def test_matching_scores_every_input_at_every_position():
    head = Matching(WIDTH, "greedy")
    r, inner = (x[1:] for x in some(count=2, length=5))
    out, _, _ = head.terms(r, permuted(inner), inner)
    for i in range(5):
        for j in range(5):
            if not inner[0, j]:
                assert out[0, i, j] == float("-inf")
                continue
            slot = sinusoid(torch.tensor(j), WIDTH, "halves", "fairseq")
            expected = (head.input_proj.weight @ r[0, i]) @ (head.slot_proj.weight @ slot) / WIDTH**0.5
            torch.testing.assert_close(out[0, i, j], expected, rtol=1e-4, atol=1e-5)


def test_pointer_depends_on_what_it_has_placed():
    """The pointer's score has a tanh. The score in the authors' code has no tanh.

    Without tanh, the ranking of the inputs would not depend on the inputs that were placed before.
    """
    torch.manual_seed(1)
    head = Pointer(WIDTH)
    r, inner = (x[1:] for x in some(count=2, length=8))
    r = 3 * r
    z = torch.arange(8).unsqueeze(0)
    swapped = torch.tensor([[0, 2, 1, 3, 4, 5, 6, 7]])
    one, other = (head.terms(r, order, inner)[0][0, 3].softmax(-1) for order in (z, swapped))
    ratio = one[4:7] / other[4:7]  # equal for all inputs, if the ranking does not depend on the inputs placed before
    assert ratio.max() - ratio.min() > 2e-5


def test_pointer_is_taught_step_by_step_what_it_predicts():
    """The target is the prediction of the pointer. With teacher forcing, the pointer selects the inputs of this target."""
    torch.manual_seed(2)
    head = Pointer(WIDTH)
    r, inner = some()
    z = head.positions(3 * r, inner)
    out, tgt, mask = head.terms(3 * r, z, inner)
    assert torch.equal(out.argmax(-1)[mask], tgt[mask])


def test_relative_classes_follow_their_equation():
    head = RelativeClasses(WIDTH, 3)
    r, inner = (x[1:] for x in some(count=2, length=7))
    z = permuted(inner)
    out, tgt, mask = head.terms(r, z, inner)
    classes = [-3, -2, -1, 1, 2, 3]

    def f(x):
        return head.fc2(head.fc1(x).relu())

    for i in range(7):
        for j in range(7):
            assert bool(mask[0, i, j]) == bool(inner[0, i] and inner[0, j] and i != j)
            expected = f(r[0, i] - r[0, j]) + f(r[0, j] - r[0, i]).flip(0)
            torch.testing.assert_close(out[0, i, j], expected, rtol=1e-4, atol=1e-5)
            if mask[0, i, j]:
                distance = int(z[0, i] - z[0, j])
                assert classes[tgt[0, i, j]] == max(-3, min(3, distance))


def test_the_order_of_two_inputs_is_the_larger_total_probability(monkeypatch):
    """The classes are distances from the second input to the first input. Class -2 has the largest probability, 0.4.

    Classes 1 and 2 together have the probability 0.6. The first input therefore follows the second input.
    """
    head = RelativeClasses(WIDTH, 2)
    earlier = torch.tensor([0.4, 1e-9, 0.3, 0.3]).log()
    logits = torch.zeros(1, 4, 4, 4)
    logits[0, 1, 2], logits[0, 2, 1] = earlier, earlier.flip(0)
    monkeypatch.setattr(head, "_logits", lambda r: logits)
    assert head.positions(torch.zeros(1, 4, WIDTH), inner_words(torch.ones(1, 4, dtype=torch.bool))).tolist() == [[0, 2, 1, 3]]
