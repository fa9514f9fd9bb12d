"""Every autograd function has the correct second derivative, or raises a one-line error."""

import ast
from pathlib import Path

import pytest
import torch
from torch.autograd import gradgradcheck

import fairseq_posenc
from fairseq_posenc.core import PositionError, Positions
from fairseq_posenc.methods.kernel import spe
from fairseq_posenc.methods.relative import huang
from fairseq_posenc.ops import rotation
from fairseq_posenc.ops.kernels import (
    angle_rotation,
    banks,
    blocked_bias,
    clipped_distances,
    contextual,
    decayed_products,
    distance_products,
    gate_sums,
    parabolas,
    polar,
    runge_kutta,
    stick_breaking,
    toeplitz,
    token_losses,
    unit_length,
)

B, H, T, S, D, W = 2, 2, 3, 4, 2, 6
AT, KEYS = Positions.counted(0, T), Positions.counted(0, S)
INDEX = torch.tensor([[[0, 1, 2, 3], [4, 0, 1, 1], [2, 2, 3, 0]]]).expand(B, -1, -1)


def x(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def biased(q, k, v, bias):
    return blocked_bias.BiasedAttention.apply(q, k, v, bias, None, bias.detach(), False, 0.5)


def rotated(vectors):
    angles = torch.arange(T, dtype=torch.float64).unsqueeze(1)
    return rotation._Rotation.apply(vectors, *rotation.every_channel(angles.sin(), angles.cos(), "halves", D), 1, "halves")


def codes(vectors, frequencies, offsets, gains, plain):
    noise = torch.randn(H, 5, D, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return spe._Codes.apply(vectors, frequencies, offsets, gains, plain, noise, AT.ids, range(1))


def steps(state, *weights):
    """Two steps with two calls of one network each, for one path with two complex channels."""
    waves, factors = torch.ones(2, 2, 2, dtype=torch.complex128), torch.ones(2, 3, 3).triu(1).movedim(0, 2).to(torch.complex128)
    return torch.view_as_real(runge_kutta.RungeKutta.apply(torch.view_as_complex(state), *weights, waves, factors))


def linked(q, bank, key, value, *weights):
    """Return the scores, or the sums of `weights`."""
    biases = key.new_zeros(len(key)), value.new_zeros(len(value))
    scores, link = banks.linked_scores(q, banks.Maps(key, biases[0], value, biases[1]), bank, INDEX)
    return banks.linked_sums(*weights, link) if weights else scores


DISTANCE = torch.arange(S) - torch.arange(T).unsqueeze(1)
SIDES = torch.stack([DISTANCE < 0, DISTANCE > 0])[None]  # the first head reads keys on the left, the second on the right
LAYOUT = distance_products.Layout(T - 1)
STRIDES = x(B, H, T, T + S - 1).stride()
RIGHT = {  # name -> a function of the differentiable inputs, and the inputs
    "BankScores": (lambda q, bank: banks.BankScores.apply(q, bank, INDEX), (x(B, H, T, D), x(5, H, D))),
    "BankSums": (lambda w, bank: banks.BankSums.apply(w, bank, INDEX), (x(B, H, T, S), x(5, H, D))),
    "Toeplitz": (lambda values: toeplitz.Toeplitz.apply(values, S), (x(H, T + S - 1),)),
    "DiagonalSums": (toeplitz.DiagonalSums.apply, (x(H, T, S),)),
    "SpreadClipped": (lambda c: clipped_distances.SpreadClipped.apply(c, AT, KEYS, 2), (x(B, H, T, 5),)),
    "ByColumn": (lambda y: distance_products.ByColumn.apply(y, S), (x(B, H, T, T + S - 1),)),
    "ByDistance": (lambda y: distance_products.ByDistance.apply(y, STRIDES), (x(B, H, T, S),)),
    "CollectClipped": (lambda w: clipped_distances.CollectClipped.apply(w, AT, KEYS, 2), (x(B, H, T, S),)),
    "_Rotation": (rotated, (x(B, H, T, D),)),
}
REFUSED = {
    "BiasedAttention": (biased, (x(B, H, T, D), x(B, H, S, D), x(B, H, S, D), x(1, H, T, S))),
    "BankScoresOfBoth": (
        lambda q, k, bank: banks.BankScoresOfBoth.apply(q, k, bank, INDEX),
        (x(B, H, T, D), x(B, H, S, D), x(5, D)),
    ),
    "_LinkedScores": (linked, (x(B, H, T, D), x(5, 3), x(D, 3), x(D, 3))),
    "_LinkedSums": (linked, (x(B, H, T, D), x(5, 3), x(D, 3), x(D, 3), x(B, H, T, S))),
    "AngleRotation": (lambda q, a: angle_rotation.rotate_by(q, a, "halves"), (x(B, H, T, D), x(T, 1))),
    "DistanceScores": (lambda q, r: distance_products.DistanceScores.apply(q, r, S, LAYOUT), (x(B, H, T, D), x(H, W, D))),
    "DistanceSums": (lambda w, r: distance_products.DistanceSums.apply(w, r, LAYOUT), (x(B, H, T, S), x(H, W, D))),
    "ContextualScores": (
        lambda scores, products: contextual.ContextualScores.apply(scores, products, torch.ones(1, S), False),
        (x(B, H, T, S), x(B, H, T, 3)),
    ),
    "InterpolatedScores": (
        lambda scores, products: contextual.InterpolatedScores.apply(scores, products, torch.ones(1, S), False),
        (x(B, H, T, S), x(B, H, T, 3)),
    ),
    "InterpolatedBothWays": (
        lambda scores, products: contextual.InterpolatedBothWays.apply(scores, products, torch.ones(1, S), DISTANCE > 0, 0),
        (x(B, H, T, S), x(B, H, T, 4)),
    ),
    "DecayedProducts": (
        lambda q, k, p: decayed_products.DecayedProducts.apply(q, k, p, decayed_products.Halves.of(T, q.device)),
        (x(B, H, T, D), x(B, H, S, D), x(B, H, S, D)),
    ),
    "GateSums": (lambda edges: gate_sums.GateSums.apply(edges, DISTANCE <= 0, False), (x(B, H, T, S),)),
    "Parabolas": (
        lambda centres, windows: parabolas.Parabolas.apply(centres, windows, torch.arange(S)[None, None, None], torch.float64),
        (x(B, H, T, 1), x(B, H, T, 1)),
    ),
    "PolarCoordinates": (
        lambda q, a: polar.PolarCoordinates.apply(q, a, torch.stack([a.detach().cos(), a.detach().sin()], -2)),
        (x(B, H, T, D), x(H, T, D)),
    ),
    "RungeKutta": (steps, (x(1, 1, 2, 2), x(1, 4, 3), x(2, 2, 1, 1, 3), x(1, 3, 4), x(2, 2, 1, 1, 4))),
    "StickBreakingLogits": (
        lambda scores: stick_breaking.StickBreakingLogits.apply(scores, SIDES, DISTANCE == 0, 1),
        (x(B, H, T, S),),
    ),
    "TokenLosses": (lambda logits: token_losses.TokenLosses.apply(logits, torch.tensor([1, 0, 4]), 0)[0], (x(T, 5),)),
    "UnitLength": (unit_length.UnitLength.apply, (x(B, T, D),)),
    "_Features": (spe._Features.apply, (x(B, H, T, D), x(1, H, T, 3, D))),
    "_Codes": (codes, (x(B, H, T, D), x(H, 2, D), x(H, 2, D), x(H, 2, D), x(H, D))),
    "GatedProduct": (
        lambda q, k, gate: huang.GatedProduct.apply(q, k, gate, INDEX[:1], None, False),
        (x(B, H, T, D), x(B, H, S, D), x(H, 5, D)),
    ),
}


def functions() -> set[str]:
    """Return the names of all autograd functions of the package. Those of the benchmark compute no numbers, and are left out."""
    found, package = set(), Path(fairseq_posenc.__file__).parent
    for path in set(package.rglob("*.py")) - set((package / "bench").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and any("autograd.Function" in ast.unparse(base) for base in node.bases):
                found.add(node.name)
    return found


def test_every_function_is_in_one_of_the_tables():
    assert functions() == RIGHT.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", RIGHT)
def test_second_derivative(name):
    assert gradgradcheck(*RIGHT[name])


@pytest.mark.parametrize("name", REFUSED)
def test_a_second_derivative_that_is_not_implemented_raises(name):
    """The error is raised as soon as a graph for second derivatives is created, even if these derivatives are not used.

    Without the error, second derivatives with respect to other inputs could lack a term, without a message.
    """
    function, inputs = REFUSED[name]
    out = function(*inputs)
    torch.autograd.grad(out.square().sum(), inputs, retain_graph=True)
    with pytest.raises(PositionError, match="second derivatives") as error:
        torch.autograd.grad(out.sum(), inputs, create_graph=True)
    assert "\n" not in str(error.value)
