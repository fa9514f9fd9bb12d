"""Pairs of channels turned by angles: in place of complex numbers, with the gradient that turns back."""

import pytest
import torch

from fairseq_posenc.contract import AttentionContext, Positions
from fairseq_posenc.ops.rotation import every_channel, once, rotate
from tests.contract.models import close

LAYOUTS = ["halves", "interleaved"]


def waves(pairs, dtype=torch.float64):
    angles = torch.randn(5, pairs, dtype=dtype)
    return angles.sin(), angles.cos()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pairs", [1, 2, 4])
def test_pairs_are_complex_numbers(layout, pairs):
    x, (sin, cos) = torch.randn(2, 3, 5, 8, dtype=torch.float64), waves(pairs)
    found = rotate(x, every_channel(sin, cos, layout, 8), pairs, layout)
    first, second = (
        (slice(pairs), slice(pairs, 2 * pairs)) if layout == "halves" else (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
    )
    turned = torch.complex(x[..., first], x[..., second]) * torch.complex(cos, sin)
    close(found[..., first], turned.real, 1e-14)
    close(found[..., second], turned.imag, 1e-14)
    assert torch.equal(found[..., 2 * pairs :], x[..., 2 * pairs :])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients(layout):
    x, at = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True), every_channel(*waves(2), layout, 6)
    torch.autograd.gradcheck(lambda x: rotate(x, at, 2, layout), x)
    torch.autograd.gradgradcheck(lambda x: rotate(x, at, 2, layout), x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_half_precision_is_rounded_once(layout):
    x, at = torch.randn(3, 5, 8).bfloat16(), every_channel(*waves(4, torch.float32), layout, 8)
    assert torch.equal(rotate(x, at, 4, layout), rotate(x.float(), at, 4, layout).bfloat16())


def test_waves_are_made_once_a_forward():
    method, at, asked = object(), Positions.counted(0, 3), []

    def waves(key):
        return once(ctx, method, key, lambda: (asked.append(key), torch.ones(1))[::-1])

    for forward in (1, 2):
        ctx = AttentionContext("encoder", at, at, drawn={method: {}})
        assert all(waves("q") is waves("q") and waves("k") is not waves("q") for _ in range(3))
        assert asked == ["q", "k"] * forward
