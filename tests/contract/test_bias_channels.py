"""Biases of low rank that are computed with additional channels of queries and keys.

The results equal the results with the bias matrix.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from fairseq_posenc.attention import multihead, site_positions
from fairseq_posenc.core import AttentionContext, Positions
from fairseq_posenc.methods.absolute.shape import Shape
from fairseq_posenc.ops import bias_channels, devices
from fairseq_posenc.ops.bias_channels import channels, with_channels
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing.models import batch, build_for, close, logits, sentences
from tests.contract.cases import SMALL, Case, defaults

LENGTH = 9


def context(dims, layer: int = 0) -> AttentionContext:
    torch.manual_seed(70)
    keys = LENGTH - 2 * dims.cross
    sides = [Positions.counted(0, length) for length in (LENGTH, keys)]
    inputs = tuple(torch.randn(2, length, dims.embed_dim, dtype=torch.double) for length in (LENGTH, keys))
    padding = torch.zeros(2, keys, dtype=torch.bool)
    padding[1, -3:] = True
    causal = {"causal": dims.causal, "cross": dims.cross}
    return AttentionContext(*sides, layer=layer, scale=0.5, inputs=inputs, key_padding=padding, **causal)


def method_of(spec: str, site: str = "decoder"):
    torch.manual_seed(69)
    return parsing.build(spec, SMALL.at(site), site)[0].double()


CAUSAL, EVERYWHERE = ["alibi", "cable", "forgetting"], ["diet_abs", "sandwich", "tupe_abs"]
SITES = {"encoder": EVERYWHERE, "decoder": sorted(CAUSAL + EVERYWHERE), "cross": EVERYWHERE}
SPECS = [(name, site) for site, names in SITES.items() for name in names] + [
    (spec, "decoder")
    for spec in (
        *(f"{name}:share={share}" for name in ("cable", "forgetting", "diet_abs") for share in ("heads", "none")),
        "cable:increments=relu", "alibi:heads=1", "sandwich:first=0",
    )
]  # fmt: skip


@pytest.mark.parametrize("site", SITES)
def test_methods_with_factors(site):
    cases = [case for case in defaults() if case.site == site and not case.card.side_inputs]
    biased = {case.name: case.method().double() for case in cases if "bias" in case.method().hooks}
    found = [name for name, method in biased.items() if method.bias_factors(context(method.dims)) is not None]
    assert found == SITES[site]


@pytest.mark.parametrize("spec, site", SPECS)
def test_the_factors_are_those_of_the_bias(spec, site):
    """The product of the factors equals the bias, except for one number per query, which the softmax cancels."""
    method = method_of(spec, site)
    for layer in range(SMALL.num_layers):
        ctx = context(method.dims, layer)
        of_query, of_key = method.bias_factors(ctx)
        rest = method.bias(ctx) - of_query @ of_key.mT
        for query in range(LENGTH):
            seen = rest[..., query, : query + 1 if ctx.causal else None]
            close(seen, seen[..., :1].expand_as(seen), 1e-6 if "sandwich" in spec else 1e-10)  # its bias is in float32


def on_an_accelerator(monkeypatch, factors_from: int) -> None:
    monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    monkeypatch.setattr(site_positions, "_FACTORS_FROM", dict.fromkeys(site_positions._FACTORS_FROM, factors_from))


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("name, site", [(name, site) for site, names in SITES.items() for name in names])
def test_a_model_gives_the_numbers_of_the_bias_matrix(monkeypatch, name, site, padded):
    taken, found = [], []
    take = multihead.with_channels
    monkeypatch.setattr(multihead, "with_channels", lambda *args: taken.append(1) or take(*args))
    for least in (1, 2**30):
        on_an_accelerator(monkeypatch, least)
        model = build_for(Case(name, site)).double()
        source = batch(sentences(71, 9, 6 if padded else 9), "left")
        target = batch(sentences(72, 8, 5 if padded else 8), "right")
        out = logits(model, source, target)
        out.square().sum().backward()
        with torch.no_grad():
            evaluated = logits(model, source, target)
        found.append([out, evaluated, *(p.grad for p in model.parameters() if p.grad is not None)])
    # the last layer returns the weights of the cross-attention, and needs the matrix
    assert len(taken) == 2 * (SMALL.num_layers - (site == "cross"))
    close(*found, 1e-5 if name == "sandwich" else 1e-9)


@pytest.mark.parametrize("name", SITES["decoder"])
def test_a_causal_kernel_receives_no_mask(monkeypatch, name):
    """Padding on the right of a target needs no mask in causal attention."""
    on_an_accelerator(monkeypatch, 1)
    calls, attend = [], F.scaled_dot_product_attention

    def recorded(q, k, v, mask=None, dropout=0.0, causal=False, **options):
        calls.append((q.size(-1) != v.size(-1), mask is None, causal))
        return attend(q, k, v, mask, dropout, causal, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", recorded)
    model = build_for(Case(name, "decoder"))
    logits(model, batch(sentences(71, 9), "left"), batch(sentences(72, 8, 5), "right"))
    assert [causal for _, _, causal in calls].count(True) == SMALL.num_layers
    assert all(without_mask for _, without_mask, _ in calls)


@pytest.mark.parametrize("further", ["da", "xl", "shaw"])
@pytest.mark.parametrize("name", ["alibi", "diet_abs"])
def test_a_layer_that_needs_the_matrix_gets_it(monkeypatch, name, further):
    """The first layer can use the factors, and the second layer has a method that needs the matrix."""
    found = []
    for least in (1, 2**30):
        on_an_accelerator(monkeypatch, least)
        model = build_for(Case(f"{name}+{further}:layers=1", "decoder")).double()
        found.append(logits(model, batch(sentences(71, 9), "left"), batch(sentences(72, 8, 5), "right")))
    close(*found, 1e-9)


@pytest.mark.parametrize("spec", [*SITES["decoder"], "cape:jitter=3+alibi"])
@pytest.mark.parametrize("whole", [False, True], ids=["causal", "whole"])
def test_positions_and_masks_for_which_the_factors_are_not_exact(monkeypatch, spec, whole):
    """Check training with positions that do not ascend, and a decoder whose queries attend to all keys."""
    found = []
    for least in (1, 2**30):
        on_an_accelerator(monkeypatch, least)
        model = build_for(Case(spec, "decoder")).double().train()
        source, target = batch(sentences(71, 9), "left"), batch(sentences(72, 8, 5), "right")
        torch.manual_seed(76)
        found.append(model.decoder(target, model.encoder(source), full_context_alignment=whole)[0])
    close(*found, 1e-5 if spec == "sandwich" else 1e-9)


def test_positions_that_restart(monkeypatch):
    """A user's method may return such positions. Earlier keys can then have larger positions than the query."""
    monkeypatch.setattr(Shape, "positions", lambda self, ids, ctx: ids % 4)
    found = []
    for least in (1, 2**30):
        on_an_accelerator(monkeypatch, least)
        model = build_for(Case("shape+alibi", "decoder")).double()
        found.append(logits(model, batch(sentences(71, 9), "left"), batch(sentences(72, 8, 5), "right")))
    close(*found, 1e-9)


