"""The exact values and properties that papers and reference code state."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import fairseq_posenc as posenc
from fairseq_posenc.core import AttentionContext, Dims, Positions
from fairseq_posenc.registry import spec as parsing

from .cases import randomise
from .oracle_alibi import slopes
from .oracle_at5 import place_in_table
from .oracle_t5 import bucket

C, H = 16, 4


def method(spec, site="encoder", width=C, heads=H, layers=1):
    return parsing.build(spec, Dims(width, heads, layers, 12, 12).at(site), site)[0]


def embedded(spec, ids, width, heads=1):
    """Return the vectors that a method adds to zeros at these positions."""
    at = Positions(torch.tensor([ids]))
    x, tokens = torch.zeros(1, len(ids), width, dtype=torch.double), torch.full((1, len(ids)), 7)
    return method(spec, width=width, heads=heads).double().embed(x, tokens, AttentionContext(at, at))[0].detach().numpy()


def attention(spec, site="encoder", heads=H, width=C, seed=0):
    torch.manual_seed(seed)
    return randomise(posenc.build_attention(spec, width, heads, site=site, max_positions=12))


def same_projections(*modules):
    for module in modules[1:]:
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            getattr(module, name).load_state_dict(getattr(modules[0], name).state_dict())


def fill(parameter, value):
    with torch.no_grad():
        parameter.copy_(torch.as_tensor(value, dtype=parameter.dtype).expand_as(parameter))


def biases(attn, deltas):
    """Return the logits [H, deltas] of zero vectors. The query is far from position 0."""
    fill(attn.q_proj.weight, 0.0), fill(attn.q_proj.bias, 0.0)
    t = 1000
    x = torch.zeros(len(deltas), 1, attn.q_proj.in_features, dtype=torch.double)
    return attn.scores(x[:1], x, torch.tensor([t]), torch.tensor(deltas) + t)[0, :, 0].detach().numpy()


# -- sinusoids -----------------------------------------------------------------------------------------------------------

PAPER = "sinusoidal:layout=interleaved,grid=paper,origin=zero"


def close(ours, expected, atol=1e-6):
    np.testing.assert_allclose(ours, expected, rtol=0, atol=atol)


def test_sinusoids_of_the_paper():
    rows = [[0, 1, 0, 1], [0.8414710, 0.5403023, 0.0099998, 0.9999500], [0.9092974, -0.4161468, 0.0199987, 0.9998000]]
    close(embedded(PAPER, [0, 1, 2], 4), rows)


def test_sinusoids_of_fairseq():
    close(embedded("sinusoidal", [0], 4), [[0.9092974, 0.0002000, -0.4161468, 1.0]])
    close(embedded("sinusoidal", [0], 6), [[0.9092974, 0.0199987, 0.0002000, -0.4161468, 0.9998000, 1.0]])
    assert embedded("sinusoidal", [0, 5], 7)[:, -1].tolist() == [0, 0]
    close(embedded("sinusoidal", [0], 2), [[0.9092974, -0.4161468]])  # with width 2, fairseq's formula divides by zero


def test_last_frequencies():
    # The lowest frequency differs between grid=fairseq and grid=paper.
    assert embedded("sinusoidal:origin=zero", [1], 512, 8)[0, 255] == pytest.approx(1e-4, abs=1e-10)
    assert embedded("sinusoidal:grid=paper,origin=zero", [1], 512, 8)[0, 255] == pytest.approx(1.03663e-4, abs=1e-9)


def test_sinusoid_products():
    table = embedded(PAPER, list(range(40)), 4)
    for t in (0, 7, 25):
        for r, expected in ((0, 2.0), (1, 1.5402523), (2, 0.5836532), (10, 0.1559326)):
            assert table[t] @ table[t + r] == pytest.approx(expected, abs=1e-6)
    assert table[20] @ table[26] == pytest.approx(table[20] @ table[14], abs=1e-6)  # the product is the same in both directions
    close(np.linalg.norm(embedded("sinusoidal", [0, 3, 500], 512, 8), axis=1), 16, atol=1e-5)


@pytest.mark.parametrize("spec", [PAPER, "sinusoidal"])
def test_sinusoids_shift_linearly(spec):
    table = embedded(spec, list(range(30)), 4)
    shift = np.linalg.lstsq(table[:20], table[5:25], rcond=None)[0]
    close(table[10:25] @ shift, table[15:30], atol=1e-4)


def test_learned_positions_can_be_sinusoids():
    learned, sinusoidal = method("learned"), method("sinusoidal")
    at = Positions.counted(0, 9)
    ctx, tokens = AttentionContext(at, at), torch.full((1, 9), 7)
    fill(learned.weight[2:11], sinusoidal.embed(torch.zeros(1, 9, C), tokens, ctx)[0])
    x = torch.randn(1, 9, C)
    assert torch.equal(learned.embed(x, tokens, ctx), sinusoidal.embed(x, tokens, ctx))
    learned.embed(x, tokens, ctx).sum().backward()
    assert learned.weight.grad[:2].abs().sum() == 0  # rows up to the padding row are never used for a position


def test_universal_is_symmetric_in_position_and_step():
    universal, at = method("universal:first_step=0", layers=5).double(), Positions.counted(0, 5)
    ctx, zeros = AttentionContext(at, at), torch.zeros(1, 5, C, dtype=torch.double)
    added = torch.stack([universal.before_layer(zeros, ctx.replace(layer=layer))[0] for layer in range(5)])
    close(added, added.transpose(0, 1))


# -- the recurrent front end ---------------------------------------------------------------------------------------------


def test_gru_equals_torch():
    ours = randomise(method("rnn"))
    theirs = nn.GRU(C, C, batch_first=True).double()
    theirs.load_state_dict({name.removeprefix("gru."): p for name, p in ours.named_parameters()})
    x, at = torch.randn(2, 7, C).double(), Positions.counted(0, 7)
    out = ours.embed(x, torch.full((2, 7), 7), AttentionContext(at, at))
    close(out.detach(), theirs(x)[0].detach(), atol=1e-12)


def test_gru_in_closed_form():
    # Without weights and gate biases, both gates are 1/2. The state then halves its distance to the new value at every token.
    gru, at = method("rnn").double(), Positions.counted(0, 6)
    for name, parameter in gru.named_parameters():
        fill(parameter, 0.0)
        if "bias" in name:
            fill(parameter[2 * C :], 0.6 if "ih" in name else 0.8)
    out = gru.embed(torch.randn(1, 6, C).double(), torch.full((1, 6), 7), AttentionContext(at, at))
    expected = [(1 - 2.0**-t) * math.tanh(0.6 + 0.8 / 2) for t in range(1, 7)]
    close(out[0, :, 0].detach(), expected, atol=1e-12)


# -- tables --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec, value, site",
    [
        *((spec, 0.0, site) for spec in ("shaw", "t5", "at5") for site in ("encoder", "decoder", "cross")),
        *(("huang2", 1.0, site) for site in ("encoder", "decoder", "cross")),
    ],
)
def test_neutral_tables_are_plain_attention(spec, value, site):
    ours, plain = attention(spec, site), attention("none", site)
    same_projections(plain, ours)
    for parameter in ours.position.parameters():
        fill(parameter, value)
    x = torch.randn(6, 2, C).double()
    close(ours(x, x, x)[0].detach(), plain(x, x, x)[0].detach(), atol=1e-12)


def test_shaw_without_distance_adds_a_constant_to_each_query():
    ours, plain = attention("shaw:max_distance=0,values=false"), attention("none")
    same_projections(plain, ours)
    x = torch.randn(6, 2, C).double()
    added = (ours.scores(x, x) - plain.scores(x, x)).detach()
    assert added.abs().min() > 1e-6
    close(added, added[..., :1].expand_as(added), atol=1e-12)


def test_shaw_tied_equals_equal_tables():
    tied, two = attention("shaw:max_distance=2,tie=true"), attention("shaw:max_distance=2")
    same_projections(tied, two)
    assert [name for name, _ in tied.position.named_parameters()] == ["key_table"]
    for parameter in two.position.parameters():
        fill(parameter, tied.position.key_table.detach())
    x = torch.randn(6, 2, C).double()
    close(tied(x, x, x)[0].detach(), two(x, x, x)[0].detach(), atol=1e-12)


def test_huang2_tied_is_blind_to_direction():
    attn = attention("huang2")
    attn.position.factor.data.copy_(attn.position.factor.data + attn.position.factor.data.flip(-1))
    query, key = torch.randn(1, 1, C).double(), torch.randn(1, 1, C).double().expand(2, -1, -1)
    scores = attn.scores(query, key, torch.tensor([5]), torch.tensor([2, 8]))
    assert scores[0, :, 0, 0].tolist() == scores[0, :, 0, 1].tolist()


# -- buckets -------------------------------------------------------------------------------------------------------------

# smallest distance of each bucket, for 32 buckets and a largest distance of 128
BOTH = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
LEFT = [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
DELTAS = list(range(-300, 301))


def by_table(delta, both):
    if both:
        return sum(border <= abs(delta) for border in BOTH) - 1 + (16 if delta > 0 else 0)
    return sum(border <= max(-delta, 0) for border in LEFT) - 1


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_t5_buckets(site):
    both = site != "decoder"
    table = [by_table(delta, both) for delta in DELTAS]
    assert table == [bucket(delta, 32, 128, both) for delta in DELTAS]
    assert (16 in table) is not both
    attn = attention("t5", site)
    fill(attn.position.weight, torch.arange(32.0))
    assert np.array_equal(biases(attn, DELTAS), [table] * H)


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("buckets, largest", [(16, 128), (10, 40), (4, 9)])
def test_at5_without_interpolation_starts_as_t5(site, buckets, largest):
    sides = 1 if site == "decoder" else 2
    spec = f"at5:interpolate=false,buckets={buckets},max_distance={largest}"
    initial = {n: p.clone() for n, p in method(spec, site).named_parameters() if n != "weight"}
    at5, t5 = attention(spec, site), attention(f"t5:buckets={buckets * sides},max_distance={largest}", site)
    for name, value in initial.items():
        fill(at5.position.get_parameter(name), value)
    fill(t5.position.weight, at5.position.weight.flatten(2))
    deltas = [delta for delta in DELTAS if sides == 2 or delta <= 0]
    close(biases(at5, deltas), biases(t5, deltas), atol=1e-12)


def borders(at5):
    """Return alpha, below which every distance has its own bucket, and gamma, the learned largest distance."""
    at = Positions.counted(0, 1)
    return [border.flatten() for border in at5.borders(AttentionContext(at, at))]


@pytest.mark.parametrize("options", ["", "max_distance=2000", "buckets=32,max_distance=17.5", "borders=heads"])
def test_at5_starts_with_half_the_buckets_exact(options):
    at5 = method(f"at5:{options}")
    alpha, gamma = borders(at5)
    close(alpha.detach(), torch.full_like(alpha, at5.options.buckets / 2).detach())
    close((gamma / at5.options.max_distance).detach(), torch.ones_like(gamma).detach())


@pytest.mark.slow
@pytest.mark.parametrize("known", [40, 300])
def test_at5_learns_a_known_border(known):
    """The border starts at 128. If the parameter were the border itself, it would only move by 9 (300 steps with rate 0.03)."""
    at, target, at5 = Positions.counted(0, 2 * known), method(f"at5:max_distance={known}"), method("at5")
    for each in (target, at5):
        fill(each.weight, -torch.arange(16.0))
    ctx, optimizer = AttentionContext(at, at), torch.optim.Adam([at5.exact, at5.largest], lr=0.03)
    wanted = target.bias(ctx).detach()
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.mse_loss(at5.bias(ctx), wanted).backward()
        optimizer.step()
    for found, expected in zip(borders(at5), (8, known)):
        assert found.tolist() == pytest.approx([expected] * 2, rel=0.01)


def test_at5_is_continuous_and_monotone():
    beta = [place_in_table(a, 0.3, -2.0, 16, 128.0) for a in range(200)]
    assert beta == sorted(beta) and beta[0] == 0 and beta[-1] == 15
    attn = attention("at5:borders=shared")
    fill(attn.position.exact, 0.3), fill(attn.position.largest, -2.0), fill(attn.position.weight, torch.arange(16.0))
    close(biases(attn, [-a for a in range(200)]), [beta] * H, atol=1e-9)
    close(biases(attn, list(range(200))), [beta] * H, atol=1e-9)


@pytest.mark.parametrize("spec", ["at5", "at5:borders=heads", "at5:interpolate=false", "at5:max_distance=300"])
def test_at5_reads_checkpoints_with_borders_in_positions(spec):
    """In checkpoints of the first version, gamma is alpha + 1 + softplus(largest)."""
    at5, old = method(spec), dict(method(spec).state_dict())
    assert old["exact"].dim() == 3
    old["largest"] = torch.linspace(0.5, 130, 2 * old["exact"].size(1)).view_as(old["exact"])
    at5.load_state_dict(old)
    alpha, gamma = borders(at5)
    close((gamma - alpha - 1).detach(), nn.functional.softplus(old["largest"]).flatten(), atol=1e-3)
    again = method(spec)
    again.load_state_dict(at5.state_dict())
    assert torch.equal(again.largest, at5.largest)


# -- differences between authors ------------------------------------------------------------------------------------------


def test_gates_start_where_the_option_says():
    for spec, start in (("forgetting", 5.0), ("forgetting:start=0", 0.0)):
        gates = method(spec)
        assert set(torch.cat([gates.offset.flatten(), gates.right_offset.flatten()]).tolist()) == {start}


def test_sandwich_from_zero_has_a_cosine_of_frequency_one():
    bias = biases(attention("sandwich:width=2,first=0"), [-3, 0, 2])
    close(bias, [(np.cos([3, 0, 2]) - 1) / (8 * head / H) for head in range(1, H + 1)])


@pytest.mark.parametrize(
    "spec",
    [
        "t5:max_distance=1000000000000",
        "at5:buckets=100000000",
        "diet_abs:rank=100000000",
        "diet_linformer:rank=100000000",
        "dynamic_bias:depth=1000000",
        "fire:hidden=100000000",
        "sandwich:width=100000000",
        "segments:segments=100000",
    ],
)
def test_sizes_are_bounded(spec):
    with pytest.raises(posenc.PositionError, match=" from "):
        parsing.parse(spec)


@pytest.mark.parametrize("width", [1, 33])
def test_odd_windows_are_refused(width):
    with pytest.raises(posenc.PositionError, match=f"width={width} is odd.*width={width + 1}"):
        parsing.parse(f"window:width={width}")


# -- TUPE ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec, site", [("tupe_abs", "encoder"), ("tupe_rel", "encoder"), ("tupe_abs", "decoder")])
def test_tupe_unties_the_first(spec, site):
    attn = attention(f"{spec}:untie_first=true", site)
    fill(attn.q_proj.weight, 0.0), fill(attn.q_proj.bias, 0.0)
    x = torch.zeros(7, 1, C, dtype=torch.double)
    scores = attn.scores(x, x)[0].detach()
    close(scores[:, 0], scores[:, 0, :1].expand(-1, 7), atol=1e-12)
    close(scores[:, 1:, 0], scores[:, 1:2, 0].expand(-1, 6), atol=1e-12)
    assert (scores[:, 0, 0] - scores[:, 1, 0]).abs().min() > 1e-6


@pytest.mark.parametrize("untie_first", ["true", "false"])
@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_what_tupe_cannot_learn(site, untie_first):
    """Some parameters receive no gradient, because they are not used or add the same number to all scores of a query.

    In an encoder, theta 1 never receives a gradient. Theta 2 and the key bias receive a gradient only with untie_first=true.
    """
    attn = attention(f"tupe_rel:untie_first={untie_first}", site)
    x = torch.randn(12, 1, C, dtype=torch.double)
    attn(x, x, x)[0].square().sum().backward()
    tupe = attn.position
    never = [tupe.query_positions.embedding.weight.grad[0]] + [tupe.bucket_bias.grad[:, 16]] * (site == "encoder")
    assert all(grad.abs().max() < 1e-12 for grad in never)
    for grad in (tupe.key_proj.bias.grad, tupe.bucket_bias.grad[:, 32]):
        assert (grad.abs().max() > 1e-6) == (untie_first == "true")


# -- slopes --------------------------------------------------------------------------------------------------------------

SLOPES = {
    1: [2**-8],
    2: [2**-4, 2**-8],
    4: [1 / 4, 1 / 16, 1 / 64, 1 / 256],
    6: [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8],
    8: [2**-i for i in range(1, 9)],
    12: [*(2**-i for i in range(1, 9)), 0.70710678, 0.35355339, 0.17677670, 0.08838835],
}


@pytest.mark.parametrize("heads", SLOPES)
def test_alibi_slopes(heads):
    close(slopes(heads), SLOPES[heads], atol=1e-8)
    for spec, site in (("alibi", "decoder"), ("alibi", "cross"), ("alibi_symmetric", "encoder")):
        given = biases(attention(spec, site, heads, 2 * heads), [-3, -1, 0])
        close(given, np.outer(SLOPES[heads], [-3, -1, 0]), atol=1e-7)
    given = biases(attention("alibi_nonsymmetric", "encoder", 2 * heads, 4 * heads), [-1, 1])
    close(given, -np.outer(SLOPES[heads] * 2, [1, 1]), atol=1e-7)


def test_learned_slopes_start_as_fixed_ones():
    decoder, encoder = method("alibi_learned", "decoder"), method("alibi_learned")
    close(decoder.left.exp().detach(), SLOPES[H])
    for side in (encoder.left, encoder.right):
        close(sorted(side.exp().tolist(), reverse=True), SLOPES[H])
    assert not torch.equal(encoder.left, encoder.right)  # with equal slopes, the bias would be the same for both directions


def test_learned_slopes_of_the_authors_start_at_random():
    torch.manual_seed(0)
    start = torch.cat([*method("alibi_learned:slope=sigmoid", width=400, heads=400).parameters()])
    assert start.mean().item() == pytest.approx(-2, abs=0.2) and start.std().item() == pytest.approx(1, abs=0.1)


def test_nonsymmetric_alibi_of_four_heads():
    """Each half of the heads has the slopes of a model with two heads, as in issue 5 of the authors' repository."""
    attn, at = attention("alibi_nonsymmetric"), Positions.counted(0, 5)
    heads = attn.position.mask(AttentionContext(at, at))[0].int()
    assert torch.equal(heads[:2], torch.ones(2, 5, 5).tril().int()) and torch.equal(heads[2:], torch.ones(2, 5, 5).triu().int())
    close(biases(attn, [-2, 1]), -np.outer([2**-4, 2**-8] * 2, [2, 1]), atol=1e-7)


