"""Checks of word order, distances and lengths. They compare the behaviour of a method with its card."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from ..attention.positional import PositionalAttention
from ..attention.site_positions import SitePositions
from ..core import FIRST_RELATION, AttentionContext, PositionError, Positions, Sentence, SideInputs
from ..core.hooks import BEFORE_LAYERS, OUTSIDE_ATTENTION
from ..core.side import declared_by
from ..data.side import examples
from ..registry import spec as parsing
from .cases import SMALL, Case, NotApplicable
from .models import Describe, build_for, close, describe, differ, encode, fixed, logits, moved, positions_by_site, sentences

#: methods that ignore position ids in cross-attention, because they compute positions from the source words
COUNTING_WORDS = {"cope"}
#: specs that only change the scores of other methods
WITHOUT_POSITIONS = {"dape:base=none"}
#: hooks that act before the attention. A method that has only these hooks does not change how scores are computed
VECTORS = BEFORE_LAYERS | OUTSIDE_ATTENTION


@torch.no_grad()
def check_order(case: Case) -> None:
    """Check that another word order changes the output. If the card has reference="none", the output must not change.

    For a method in the decoder, the decoder has only one layer. With two layers, the causal mask alone would make the output
    depend on the order of the target words.
    """
    model = build_for(case, decoder_layers=1) if case.site == "decoder" else fixed(case)
    length = 40  # longer than the windows of all methods
    source, target = torch.stack(sentences(11, length)), torch.stack(sentences(12, length))
    order = torch.cat([torch.arange(length - 1).flip(0), torch.tensor([length - 1])])
    both, same = (lambda x: torch.cat([x, x[:, order]])), (lambda x: x.expand(2, -1))  # the second row has the other order
    if case.site == "decoder":  # reorder all words except the last
        before, after = logits(model, same(source), both(target))[:, -1]
    else:
        before, after = logits(model, both(source), same(target))
    if _knows_order(case):
        differ(after, before, "another order of the words changes nothing")
    else:
        close(after, before)
    if case.site == "encoder" and case.card.reference == "none":
        found = _encoded(model, both(source))
        close(found[1], found[0, order])


def _knows_order(case: Case) -> bool:
    """Return whether a method can distinguish word orders.

    If a method in the decoder is only a mask, it distinguishes word orders only if the mask hides some of the earlier words.
    """
    if case.spec in WITHOUT_POSITIONS:
        return False
    if case.card.documents:  # in another order, words belong to other sentences of the document
        return True
    method, at = case.method(), Positions.counted(0, 40)
    masks_only = method.hooks <= {"mask", "attend"} and "mask" in type(method)._overridden
    if case.site != "decoder" or not masks_only:
        return case.card.reference != "none"
    return not bool(method.mask(AttentionContext(at, at, causal=True))[..., -1, :-1].all())


@torch.no_grad()
def check_direction(case: Case) -> None:
    """Check `directional` on the card.

    The check compares the encoder output of a reversed sentence with the reversed encoder output of the original sentence. If
    `directional` is False or reference is "none", both outputs must be equal. Otherwise, both outputs must differ.
    """
    model = fixed(case)
    source = torch.stack(sentences(13, 8))
    if reads_sentences(case):  # </s> is not moved
        order = torch.tensor([6, 5, 4, 3, 2, 1, 0, 7])
        forwards, backwards = _encoded(model, source), _encoded(model, source[:, order], _read_backwards)[:, order]
    else:
        forwards, backwards = _encoded(model, source), _encoded(model, source.flip(1)).flip(1)
    if case.card.reference == "none" or not case.card.directional:
        close(backwards, forwards)
    else:
        differ(backwards, forwards, "the method treats both directions equally, but the card claims that they differ")


def reads_sentences(case: Case) -> bool:
    """Return whether the method reads trees, graphs or reorderings from side files."""
    return any(side.files for side in case.card.side_inputs)


def _read_backwards(words: Tensor) -> Sentence:
    """Return the tree, graph and reordering (`Sentence`) of a reversed sentence.

    `words` contains the tokens of the reversed sentence. The function computes the `Sentence` of the original sentence. The
    function then reverses the word indices in this `Sentence`. The last word, </s>, is not moved.
    """
    last = len(words) - 1
    given = describe(torch.cat([words[:last].flip(0), words[last:]]))
    count = int(given.words[-1])
    turned = np.append(np.arange(count)[::-1], count)  # old word index -> new word index. This map is its own inverse
    heads = np.where(given.heads >= 0, turned[given.heads], -1)[turned]
    order = turned[np.append(given.order[:count][::-1], count)]
    edges = np.column_stack([turned[given.edges[:, :2]], given.edges[:, 2]])
    return Sentence(turned[np.append(given.words[:last][::-1], count)], heads, given.relations[turned], edges, order)


def _chain(length: int) -> Sentence:
    """Return a tree in which the head of each word is the previous word. The first word is the root.

    The head of </s> is the first word, not the previous word.
    """
    words, relations = np.arange(length), np.full(length, FIRST_RELATION)
    heads = np.append(words[:-1] - 1, 0)
    return Sentence(words, heads, relations, np.column_stack([heads, words, relations])[1:], words)


@torch.no_grad()
def check_structure(case: Case) -> None:
    """Check that the output changes if the same words have another tree, graph or reordering."""
    model = fixed(case)
    source, target = torch.stack(sentences(14, 9, 9)), torch.stack(sentences(15, 6, 6))
    other = logits(model, source, target, lambda words: describe(words + 1))
    differ(other, logits(model, source, target), "the method does not read what it declares")


@torch.no_grad()
def check_shift(case: Case) -> None:
    """Shift all positions. Check that the output of absolute methods changes, and that the output of relative methods does not.

    In cross-attention, also check that the output changes if only the source positions are shifted.
    """
    if case.method().draws:
        raise NotApplicable("random codes are relative on average only. The oracles check them")
    if "scaling=dynamic" in case.spec:
        raise NotApplicable("the rotation depends on the length, which changes too")
    model = fixed(case)
    positions = positions_by_site(model)[case.site]
    source, target = torch.stack(sentences(14, 7, 7)), torch.stack(sentences(15, 6, 6))
    before = logits(model, source, target)
    with moved(positions, queries=5, keys=5):
        after = logits(model, source, target)
    if case.card.reference in ("absolute", "both") and "unit=char" not in case.spec:  # unit=char ignores ids
        differ(after, before, f"the card claims reference={case.card.reference}, but shifting all positions has no effect")
    else:
        close(after, before)
    counts = case.name in COUNTING_WORDS or case.card.documents
    if case.site == "cross" and case.card.reference != "none" and not counts and _knows_order(case):
        with moved(positions, keys=5):
            differ(logits(model, source, target), before, "shifting only the source positions has no effect")


@torch.no_grad()
def check_uncounted(case: Case) -> None:
    """Check that equal position ids lead to the same output, whether `Positions.start` is set or not.

    Some code, for example for distances, is different if `Positions.start` is set.
    """
    model = fixed(case)
    source, target = torch.stack(sentences(16, 7, 7)), torch.stack(sentences(17, 6, 6))
    before = logits(model, source, target)
    with moved(positions_by_site(model)[case.site], counted=False):
        close(logits(model, source, target), before)


@torch.no_grad()
def check_fractions(case: Case) -> None:
    """Check that a method with position_type="any" runs with fractional positions."""
    model = fixed(case)
    source, target = torch.stack(sentences(16, 7, 7)), torch.stack(sentences(17, 6, 6))
    with moved(positions_by_site(model)[case.site], queries=0.5, keys=0.5, counted=False):
        try:
            found = logits(model, source, target)
        except (IndexError, RuntimeError, TypeError, PositionError) as error:
            raise AssertionError(f'{type(error).__name__}: {error}. Expected position_type = "integer"') from None
    assert found.isfinite().all()


@torch.no_grad()
def check_length(case: Case) -> None:
    """Check the maximum length. A method with extrapolation="error" must work up to the limit, and raise an error beyond it.

    All other methods must work with sentences that are four times as long as this limit.
    """
    limit = 8
    model = build_for(case, max_source_positions=limit, max_target_positions=limit)
    run = lambda source, target: logits(model, *(torch.stack(sentences(18, n)) for n in (source, target)))  # noqa: E731
    assert run(limit, limit).isfinite().all()
    if case.card.extrapolation != "error":
        _runs_beyond(case, model, limit)
        return
    method = case.method()
    query, key = {"encoder": ("source",) * 2, "decoder": ("target",) * 2, "cross": ("target", "source")}[case.site]
    limited = {side for side, own in ((query, method.limit), (key, method.key_limit)) if own is not None}
    assert limited, "the card claims a maximum length, but longer sentences run"
    for side in sorted(limited):
        lengths = {"source": limit, "target": limit, side: limit + 1}
        message = _refusal(run, lengths["source"], lengths["target"])
        wanted = (case.name, case.site, str(limit), str(limit + 1), f"--max-{side}-positions")
        assert all(part in message for part in wanted), message


def _refusal(run, source: int, target: int) -> str:
    try:
        run(source, target)
    except PositionError as error:
        return str(error)
    raise AssertionError(f"the card claims a maximum length, but {source} source and {target} target positions run")


def _runs_beyond(case: Case, model, limit: int) -> None:
    source, target = (torch.stack(sentences(seed, 4 * limit)) for seed in (19, 20))
    try:
        found = logits(model, source, target)
    except PositionError as error:
        raise AssertionError(f"the card claims extrapolation={case.card.extrapolation}, but {error}") from None
    assert found.isfinite().all()
    larger = build_for(case)  # its limits are larger than the sentences
    if {name: x.shape for name, x in larger.state_dict().items()} == {name: x.shape for name, x in model.state_dict().items()}:
        larger.load_state_dict(model.state_dict())
        close(found, logits(larger, source, target))


@torch.no_grad()
def check_far(case: Case) -> None:
    """Check `extrapolation` on the card. With "clips", two long distances must have equal scores.

    With "runs", the scores of the two distances must differ. With "error", no scores are compared. If all
    hooks of a method are in `VECTORS`, the check compares hidden states instead of scores. These are the
    hidden states at the positions 297 and 298.
    """
    method = case.method()
    hooks = method.hooks
    if method.draws and not reads_sentences(case):  # methods with side files draw random signs only in training
        raise NotApplicable("random codes are equal on average only. The oracles check them")
    if case.card.extrapolation == "error" or case.card.injection in ("none", "other") or hooks <= {"mask"} or "attend" in hooks:
        # these methods have no scores at long distances, or scores of two distances cannot be compared
        assert case.card.extrapolation != "clips"
        return
    near, far = _far_vectors(case) if hooks <= VECTORS else _far_scores(case)
    if case.card.extrapolation == "clips":
        close(far, near)
    else:
        differ(far, near, "the card claims different scores for long distances, but they are equal", tolerance=1e-7)


def _far_scores(case: Case):
    """Return the scores of two keys with equal content at the distances -297 and -298 from a query."""
    torch.manual_seed(21)
    dims = dataclasses.replace(SMALL, num_layers=1, max_positions=8, max_key_positions=8).at(case.site)
    attention = PositionalAttention(SitePositions(parsing.build(case.spec, dims, case.site), dims, case.site), 0.0).double()
    for parameter in attention.position.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.5)
    if (
        attention.q_proj is not None and attention.k_proj is not None
    ):  # equal projections make all products positive. The method da sets negative products to 0
        attention.k_proj.load_state_dict(attention.q_proj.state_dict())
    x = torch.randn(1, 1, SMALL.embed_dim, dtype=torch.float64).expand(300, 1, -1)
    scores = attention.scores(x, x, side_inputs=_of_chain(attention.positions.methods, 300))[0, :, -2]
    return scores[:, 1], scores[:, 0]


def _far_vectors(case: Case):
    method, at = case.method(), Positions.counted(0, 300)
    ctx = AttentionContext(at, at, side=SideInputs(_of_chain([method], 300), declared_by([method.card]))).prepared_by(method)
    torch.manual_seed(21)
    for parameter in method.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.5)
    x = torch.ones(1, 300, SMALL.embed_dim, dtype=torch.float64)
    x = method.before_layer(method.embed(x, torch.full((1, 300), 5), ctx), ctx)
    return x[:, -3], x[:, -2]


def _of_chain(methods, length: int) -> dict[str, Tensor]:
    return examples.side_inputs(methods, [_chain(length)], length)


def _encoded(model, source: Tensor, describe: Describe = describe) -> Tensor:
    return encode(model, source, describe)["encoder_out"][0].transpose(0, 1)
