"""Checks of the parameters of a method, and of the flags on its card."""

from __future__ import annotations

import dataclasses
import functools

import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..core import AttentionContext, PositionError, PositionMethod, Positions, SideInputs
from ..core.hooks import BEFORE_LAYERS, IN_MATRIX
from ..core.side import declared_by
from ..data.side import examples
from ..registry import spec as parsing
from .cases import SMALL, Case, NotApplicable, specs
from .checks_attention import attention, inputs
from .checks_attention import side_inputs as of_attention
from .models import (
    FIRST,
    LAST,
    PAD,
    SEPARATOR,
    batch,
    build,
    build_for,
    close,
    differ,
    fixed,
    logits,
    other_stack,
    position_parameters,
    positions_by_site,
    sentences,
    side_inputs,
    training,
)  # fmt: skip

#: specs with an option that has an effect only if encoder and decoder use the method
SHARED_BY_STACKS = {"unifpe:tie=true"}


def check_count(case: Case) -> None:
    """Compare the number of trainable parameters with the formula on the card, for several sizes, and with layers=0."""
    shapes = (
        SMALL,
        dataclasses.replace(SMALL, embed_dim=24, num_heads=2, num_layers=3, max_positions=9, max_key_positions=17),
        dataclasses.replace(SMALL, embed_dim=32, num_heads=8, num_layers=1, max_positions=70, padding_idx=0),
    )
    for dims in shapes:
        for spec in (case.spec, _with(case.spec, "layers=0")):
            try:
                method = parsing.build(spec, dims.at(case.site), case.site)[0]
            except PositionError:
                assert "layers" in spec  # some methods do not support layers=
                continue
            found = sum(p.numel() for p in method.parameters() if p.requires_grad)
            expected = case.card.count(method.options, method.dims)
            sizes = f"d={dims.embed_dim}, h={dims.num_heads}, L={dims.num_layers}, n={dims.max_positions}"
            assert found == expected, f"{spec} has {found} parameters, but the card claims {expected} ({sizes})"


def check_flags(case: Case) -> None:
    """Check that the card's fields learnable, recurring, stochastic, injection and losses are correct for the module."""
    method, card = case.method(), case.card
    learnable = card.learnable and (case.site in card.sites or card.count(method.options, method.dims) > 0)
    assert learnable == any(p.requires_grad for p in method.parameters()), "learnable"
    assert card.recurring == bool(method.hooks - BEFORE_LAYERS), "recurring"
    assert card.stochastic == _draws(case), "stochastic"
    assert set(card.losses) == _added_losses(case), "losses"
    inside = bool(method.hooks & IN_MATRIX)
    expected = {"none": not method.hooks, "MAM": inside, "APE": bool(method.hooks) and not inside, "other": bool(method.hooks)}
    allowed = [name for name, fits in expected.items() if fits]
    hooks = f"{', '.join(sorted(method.hooks)) or 'none'}. Expected {' or '.join(allowed)}"
    assert card.injection in allowed, f"injection={card.injection} does not fit the hooks of the method: {hooks}"


def _draws(case: Case) -> bool:
    """Return whether the hook `prepare` returns different tensors for different seeds in training.

    The function uses the first spec from `specs` whose method has this hook.
    """
    methods = [Case(spec, case.site).method().train() for spec in specs(case.name, case.site)]
    method = next((method for method in methods if "prepare" in method.hooks), None)
    if method is None:
        return False
    at = Positions.counted(0, 9)
    ctx = AttentionContext(at, at, causal=method.dims.causal, cross=method.dims.cross)
    given = examples.side_inputs([method], [examples.random_sentence(range(9))], 9)
    ctx = ctx.replace(side=SideInputs(given, declared_by([method.card])))
    found = []
    for seed in range(4):
        torch.manual_seed(seed)
        found.append([value for value in tree_leaves(method.prepare(ctx)) if isinstance(value, Tensor)])
    return any(not torch.equal(one, first) for other in found for one, first in zip(other, found[0]))


def _added_losses(case: Case) -> set[str]:
    """Return the names of the training losses that the method adds. Check that each loss has a number per sentence."""
    model = fixed(case)
    source, target = torch.stack(sentences(23, 5, 5)), torch.stack(sentences(24, 6, 6))
    with training(model):
        found = model(source, None, target, side_inputs=side_inputs(model, source))[1]["losses"]
    for name, loss in found.items():
        assert loss.shape == (2,), f"the loss {name} has the shape {list(loss.shape)} for 2 sentences. Expected [B]"
        assert loss.requires_grad, f"the loss {name} has no gradient"
    return set(found)


