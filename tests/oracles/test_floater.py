"""FLOATER: exact values, properties of paths, gradients, and errors."""

import sys

import numpy as np
import pytest
import torch

from fairseq_posenc.attention.site_positions import SitePositions
from fairseq_posenc.core import AttentionContext, Dims, PositionError, Positions, State
from fairseq_posenc.methods.absolute.floater import Floater, _Velocity
from fairseq_posenc.ops.sinusoids import sinusoid
from fairseq_posenc.registry import spec as parsing

from .cases import randomise

DIMS = Dims(8, 2, 2, 12, 12)


def method(options: str, dims=DIMS):
    torch.manual_seed(0)
    return parsing.build(f"floater:{options}", dims.at("encoder"), "encoder")[0]


def paths(floater, count: int, state=None):
    """Return the paths of the first positions: [streams, layers, n, C].

    n equals `count`. If `state` is given (decoding), n is rounded up to a multiple of the block size.
    """
    at = Positions.counted(0, count)
    return torch.stack([torch.stack(layers) for layers in floater.prepare(AttentionContext(at, at, state=state))])


def test_without_velocity_a_path_stays_where_it_begins():
    floater = method("start=random")
    with torch.no_grad():
        floater.flow_out.zero_()
    found = paths(floater, 70)
    assert torch.equal(found, found[:, :, :1].expand_as(found)) and found[0, 0, 0].abs().min() > 0
    assert torch.equal(found[:, :, 0].flatten(0, 1), floater.first[0])


