"""Methods at the input: exact values from their specifications, and the random positions in training."""

import math

import numpy as np
import pytest
import torch

import fairseq_posenc as posenc
from fairseq_posenc.core import AttentionContext, Dims, ForwardStore, PositionError, Positions
from fairseq_posenc.registry import spec as parsing

from .test_values import PAPER, close, embedded, method

N = 12  # number of positions of the methods that `method` builds


def drawn(name, rows=2000, length=N, pair_draws=None, training=True, seed=5):
    """Return the positions [B, T] of sentences of one length."""
    torch.manual_seed(seed)
    at = Positions.counted(0, length)
    ctx = AttentionContext(at, at, store=ForwardStore(pair_draws={} if pair_draws is None else pair_draws))
    return method(name).train(training).positions(at.ids.expand(rows, -1), ctx)


def bits(spec, like, ids=(0, 1, 2, 7, 11, 400)):
    assert embedded(spec, list(ids), 16).tobytes() == embedded(like, list(ids), 16).tobytes()


# -- mvPE ----------------------------------------------------------------------------------------------------------------


def test_mvpe_values():
    close(embedded("mvpe", [1], 4), [[0.8268795, 0.5623791, -0.5440211, -0.8390715]])
    bits("mvpe:k=1", PAPER)


@pytest.mark.parametrize("k, expected", [(1, 13.796), (1000, 422.06)])
def test_neighbours_of_mvpe_differ_alike_everywhere(k, expected):
    table = embedded(f"mvpe:k={k}", [0, 1, 500, 501, 1025, 1026], 512)
    for t in (0, 2, 4):
        assert np.square(table[t + 1] - table[t]).sum() == pytest.approx(expected, abs=5e-3)


# -- axial ---------------------------------------------------------------------------------------------------------------


def test_axial_sizes():
    dims = Dims(512, 8, 6, 1024, 1024)
    card = posenc.card("axial")
    assert card.count(parsing.parse("axial").methods[0].options, dims) == 16384
    hf = parsing.parse("axial:rows=64,columns=64,row_width=64").methods[0].options
    assert card.count(hf, Dims(256, 8, 6, 4096, 4096)) == 16384


def test_axial_positions_of_a_segment_share_their_row():
    axial = method("axial:rows=3,columns=4")
    at = Positions.counted(0, N)
    grid = axial.embed(torch.zeros(1, N, 16), torch.zeros(1, N).long(), AttentionContext(at, at))[0].detach().view(3, 4, 16)
    # the channels of the row precede the channels of the column
    assert torch.equal(grid[:, :, :8], grid[:, :1, :8].expand(-1, 4, -1))
    assert torch.equal(grid[:, :, 8:], grid[:1, :, 8:].expand(3, -1, -1))
    assert len({tuple(row.tolist()) for row in grid.flatten(0, 1)}) == N


@pytest.mark.parametrize(
    "options, says",
    [
        ("rows=3,columns=3", r"rows=3 times columns=3 is 9 positions\. Expected at least .* 12\. Use rows=4"),
        ("row_width=16", r"row_width=16 is not allowed.* less than the embedding dimension 16"),
        ("row_width=4,combine=sum", r"row_width=4 is not allowed\. Expected combine=concatenation"),
    ],
)
def test_axial_refusals(options, says):
    with pytest.raises(PositionError, match=says) as error:
        method(f"axial:{options}")
    assert "\n" not in str(error.value)


# -- scaled sinusoids and Fourier features -------------------------------------------------------------------------------


def test_scaled_sinusoids_of_scale_one_are_sinusoids():
    bits("scaled_sinusoidal", "sinusoidal:grid=paper,origin=zero")
    assert method("scaled_sinusoidal:start=0.5").scale_of_sinusoids.tolist() == [0.5]


def test_fourier_sizes_and_frequencies():
    options = parsing.parse("fourier").methods[0].options
    assert posenc.card("fourier").count(options, Dims(512, 8, 6, 1024, 1024)) == 41888
    torch.manual_seed(1)
    frequencies = method("fourier:features=20000,gamma=4").frequencies
    assert frequencies.mean().item() == pytest.approx(0, abs=0.01) and frequencies.std().item() == pytest.approx(0.25, rel=0.03)


def test_fourier_refuses_odd_features():
    with pytest.raises(PositionError, match=r"features=7 is odd.* Use features=8"):
        method("fourier:features=7")


# -- numbers that are not finite -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["inf", "nan", "1e999"])
@pytest.mark.parametrize(
    "option", ["cape:scale", "cape:shift", "cape:ratio", "mvpe:k", "fourier:gamma", "scaled_sinusoidal:start"]
)
def test_scales_that_are_not_finite_are_refused(option, value):
    with pytest.raises(PositionError, match=f"{option.split(':')[1]}='{value}' is not allowed"):
        parsing.parse(f"{option}={value}")


# -- positions drawn in training -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shape", "randomised:stride=1", "cape:scale=1.5"])
def test_evaluation_draws_nothing(name):
    ids = Positions.counted(0, N).ids
    generator = torch.get_rng_state()
    assert drawn(name, 1, training=False, seed=0).equal(ids)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    method(name).eval().positions(ids, AttentionContext(Positions(ids), Positions(ids)))
    assert torch.equal(torch.get_rng_state(), before)
    torch.set_rng_state(generator)
    assert not torch.equal(*drawn(name, 2))