def test_wide_factors_are_not_used(monkeypatch):
    """Fused kernels support heads of up to 256 channels."""
    on_an_accelerator(monkeypatch, 1)
    monkeypatch.setattr(multihead, "with_channels", None)
    logits(build_for(Case("sandwich:width=256", "decoder")), *(torch.stack(sentences(73, 6)) for _ in range(2)))


def test_decoding_and_weights_take_the_bias_matrix(monkeypatch):
    on_an_accelerator(monkeypatch, 1)
    monkeypatch.setattr(multihead, "with_channels", None)
    model = build_for(Case("cable", "decoder"))
    source, target = torch.stack(sentences(73, 6)), torch.stack(sentences(74, 4))
    encoded = model.encoder(source)
    model.decoder(target[:, :1], encoded, incremental_state={})


@pytest.mark.parametrize(
    "dtype, errors", [(torch.bfloat16, (0.5, 1e-3, 2e-6)), (torch.float16, (7e-2, 3e-5, 6e-8))], ids=["bfloat16", "float16"]
)
def test_pieces_of_a_sum(dtype, errors):
    """Cumulative sums decrease to -212 over 512 tokens. Each sum is split into one, two or three numbers of the dtype.

    If the sum is stored as one number in bfloat16, the error is up to 0.5.
    """
    torch.manual_seed(75)
    sums = -torch.rand(512).cumsum(0)
    sums = sums * 212 / sums[-1].abs()
    for pieces, error in enumerate(errors, 1):
        found = bias_channels._split(sums, dtype, pieces)
        assert {x.dtype for x in found} == {dtype}
        assert (sum(x.double() for x in found) - sums.double()).abs().max() <= error


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_gradients_in_half_precision(dtype, width):
    torch.manual_seed(77)
    factors = [torch.randn(1, 2, 16, width) for _ in range(2)]
    found = []
    for kind in (torch.float32, dtype):
        of_query, of_key = given = [x.clone().requires_grad_() for x in factors]
        added = channels(of_query, of_key, kind, 0.25)
        bias = 0.25 * torch.cat(added.of_queries, -1).float() @ torch.cat(added.of_keys, -1).float().mT
        (bias.softmax(-1) * torch.arange(16.0)).sum().backward()
        found.append([x.grad for x in given])
    for exact, rounded in zip(*found):
        assert (exact - rounded).norm() <= 0.02 * exact.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_beyond_float16_are_finite(dtype):
    sums = -40.0 * torch.arange(2048.0).unsqueeze(-1)  # down to -81,880
    added = channels(torch.ones(1, 1), sums, dtype, 0.125)
    assert all(x.isfinite().all() for x in added.of_keys)
    bias = 0.125 * torch.cat(added.of_queries, -1).double() @ torch.cat(added.of_keys, -1).double().mT
    close(bias, sums.double().mT, 1e-3)


