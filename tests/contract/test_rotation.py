"""Rotation of pairs of channels by angles, compared with complex numbers. The gradient is the opposite rotation."""

import pytest
import torch

from fairseq_posenc.attention.site_positions import SitePositions
from fairseq_posenc.core import AttentionContext, Positions
from fairseq_posenc.ops.kernels.angle_rotation import rotate_by
from fairseq_posenc.ops.rotation import every_channel, rotate
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing.models import close
from tests.contract.cases import SMALL

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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 3, 5, 2), (1, 3, 5, 2), (2, 1, 5, 2), (5, 2)])
def test_angles_have_a_gradient(layout, shape):
    """Test angles that sentences or heads share, and channels that are not rotated."""
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    angles = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    close(rotate_by(x, angles, layout), rotate(x, every_channel(angles.sin(), angles.cos(), layout, 6), 2, layout), 1e-14)
    torch.autograd.gradcheck(lambda x, angles: rotate_by(x, angles, layout), (x, angles))


def test_the_gradient_of_one_angle():
    x, angle = torch.tensor([0.3, -0.8], dtype=torch.float64), torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    rotate_by(x, angle, "halves").backward(torch.tensor([1.2, 0.4], dtype=torch.float64))
    assert angle.grad.item() == pytest.approx(0.8002608548, abs=1e-10)


def test_what_layers_share_is_made_once_a_forward():
    asked = []
    dims = SMALL.at("encoder")
    positions = SitePositions(parsing.build("rope", dims, "encoder"), dims, "encoder")
    at = Positions.counted(0, 3)
    for forward in (1, 2):
        ctx = positions.begin(AttentionContext(at, at))
        layers = [positions.at_layer(ctx, layer) for layer in range(2)]
        found = [layer.once(key, lambda key=key: asked.append(key) or object()) for layer in layers for key in ("q", "k")]
        assert found[0] is found[2] and found[1] is found[3] and found[0] is not found[1]
        assert asked == ["q", "k"] * forward


@pytest.mark.parametrize("name", ["carope", "selective_rope"])
def test_angles_of_words_are_computed_once_for_queries_and_keys(name, monkeypatch):
    """The first rotation of keys reuses the angles of the queries. These angles are then removed.

    No angles therefore remain for another layer, and a second rotation of keys computes the angles again.
    """
    method = parsing.build(name, SMALL.at("decoder"), "decoder")[0]
    calls, compute = [], type(method).angles
    monkeypatch.setattr(type(method), "angles", lambda self, ctx: calls.append(1) or compute(self, ctx))
    torch.manual_seed(79)
    at, x = Positions.counted(0, 5), torch.randn(2, 5, SMALL.embed_dim)
    ctx, q = AttentionContext(at, at, causal=True, inputs=(x, x)), torch.randn(2, SMALL.num_heads, 5, SMALL.head_dim)
    rotated = [method.rotate(which, q, at, ctx) for which in ("query", "key", "key")]
    assert len(calls) == 2
    assert all(torch.equal(rotated[0], other) for other in rotated[1:])