@pytest.mark.parametrize("spec", ["shape", "randomised:stride=1", "cape"])
def test_evaluation_is_that_of_sinusoids(spec):
    bits(spec, PAPER)


def test_shape_draws():
    ids = drawn("shape:shift=3")
    shift = ids[:, :1]
    assert torch.equal(ids - shift, torch.arange(N).expand(2000, -1))
    counts = torch.bincount(shift.flatten(), minlength=4)
    assert len(counts) == 4 and counts.min() > 420 and not ids.is_floating_point()
    assert drawn("shape:shift=3,start=K", 1, training=False).tolist() == [list(range(3, N + 3))]
    assert drawn("shape:shift=0", 2).tolist() == [list(range(N))] * 2


def test_randomised_draws():
    ids = drawn("randomised:factor=3", 4000, 5)
    assert (ids.diff() > 0).all() and ids.min() == 0 and ids.max() == 3 * N - 1
    counts = torch.bincount(ids.flatten(), minlength=3 * N)  # each position is expected 555 times
    assert counts.min() > 470 and counts.max() < 640
    assert drawn("randomised:factor=1", 3).tolist() == [list(range(N))] * 3  # N tokens use all N positions


@pytest.mark.parametrize(
    "options, count, first",  # number of available positions, and the first positions
    [
        ("", 2048, [0, 60, 114, 162, 206]),
        ("factor=1", 1024, [0, 1, 2, 3]),
        ("stride=1", 2048, [0, 1, 2, 3]),
        ("factor=40", 40960, [0, 1240, 2406]),
        ("factor=3,stride=5", 3072, [0, 4, 9, 14]),
        ("factor=1000,stride=65536", 1024000, [0, 61590]),
    ],
)
def test_randomised_positions_of_evaluation_stay_in_the_range_of_training(options, count, first):
    """In the longest sentence, all positions are distinct and less than `count`.

    With the constant stride count / 32, token 32 would have the position `count`.
    """
    built = parsing.build(f"randomised:{options}" if options else "randomised", Dims(16, 4, 1, 1024, 1024), "encoder")[0].eval()
    found = built.positions(torch.arange(1024).unsqueeze(0), None)[0]
    assert found[: len(first)].tolist() == first
    assert (found.diff() > 0).all() and found[-1] < count == built.reach(1024)


def test_randomised_positions_follow_ids():
    """With padding on the left, columns are not positions."""
    torch.manual_seed(3)
    ids = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])
    found = method("randomised").train().positions(ids, None)
    assert found[0, 0] == found[0, 1] == found[0, 2] < found[0, 3] < found[0, 4]
    assert (found[1].diff() > 0).all()


def test_cape_draws():
    lmax = 1.5
    ids = drawn("cape:shift=4,jitter=0,scale=1.5")
    scale = ids.diff()[:, :1]  # without jitter, the difference between neighbouring positions equals the scale
    close(ids.diff().numpy(), scale.expand(-1, N - 1).numpy(), atol=1e-4)
    assert 1 / lmax - 1e-4 < scale.min() < 1 / lmax + 0.01 and lmax - 0.01 < scale.max() < lmax + 1e-4
    assert scale.log().mean().item() == pytest.approx(0, abs=0.02)  # the logarithm of the scale is uniform, not the scale
    assert scale.log().std().item() == pytest.approx(math.log(lmax) / math.sqrt(3), rel=0.05)
    shift = ids[:, 0] / scale[:, 0]
    assert -4 < shift.min() < -3.9 and 3.9 < shift.max() < 4 and shift.mean().item() == pytest.approx(0, abs=0.2)


def test_cape_jitter():
    ids = drawn("cape:shift=0,jitter=0.5")
    jitter = ids - torch.arange(N)
    assert jitter.abs().max() <= 0.5 and jitter.abs().max() > 0.49 and (ids.diff() > 0).all()
    assert abs(np.corrcoef(jitter[:, 0], jitter[:, 1])[0, 1]) < 0.1  # each word has its own jitter


def test_cape_shift_alone_keeps_products():
    first, second = (
        embedded_at("cape:jitter=0", positions) for positions in (torch.arange(9.0), drawn("cape:jitter=0", 1, 9)[0])
    )
    close(first @ first.T, second @ second.T, atol=1e-5)
    assert np.abs(first - second).max() > 0.1


def embedded_at(spec, positions):
    at = Positions(positions[None])
    x = torch.zeros(1, len(positions), 16, dtype=torch.double)
    return method(spec).double().embed(x, torch.full((1, len(positions)), 7), AttentionContext(at, at))[0].numpy()


def test_cape_draws_once_for_both_sides():
    pair = {}
    source, target = (drawn(f"cape:jitter=0,shift={shift},scale=2", 50, 6, pair, seed=seed) for seed, shift in ((1, 5), (2, 10)))
    scale = source.diff()[:, :1]
    close(scale.numpy(), target.diff()[:, :1].numpy(), atol=1e-4)
    # both sides draw the same number between -1 and 1, and multiply it by their own option `shift`
    close((2 * source[:, :1] / scale).numpy(), (target[:, :1] / scale).numpy(), atol=1e-3)
    assert list(pair) == ["cape"] and pair["cape"].shape == (50, 2)


def test_cape_ratio_comes_before_the_draws():
    ids = drawn("cape:ratio=1.25,jitter=0,shift=5", 50)
    close(ids.diff().numpy(), np.full((50, N - 1), 1.25), atol=1e-5)
    assert ids[:, 0].abs().max() <= 5
