"""Exact values of methods that act in the attention, and identities between methods."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

import fairseq_posenc as posenc
from fairseq_posenc import registry
from fairseq_posenc.core import AttentionContext, Dims, PositionError, Positions
from fairseq_posenc.methods.bias import fire
from fairseq_posenc.methods.relative.huang import GatedProduct
from fairseq_posenc.ops import devices
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing import models
from tests.contract.cases import SMALL

from .cases import randomise
from .test_values import SLOPES, C, H, attention, biases, close, fill, method

N = 12  # maximum number of positions of the modules that `attention` builds
EVERYWHERE = pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])


def pair(ours, theirs, site="encoder", **sizes):
    """Return two attention modules with equal projections and different position encodings."""
    ours, theirs = attention(ours, site, **sizes), attention(theirs, site, seed=1, **sizes)
    for name, projection in theirs.named_children():
        if name.endswith("_proj") and getattr(ours, name) is not None:
            getattr(ours, name).load_state_dict(projection.state_dict())
    return ours, theirs


def equal(ours, theirs, atol=1e-9):
    """Compare the outputs for N positions, with need_weights=True and with need_weights=False (fused kernel)."""
    torch.manual_seed(2)
    x, source = (torch.randn(N, 2, theirs.out_proj.in_features).double() for _ in range(2))
    y = source if theirs.positions.site == "cross" else x
    for need_weights in (True, False):
        outputs = [module(x, y, y, need_weights=need_weights)[0].detach() for module in (ours, theirs)]
        close(*outputs, atol=atol)


def constant(projection, vector):
    """Change a projection so that it returns this vector for every word. A vector of head width is repeated for every head."""
    fill(projection.weight, 0.0)
    fill(projection.bias, torch.as_tensor(vector).repeat(projection.out_features // len(vector)))


def along(attn, deltas):
    """Return the logits [H, deltas] of a query at position 1000, for keys at these distances. All words are equal."""
    x = torch.zeros(len(deltas), 1, attn.q_proj.in_features, dtype=torch.double)
    return attn.scores(x[:1], x, torch.tensor([1000]), torch.tensor(deltas) + 1000)[0, :, 0].detach().numpy()


def square(attn, n, keys=None):
    """Return the logits [H, T, S] of equal words at positions 0, 1, 2, ..."""
    x = torch.zeros(max(n, keys or n), 1, attn.q_proj.in_features, dtype=torch.double)
    return attn.scores(x[:n], x[: keys or n])[0].detach().numpy()


def fill_ending(attn, ending, value):
    for name, parameter in attn.position.named_parameters():
        if name.endswith(ending):
            fill(parameter, value)


def of_pairs(table):
    """Expand a table of distances to every query and key: [L, H, 2N - 1, *] -> [L, H, N, N, *]."""
    return table.detach()[:, :, torch.arange(N) - torch.arange(N)[:, None] + N - 1]


# -- methods without effect ----------------------------------------------------------------------------------------------

# Parameter values with which a method equals plain attention. All other parameters are random. A number that is equal for all
# keys, such as the last bias of a network, has no effect on the softmax.
NEUTRAL = [
    ("diet_rel", {"table": 0}),
    ("diet_abs", {"query_positions": 0}),
    ("diet_abs", {"key_positions": 0}),
    ("dufter_abs", {"table": 0}),
    ("dufter_rel", {"table": 0}),
    ("shaw_abs", {"table": 0}),
    ("xl", {"projection": 0, "content_bias": 0}),
    ("huang1", {"factor": 1}),
    ("huang3", {"gate": 1}),
    ("huang4", {"table": 0}),
    ("chang:key_term=true", {"table": 0}),
    ("window:width=22", {}),  # the smallest window in which all 12 words attend to each other
    ("synthesizer_random:mix=plus", {"table": 0}),
    ("synthesizer_factorised:mix=plus", {"key_factor": 0}),
    ("synthesizer_dense:mix=plus", {"out_weight": 0, "out_bias": 0}),
    ("synthesizer_random:mix=plus_alpha", {"alpha": -100}),
    ("synthesizer_dense:mix=plus_alpha,form=minus", {"alpha": -100}),
    ("fire", {"mlp.2.weight": 0}),
    ("dynamic_bias", {"layers.2.weight": 0}),
    ("cope", {"table": 0}),
    ("cable", {"weight": 0, "offset": -100}),
    ("forgetting", {"weight": 0, "offset": 100}),
]


@pytest.mark.parametrize(
    "spec, values, site", [(spec, values, s) for spec, values in NEUTRAL for s in registry.card(spec.split(":")[0]).all_sites]
)
def test_nothing_is_plain_attention(spec, values, site):
    ours, plain = pair(spec, "none", site)
    for ending, value in values.items():
        fill_ending(ours, ending, value)
    equal(ours, plain)


# -- numbers of parameters -----------------------------------------------------------------------------------------------

DIET = Dims(768, 12, 12, 512, 512)  # table 6 of Chen et al. (2021)
LARGE = Dims(512, 8, 6, 1024, 1024)  # a base Transformer with 1,024 positions
COUNTS = [
    (DIET, "diet_rel", "encoder", 147_312),
    (DIET, "diet_rel:share=layers", "encoder", 147_312 // 12),
    (DIET, "diet_abs:rank=128,share=none", "encoder", 18_874_368),
    (DIET, "diet_abs:rank=128", "encoder", 1_572_864),
    (DIET, "huang2", "encoder", 147_312),
    (LARGE, "shaw", "encoder", 25_344),
    (LARGE, "shaw:share=none", "encoder", 202_752),
    (LARGE, "t5", "encoder", 256),
    (LARGE, "at5", "encoder", 260),
    (LARGE, "at5:borders=heads", "encoder", 288),
    (LARGE, "at5:share=none", "encoder", 6 * 260),
    (LARGE, "diet_rel", "encoder", 98_256),
    (LARGE, "diet_abs", "encoder", 1_048_576),
    (LARGE, "diet_abs:share=none", "encoder", 6_291_456),
    (LARGE, "diet_linformer", "encoder", 6 * (32 * 1024 + 8 * (1024 + 32) * 64)),
    (LARGE, "xl", "decoder", 1_573_888),
    (LARGE, "tener", "encoder", 6_144),
    # As in version 1 of DeBERTa, the projection of positions to queries has a bias. The projection to keys has no bias.
    (LARGE, "deberta:max_distance=512", "encoder", 2 * 512 * 512 + 6 * (2 * 512**2 + 512)),
    (LARGE, "deberta:max_distance=512,share_key=true", "encoder", 2 * 512 * 512),
    (LARGE, "deberta_emd:max_distance=512,share_key=true", "encoder", 2 * 512 * 512 + 1024 * 512),
    (LARGE, "huang1", "encoder", 49_152),
    (LARGE, "huang2", "encoder", 98_256),
    (LARGE, "huang3", "encoder", 6_288_384),
    (LARGE, "huang3:share=heads", "encoder", 786_048),
    (LARGE, "huang4", "encoder", 6_288_384),
    (LARGE, "huang4:share=heads", "encoder", 786_048),
    (LARGE, "da", "encoder", 96),
    (LARGE, "da:share=layers", "encoder", 16),
    (LARGE, "spe_sine:sines=5", "encoder", 10_752),
    (LARGE, "spe_conv:length=128", "encoder", 134_144),
    (LARGE, "chang:max_distance=8", "encoder", 7_344),
    (LARGE, "rr", "encoder", 1_601_280),
    (LARGE, "synthesizer_random", "encoder", 50_331_648),
    (LARGE, "synthesizer_factorised:rank=8", "encoder", 786_432),
    (LARGE, "synthesizer_random:mix=plus_alpha", "encoder", 50_331_648 + 6),
    (LARGE, "synthesizer_dense:form=minus", "encoder", 6 * 64 * 1024),
    (LARGE, "kerple_log", "decoder", 16),
    (LARGE, "kerple_power:share=none", "decoder", 96),
    (LARGE, "fire", "decoder", 330),
    (LARGE, "fire:share=none", "decoder", 6 * 330),
    (LARGE, "cope", "decoder", 24_576),
    (LARGE, "cable", "decoder", 24_624),
    (LARGE, "forgetting", "decoder", 24_624),
    (LARGE, "carope", "decoder", 24_624),
    (LARGE, "dape:base=alibi", "decoder", 4_848),
    (LARGE, "dape:base=alibi,kernel=3", "decoder", 14_064),
    (LARGE, "log_length:form=ssmax", "encoder", 48),
    (LARGE, "pope", "decoder", 512),
    (LARGE, "rel_proj:reach=128", "encoder", 417_696),
    (LARGE, "selective_rope:bias=false", "decoder", 153_600),
    (LARGE, "stickbreaking:rest=bias", "decoder", 3_072),
]


@pytest.mark.parametrize("dims, spec, site, expected", COUNTS)
def test_counts(dims, spec, site, expected):
    # Evaluate the formulas of the cards. The contract compares these formulas with the parameters.
    part = parsing.parse(spec, site).methods[0]
    assert registry.card(part.name).count(part.options, dims.at(site)) == expected


@pytest.mark.parametrize(
    "option",
    ["shaw:max_distance", "chang:max_distance", "huang1:max_distance", "deberta:max_distance", "deberta:buckets", "cope:largest"],
)
def test_tables_of_these_methods_are_bounded(option):
    parsing.parse(f"{option}=65536")
    with pytest.raises(PositionError, match="65536"):
        parsing.parse(f"{option}=65537")


# -- tables of distances and of pairs ------------------------------------------------------------------------------------


@EVERYWHERE
@pytest.mark.parametrize(
    "spec, table, reach",
    [("diet_rel", "table", N - 1), ("dufter_rel", "table", N - 1), ("chang:max_distance=3", "bias_table", 3)],
)
def test_tables_of_distances(spec, table, reach, site):
    attn = attention(spec, site)
    fill(attn.position.get_parameter(table), torch.arange(-reach, reach + 1))
    deltas = [-50, -12, -11, -3, -1, 0, 1, 2, 4, 11, 30]
    assert np.array_equal(biases(attn, deltas), [np.clip(deltas, -reach, reach)] * H)
    # consecutive positions lead to a Toeplitz matrix, also for distances beyond the table
    distance = np.arange(17) - np.arange(15)[:, None]
    assert np.array_equal(square(attn, 15, 17), [np.clip(distance, -reach, reach)] * H)


@pytest.mark.parametrize("share", ["none", "heads", "layers", "all"])
def test_diet_rel_is_dufter_rel_with_another_share(share):
    diet, dufter = method(f"diet_rel:share={share}", layers=3), method("dufter_rel", layers=3)
    nn.init.normal_(diet.table)
    fill(dufter.table, diet.table.detach())
    at = Positions.counted(0, N)
    for layer in range(3):
        ctx = AttentionContext(at, at, layer)
        assert torch.equal(diet.bias(ctx).expand(1, H, N, N), dufter.bias(ctx))


@EVERYWHERE
@pytest.mark.parametrize("pairs, distances", [("dufter_abs", "dufter_rel"), ("shaw_abs", f"shaw:max_distance={N - 1}")])
def test_pairs_with_toeplitz_tables_are_distances(pairs, distances, site):
    ours, theirs = pair(pairs, distances, site)
    for name, table in theirs.position.named_parameters():
        fill(ours.position.get_parameter(name), of_pairs(table))
    equal(ours, theirs)


@pytest.mark.parametrize("rank", [1, 3])
def test_diet_abs_has_the_rank_of_its_vectors(rank):
    attn = attention(f"diet_abs:rank={rank}")
    constant(attn.q_proj, [0.0] * 4)
    assert np.linalg.matrix_rank(square(attn, N)).tolist() == [rank] * H


@pytest.mark.parametrize("site", ["encoder", "cross"])
@pytest.mark.parametrize("tie", ["true", "false"])
def test_diet_linformer_with_all_keys_is_diet_abs(tie, site):
    # The compressed keys are permuted, because the identity would not distinguish E from its transpose.
    ours, theirs = pair(f"diet_linformer:rank={N},tie={tie}", "diet_abs", site)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    fill_ending(ours, "mixer", torch.eye(N)[order])
    fill(ours.position.query_positions, theirs.position.query_positions.detach())
    fill(ours.position.key_positions, theirs.position.key_positions.detach()[:, :, order])
    equal(ours, theirs)


# -- Transformer-XL and TENER --------------------------------------------------------------------------------------------


@EVERYWHERE
@pytest.mark.parametrize("clamp", [None, 2])
def test_xl_in_closed_form(clamp, site):
    # The projection is the identity, so the heads have channels 0-3, 4-7, 8-11 and 12-15 of the sinusoid. v (`position_bias`)
    # selects the first channel of each head.
    attn = attention("xl" if clamp is None else f"xl:clamp={clamp}", site)
    fill(attn.position.projection, torch.eye(C))
    fill(attn.position.content_bias, 0.0)
    fill(attn.position.position_bias, torch.tensor([1.0, 0, 0, 0]))
    deltas = np.array([-7, -1, 0, 2])
    distance = -deltas if clamp is None else -deltas.clip(-clamp, clamp)
    waves = [np.sin(distance), np.sin(0.01 * distance), np.cos(distance), np.cos(0.01 * distance)]
    close(biases(attn, deltas.tolist()), np.array(waves) / 2)


@pytest.mark.parametrize("spec", ["xl", "xl:share=none", "tener", "tener:scaled=true", "tener:key_term=true,sign=code"])
def test_equal_preferences_are_a_bias_of_the_queries(spec):
    # If content_bias and position_bias equal c, the score before scaling contains (q + c) . k + (q + c) . R. R is the position
    # vector. In `theirs`, both biases are 0, and c is added to the bias of the query projection.
    ours, theirs = pair(spec, spec)
    for (name, parameter), (_, own) in zip(theirs.position.named_parameters(), ours.position.named_parameters()):
        fill(own, parameter.detach() if name == "projection" else torch.arange(4.0) - 1)
    fill_ending(theirs, "bias", 0.0)
    with torch.no_grad():
        theirs.q_proj.bias += (torch.arange(4.0) - 1).repeat(H)
    equal(ours, theirs)


@pytest.mark.parametrize("sign, turned", [("paper", -1), ("code", 1)])
@pytest.mark.parametrize("grid, frequencies", [("paper", [1, 0.1, 0.01, 0.001]), ("code", [1, 0.0464159, 0.00215443, 1e-4])])
def test_tener_in_closed_form(grid, frequencies, sign, turned):
    # v (`position_bias`) selects one of the 8 channels of a head: a sine in the first half, or a cosine in the second half. v
    # selects a different channel in each head.
    attn, deltas = attention(f"tener:grid={grid},sign={sign}", width=8 * H), np.array([-9, -1, 0, 1, 4])
    fill(attn.position.content_bias, 0.0)
    angles = np.outer(frequencies, turned * deltas)
    for half, wave in enumerate((np.sin, np.cos)):
        fill(attn.position.position_bias, torch.eye(8)[4 * half : 4 * half + 4])
        close(biases(attn, deltas.tolist()), wave(angles))


@pytest.mark.parametrize("sign", ["paper", "code"])
def test_tener_keys_meet_the_distance_from_them(sign):
    attn, deltas = attention(f"tener:grid=code,key_term=true,sign={sign}", width=8 * H), np.array([-9, -1, 0, 1, 4])
    fill_ending(attn, "bias", 0.0)
    fill(attn.k_proj.bias, torch.eye(8)[:4].flatten())
    close(biases(attn, deltas.tolist()), np.sin(np.outer([1, 0.0464159, 0.00215443, 1e-4], -deltas)))


@EVERYWHERE
def test_tener_without_a_projection_of_keys(site):
    ours, theirs = pair("tener:key=identity", "tener", site)
    assert ours.k_proj is None
    fill(theirs.k_proj.weight, torch.eye(C)), fill(theirs.k_proj.bias, 0.0)
    for own, parameter in zip(ours.position.parameters(), theirs.position.parameters()):
        fill(own, parameter.detach())
    equal(ours, theirs)


# -- DeBERTa -------------------------------------------------------------------------------------------------------------


def rows_of_deberta(spec, side, terms, distance):
    """Return the rows of the table that queries or keys use at distances t - s, derived from the logits."""
    attn = attention(spec)
    first, zero = [1.0, 0, 0, 0], [0.0] * 4
    constant(attn.q_proj, first if side == "key_weight" else zero)
    constant(attn.k_proj, first if side == "query_weight" else zero)
    table = attn.position.table
    fill(table, 0.0), fill_ending(attn, "bias", 0.0)
    with torch.no_grad():
        table[:, 0] = torch.arange(len(table))  # the projection copies channel 0 to the first channel of each head
        fill(attn.position.get_parameter(side), torch.eye(4)[0].repeat(H).unsqueeze(1) * torch.eye(C)[0])
    return along(attn, [-x for x in distance]) * math.sqrt((1 + terms) * 4)


@pytest.mark.parametrize(
    "options, side, terms",
    [
        ("", "key_weight", 2),
        ("", "query_weight", 2),
        (",terms=c2p", "key_weight", 1),
        (",terms=p2c", "query_weight", 1),
        (",index=paper", "key_weight", 2),
        (",index=paper", "query_weight", 2),
        (",index=paper,terms=p2c", "query_weight", 1),
    ],
)
def test_deberta_rows(options, side, terms):
    rows = [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7]
    given = rows_of_deberta(f"deberta:max_distance=4{options}", side, terms, range(-6, 7))
    # D(t,s) is the row of the distance t - s. With index=paper, `query_weight` projects row D(s,t) of the table. In all other
    # cases, row D(t,s) is projected.
    close(given, [rows[::-1] if "paper" in options and side == "query_weight" else rows] * H)


BUCKETS = {0: 0, 1: 1, 128: 128, 131: 131, 135: 133, 150: 143, 200: 169, 256: 192, 300: 207, 400: 233, 511: 255, 900: 255}


@pytest.mark.parametrize("sign", [1, -1])
def test_deberta_buckets(sign):
    # The table has 512 rows. Row 256 belongs to distance 0. There are 256 rows for distances below 0, but only 255 above.
    given = rows_of_deberta("deberta:max_distance=512,buckets=256", "key_weight", 2, [sign * distance for distance in BUCKETS])
    expected = [sign * bucket for bucket in BUCKETS.values()]
    close(given[:, :-1], [np.add(expected, 256)[:-1]] * H)
    assert given[:, -1] == pytest.approx(511 if sign == 1 else 0), given[0, -1]


@pytest.mark.parametrize("terms, number", [("both", 2), ("c2p", 1), ("p2c", 1)])
def test_deberta_without_positions_divides_by_the_terms(terms, number):
    ours, plain = pair(f"deberta:terms={terms}", "none")
    for parameter in ours.position.parameters():
        fill(parameter, 0.0)
    x = torch.randn(N, 2, C).double()
    close((ours.scores(x, x) * math.sqrt(1 + number)).detach(), plain.scores(x, x).detach(), atol=1e-9)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_deberta_emd_adds_positions_to_queries(site):
    ours, theirs = pair("deberta_emd", "deberta", site)
    for name, parameter in theirs.position.named_parameters():
        fill(ours.position.get_parameter(name), parameter.detach())
    x = torch.randn(N, 2, C).double()
    expected = theirs.scores(x + ours.position.absolute.unsqueeze(1), x)
    close(ours.scores(x, x).detach(), expected.detach(), atol=1e-9)


@pytest.mark.parametrize(
    "spec", ["deberta:share_key=true", "deberta:share_key=true,terms=c2p", "tener:key=identity", "shortformer"]
)
def test_keys_of_another_width_are_refused_at_building(spec):
    given = dataclasses.replace(SMALL, key_embed_dim=24).at("cross")
    with pytest.raises(PositionError, match=r"queries have width 16 and keys have width 24"):
        parsing.build(spec, given, "cross")
    with pytest.raises(SystemExit, match=r"queries have width 16 and keys have width 24"):
        models.build(cross=spec, encoder_embed_dim=24)
    parsing.build(spec, dataclasses.replace(given, key_embed_dim=16), "cross")


@pytest.mark.parametrize("spec", ["deberta", "deberta:share_key=true,terms=p2c", "tener"])
def test_keys_of_another_width_that_no_position_reads(spec):
    model = models.build(cross=spec, encoder_embed_dim=24)
    source, target = torch.stack(models.sentences(1, 5)), torch.stack(models.sentences(2, 4))
    assert models.logits(model, source, target).isfinite().all()


# -- products with positions: Huang et al. and DA-Transformer ------------------------------------------------------------


@EVERYWHERE
def test_huang2_tied_is_huang1(site):
    ours, theirs = pair("huang2", "huang1", site)
    factor = theirs.position.factor.detach()
    fill(ours.position.factor, torch.cat([factor[..., 1:].flip(-1), factor], -1))
    equal(ours, theirs)


@EVERYWHERE
@pytest.mark.parametrize("share", ["none", "heads"])
def test_huang3_with_equal_channels_is_huang2(share, site):
    ours, theirs = pair(f"huang3:share={share}", f"huang2:share={share}", site)
    fill(ours.position.gate, theirs.position.factor.detach().unsqueeze(-1))
    equal(ours, theirs)


@pytest.mark.parametrize("heads", [1, 2], ids=["shared", "per-head"])
@pytest.mark.parametrize("rows", [1, 2], ids=["one-row", "batched"])
@pytest.mark.parametrize("queries, width", [(5, 2), (2, 3)], ids=["blocks", "single-queries"])
def test_gated_product(queries, width, rows, heads):
    torch.manual_seed(0)
    q, k, gate = torch.randn(2, 2, queries, width), torch.randn(2, 2, 4, width), torch.randn(heads, 3, width)
    at = torch.randint(3, (rows, queries, 4))  # several keys use the same row of the table, so the gradient of the row is a sum
    inputs = [x.double().requires_grad_() for x in (q, k, gate)]
    gates = inputs[2][:, at].transpose(0, 1).expand(2, 2, -1, -1, -1)
    expected = torch.einsum("bhti,bhsi,bhtsi->bhts", *inputs[:2], gates)
    close(GatedProduct.apply(*inputs, at, None, False).detach(), expected.detach(), atol=1e-12)
    assert torch.autograd.gradcheck(GatedProduct.apply, (*inputs, at, None, False))


@pytest.mark.parametrize("heads", [1, 2], ids=["shared", "per-head"])
@pytest.mark.parametrize("device", ["cpu", "accelerator"])
def test_causal_gated_product(device, heads, monkeypatch):
    """Compare only the results for keys to which a query may attend."""
    torch.manual_seed(0)
    q, k, gate = (torch.randn(size).double().requires_grad_() for size in ((2, 2, 4, 3), (2, 2, 4, 3), (heads, 7, 3)))
    at = (torch.arange(4) - torch.arange(4)[:, None] + 3)[None]
    seen = torch.ones(4, 4).tril().double()
    theirs = (GatedProduct.apply(q, k, gate, at, None, False) * seen).detach()
    rows = (at, None)
    if device == "accelerator":
        monkeypatch.setattr(devices, "on_cpu", lambda x: False)
        rows = (None, torch.arange(7))
    close((GatedProduct.apply(q, k, gate, *rows, True) * seen).detach(), theirs, atol=1e-12)
    assert torch.autograd.gradcheck(lambda *inputs: GatedProduct.apply(*inputs, *rows, True) * seen, (q, k, gate))


@EVERYWHERE
@pytest.mark.parametrize("reach", [2, N - 1])
def test_huang4_is_a_product_of_sums(reach, site):
    # (q + r) . (k + r) - r . r
    attn = attention(f"huang4:max_distance={reach}", site)
    x, y = torch.randn(N, 2, C).double(), torch.randn(N, 2, C).double()
    q, k = (p(z).unflatten(-1, (H, -1)).permute(1, 2, 0, 3) for p, z in ((attn.q_proj, x), (attn.k_proj, y)))
    rows = (torch.arange(N) - torch.arange(N)[:, None]).clamp(-reach, reach) + reach
    r = attn.position.table[0][:, rows]  # [H, N, N, 4]
    expected = ((q.unsqueeze(3) + r) * (k.unsqueeze(2) + r) - r * r).sum(-1) / 2
    close(attn.scores(x, y).detach(), expected.detach(), atol=1e-9)


@EVERYWHERE
@pytest.mark.parametrize("reach", [2, N - 1])
def test_huang4_without_keys_is_shaw(reach, site):
    ours, theirs = pair(f"huang4:max_distance={reach},share=heads", f"shaw:max_distance={reach},values=false", site)
    for attn in (ours, theirs):
        constant(attn.k_proj, [0.0] * 4)
    fill(ours.position.table, theirs.position.key_table.detach())
    equal(ours, theirs)


@EVERYWHERE
def test_da_without_weight_is_rectified_attention(site):
    ours, plain = pair("da", "none", site)
    fill(ours.position.weight, 0.0)  # then the offset has no effect
    x = torch.randn(N, 2, C).double()
    close(ours.scores(x, x).detach(), plain.scores(x, x).relu().detach(), atol=1e-9)


@pytest.mark.parametrize("w, limit", [(0.5, 1 + math.exp(0.7)), (-0.5, 0.0)])
def test_da_from_near_to_far(w, limit):
    attn = attention("da")
    constant(attn.q_proj, [1.0] * 4), constant(attn.k_proj, [1.0] * 4)  # the score of every key is 4 / sqrt(4)
    fill(attn.position.weight, w), fill(attn.position.offset, 0.7)
    middle = (1 + math.exp(0.7)) / (1 + math.exp(0.7 - 2 * w))
    deltas = [0, -2, 2, -1000, 1_000_000]  # exponentials of these numbers would overflow
    close(along(attn, deltas) / 2, [[1, middle, middle, limit, limit]] * H)


@pytest.mark.parametrize("spec", ["huang1", "da", "sandwich", "kerple_log", "kerple_power", "fire", "alibi_symmetric"])
def test_blind_to_direction(spec):
    attn = attention(spec)
    query, key = torch.randn(1, 1, C).double(), torch.randn(1, 1, C).double().expand(4, -1, -1)
    scores = attn.scores(query, key, torch.tensor([6]), torch.tensor([2, 10, 1, 11]))[0, :, 0].detach()
    close(scores[:, 0], scores[:, 1], atol=1e-12)
    assert (scores[:, 0] - scores[:, 2]).abs().max() > 1e-3  # distances 4 and 5 have different scores


# -- composite attention -------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_chang_without_scalars_is_shaw(site):
    ours, theirs = pair("chang:max_distance=3", "shaw:max_distance=3,values=false", site)
    fill(ours.position.bias_table, 0.0)
    fill(ours.position.query_table, theirs.position.key_table.detach())
    equal(ours, theirs)


@EVERYWHERE
def test_chang_without_vectors_is_clipped_diet(site):
    ours, theirs = pair("chang:max_distance=3", "diet_rel", site)
    fill(ours.position.query_table, 0.0)
    fill(theirs.position.table, ours.position.bias_table.detach()[..., torch.arange(1 - N, N).clamp(-3, 3) + 3])
    equal(ours, theirs)


@EVERYWHERE
def test_chang_with_mirrored_vectors_of_keys_is_huang4(site):
    # For the keys, chang uses its vector of the distance t - s, and huang4 uses its vector of the distance s - t.
    ours, theirs = pair("chang:max_distance=3,key_term=true", "huang4:max_distance=3,share=heads", site)
    table = theirs.position.table.detach()
    fill(ours.position.bias_table, 0.0)
    fill(ours.position.query_table, table), fill(ours.position.key_table, table.flip(-2))
    equal(ours, theirs)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("delta", [-2, -1, 0, 1])
def test_chang_with_a_kernel_of_one_distance_copies_it(delta, site):
    ours, plain = pair("chang:max_distance=2,depthwise=true", "none", site)
    fill_ending(ours, "table", 0.0), fill(ours.position.kernel_bias, 0.5)
    fill(ours.position.kernel, torch.eye(5)[delta + 2].unsqueeze(-1))
    for attn in (ours, plain):
        fill(attn.out_proj.weight, torch.eye(C))
    x = torch.randn(N, 2, C).double()
    values, expected = plain.v_proj(x), torch.full_like(x, 0.5)
    for t in range(max(0, -delta), min(N, N - delta)):
        if site == "encoder" or delta <= 0:  # the decoder must not read later words
            expected[t] += values[t + delta]
    close((ours(x, x, x)[0] - plain(x, x, x)[0]).detach(), expected.detach(), atol=1e-9)


# -- fixed weights and masks ---------------------------------------------------------------------------------------------


def moment(spec, site, power, queries=N, keys=N):
    """Return [queries, H]: the sum of a head's weights (power=0), or the weighted sum of the key positions (power=1)."""
    attn = attention(spec, site)
    fill(attn.v_proj.bias, 0.0), fill(attn.v_proj.weight, torch.eye(C)[0])  # all channels are equal to the first
    fill(attn.out_proj.weight, torch.eye(C)), fill(attn.out_proj.bias, 0.0)
    x = (torch.arange(max(queries, keys)).double() ** power).view(-1, 1, 1).expand(-1, -1, C)
    out = attn(x[:queries], x[:keys], x[:keys])[0]
    return out[:, 0].unflatten(-1, (H, -1))[..., 0].detach().numpy()


