"""The plotted numbers, compared with the equations of the papers."""

import math

import pytest
import torch

from fairseq_posenc import registry
from fairseq_posenc.plotting import matrices as quantities
from fairseq_posenc.plotting import panels
from fairseq_posenc.plotting.matrices import matrices
from fairseq_posenc.plotting.scales import Scale, scale_of
from fairseq_posenc.plotting.sources import fresh

LENGTH = 20
CELLS = [(t, s) for t in range(LENGTH) for s in range(LENGTH)]


def drawn(spec, site="encoder", length=LENGTH, **options):
    (panel,) = panels.of_sources([spec], length, site=site, **options)
    return panel


def table(value, length=LENGTH):
    """Return the matrix [T, S] of value(query, key). If value returns None (a hidden key), the entry is nan."""
    rows = [[value(t, s) for s in range(length)] for t in range(length)]
    return torch.tensor([[math.nan if number is None else number for number in row] for row in rows])


def assert_close(found, wanted):
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("head", range(8))
def test_alibi_is_its_slope_times_the_distance(head):
    panel = drawn("alibi", "decoder", head=head)
    assert panel.quantity == quantities.CHANGE
    assert_close(panel.values, table(lambda t, s: -(2.0 ** -(head + 1)) * (t - s) if s <= t else None))


def test_the_mean_over_heads():
    mean = sum(2.0 ** -(head + 1) for head in range(8)) / 8
    assert_close(drawn("alibi_symmetric").values, table(lambda t, s: -mean * abs(t - s)))


def test_rope_is_the_mean_cosine_of_its_angles():
    panel = drawn("rope")
    assert panel.quantity == quantities.SCORE
    assert_close(panel.values, table(lambda t, s: sum(math.cos((s - t) * 10000 ** (-i / 32)) for i in range(32)) / 32))


def test_sinusoids_are_alike_by_the_mean_cosine_of_their_angles():
    panel = drawn("sinusoidal:grid=paper,layout=interleaved,origin=zero")
    assert (panel.quantity, panel.heads) == (quantities.COSINE, "")
    assert_close(panel.values, table(lambda t, s: sum(math.cos((s - t) * 10000 ** (-2 * k / 512)) for k in range(256)) / 256))