def check_gradients(case: Case) -> None:
    """Check that a backward pass computes a gradient for every parameter.

    Also check that the gradients of position parameters are correct.
    """
    model = build_for(case).double().train()
    loss = _loss(model)
    loss.backward()
    without = []  # parameters with zero gradient
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, f"{name} is not used"
            assert parameter.grad.isfinite().all(), name
            if parameter.grad.abs().max() < 1e-10:
                assert _cancels(case, name), f"{name} has no gradient"
                without.append((parameter, torch.randn_like(parameter)))
    if without:  # check all of these parameters together: changing them must not change the loss
        close(_slope(model, without), torch.zeros_like(loss), 1e-7)
    # choose a random direction of the position parameters. In this direction, compare the slope of the loss with the gradients
    torch.manual_seed(22)
    ways = [(p, torch.randn_like(p)) for p in position_parameters(model).values()]
    if ways:
        # with adjoint=true, numerical integration computes the gradient, so that the gradient is less exact
        exact = 1e-2 if "adjoint=true" in case.spec else 1e-5
        close(_slope(model, ways, 1e-7), sum((p.grad * way).sum() for p, way in ways), exact)


def _cancels(case: Case, name: str) -> bool:
    """Return whether a parameter only adds the same number to all scores of a query, so that it does not change the softmax.

    This is true for the bias of the key projection. For a parameter of a method, this function changes the parameter and
    compares the scores.
    """
    if name.endswith("k_proj.bias"):
        return True
    built = attention(case)
    own = [parameter for key, parameter in built.position.named_parameters() if name.endswith(f"methods.0.{key}")]
    if not own or built.positions.uses("attend", 0):
        return False
    x, source = inputs(case)
    given = of_attention(built, torch.zeros(x.size(1), len(source), dtype=torch.bool))
    before = built.scores(x, source, side_inputs=given)
    with torch.no_grad():  # a small change, because networks with ReLU are only piecewise linear
        own[0].add_(1.0 + torch.randn_like(own[0]).abs(), alpha=1e-5)
    change = built.scores(x, source, side_inputs=given) - before
    return bool(change.abs().max() > 1e-8) and bool((change - change[..., :1]).abs().max() < 1e-12)


def _loss(model) -> Tensor:
    torch.manual_seed(23)  # every call draws the same random numbers
    source, target = batch(sentences(24, 14, 5), "left"), batch(sentences(25, 14, 4))
    found, extra = model(source, None, target[:, :-1], side_inputs=side_inputs(model, source))
    words = found.log_softmax(-1).flatten(0, 1), target[:, 1:].reshape(-1, 1)
    added = [loss.sum() for loss in extra["losses"].values()]
    return sum(added, label_smoothed_nll_loss(*words, 0.1, ignore_index=PAD)[0].sum())


def _slope(model, ways: list, step: float = 1e-6) -> Tensor:
    """Return the slope of the loss in a direction, computed from two forward passes. `ways`: pairs of parameter and direction."""
    ends = []
    with torch.no_grad():
        for sign in (1, -2):
            for parameter, way in ways:
                parameter.add_(way, alpha=sign * step)
            ends.append(_loss(model))
        for parameter, way in ways:
            parameter.add_(way, alpha=step)
    return (ends[0] - ends[1]) / (2 * step)


@torch.no_grad()
def check_layers(case: Case) -> None:
    """Check that `bias` and `mask` are equal in all layers, if `per_layer` is False.

    They are then computed once, and all layers use the result.
    """
    method, ctx = _randomised(case)
    for hook in sorted({"bias", "mask"} & method.hooks):
        first, second = (getattr(method, hook)(ctx.replace(layer=layer)) for layer in (0, 1))
        same = first is second or torch.equal(first, second)
        assert same, f"{hook} differs between layers, so all layers would have the {hook} of one layer. Set per_layer = True"


@torch.no_grad()
def check_rescale(case: Case) -> None:
    """Check that `rescale` reads no more than `rescale_reads` names. This decides which methods can be combined."""
    method, ctx = _randomised(case)
    shape = (1, method.dims.num_heads, ctx.keys.ids.size(1))
    scores, (q, k, *others) = torch.randn(*shape, shape[-1]).double(), torch.randn(4, *shape, method.dims.head_dim).double()
    found = method.rescale(scores, q, k, ctx)
    expected = f'rescale_reads = "{method.rescale_reads}" is too little: rescale'
    assert torch.equal(method.rescale(scores, *others, ctx), found), f'{expected} reads queries or keys. Use "content"'
    if method.rescale_reads == "positions":
        twice = method.rescale(2 * scores, q, k, ctx)
        assert torch.allclose(twice, 2 * found), f'{expected} is no multiplication of the scores. Use "scores"'