# -- directions ----------------------------------------------------------------------------------------------------------


def seen(spec, n, site="encoder"):
    """Return a matrix [n, n]: 1 if at least one head attends from the query to the key, else 0."""
    attn = attention(spec, site)
    x = torch.randn(n, 1, C).double()
    return (attn(x, x, x)[1][0] > 0).int().tolist()


def test_disan_of_three_tokens():
    assert seen("disan:directions=forward", 3) == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert seen("disan:directions=backward", 3) == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert seen("disan", 3) == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert seen("disan", 3, "decoder") == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert seen("disan:directions=forward,diagonal=true", 3) == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("spec, n", [("disan:directions=forward", 3), ("disan", 1)])
def test_disan_sees_nothing(spec, n):
    attn = attention(spec)
    x = torch.randn(n, 2, C).double()
    for need_weights in (True, False):
        out = attn(x, x, x, need_weights=need_weights)[0]
        close(out[0].detach(), attn.out_proj.bias.detach().expand(2, -1), atol=1e-15)
        assert out.isfinite().all()


# -- rotations -----------------------------------------------------------------------------------------------------------


def rotate(spec, x, start):
    rope, at = method(spec, width=8 * H).double(), Positions.counted(start, x.size(2))
    return rope.rotate("query", x, at, AttentionContext(at, at))