def test_it_begins_as_sinusoids_of_any_length_and_odd_width():
    for width in (8, 7):
        found = paths(method("at=input", Dims(width, 1, 1)), 700)[0, 0]
        expected = sinusoid(torch.arange(700), width, "halves", "paper")[:, : width // 2 * 2]
        np.testing.assert_allclose(found[:, : width // 2 * 2].detach(), expected, rtol=0, atol=2e-6)


def test_one_step_towards_zero():
    """For p > 0, the network computes h(p) = -p: ReLU, then multiplication by -1.

    The test starts at p = 1 and computes one Runge-Kutta step of size 0.1.
    """
    floater = method("start=random,at=input,delta=0.1").double()
    with torch.no_grad():
        for parameter, value in (
            (floater.first, torch.ones(8)),
            (floater.flow_in, torch.eye(9, 8)),
            (floater.flow_out, -torch.eye(9, 8)),
        ):
            parameter.copy_(value.expand_as(parameter))
    found = paths(floater, 2)[0, 0, 1]
    assert found.tolist() == pytest.approx([1 - 0.1 + 0.1**2 / 2 - 0.1**3 / 6 + 0.1**4 / 24] * 8, abs=1e-12)
    assert found[0].item() == pytest.approx(0.9048375, abs=1e-7)


@pytest.mark.parametrize("options", ["share=all", "start=random,substeps=3"])
def test_a_longer_sentence_has_the_same_path_to_the_last_bit(options):
    floater = randomise(method(options)).float()
    long = paths(floater, 40)
    for count in (1, 2, 31, 32, 33):
        assert torch.equal(paths(floater, count), long[:, :, :count])


def test_decoding_continues_the_path_that_it_keeps():
    floater, state = randomise(method("substeps=2")).float(), State({})
    expected = paths(floater, 70)
    lengths = []
    for count in range(1, 71):
        found = paths(floater, count, state)
        lengths.append(found.size(2))
        assert torch.equal(found[:, :, :count], expected[:, :, :count])
    assert sorted(set(lengths)) == [32, 64, 96]


@pytest.mark.parametrize(
    "options, tolerance", [("solver=rk4", 1e-7), ("start=random,share=none", 1e-7), ("adjoint=true,substeps=20", 1e-3)]
)
def test_gradients_are_finite_differences(options, tolerance):
    floater = method(options).double()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in floater.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    weight = torch.randn(3, 2, 10, 8, dtype=torch.double)
    loss = lambda: (paths(floater, 10) * weight).sum()  # noqa: E731
    loss().backward()
    for name, parameter in floater.named_parameters():
        way, ends = torch.randn_like(parameter), []
        with torch.no_grad():
            for sign in (1, -2):
                parameter.add_(way, alpha=sign * 1e-5)
                ends.append(loss())
            parameter.add_(way, alpha=1e-5)
        expected = (ends[0] - ends[1]).item() / 2e-5
        assert (parameter.grad * way).sum().item() == pytest.approx(expected, rel=tolerance, abs=tolerance), name
        assert abs(expected) > 1e-6, name


def test_networks_are_shared_as_asked_for():
    counts = {share: method(f"share={share}").flow_in.size(0) for share in ("all", "layers", "none")}
    assert counts == {"all": 1, "layers": 3, "none": 6}


@pytest.mark.parametrize(
    "options, site, says",
    [
        ("at=input", "cross", "at=input is not supported at site cross"),
        ("at=input,share=none", "encoder", "share=none has no effect with at=input"),
        ("delta=0", "encoder", "delta='0' is not allowed"),
        ("substeps=0", "encoder", "substeps='0' is not allowed"),
        ("solver=dopri5", "encoder", "solver='dopri5' is not allowed. Expected one of rk4, midpoint, euler"),
    ],
)
def test_options_that_cannot_be(options, site, says):
    with pytest.raises(PositionError, match=says):
        parsing.build(f"floater:{options}", DIMS.at(site), site)


def test_keys_of_another_width_are_refused():
    with pytest.raises(PositionError, match=r"queries have width 8 and keys have width 12.*the same --encoder-embed-dim"):
        parsing.build("floater", Dims(8, 2, key_embed_dim=12, cross=True), "cross")


def test_without_the_library_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchdiffeq", None)
    with pytest.raises(PositionError) as error:
        method("share=all")
    assert str(error.value) == "floater: torchdiffeq is not installed. Install it with pip install torchdiffeq."


def test_a_path_that_does_not_converge_is_one_line():
    floater = method("start=random,delta=1")
    with torch.no_grad():
        floater.flow_in.fill_(100.0)
        floater.flow_out.fill_(100.0)
    with pytest.raises(PositionError, match=r"is not finite\. Train with a smaller --lr") as error:
        paths(floater, 40)
    assert "\n" not in str(error.value)


def test_fractions_of_positions_are_refused():
    positions = SitePositions([method("at=input")], DIMS.at("encoder"), "encoder")
    at = Positions(torch.tensor([[0.5, 1.5]]))
    ctx = positions.begin(AttentionContext(at, at))
    with pytest.raises(PositionError, match="integer positions only"):
        positions.embed(torch.zeros(1, 2, 8), torch.tensor([[7, 7]]), ctx)


@pytest.mark.parametrize("solver", ["rk4", "midpoint", "euler"])
@pytest.mark.parametrize("substeps, start, width", [(1, "sinusoidal", 8), (3, "sinusoidal", 8), (3, "random", 9)])
def test_the_steps_are_those_of_torchdiffeq(solver, substeps, start, width):
    torchdiffeq = pytest.importorskip("torchdiffeq")
    torch.manual_seed(1)
    options = Floater.Options(solver=solver, substeps=substeps, start=start, delta=0.1)
    method = Floater(options, Dims(width, 1, 2, 64, 64)).double()
    for parameter in method.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    state, times = method.first.detach(), torch.arange(3, 13, dtype=torch.float64)
    velocity = _Velocity(method, state)
    grid = {"grid_constructor": lambda func, state, times: torch.linspace(3, 12, 9 * substeps + 1, dtype=torch.float64)}
    solved = torchdiffeq.odeint(velocity, velocity.turned(state, -times[0]), times, method=solver, options=grid)
    expected = velocity.turned(solved[1:], times[1:, None, None, None])
    found = method.turned(method.continued(velocity.turned(state, -times[0]), 3, 12), times[1:])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