def _randomised(case: Case) -> tuple[PositionMethod, AttentionContext]:
    """Return a method in float64 with random parameters, and a context of nine words."""
    method = case.method().double().eval()
    torch.manual_seed(38)
    for parameter in method.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.5)
    at, words = Positions.counted(0, 9), torch.randint(FIRST, LAST, (1, 9))
    given = examples.side_inputs([method], [examples.random_sentence(range(9))], 9)
    ctx = AttentionContext(at, at, causal=method.dims.causal, cross=method.dims.cross, tokens=words, query_tokens=words)
    return method, ctx.replace(source=words, side=SideInputs(given, declared_by([method.card]))).prepared_by(method)


def check_state_dict(case: Case) -> None:
    """Check that the state dict of each `SitePositions` module contains only parameters.

    Also check that a second model has the same output after it loads the state dict of the first model.
    """
    model, other = fixed(case), build_for(case, seed=1)
    for positions in positions_by_site(model).values():
        assert set(positions.state_dict()) == {name for name, _ in positions.named_parameters()}
    other.load_state_dict(model.state_dict(), strict=True)
    source, target = torch.stack(sentences(26, 6, 6)), torch.stack(sentences(27, 5, 5))
    with torch.no_grad():
        close(logits(other.eval(), source, target), logits(model, source, target), 0)


@functools.cache
def _without_methods(one_layer: str) -> nn.Module:
    """Return a model without position methods, in which one stack has one layer. `check_effect` replaces all parameters."""
    return build(**{f"{one_layer}_layers": 1})


@torch.no_grad()
def check_effect(case: Case) -> None:
    """Check that the output changes if the method is removed.

    Also check, for each parameter of the method, that the output changes if this parameter changes.
    """
    model, without = fixed(case), _without_methods(other_stack(case))
    model.load_state_dict(model.state_dict())
    source, target = torch.stack(sentences(28, 30)), torch.stack(sentences(29, 30))
    before = logits(model, source, target)
    assert before.isfinite().all()
    hooks = case.method().hooks
    if case.card.reference == "none":
        assert hooks <= {"scale"}, f"reference is 'none', but the method uses {', '.join(sorted(hooks - {'scale'}))}"
    if case.card.reference == "none" and not hooks:
        assert _same_plain_parts(model, without)
        close(logits(without, source, target), before, 0)
        return
    if _same_plain_parts(model, without):
        differ(logits(without, source, target), before, "the model does not use the method")
    for name, parameter in position_parameters(model).items():
        values = parameter.clone()
        parameter.add_(torch.randn_like(parameter), alpha=0.5)
        try:
            after = logits(model, source, target)
        finally:
            parameter.copy_(values)
        if (after - before).abs().max() < 1e-5:
            only_in_loss = bool(case.card.losses)  # `check_gradients` checks parameters that only a loss reads
            assert only_in_loss or _cancels(case, name), f"{name} changes nothing"


def _same_plain_parts(model: nn.Module, other: nn.Module) -> bool:
    """Copy parameters from `model` to `other`. Parameters that only one of the models has are not copied.

    Return True if every parameter of `other` is overwritten.
    """
    own: dict[str, Tensor] = other.state_dict()
    given = {name: x for name, x in model.state_dict().items() if name in own and name != "positions_version"}
    nn.Module.load_state_dict(other, given, strict=False)
    return set(own) - set(given) == {"positions_version"}


@torch.no_grad()
def check_options(case: Case) -> None:
    """Check that a changed option changes the output or the shapes of parameters.

    A change of the output that occurs only in training is sufficient.
    """
    plain, changed = fixed(Case(case.name, case.site, case.side)), fixed(case)
    shapes = [{name: p.shape for name, p in position_parameters(m).items()} for m in (plain, changed)]
    if shapes[0] != shapes[1]:
        return
    source, target = torch.stack(sentences(30, 12, 12)), torch.stack(sentences(31, 11, 11))
    if case.card.documents:  # a document then contains more sentences than a small table has rows
        source[:, ::2], target[:, 1::2] = SEPARATOR, SEPARATOR
    if case.spec in SHARED_BY_STACKS:
        raise NotApplicable("encoder and decoder share random numbers if both use the method")
    found = _outputs((changed, plain), source, target)
    if torch.equal(*found):
        with training(changed, plain):
            found = _outputs((changed, plain), source, target)
    differ(*found, f"{case} does what {case.name} does. Expected an effect, or PositionError for this option at this site")


def _outputs(models: tuple, source: Tensor, target: Tensor) -> list[Tensor]:
    """Return the logits of each model. All models draw the same random numbers."""
    found = []
    for model in models:
        torch.manual_seed(36)
        found.append(logits(model, source, target))
    return found


def _with(spec: str, option: str) -> str:
    return f"{spec}{',' if ':' in spec else ':'}{option}"