def test_positions_that_multiply_words_are_alike_as_those_of_one_word():
    """Complex embeddings rotate each pair of channels.

    The cosine similarity of one word at two positions is a mean over the pairs. The term of a pair is the cosine of the angle
    between its two rotations.
    """
    found = drawn("complex:frequencies=dimension,learned=false")
    assert found.quantity == quantities.COSINE
    angles = [10000 ** (-2 * (i // 2) / 256) for i in range(256)]
    assert_close(found.values, table(lambda t, s: sum(math.cos((s - t) * w) for w in angles) / 256))


def test_t5_shares_buckets():
    positions = fresh("t5:buckets=8,max_distance=16", "encoder", LENGTH)
    with torch.no_grad():
        positions.methods[0].weight[:] = torch.arange(8.0)
    (matrix,) = matrices(positions, LENGTH)
    # Each side has 4 buckets. Distances 0 and 1 have buckets 0 and 1. Distances from 2 to 5 have bucket 2, larger distances
    # have bucket 3. For a distance x >= 2, the bucket is 2 + floor(2 ln(x / 2) / ln 8), but at most 3.
    near = [0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
    for values in matrix.values:
        assert_close(values, table(lambda t, s: float(near[abs(s - t)] + 4 * (s > t))))


def test_window_hides_what_is_outside_of_it():
    assert_close(drawn("window:width=6").values, table(lambda t, s: 1.0 if abs(s - t) <= 3 else None))
    assert_close(drawn("window:width=6", "decoder").values, table(lambda t, s: 1.0 if 0 <= t - s <= 3 else None))


def test_disan_hides_one_side_in_every_head():
    assert_close(drawn("disan", head=0).values, table(lambda t, s: 1.0 if s < t else None))
    assert_close(drawn("disan", head=7).values, table(lambda t, s: 1.0 if s > t else None))


def test_gaussian_is_the_density_around_a_neighbour():
    for head, offset in ((0, -1), (1, 1)):
        panel = drawn("gaussian", head=head)
        assert panel.quantity == quantities.WEIGHT
        density = table(lambda t, s, offset=offset: math.exp(-((s - t - offset) ** 2) / 2) / math.sqrt(2 * math.pi))
        assert_close(panel.values, density)


def test_compressed_keys_are_spread_over_the_keys_again():
    """All keys have equal content. Compressed keys differ only in the sum of their mixing weights and in their positions."""
    positions = fresh("diet_linformer:rank=3", "encoder", LENGTH)
    method = positions.methods[0]
    (matrix,) = matrices(positions, LENGTH)
    mixer = method.key_mixer[0, :, :LENGTH].double()
    # A compressed key is the content times the sum of its mixing weights. The scaled product of the content with itself is 1.
    content = mixer.sum(1)
    for head in range(8):
        bias = method.query_positions[0, head, :LENGTH].double() @ method.key_positions[0, head].double().T
        wanted = (content + bias).softmax(-1) @ mixer
        assert_close(matrix.values[head], wanted.detach().float())


def test_what_positions_multiply_is_shown_as_the_change():
    positions = fresh("huang2", "encoder", LENGTH)
    with torch.no_grad():
        positions.methods[0].factor[:] = torch.arange(-127.0, 128) / 10
    (matrix,) = matrices(positions, LENGTH)
    assert_close(matrix.values[0], table(lambda t, s: (s - t) / 10 - 1))


def test_both_are_drawn_where_positions_join_words_and_scores():
    found = panels.of_sources(["sinusoidal+alibi_symmetric"], LENGTH, site="encoder")
    assert [panel.quantity for panel in found] == [quantities.COSINE, quantities.CHANGE]
    assert_close(found[0].values, drawn("sinusoidal").values)
    assert_close(found[1].values, drawn("alibi_symmetric").values)


@pytest.mark.parametrize("name", registry.names())
def test_every_method_has_something_to_see_at_all_its_sites(monkeypatch, name):
    monkeypatch.setattr(quantities, "_DRAWS", 2)  # the mean of random scores does not matter here
    for site in registry.card(name).all_sites:
        for panel in panels.of_sources([name], 8, site=site, head=0, seed=1):
            seen = ~panel.values.isnan()
            assert panel.values.shape == (8, 8) and seen.any() and panel.values[seen].isfinite().all()
            if site == "decoder" and panel.quantity != quantities.COSINE:
                assert not seen.triu(1).any()
            elif "mask" not in registry.method_class(name)._overridden:
                assert seen.all()


def test_nothing_random_is_drawn_nor_disturbed():
    """Noise and initial values are equal in every call. The state of the caller's random number generator does not change."""
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    first = panels.of_sources(["spe_sine:exact=false", "shaw", "huang1"], 6, seed=3)
    assert torch.rand(3).equal(wanted)
    for one, two in zip(first, panels.of_sources(["spe_sine:exact=false", "shaw", "huang1"], 6, seed=3)):
        assert one.values.equal(two.values)


def test_noise_is_averaged():
    exact, averaged = (drawn(f"spe_sine:{option}", head=0).values for option in ("exact=true", "exact=false"))
    torch.testing.assert_close(exact, averaged, atol=0.05, rtol=0)


def test_a_layer_and_parameters_that_change_nothing_yet():
    assert drawn("huang1").origin == "initial: no change yet" and not drawn("huang1").values.any()
    assert drawn("huang1", seed=1).origin == "drawn with seed 1" and drawn("huang1", seed=1).values.any()
    assert drawn("t5", seed=1).origin == "initial" and drawn("alibi_symmetric").origin == ""
    assert drawn("t5:layers=2").quantity == quantities.SCORE  # layer 0 does not use positions
    assert drawn("t5:layers=2", layer=2).quantity == quantities.CHANGE


def test_the_sites_of_the_authors_are_the_default():
    sites = {spec: drawn(spec, None).site for spec in ("alibi", "shortformer", "xpos", "t5", "gaussian")}
    assert sites == {"alibi": "decoder", "shortformer": "decoder", "xpos": "decoder", "t5": "encoder", "gaussian": "encoder"}


def test_the_curves_of_a_panel():
    panel = drawn("alibi", "decoder", length=4, head=0)
    assert panels.row_of(panel, 2) == ([0, 1, 2], [-1.0, -0.5, 0.0])
    assert panels.decay_of(panel) == ([-3, -2, -1, 0], [-1.5, -1.0, -0.5, 0.0])


@pytest.mark.parametrize(
    ("numbers", "scale"),
    [
        ([-1.0, math.nan, 3.0], Scale(-3, 3, 0.0, 1.0)),
        ([0.5, 2.0], Scale(0.5, 2, 0.5, 1.0)),
        ([-4.0, 0.0], Scale(-4, 0, 0.0, 0.5)),
        ([1.0, 1.0 + 1e-7], Scale(0, 2, 0.5, 1.0)),
        ([0.0, 0.0], Scale(0, 1, 0.5, 1.0)),
        ([math.nan], Scale(0, 1, 0.5, 1.0)),
    ],
)
def test_white_is_0_or_the_number_nearest_to_it(numbers, scale):
    found = scale_of(torch.tensor(numbers))
    assert (found.first, found.last) == (scale.first, scale.last)
    assert (found.low, found.high) == pytest.approx((scale.low, scale.high))