def attended(of_query, of_key, causal: bool) -> torch.Tensor:
    """Return attention weights [T, S] for the queries and keys of test_published_values.py.

    The factors of the bias are `of_query` [T or 1, R] and `of_key` [S, R].
    """
    q = torch.tensor([[math.sin(0.3 * t + 0.7 * i + 0.1) for i in range(4)] for t in range(4)], dtype=torch.double)
    k = torch.tensor([[math.cos(0.5 * s - 0.4 * i) for i in range(4)] for s in range(4)], dtype=torch.double)
    factors = (torch.tensor(x, dtype=torch.double)[None, None] for x in (of_query, of_key))
    eye = torch.eye(4, dtype=torch.double)
    wide = with_channels(q[None, None], k[None, None], eye[None, None], channels(*factors, eye.dtype, 0.5))
    assert {x.size(-1) % 8 for x in wide} == {0}
    return F.scaled_dot_product_attention(*wide, is_causal=causal, scale=0.5)[0, 0, :, :4]


def test_alibi_with_a_slope_of_a_half():
    """The bias of a key is 0.5 times the position of the key. Keys near the query therefore have more weight."""
    found = attended([[0.5]], [[s] for s in range(4)], causal=True)
    close(found[3], torch.tensor([0.1305535494, 0.2333773738, 0.3108935442, 0.3251755327], dtype=torch.double), 1e-9)


def test_forget_gates():
    steps = [math.log1p(math.exp(-(0.3 * t + 1))) for t in range(4)]
    found = attended([[1.0]], [[sum(steps[: s + 1])] for s in range(4)], causal=True)
    close(found[3], torch.tensor([0.2129136649, 0.2937615839, 0.2852776791, 0.2080470720], dtype=torch.double), 1e-9)


def test_a_squared_distance():
    a = 0.1
    found = attended([[2 * a * t, -a] for t in range(4)], [[s, s * s] for s in range(4)], causal=False)
    close(found[1], torch.tensor([0.2349322211, 0.3352181329, 0.2842771219, 0.1455725240], dtype=torch.double), 1e-9)