def test_gaussian_masses_of_the_encoder():
    mass = moment("gaussian", "encoder", 0)  # offsets -1, 1, -1, 1
    close(mass[5:7], np.ones((2, H)), atol=1e-4)
    close(mass[0], [0.3005, 0.9414] * 2, atol=1e-4)
    close(mass[-1], [0.9414, 0.3005] * 2, atol=1e-4)
    close(moment("gaussian:normalise=true", "encoder", 0), np.ones((N, H)), atol=1e-12)


def test_gaussian_masses_of_the_decoder():
    mass = moment("gaussian", "decoder", 0)  # offsets -1, 0, -1, 0, without later keys
    close(mass[6:], [[0.9414, 0.6995] * 2] * 6, atol=1e-4)
    close(mass[0], [0.2420, 0.3989] * 2, atol=1e-4)  # the only key is one standard deviation from the mean, or at the mean


@pytest.mark.parametrize("deviation", [1.0, 2.0])
@pytest.mark.parametrize("ratio", [1, 2.5])
def test_gaussian_densities(ratio, deviation):
    # The only key is at position 0. For the query at t, the Gaussians have the means ratio * t - 1 and ratio * t + 1
    mass = moment(f"gaussian:deviation={deviation},ratio={ratio}", "cross", 0, N, 1)
    distance = (ratio * np.arange(N)[:, None] + [-1, 1, -1, 1]) / deviation
    close(mass, np.exp(-(distance**2) / 2) / (deviation * math.sqrt(2 * math.pi)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_normalised_gaussian_reads_the_last_word_from_any_distance(dtype):
    attn = posenc.build_attention("gaussian:normalise=true", C, H, site="cross").to(dtype)
    x, padding = torch.randn(6, 1, C).to(dtype), torch.tensor([[False] * 5 + [True]])
    far = attn(torch.zeros(60, 1, C, dtype=dtype), x, x, key_padding_mask=padding)[0].detach()
    last = attn.out_proj(attn.v_proj(x[4:5])).detach()  # the other words are at least 14 deviations farther
    close(far[20:].double(), last.expand_as(far[20:]).double(), atol=1e-3)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_normalised_gaussian_has_finite_outputs_and_gradients_without_visible_keys(site):
    attn, x = attention("gaussian:normalise=true", site), torch.randn(4, 2, C).double().requires_grad_()
    out = attn(x, x, x, key_padding_mask=torch.tensor([[True] * 4, [True] * 2 + [False] * 2]))[0]
    close(out[:, 0].detach(), attn.out_proj.bias.detach().expand(4, C))
    assert torch.autograd.grad(out.sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("site", ["encoder", "cross"])
def test_gaussian_means(site):
    mean, t = moment("gaussian", site, 1), np.arange(5, 6)
    close(mean[t], t[:, None] + [-1, 1, -1, 1], atol=1e-3)


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_gaussian_drops_weights(site):
    attn = randomise(posenc.build_attention("gaussian", C, H, site=site, dropout=0.3))
    torch.manual_seed(0)
    x = torch.randn(N, 1, C).double()
    whole, drawn = attn(x, x, x)[0].detach(), torch.stack([attn.train()(x, x, x)[0].detach() for _ in range(400)])
    assert not drawn[0].equal(drawn[1])
    close(drawn.mean(0), whole, atol=6 * drawn.std(0).max().item() / 20)
    close(attn.eval()(x, x, x)[0].detach(), whole, atol=0)


@pytest.mark.parametrize("spec", ["spe_sine:attention=linear,exact=false", "spe_conv:attention=linear"])
def test_linear_attention_refuses_dropout_of_weights(spec):
    attn, x = posenc.build_attention(spec, C, H, dropout=0.3), torch.randn(N, 1, C)
    with pytest.raises(PositionError, match=r"attention=linear.*--attention-dropout 0"):
        attn.train()(x, x, x)
    assert attn.eval()(x, x, x)[0].isfinite().all()


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("options, reached", [("width=4", [0, 1, 2]), ("width=4,dilation=3", [0, 3, 6]), ("width=0", [0])])
def test_window_is_the_receptive_field(options, reached, site):
    attn, x = attention(f"window:{options}", site), torch.randn(9, 1, C).double().requires_grad_()
    out = attn(x, x, x, need_weights=False)[0]
    for t in range(9):
        felt = torch.autograd.grad(out[t].sum(), x, retain_graph=True)[0][:, 0].abs().sum(-1) > 0
        near = {t - distance for distance in reached} | {t + distance for distance in reached if site == "encoder"}
        assert felt.nonzero().flatten().tolist() == sorted(near & set(range(9)))


DISAN = "disan:multi_dimensional=true"


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_disan_drops_weights_of_channels(site):
    torch.manual_seed(0)
    attn = posenc.build_attention(DISAN, C, H, site=site, dropout=0.3)
    randomise(attn)
    fill(attn.position.gate_of_sum, 0.0)  # the gate then does not read the weighted sum, so the output is linear in this sum
    x = torch.randn(N, 1, C).double()
    whole, drawn = attn(x, x, x)[0].detach(), [attn.train()(x, x, x)[0].detach() for _ in range(400)]
    assert not drawn[0].equal(drawn[1])
    close(torch.stack(drawn).mean(0), whole, atol=6 * max(torch.stack(drawn).std(0).max().item() / 20, 1e-3))
    close(attn.eval()(x, x, x)[0].detach(), whole, atol=0)


def test_disan_recomputes_with_the_weights_that_it_dropped():
    torch.manual_seed(0)
    attn = randomise(posenc.build_attention(DISAN, C, H, dropout=0.3)).train()
    x, way = (torch.randn(N, 1, C).double() for _ in range(2))

    def loss(step=0.0):
        torch.manual_seed(1)
        moved = (x + step * way).requires_grad_()
        return moved, attn(moved, moved, moved)[0].square().sum()

    moved, value = loss()
    value.backward()
    slope = (loss(1e-5)[1] - loss(-1e-5)[1]).detach() / 2e-5
    close((moved.grad * way).sum(), slope, atol=1e-5 * slope.abs().item())


# -- synthesizers --------------------------------------------------------------------------------------------------------


def test_random_synthesizer_does_not_see_words():
    attn = attention("synthesizer_random")
    table = attn.position.table.detach()[0, :, :9, :9]
    for _ in range(2):
        x = torch.randn(9, 2, C).double()
        close(attn(x, x, x)[1].detach(), table.softmax(-1).mean(0).expand(2, -1, -1), atol=1e-12)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("mix", ["none", "plus", "plus_alpha"])
def test_factorised_synthesizer_of_full_rank_is_random(mix, site):
    ours, theirs = pair(f"synthesizer_factorised:rank={N},mix={mix}", f"synthesizer_random:mix={mix}", site)
    fill(ours.position.query_factor, theirs.position.table.detach()), fill(ours.position.key_factor, torch.eye(N))
    if mix == "plus_alpha":
        fill(ours.position.alpha, theirs.position.alpha.detach())
    equal(ours, theirs)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_dense_synthesizer_without_weights_is_random_by_key(site):
    ours, theirs = pair("synthesizer_dense", "synthesizer_random", site)
    fill(ours.position.out_weight, 0.0)
    fill(theirs.position.table, ours.position.out_bias.detach().unsqueeze(-2))
    equal(ours, theirs)


def test_dense_synthesizer_reads_the_query():
    # In every head, q = (2, -3, 0, 1) and the logits are max(q, 0) W. W[i, s] = (i + 1) s for channel i and key position s.
    attn = attention("synthesizer_dense:form=minus")
    constant(attn.q_proj, [2.0, -3.0, 0.0, 1.0])
    fill(attn.position.table, torch.outer(torch.arange(1.0, 5), torch.arange(N)))
    close(square(attn, 9), np.broadcast_to((2 * 1 + 1 * 4) * np.arange(9), (H, 9, 9)))


def test_balance_of_the_synthesizer():
    ours, plain = pair("synthesizer_random:mix=plus_alpha", "none")
    x = torch.randn(N, 2, C).double()
    product, table = plain.scores(x, x).detach(), ours.position.table.detach()[0]
    for alpha, share in ((0.0, 0.5), (math.log(3), 0.75)):  # sigmoid(alpha) is the weight of the table
        fill(ours.position.alpha, alpha)
        close(ours.scores(x, x).detach(), (1 - share) * product + share * table, atol=1e-9)


# -- penalties -----------------------------------------------------------------------------------------------------------


def unsoftplus(x):
    return torch.log(torch.expm1(torch.as_tensor(x, dtype=torch.double)))


def test_kerple_with_power_one_is_alibi():
    # only heads with a slope of at least 0.01 are compared, because this is KERPLE's minimum
    kerple, slopes = attention("kerple_power", "decoder", 8), torch.tensor(SLOPES[8][:6])
    fill(kerple.position.power, math.log(0.99 / 1.00))  # 0.01 + 1.99 sigmoid = 1
    fill(kerple.position.rate[:, :6], unsoftplus(slopes - 0.01).unsqueeze(-1))
    deltas = [-100, -7, -2, -1, 0]
    close(biases(kerple, deltas)[:6], biases(attention("alibi", "decoder", 8), deltas)[:6])


def test_kerple_in_closed_form():
    distance = np.array([0, 1, 2, 40])
    for power, rate, expected in (
        (unsoftplus(1.99), unsoftplus(0.49), 2 * np.log(1 + 0.5 * distance)),
        (-100, -100, 0.01 * np.log(1 + 0.01 * distance)),  # power and rate have their minimum 0.01
    ):
        attn = attention("kerple_log", "decoder")
        fill(attn.position.power, power), fill(attn.position.rate, rate)
        close(biases(attn, (-distance).tolist()), [-expected] * H)
    attn = attention("kerple_power", "decoder")
    for power, exponent in ((100, 2), (-100, 0.01)):
        fill(attn.position.power, power), fill(attn.position.rate, -100)
        close(biases(attn, (-distance).tolist()), [[-0.01 * x**exponent if x else 0 for x in distance]] * H)


@pytest.mark.parametrize("spec", ["kerple_log", "kerple_power"])
def test_kerple_falls_on_each_side_by_its_own_scalars(spec):
    apart = attention(f"{spec}:sides=apart")
    for side, sign in enumerate((-1, 1)):
        same = attention(spec)
        for own, parameter in zip(same.position.parameters(), apart.position.parameters()):
            fill(own, parameter.detach()[..., side : side + 1])
        given = biases(apart, [sign * distance for distance in range(30)])
        close(given, biases(same, list(range(30))), atol=1e-12)
        assert (np.diff(given) < 0).all() and (given[:, 0] == 0).all()


@EVERYWHERE
@pytest.mark.parametrize("heads", [4, 8])
def test_sandwich_values(heads, site):
    values = np.array([-16.0987, -13.7603, -9.8238, -5.2020, -1.4466, 0])
    attn = attention("sandwich", site, heads)
    for deltas in (range(-5, 1), range(5, -1, -1)):
        close(biases(attn, list(deltas)), [values / (8 * head / heads) for head in range(1, heads + 1)], atol=1e-4)


@pytest.mark.parametrize("queries", [9, 20], ids=["below", "beyond"])
def test_fire_in_closed_form(queries):
    # The bias of head h (from 1) is h times the input of the network.
    attn = attention("fire:threshold=4", "decoder")
    own = attn.position
    for parameter in own.parameters():
        fill(parameter, 0.0)
    fill(own.mlp[0].weight[3], 1.0), fill(own.mlp[2].weight[:, 3], torch.arange(1.0, 5))
    # The threshold is |-2 * 4| = 8. For queries up to position 8, the denominator is constant.
    fill(own.slope, 0.5), fill(own.multiplier, -2.0)
    constant(attn.q_proj, [0.0] * 4)
    t, s = np.arange(queries)[:, None], np.arange(queries)
    share = np.log1p(0.5 * abs(t - s)) / (np.log1p(0.5 * np.maximum(t, 8)) + 1e-6)
    given = square(attn, queries)
    close(given, np.arange(1, 5)[:, None, None] * share)
    past = np.tril(given[0])
    assert past.min() == 0 and past.max() == pytest.approx(1, abs=1e-5)  # biases of earlier keys are between 0 and 1


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_fire_in_blocks(padded, monkeypatch):
    """Outputs and gradients are equal, whether all queries are in one block or every block contains one query."""
    attn, x = attention("fire:threshold=2", "encoder"), torch.randn(7, 2, C).double().requires_grad_()
    mask = torch.tensor([[False] * 7, [True] * 2 + [False] * 5]) if padded else None
    found = []
    for pairs in (2**14, 1):
        monkeypatch.setattr(fire, "_PAIRS_ON_CPU", pairs)
        out = attn(x, x, x, key_padding_mask=mask)[0]
        way = torch.linspace(-1, 1, out.numel()).double().view_as(out)
        found.append((out.detach(), *torch.autograd.grad((out * way).sum(), [x, *attn.parameters()])))
    for whole, single in zip(*found):
        close(single, whole, atol=1e-10)


def test_fire_is_relative_below_the_threshold():
    attn, x = attention("fire:threshold=8", "decoder"), torch.randn(5, 1, C).double()
    fill(attn.position.multiplier, 1.0)
    ids = torch.arange(5)
    first, below, beyond = (attn.scores(x, x, ids + c, ids + c).detach() for c in (0, 4, 30))
    close(first, below, atol=1e-12)
    assert (first - beyond).abs().max() > 1e-3


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("log", [True, False])
def test_dynamic_bias_in_closed_form(log, depth):
    # silu(z) - silu(-z) = z: with two units, every layer returns its input. The bias of head h is h times the input.
    attn = attention(f"dynamic_bias:hidden=2,depth={depth},log={str(log).lower()}")
    turned = torch.tensor([1.0, -1.0])
    weights = [turned.unsqueeze(1), *[torch.outer(turned, turned)] * (depth - 1), torch.outer(torch.arange(1.0, 5), turned)]
    for layer, weight in zip(attn.position.layers, weights):
        fill(layer.weight, weight), fill(layer.bias, 0.0)
    deltas = np.array([-300, -2, -1, 0, 1, 5])
    expected = np.sign(deltas) * np.log1p(abs(deltas)) if log else deltas
    close(biases(attn, deltas.tolist()), np.outer([1, 2, 3, 4], expected), atol=1e-9)


def test_dynamic_bias_of_one_unit():
    attn, deltas = attention("dynamic_bias:hidden=1,depth=1,log=false"), np.array([-5, -1, 0, 2])
    for layer in attn.position.layers:
        fill(layer.weight, 1.0), fill(layer.bias, 0.5)
    z = deltas + 0.5
    close(biases(attn, deltas.tolist()), [z / (1 + np.exp(-z)) + 0.5] * H, atol=1e-9)


# -- rotations -----------------------------------------------------------------------------------------------------------


def test_xpos_sizes():
    # The middle is half of the maximum number of positions. At 512 positions after the middle, pair i of a query is multiplied
    # by zeta_i, and pair i of a key is divided by zeta_i.
    xpos, at = method("xpos", "decoder", 8 * H).double(), Positions(torch.full((1, 4), N // 2 + 512))
    x, ctx = torch.eye(8).double()[None, None, ::2].expand(1, H, 4, 8), AttentionContext(at, at)
    zeta = np.array([[0.2857, 0.4643, 0.6429, 0.8214]] * H)
    close(xpos.rotate("query", x, at, ctx).norm(dim=-1)[0], zeta, atol=1e-4)
    close(1 / xpos.rotate("key", x, at, ctx).norm(dim=-1)[0], zeta, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("room, last", [(1024, 4000), (6000, 5999), (10**7, 5999)])
def test_xpos_in_half_precision(room, last):
    # every key is 5 positions before its query, but not before position 0
    xpos = parsing.build("xpos", Dims(8 * H, H, 1, room, room).at("decoder"), "decoder")[0]
    at, before = (Positions(torch.tensor([[0, 7, 2999, last]]).sub(n).clamp(min=0)) for n in (0, 5))
    ctx, x = AttentionContext(at, before), torch.randn(2, 1, H, 4, 8)
    found = []
    for given in (x.half(), x.half().double()):
        q, k = xpos.rotate("query", given[0], at, ctx), xpos.rotate("key", given[1], before, ctx)
        found.append((q.double() * k.double()).sum(-1))
        ctx = AttentionContext(at, before)  # a new context, because the old context stores sinusoids in the other precision
    close(*found, atol=0.03)


@pytest.mark.parametrize("scale_base, longest", [(1, 67), (16, 1085), (512, 34743)])
def test_xpos_refuses_sentences_that_overflow_float32(scale_base, longest):
    dims = Dims(8 * H, H, 1, 10**6, 10**6).at("decoder")
    xpos = parsing.build(f"xpos:scale_base={scale_base}", dims, "decoder")[0]
    at = Positions(torch.tensor([[longest]]), longest)
    q, k = (xpos.rotate(which, torch.full((1, H, 1, 8), 100.0), at, AttentionContext(at, at)) for which in ("query", "key"))
    close((q * k).sum(-1), torch.full((1, H, 1), 8e4), atol=10)
    at = Positions(torch.tensor([[longest + 1]]), longest + 1)
    message = rf"^xpos: a sentence has {longest + 2} positions, but .* float32 overflows after {longest + 1} positions\."
    with pytest.raises(PositionError, match=message):
        xpos.rotate("query", q, at, AttentionContext(at, at))


def test_xpos_in_closed_form():
    # A head has one pair, so zeta = (0 + 0.8) / 2.8. The score is zeta^(distance / 4) cos(distance) / sqrt(2).
    attn, deltas = attention("xpos:scale_base=4", "decoder", width=2 * H), np.array([-9, -4, -1, 0])
    constant(attn.q_proj, [1.0, 0.0]), constant(attn.k_proj, [1.0, 0.0])
    close(along(attn, deltas.tolist()), [(0.8 / 2.8) ** (-deltas / 4) * np.cos(deltas) / math.sqrt(2)] * H, atol=1e-4)


def test_xpos_is_stationary_and_ends_in_rope():
    xpos, rope = pair("xpos:scale_base=1e12", "rope:layout=interleaved", "decoder")
    equal(xpos, rope)
    attn, x, ids = attention("xpos", "decoder"), torch.randn(6, 2, C).double(), torch.arange(6)
    close(attn.scores(x, x, ids, ids).detach(), attn.scores(x, x, ids + 90, ids + 90).detach(), atol=1e-5)


@EVERYWHERE
@pytest.mark.parametrize("scaling", ["linear", "ntk", "dynamic", "yarn"])
@pytest.mark.parametrize("options", ["", ",layout=interleaved", ",base=100"])
def test_unstretched_rotations_are_rope(scaling, options, site):
    stretched, rope = pair(f"rope_scaled:scaling={scaling},factor=1{options}", f"rope:{options[1:]}", site)
    equal(stretched, rope, atol=1e-6)


def slowed(spec, length=2):
    """Return the scaled frequencies divided by the frequencies of RoPE, and the magnitudes of the rotated pairs.

    A head has 32 pairs. The sentence has `length` tokens.
    """
    rope, at = method(f"rope_scaled:{spec}", width=64, heads=1).double(), Positions.counted(0, length)
    x = torch.cat([torch.ones(1, 1, length, 32), torch.zeros(1, 1, length, 32)], -1).double()
    a, b = rope.rotate("query", x, at, AttentionContext(at, at))[0, 0, 1].chunk(2)
    return torch.atan2(b, a).numpy() * 10000 ** (np.arange(32) / 32), torch.hypot(a, b).numpy()


def test_yarn_of_64_channels():
    left, size = slowed("scaling=yarn,factor=4,trained=2048")
    ramp = ((np.arange(32) - 8) / (21 - 8)).clip(0, 1)  # the ramp begins at pair 8, and is 1 from pair 21 on
    close(left, 1 - ramp + ramp / 4, atol=1e-9)
    close(size, np.full(32, 0.1 * math.log(4) + 1), atol=1e-12)


@pytest.mark.parametrize("trained, last", [(64, 9), (200, 13), (6, 1), (3, 1), (1, 1)])
def test_the_ramp_of_yarn_starts_at_the_first_pair_for_short_sentences(trained, last):
    """Up to 201 positions, no pair has 32 turns. Up to 6 positions, no pair has a whole turn."""
    left, _ = slowed(f"scaling=yarn,factor=4,trained={trained}")
    ramp = (np.arange(32) / last).clip(0, 1)
    close(left, 1 - ramp + ramp / 4, atol=1e-9)


@pytest.mark.parametrize(
    "spec, length, grown",
    [
        ("scaling=ntk,factor=3", 2, 3),
        ("scaling=dynamic,factor=2,trained=8", 8, 1),
        ("scaling=dynamic,factor=2,trained=8", 16, 3),  # f n / L_0 - (f - 1)
        ("scaling=dynamic,factor=2,trained=8", 12, 2),
    ],
)
def test_larger_bases_keep_the_first_frequency(spec, length, grown):
    left, size = slowed(spec, length)
    close(left, grown ** (-np.arange(32) / 31), atol=1e-9)  # the last frequency is divided by `grown`
    close(size, np.ones(32), atol=1e-12)


def test_interpolation_slows_all_alike():
    close(slowed("factor=3")[0], np.full(32, 1 / 3), atol=1e-9)


# -- positions from words ------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_cope_counts_half_a_word_where_gates_are_half_open(site):
    # If all keys are 0, every gate is 1/2. The table is not linear, so that interpolation has a visible effect.
    attn, squares = attention("cope:largest=4", site), np.arange(4.0) ** 2
    constant(attn.q_proj, [1.0, 0, 0, 0]), constant(attn.k_proj, [0.0] * 4)
    fill(attn.position.table, 0.0)
    fill(attn.position.table[..., 0], torch.tensor(squares))
    if site == "encoder":
        fill(attn.position.right_table, 7.0)
        fill(attn.position.right_table[..., 0], torch.tensor(-squares))
    t, s = np.arange(N if site != "cross" else 3)[:, None], np.arange(N)
    counted = np.broadcast_to(N - s, (len(t), N)) if site == "cross" else abs(t - s) + 1  # both ends are counted
    expected = np.interp(counted / 2, np.arange(4), squares)  # the last position is used for all larger positions
    given = square(attn, len(t), N)
    if site == "encoder":
        expected = np.where(s > t, -expected, expected)
    if site == "decoder":
        expected, given = np.tril(expected), np.tril(given)
    close(given, np.broadcast_to(expected, given.shape), atol=1e-9)


@EVERYWHERE
def test_gradients_of_cope(site):
    attn = attention("cope:largest=3,scale=code", site)
    x = torch.randn(5, 1, C).double().requires_grad_()
    source = torch.randn(5, 1, C).double() if site == "cross" else None
    tables = [table.detach().clone().requires_grad_() for table in attn.position.parameters()]

    def output(x, *tables):
        given = {f"positions.methods.0.{name}": own for (name, _), own in zip(attn.position.named_parameters(), tables)}
        keys = x if source is None else source
        return torch.func.functional_call(attn, given, (x, keys, keys))[0]

    assert torch.autograd.gradcheck(output, (x, *tables))


@pytest.mark.parametrize("spec, sign", [("cable", 1), ("forgetting", -1)])
@pytest.mark.parametrize("site, alibi", [("decoder", "alibi"), ("encoder", "alibi_symmetric")])
def test_equal_increments_are_alibi(site, alibi, spec, sign):
    ours, theirs = pair(spec, alibi, site)
    fill_ending(ours, "weight", 0.0)
    fill_ending(ours, "offset", sign * unsoftplus(SLOPES[H]))  # -softplus(x), which is ln sigmoid(-x)
    equal(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_forgetting_is_cable_turned_round(site):
    # -softplus(x) = ln sigmoid(-x). In the encoder, cable has one set of increments for both sides
    ours, theirs = pair("forgetting", "cable", site)
    fill_ending(ours, "weight", -theirs.position.weight.detach())
    fill_ending(ours, "offset", -theirs.position.offset.detach())
    equal(ours, theirs)


# -- RR-Transformer ------------------------------------------------------------------------------------------------------


def test_rr_is_rnn_with_shaw():
    rr, both = ("rr:max_distance=2", "rnn+shaw:max_distance=2")
    ours, theirs = models.build(encoder=rr, decoder=rr), models.build(encoder=both, decoder=both, seed=1)
    parameters = dict(theirs.named_parameters())
    renamed = {name.replace("0.rnn.", "0.").replace("0.shaw.", "1."): own for name, own in ours.named_parameters()}
    assert renamed.keys() == parameters.keys()
    for name, own in renamed.items():
        fill(own, parameters[name].detach())
    assert torch.equal(ours.decoder.embed_tokens.weight, theirs.decoder.embed_tokens.weight)
    source = models.batch(models.sentences(0, 9, 5), "left")
    target = models.batch(models.sentences(1, 7, 8))
    models.close(models.logits(ours, source, target), models.logits(theirs, source, target))


def test_rr_counts_add_up():
    count = {}
    for name in ("rr", "rnn", "shaw"):
        count[name] = registry.card(name).count(parsing.parse(name).methods[0].options, LARGE)
    assert count["rr"] == count["rnn"] + count["shaw"]