@pytest.mark.parametrize("spec", ["rope", "rope:layout=interleaved", "rope:fraction=0.5"])
def test_rope_laws(spec):
    x = torch.randn(1, H, 9, 8).double()
    close(rotate(spec, x, 5).norm(dim=-1), x.norm(dim=-1))
    close(rotate(spec, x[:, :, :1], 0), x[:, :, :1], atol=0)
    k = torch.randn(1, H, 9, 8).double()
    near, far = (rotate(spec, x, start) @ rotate(spec, k, start).transpose(2, 3) for start in (0, 137))
    close(near, far, atol=1e-5)
    if "fraction" in spec:
        assert torch.equal(rotate(spec, x, 5)[..., 4:], x[..., 4:])


def test_rope_layouts_differ_by_a_permutation():
    x = torch.randn(1, H, 9, 8).double()
    halves = [0, 2, 4, 6, 1, 3, 5, 7]  # even channels first, then odd channels
    interleaved = rotate("rope:layout=interleaved", x, 3)
    close(interleaved[..., halves], rotate("rope", x[..., halves], 3), atol=1e-12)


# -- Shortformer ---------------------------------------------------------------------------------------------------------


def test_shortformer_values_know_no_position():
    attn = attention("shortformer")
    fill(attn.q_proj.weight, 0.0), fill(attn.q_proj.bias, 0.0)
    x = torch.randn(6, 2, C).double()
    out, weights = attn(x, x, x)
    close(weights.detach(), np.full((2, 6, 6), 1 / 6), atol=1e-12)
    mean = attn.out_proj(attn.v_proj(x).mean(0)).detach()
    close(out.detach(), mean.expand_as(out), atol=1e-12)


def test_spe_sine_is_stationary():
    attn = attention("spe_sine")
    x, ids = torch.randn(5, 2, C).double(), torch.arange(5)
    close(attn.scores(x, x, ids, ids).detach(), attn.scores(x, x, ids + 90, ids + 90).detach(), atol=1e-9)
