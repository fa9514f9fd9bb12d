"""Biases of low rank that are computed with additional channels of queries and keys.

The results equal the results with the bias matrix.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from fairseq_posenc.attention import multihead
from fairseq_posenc.core import AttentionContext, Positions
from fairseq_posenc.ops import bias_channels, devices
from fairseq_posenc.ops.bias_channels import with_channels
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing.models import batch, build_for, close, logits, sentences
from tests.contract.cases import SMALL, Case, defaults

LENGTH = 9


def context(dims, layer: int = 0) -> AttentionContext:
    torch.manual_seed(70)
    at, x = Positions.counted(0, LENGTH), torch.randn(2, LENGTH, dims.embed_dim, dtype=torch.double)
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, -3:] = True
    return AttentionContext(at, at, layer=layer, causal=True, inputs=(x, x), key_padding=padding)


def method_of(spec: str):
    return parsing.build(spec, SMALL.at("decoder"), "decoder")[0].double()


WITH_FACTORS, WEIGHTED = ["cable", "forgetting"], "cable:increments=relu,weights=true"


def test_methods_with_factors():
    decoders = [case for case in defaults() if case.site == "decoder" and not case.card.side_inputs]
    biased = {case.name: case.method().double() for case in decoders if "bias" in case.method().hooks}
    found = [name for name, method in biased.items() if method.bias_factors(context(method.dims)) is not None]
    assert found == WITH_FACTORS


@pytest.mark.parametrize(
    "spec",
    [f"{name}{share}" for name in WITH_FACTORS for share in ("", ":share=heads", ":share=layers")]
    + [WEIGHTED, f"{WEIGHTED},share=heads"],
)
def test_the_factors_are_those_of_the_bias(spec):
    """The product of the factors equals the bias, except for one number per query, which the softmax cancels."""
    method = method_of(spec)
    for layer in range(SMALL.num_layers):
        ctx = context(method.dims, layer)
        of_query, of_key = method.bias_factors(ctx)
        rest = (method.bias(ctx) - of_query @ of_key.mT).masked_fill(
            torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), math.nan
        )
        for query in range(LENGTH):
            seen = rest[..., query, : query + 1]
            close(seen, seen[..., :1].expand_as(seen), 1e-10)


def test_an_encoder_has_no_factors():
    for name in WITH_FACTORS:
        assert parsing.build(name, SMALL.at("encoder"), "encoder")[0].bias_factors(context(SMALL)) is None


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("name", [*WITH_FACTORS, WEIGHTED])
def test_a_decoder_gives_the_numbers_of_the_bias_matrix(monkeypatch, name, padded):
    monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    taken, found = [], []
    take = multihead.with_channels
    monkeypatch.setattr(multihead, "with_channels", lambda *args: taken.append(1) or take(*args))
    for least in (1, 2**30):
        monkeypatch.setattr(multihead, "_CHANNELS_FROM_LENGTH", least)
        model = build_for(Case(name, "decoder")).double()
        source, target = batch(sentences(71, 9, 6), "left"), batch(sentences(72, 8, 5 if padded else 8), "right")
        out = logits(model, source, target)
        out.square().sum().backward()
        found.append([out, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(taken) == SMALL.num_layers
    close(*found, 1e-9)


def test_decoding_and_weights_take_the_bias_matrix(monkeypatch):
    monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    monkeypatch.setattr(multihead, "_CHANNELS_FROM_LENGTH", 1)
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


def attended(of_query, of_key, causal: bool) -> torch.Tensor:
    """Return attention weights [T, S] for the queries and keys of test_published_values.py.

    The factors of the bias are `of_query` [T or 1, R] and `of_key` [S, R].
    """
    q = torch.tensor([[math.sin(0.3 * t + 0.7 * i + 0.1) for i in range(4)] for t in range(4)], dtype=torch.double)
    k = torch.tensor([[math.cos(0.5 * s - 0.4 * i) for i in range(4)] for s in range(4)], dtype=torch.double)
    factors = (torch.tensor(x, dtype=torch.double)[None, None] for x in (of_query, of_key))
    wide = with_channels(q[None, None], k[None, None], torch.eye(4, dtype=torch.double)[None, None], *factors, 0.5)
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
