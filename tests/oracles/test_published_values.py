"""Values that were computed by hand from the papers and public code. Queries, keys and hidden states have closed forms."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fairseq_posenc as posenc
from fairseq_posenc.core import AttentionContext, Dims, PositionError, Positions
from fairseq_posenc.registry import spec as parsing

LENGTH = 4


def wave(function, rows: float, columns: float, offset: float, width: int = 4, length: int = LENGTH) -> Tensor:
    """Return a matrix [T, width] with function(rows * t + columns * i + offset) in row t and column i."""
    return torch.tensor(
        [[function(rows * t + columns * i + offset) for i in range(width)] for t in range(length)], dtype=torch.double
    )


class Given(nn.Module):
    """A projection that returns the same vectors for all inputs."""

    def __init__(self, vectors: Tensor):
        super().__init__()
        self.vectors = vectors.unsqueeze(0)  # [T, C] -> [1, T, C]

    def forward(self, x: Tensor) -> Tensor:
        return self.vectors


def fixture(spec: str, site: str = "decoder", heads: int = 1, width: int = 4, start: int = 0) -> np.ndarray:
    """Build an attention module. Return its logits [heads, T, S] for fixed queries and keys, at positions from `start`."""
    return scores_of(built(spec, site, heads, width), start)


def built(spec: str, site: str = "decoder", heads: int = 1, width: int = 4) -> nn.Module:
    q, k = wave(math.sin, 0.3, 0.7, 0.1, width), wave(math.cos, 0.5, -0.4, 0.0, width)
    if heads == 2:
        q = torch.cat([q, wave(math.sin, 0.2, 0.6, 0.4, width)], 1)
        k = torch.cat([k, wave(math.cos, 0.3, -0.5, 0.2, width)], 1)
    attn = posenc.build_attention(spec, width * heads, heads, site=site).double().eval()
    attn.q_proj, attn.k_proj = Given(q), Given(k)
    return attn


def scores_of(attn: nn.Module, start: int = 0) -> np.ndarray:
    """Return the scores for hidden states in closed form. Only the first four channels of the hidden states are not 0."""
    x = torch.nn.functional.pad(wave(math.sin, 0.2, 0.5, 0.3), (0, attn.positions.dims.embed_dim - 4)).unsqueeze(1)
    ids = (torch.arange(start, start + LENGTH),) * 2 if start else ()
    return attn.scores(x, x, *ids)[0].detach().numpy()


def put(parameter: nn.Parameter, values) -> None:
    with torch.no_grad():
        parameter.copy_(torch.as_tensor(values, dtype=parameter.dtype).view_as(parameter))


def close(found, expected, atol: float = 1e-9) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def test_plain_scores():
    close(fixture("none")[0, 3], [1.1202607831, 1.2011340739, 0.9879278524, 0.5328424375])


# -- rotary spectra ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, expected",
    [
        ("", 0.3243849946),
        ("keep=0.5", 0.3173163791),
        ("fraction=0.5", -0.0354172528),
        ("frequencies=learned", 0.3243849946),
    ],
)
def test_rope(options, expected):
    close(fixture(f"rope:{options}")[0, 3, 1], expected, 1e-7)  # tables are float32


def spectrum(spec: str, width: int) -> list[float]:
    """Return the angle of every pair of channels between two neighbouring positions."""
    method = posenc.build_attention(spec, width, 1).position
    x, at = torch.cat([torch.ones(1, 1, 1, width // 2), torch.zeros(1, 1, 1, width // 2)], -1), Positions(torch.tensor([[1]]))
    real, imaginary = method.rotate("query", x, at, AttentionContext(at, at)).flatten().chunk(2)
    return torch.atan2(imaginary, real).tolist()


def test_keep_and_fraction_differ():
    close(spectrum("rope:keep=0.5", 16), [1, 0.3162277660, 0.1, 0.0316227766, 0, 0, 0, 0], 1e-7)


@pytest.mark.parametrize("cutoff, pairs", [(32, 6), (64, 9), (128, 11), (256, 13), (512, 16), (1024, 18)])
def test_pairs_within_the_cutoff(cutoff, pairs):
    found = spectrum(f"rope:cutoff={cutoff}", 64)
    assert all(found[:pairs]) and not any(found[pairs:])


def test_llama3_frequencies():
    expected = [1, 0.2443845994, 0.0130422560, 0.0039528471, 0.00125, 0.00039528471, 0.000125, 0.000039528]
    close(spectrum("rope_scaled:scaling=llama3,factor=8,trained=64", 16), expected, 1e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_learned_frequencies_start_at_the_fixed_frequencies_in_half_precision(dtype):
    at, x = Positions.counted(0, 200), torch.randn(1, 8, 200, 64)
    learned, fixed = (
        built_method(spec).to(dtype).rotate("query", x, at, AttentionContext(at, at))
        for spec in ("rope:frequencies=learned", "rope")
    )
    close(learned.detach(), fixed, 1e-4)


def test_weight_decay_keeps_the_fixed_frequencies():
    parameters = list(built_method("rope:frequencies=learned").parameters())
    assert parameters and not any(parameter.any() for parameter in parameters)


def test_learned_frequencies_per_stack():
    counts = {share: sum(p.numel() for p in built_method(f"rope:frequencies=learned,share={share}").parameters())
              for share in ("all", "layers", "heads", "none")}  # fmt: skip
    assert counts == {"all": 32, "layers": 8 * 32, "heads": 6 * 32, "none": 6 * 256}


def built_method(spec: str, site: str = "decoder") -> nn.Module:
    """Return a method for a stack with the sizes of Transformer base."""
    return parsing.build(spec, Dims(512, 8, 6).at(site), site)[0]


# -- polar positions -----------------------------------------------------------------------------------------------------

PHASES = [-0.5, -1, -1.5, -2]


@pytest.mark.parametrize(
    "phases, row, other",
    [
        ([0] * 4, [0.9204119831, 1.6384214185, 2.2664266029, 2.1360255374], 1.8404190336),
        (PHASES, [-0.6270153911, -0.4146008776, 0.2442777723, 0.5715333179], 0.2223752278),
    ],
)
def test_pope(phases, row, other):
    attn = built("pope")
    put(attn.position.phase, phases)
    found = scores_of(attn)[0]
    close(found[3], row, 1e-6)  # angles are float32
    close(found[1, 3], other, 1e-6)
    close(scores_of(attn, start=70), scores_of(attn), 1e-4)


def test_pope_sides():
    """Without phases, the score is an even function of the distance."""
    attn, size = built("pope", "encoder"), torch.tensor([[0.5, 1, 1.5, 2]], dtype=torch.double).expm1().log().expand(4, 4)
    attn.q_proj, attn.k_proj = Given(size), Given(size)
    close(scores_of(attn)[0][[0, 2], [2, 0]], [3.5627859419] * 2, 1e-6)
    put(attn.position.phase, PHASES)
    close(scores_of(attn)[0][[0, 2], [2, 0]], [-0.3694537388, -0.6977719749], 1e-6)


def test_pope_is_local_at_the_start():
    attn, ids = posenc.build_attention("pope", 64, 1, site="decoder").double(), torch.tensor([0, 1, 10, 100])
    attn.q_proj, attn.k_proj = Given(torch.zeros(1, 64).double()), Given(torch.zeros(4, 64).double())
    x = torch.zeros(4, 1, 64).double()
    found = attn.scores(x[:1], x, torch.tensor([0]), ids)[0, 0, 0].detach()
    close(found, [3.8436241113, 3.7291371912, 2.5716261322, 1.8343368584], 1e-6)


# -- projected biases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bias, row",
    [
        (None, [0, 1.5649345244, 3.8670076769, 3.8234058628]),
        ([0.1, -0.2], [0, 1.6081685291, 3.8152513975, 3.7080539639]),
    ],
)
def test_rel_proj(bias, row):
    attn = built(f"rel_proj:vectors=2,reach=3,bias={bias is not None}".lower())
    put(attn.position.weight, [[math.cos(0.7 * j + 0.3 * i) for j in range(2)] for i in range(4)])
    put(attn.position.bank, [[math.sin(1 + 0.5 * j + 0.8 * x) for x in (2, 1, 0)] for j in range(2)])  # from far to near keys
    if bias:
        put(attn.position.offset, bias)
    close((scores_of(attn) - fixture("none"))[0, 3], row)


# -- scores that a network mixes over heads ------------------------------------------------------------------------------


def dape(options: str, taps: int) -> nn.Module:
    attn = built(f"dape:base=alibi,hidden=3,{options}", heads=2)
    method = attn.position
    put(method.first_bias, [0.05, -0.05, 0.1]), put(method.second_bias, [0.01, -0.02])
    if taps == 1:
        put(method.first_weight, [[0.1 * (a + 1) * (-1) ** (a + b) / (b + 1) for b in range(4)] for a in range(3)])
        put(method.second_weight, [[0.2, -0.1, 0.3], [-0.3, 0.2, 0.1]])
    else:
        for weight, size, wave_of, per in ((method.first_weight, 0.3, math.sin, 12), (method.second_weight, 0.3, math.cos, 9)):
            outputs, inputs = weight.shape[1:3]
            put(
                weight,
                [[[size * wave_of(per * o + 3 * i + m) for m in range(taps)] for i in range(inputs)] for o in range(outputs)],
            )
    return attn


def test_dape():
    close(scores_of(dape("kernel=1", 1))[:, 3, 1], [1.1817560343, 1.2811613274])


def test_dape_of_version_2():
    close(scores_of(dape("kernel=3", 3))[0, 3], [0.9710169219, 1.1798717790, 1.0241673888, 0.6476004131])


@pytest.mark.parametrize("taps", [1, 3])
def test_the_network_of_dape_has_float32(taps):
    """Scores in half precision are converted before the network, not after it."""
    method, at = dape(f"kernel={taps}", taps).position.bfloat16(), Positions.counted(0, LENGTH)
    scores, x = torch.randn(1, 2, LENGTH, LENGTH).bfloat16(), torch.zeros(1, 2, LENGTH, 4)
    ctx = AttentionContext(at, at, causal=True)
    of_half, of_single = (method.rescale(given, x, x, ctx) for given in (scores, scores.float()))
    assert of_half.dtype == torch.float32 and torch.equal(of_half, of_single)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(method.rescale(scores, x, x, ctx), of_single)


def test_dape_without_its_network_is_its_base():
    for base in ("alibi", "fire"):
        attn, plain = built(f"dape:base={base},start=zero"), built(base)
        for name, parameter in plain.position.named_parameters():
            put(attn.position.get_parameter(f"base.{name}"), parameter.detach())
        close(scores_of(attn), scores_of(plain))


# -- stick-breaking attention --------------------------------------------------------------------------------------------


def test_stickbreaking():
    attn = built("stickbreaking")
    at = Positions.counted(0, LENGTH)
    logs = torch.from_numpy(scores_of(attn)).masked_fill(~attn.position.mask(AttentionContext(at, at))[0], -torch.inf)
    close(logs.exp().sum(-1), torch.ones(1, 4), 1e-12)
    close(logs[0, 3].exp(), [0.0473154468, 0.2085720642, 0.7286784402, 0.0154340488])
    close(logs[0, 1].exp(), [0.7413143114, 0.2586856886, 0, 0])


def test_stickbreaking_to_the_right():
    attn = built("stickbreaking", "encoder", heads=2)
    for projection in (attn.q_proj, attn.k_proj):  # both heads have the same queries and keys
        projection.vectors = projection.vectors[..., :4].repeat(1, 1, 2)
    at = Positions.counted(0, LENGTH)
    logs = torch.from_numpy(scores_of(attn)).masked_fill(~attn.position.mask(AttentionContext(at, at))[0], -torch.inf)
    close(logs[1, 0].exp(), [0.0151826566, 0.7660876184, 0.1800994658, 0.0386302591])
    close(logs[0, 3].exp(), [0.0473154468, 0.2085720642, 0.7286784402, 0.0154340488])


# -- factors of the length -----------------------------------------------------------------------------------------------


def factors(spec: str, site: str = "decoder", start: int = 0, keys: int = LENGTH) -> list[float]:
    """Return the factor by which the method multiplies the scores of the query at position `start`.

    With start=0, return the factors of the first four queries. If all queries have the same factor, return it once.
    """
    method = parsing.build(spec, Dims(4, 1).at(site), site)[0]
    queries = Positions.counted(start, 1) if start else Positions.counted(0, LENGTH)
    return method.scale(AttentionContext(queries, Positions.counted(0, max(keys, start + 1)))).flatten().tolist()


def test_log_length_of_translation():
    close(factors("log_length"), [0.0310667467, 0.2153382790, 0.3413030972, 0.4306765581], 1e-7)
    close(fixture("log_length")[0, 3, 1], 0.5173002887, 1e-6)
    close(factors("log_length", "encoder", keys=7), [0.6045309776], 1e-7)
    for keys, factor in {20: 1.1679498719, 80: 1.7084261808, 1: 0.0389871}.items():
        close(factors("log_length:length=13", "encoder", keys=keys), [factor], 1e-7)


def test_log_length_of_scalable_softmax():
    close(fixture("log_length:form=ssmax,start=0.43")[0, 3, 1], 0.7160039192, 1e-6)
    mean = sum(math.log(n) for n in range(1, 1025)) / 1024
    close(1 / mean, 0.1684705995)
    close(factors("log_length:form=ssmax", start=24), [1.0], 1e-6)


def test_log_length_above_a_floor():
    close(factors("log_length:form=floor,length=1024", start=4095), [1.1386294361], 1e-7)
    close(factors("log_length:form=floor,length=1024"), [1.0] * 4)


def test_a_key_behind_a_window_takes_nothing_of_the_stick():
    attn = built("window:width=2+stickbreaking")
    attn.v_proj, attn.out_proj = Given(torch.zeros(LENGTH, 4).double()), nn.Identity()
    x = torch.zeros(LENGTH, 1, 4).double()
    weights = attn(x, x, x)[1][0].detach().numpy()
    parts = 1 / (1 + np.exp(-fixture("none")[0]))
    close(weights[3], [0, 0, parts[3, 2], 1 - parts[3, 2]])
    close(weights[1], [parts[1, 0], 1 - parts[1, 0], 0, 0])


# -- some heads ----------------------------------------------------------------------------------------------------------


def test_alibi_of_four_heads_among_eight():
    attn = posenc.build_attention("alibi:heads=0-3", 32, 8, site="decoder")
    assert attn.position.slopes.values.tolist() == [0.25, 0.0625, 0.015625, 0.00390625, 0, 0, 0, 0]


@pytest.mark.parametrize("spec", ["alibi:heads=0/8", "alibi_learned:heads=8", "window:heads=9", "rope:heads=8"])
def test_heads_that_do_not_exist_are_refused(spec):
    with pytest.raises(PositionError, match=r"there is no head \d\. Expected heads 0 to 7"):
        posenc.build_attention(spec, 32, 8, site="encoder" if "learned" in spec or "window" in spec else "decoder")


# -- angles from words ---------------------------------------------------------------------------------------------------

W = [0.5, -0.25, 0.1, 0.2]


def test_carope():
    attn = built("carope:start=paper")
    put(attn.position.weight, W)
    found = scores_of(attn)[0]
    close([found[3, 1], found[1, 3]], [0.3703925697, -0.2779469206])
    x, at = wave(math.sin, 0.2, 0.5, 0.3).unsqueeze(0), Positions.counted(0, LENGTH)
    angles = attn.position.angles(AttentionContext(at, at, inputs=(x, x)))[0, 0].detach()
    close(angles[3], [4, 2.1412957939])
    close(angles[:, 1].diff(prepend=torch.zeros(1)), [0.5460549854, 0.5374430239, 0.5309655029, 0.5268322817])


def test_carope_starts_at_rope():
    close(fixture("carope")[0, 3, 1], 0.3243849946, 1e-6)
    close(built_method("carope").offset[0, 0].item(), -0.9266568680, 1e-6)
    close(fixture("carope"), fixture("rope"), 1e-6)


@pytest.mark.parametrize("width", [2, 4, 6, 64])
def test_carope_starts_at_rope_with_heads_of_every_width(width):
    """With heads of 2 channels, the softplus of `offset` is initially 9999."""
    offset = parsing.build("carope", Dims(2 * width, 2).at("decoder"), "decoder")[0].offset.double()
    close((1 / (torch.nn.functional.softplus(offset) + 1)).detach(), torch.full_like(offset, 10000 ** (-2 / width)), 1e-7)


# -- path_attention: one reflection per word between key and query --------------------------------------------------------


def of_words(attn: nn.Module, start: int = 0) -> np.ndarray:
    """Return the logits for one-hot hidden states: word t has a 1 in channel t.

    Row t of a projection matrix is then the projection of word t.
    """
    x = torch.eye(LENGTH, dtype=torch.double).unsqueeze(1)
    ids = (torch.arange(start, start + LENGTH),) * 2 if start else ()
    return attn.scores(x, x, *ids)[0].detach().numpy()


def path(spec: str) -> nn.Module:
    attn = built(spec)
    method = next(method for method in attn.positions.methods if method.card.name == "path_attention")
    put(method.up, wave(math.cos, 0.6, 0.9, 0.0))
    put(method.weight, [0.4 * t - 0.5 for t in range(LENGTH)])
    return attn


PATH = [0.2675564567, 0.3000932085, -0.3062945104, 0.5328424375]
GATED_PATH = [-0.2967394963, -0.0231942906, -0.4456812687, 0.5328424375]


def test_path_attention():
    close(of_words(path("path_attention:rank=0,conv=0"))[0, 3], PATH)
    close(of_words(path("path_attention:rank=0,conv=0,beta=0")), fixture("none"))


def test_path_attention_with_forget_gates_that_are_not_scaled():
    attn = path("path_attention:rank=0,conv=0+forgetting")
    gates = attn.positions.methods[1]
    put(gates.weight, [0.3 * t + 1 for t in range(LENGTH)]), put(gates.offset, 0)
    found = of_words(attn)[0, 3]
    close(found, GATED_PATH)
    scaled = [-0.0145915198, 0.1384494590, -0.3759878896, 0.5328424375]  # values of the authors' code
    close((np.array(scaled) - PATH) * 2, found - PATH)


def test_path_attention_has_the_parameters_of_its_authors():
    assert sum(p.numel() for p in built_method("path_attention").parameters()) == 230_448


# -- gates of queries and keys -------------------------------------------------------------------------------------------

U, V = [0.5, -0.5, 0.5, 0.5], [0.1, 0.7, -0.1, 0.7]


@pytest.mark.parametrize("gate, expected", [("key", -1.8268559317), ("query", -1.7902505553), ("both", -3.6171064871)])
def test_grape_a(gate, expected):
    attn = built(f"grape_a:gate={gate}")
    assert sum(p.numel() for p in built_method(f"grape_a:gate={gate}").parameters()) == (6192 if gate == "both" else 3120)
    method = attn.position
    slope = method.slopes.values.item()
    for vectors, values in ((method.of_key, U), (method.of_query, V)):
        if vectors is not None:
            put(vectors, values)
    # softplus of the learned parameter is 1 only up to rounding, because the parameter is float32
    close((scores_of(attn) - fixture("none"))[0, 3, 1] / slope, expected, 1e-6)


@pytest.mark.parametrize(
    "sum_of, row",
    [
        ("from_key", [-0.1998999251, -0.0769775895, -0.0245670582, 0]),
        ("after_key", [-0.0902097376, -0.0377992063, -0.0132321481, 0]),
    ],
)
def test_row_gates(sum_of, row):
    attn = built(f"row_gates:width=2,sum={sum_of}")
    for weight, rows in ((attn.position.query_weight, (0, 1)), (attn.position.key_weight, (2, 3))):
        put(weight, [[math.sin(0.4 * j + 0.9 * i) for j in rows] for i in range(4)])
    close((scores_of(attn) - fixture("none"))[0, 3], row)


@pytest.mark.parametrize("direction, expected", [("code", -2.2388773781), ("rope", -2.0274974353)])
def test_grape_ap(direction, expected):
    attn = built(f"grape_ap:width=4,direction={direction}")
    put(attn.position.weight, wave(math.sin, 0.5, -0.3, 0.2))
    slope = attn.position.slopes.values.item()
    close((of_words(attn) - fixture("none"))[0, 3, 1] / slope, expected)


def test_grape_ap_is_not_relative():
    attn = built("grape_ap:width=4,direction=code")
    put(attn.position.weight, wave(math.sin, 0.5, -0.3, 0.2))
    close((of_words(attn, start=5) - fixture("none"))[0, 3, 1] / attn.position.slopes.values.item(), -1.2231, 1e-4)


def test_row_gates_have_the_parameters_of_the_specification():
    assert sum(p.numel() for p in built_method("row_gates").parameters()) == 393_216


# -- wavelets of the distance --------------------------------------------------------------------------------------------


def test_wavelet():
    attn = built("wavelet:scales=2", "encoder")
    found = scores_of(attn)[0]
    close([found[3, 1], found[1, 3]], [1.0440735550, 0.6304266937], 1e-7)  # wavelets are float32
    close(attn.position._vectors(torch.tensor([2]))[0], [-0.4060058497, 0, 0, 0.6618726769], 1e-7)


def test_selective_rope():
    attn = built("selective_rope:rank=4,bias=false")
    method = attn.position
    put(method.down, torch.eye(4))
    put(method.up, [[0.3 * (j + 1) * math.cos(i) for j in range(2)] for i in range(4)])
    put(method.taps, [[0.1, 0.2, 0.3, 0.4]] * 2)  # the first tap is for the oldest word
    close(scores_of(attn)[0, 3, 1], 1.1929478237)
    x, at = wave(math.sin, 0.2, 0.5, 0.3).unsqueeze(0), Positions.counted(0, LENGTH)
    ctx = AttentionContext(at, at, inputs=(x, x))
    close(method.angles(ctx)[0, 0, 3].detach(), [-0.1821954433, -0.0005153265])
    step = method.steps(ctx)[0, 0, 3].detach()
    close(step * torch.tensor([1, math.sqrt(500_000)], dtype=torch.double), [-0.0124662213, -0.0249324425])


def test_selective_rope_has_the_parameters_of_its_authors():
    counts = {
        options: sum(p.numel() for p in built_method(f"selective_rope:{options}").parameters())
        for options in ("bias=false", "bias=false,gate=true")
    }
    assert counts == {"bias=false": 153_600, "bias=false,gate=true": 153_600 + 6 * (512 * 8 + 8)}


# -- mixtures of frequencies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero, start, expected", [("paper", 0, 0.9442208219), ("code", 0, 1.3726617696), ("paper", 5, 1.0121)])
def test_fope(zero, start, expected):
    """A shift of 5 positions changes the score, so the method is not relative."""
    attn = built(f"fope:cutoff=64,zero={zero}", width=8)
    put(attn.position.sines, [[1, 0.2], [-0.1, 1]])
    put(attn.position.cosines, [[1, -0.3], [0.15, 1]])
    close(scores_of(attn, start)[0, 3, 1], expected, 5e-5 if start else 1e-6)  # tables are float32
    close(fixture("rope", width=8)[0, 3, 1], 1.0516826686, 1e-6)


@pytest.mark.parametrize("cutoff, kept, pairs", [(512, 16, 16), (1024, 18, 16)])
def test_matrices_of_fope(cutoff, kept, pairs):
    method = built_method(f"fope:cutoff={cutoff},gain=0")
    assert method.sines.shape == (8, kept, pairs) and not any(p.requires_grad for p in method.parameters())
    step = -(-kept // pairs)
    expected = torch.tensor([[float(row == column * step) for column in range(pairs)] for row in range(kept)])
    assert torch.equal(method.sines, expected.expand(8, -1, -1)) and torch.equal(method.cosines, method.sines)
    noise = torch.cat([(built_method(f"fope:cutoff={cutoff}").sines - method.sines).flatten() for _ in range(4)])
    close(noise.std(), 0.3 * (2 / (pairs * (kept + 8))) ** 0.5, 2e-3)


# -- gates of channels ---------------------------------------------------------------------------------------------------


def wall(spec: str) -> nn.Module:
    attn = built(spec)
    put(attn.positions.methods[0].weight, [[0.5 * t - 0.2 * i + 1 for i in range(4)] for t in range(LENGTH)])
    put(attn.positions.methods[0].offset, [0.0] * 4)
    return attn


def test_wall():
    close(of_words(wall("wall"))[0, 3], [0.6945025109, 0.9355976234, 0.8946312948, 0.5328424375])
    attn = wall("wall+forgetting")
    put(attn.positions.methods[1].weight, [0.3 * t + 1 for t in range(LENGTH)]), put(attn.positions.methods[1].offset, 0)
    close(of_words(attn)[0, 3, 1], 0.6123101242)
    assert sum(p.numel() for p in built_method("wall").parameters()) == 1_575_936


# -- a predicted Gaussian window -----------------------------------------------------------------------------------------


def localness(spec: str, q, length: int, **values):
    """Return the bias [T, S] of the only head, for given queries."""
    dims = Dims(len(q[0]), 1, 1, 16, 16)
    method = parsing.build(spec, dims, "encoder")[0].double()
    for name, value in values.items():
        put(getattr(method, name), value)
    at = Positions.counted(0, length)
    given = torch.tensor(q).double()[None, None]
    with torch.no_grad():
        return method.content_scores(given, given, AttentionContext(at, at))[0, 0]


def test_localness():
    q = [[1.0, 0.0], [0.5, -1.0], [-2.0, 1.0]]
    values = {"query_weight": [[1, 0.5], [-0.5, 1]], "centre": [0.3, -0.2], "window": [-0.4, 0.1]}
    close(localness("localness", q, 3, **values)[0], [-1.4974705605, -0.0282098094, -0.7881822260])
    centres = [1.1590879646, 1.0846254772, 0.7719087870]
    windows = [1.3395293928, 1.5364168503, 1.9379478116]
    found = localness("localness", q, 3, **values)
    expected = [[-2 * ((s - p) / d) ** 2 for s in range(3)] for p, d in zip(centres, windows)]
    close(found, expected, 1e-7)
    start = [-2 * ((s - 2.5) / 3.1) ** 2 for s in range(6)]
    close(localness("localness", [[1.0, 2.0]] * 6, 6)[2], start, 1e-7)
    row = localness("localness:centre=query,window=fixed", [[1.0, 2.0]] * 11, 11)[0]
    close(row[[1, 5, 10]], [-0.02, -0.5, -2], 1e-7)
