"""If a method differs from its paper or from the authors' code, the page of the method describes the difference, and the method
agrees with its page.
"""

import math

import pytest
import torch
import torch.nn.functional as F

import fairseq_posenc as posenc
from fairseq_posenc import registry
from fairseq_posenc.core import AttentionContext, Dims, Positions
from fairseq_posenc.ops.buckets import log_buckets
from fairseq_posenc.registry import catalog
from fairseq_posenc.registry import spec as parsing

from .cases import randomise
from .test_values import BOTH, C, H, attention, biases, close, fill, method

#: method -> texts that `posenc show` must print
SAYS = {
    "alibi_learned": ["The authors' form is slope=sigmoid", "initial l and r are normal with mean -2"],
    "alibi_nonsymmetric": [
        "the second form for encoders in issue 5 of the authors' code",
        "The paper describes only the causal form",
    ],
    "alibi_symmetric": [
        "the first form for encoders in issue 5 of the authors' code",
        "The paper describes only the causal form",
    ],
    "bipe_alibi": [
        "The use in a translation model is an extension of this project",
        "The absolute value",
    ],
    "bipe_rope": [
        "The use in a translation model is an extension of this project",
        "Only the code was read, not the paper's text",
    ],
    "cable": [
        "keeps 1/√(d_h), which the authors' code omits",
        "The encoder's sum is symmetric",
        "The paper has increments=relu and weights=true",
        "In equation 7, the bias of later keys has the opposite sign",
    ],
    "cai_lam": [
        "from the query to the key",
        "have no dropout. The authors' code drops both with 0.2",
        "standard deviation of 0.1",
        "The authors' graphs are connected",
    ],
    "cape": ["multiplies the jitter by the factor a"],
    "carope": ["Without b, training cannot start as rope", "no initial W", "The encoder is an extension of this project"],
    "complex": ["as appendix C suggests", "normal initial frequencies with standard deviation 0.02"],
    "cope": ["scale=code", "authors' repository divides q_t · e by √(d_h) by default", "--cope-shared"],
    "dape": [
        "The authors mask only the input",
        "The authors' network has a leaky ReLU",
        "It is not the method `cape` of this project",
    ],
    "deberta_emd": ["In the authors' code the residual connection also contains P_abs"],
    "disan": ["Scores are products of queries and keys by default", "W_h", "The authors drop inputs of the linear layers"],
    "dynamic_bias": [
        "activation=relu, depth=3",
        "bounded=true, depth=1, hidden=512",
        "x-transformers reads t - s",
    ],
    "fire": ["By default, layers share one network, which is the paper's variant FIRE-S. With share=none"],
    "floater": [
        "three paths, for queries, keys and values",
        "have one path per layer, added to the input of the layer",
        "The paper has 0.1 (delta=0.1)",
    ],
    "fope": [
        "If a constant is added to all positions, the scores change",
        "these pairs have sine 1. Sine 1 doubles the contribution of these pairs to the score",
    ],
    "forgetting": ["The authors' gates start at b = 0 (start=0)"],
    "grape_a": ["The equation of the paper is gate=both", "The authors pass them through a learned RMSNorm first"],
    "grape_ap": [
        "the method is not relative",
        "The authors' code has the opposite direction",
        "The authors pass them through a learned RMSNorm first",
    ],
    "graph_bert": [
        "2l/d for sines and (2l+1)/d for cosines",
    ],
    "group": ["One separator divides two sentences", "their result is NaN"],
    "kerple_power": ["a sigmoid keeps p between 0.01 and 2", "The authors' code clamps a and p"],
    "laplacian": [
        "word without edges has the eigenvalue 1",
    ],
    "ldpe": ["Oka, Chousa, Sudoh and Nakamura (2020)"],
    "localness": ["maps the queries of all heads with one matrix of d x d", "of which the abstract was read"],
    "log_length": [
        "The paper's value could not be verified",
        "n counts neither padding nor later tokens",
        "half of the mean target length",
    ],
    "lrpe": ["Oka, Chousa, Sudoh and Nakamura (2020)"],
    "mvpe": ["k > 1000", "The default is k=1000"],
    "path_attention": [
        "SiLU is from the authors' code",
        "are not scaled, as in the Forgetting Transformer",
        "The encoder is an experimental extension of this project",
    ],
    "pope": ["Phases are not limited to [-2 pi, 0]", "A figure of the paper has different phases in each layer"],
    "position_segment": ["of the paper is unverified", "reads a copy that training does not change"],
    "randomised": [
        "draws nothing",
        "all positions are below N",
    ],
    "rel_proj": ["There is no paper", "The released model has 1024", "Inkling normalises queries and keys"],
    "rope": ["section 6.1 and the code in appendix D", "The authors call this method multiplicative GRAPE"],
    "rope_scaled": [
        "yarn's ramp is linear in the index i of the pair",
        "starts (wavelength L_0/32) is rounded down",
        "the ramp ends (L_0) is rounded up",
        "number of turns within L_0",
    ],
    "rr": ["Dropout follows the GRU", "Embeddings keep the factor √(d)", "5 decoder layers", "two bias vectors"],
    "row_gates": ["There is no paper", "By default, the sum contains the gates of the tokens after the key"],
    "sandwich": ["Public implementations differ in the first j", "with `first=0`"],
    "selective_rope": [
        "The bias exp(b) is on by default. In the authors' code, it is off by default",
        "Outside of these models, the authors' class has PyTorch's initial values",
    ],
    "segment_shift": ["Only the code was read, not the text of the papers", "Decoding uses the same positions as training"],
    "segments": ["A source of single sentences has no separators, and the term has no effect", "The authors' stacks share one"],
    "soft_t5": ["The authors use the bias only in the first layer", "of which the abstract was read"],
    "spe_conv": ["Codes have the factor 1/√(R)", "The defaults of their code are 200 and 256", "the ReLU features"],
    "spe_sine": ["the exact expectation is the default", "JAX code exchanges gate and 1 - gate", "their code are 1 and 256"],
    "stickbreaking": [
        "The encoder is an experimental extension of this project",
        "The remainder goes to the token itself (rest=self)",
    ],
    "synthesizer_dense": ["Every head has its own network"],
    "t5": ["the last bucket begins at 91, or at 113 in the decoder"],
    "tupe_abs": [
        "It contains 2 n parameters of the relative bias",
        "never receives a gradient",
    ],
    "unifpe": ["The authors' dataset draws them when it is built", "the gap of g positions is never after the last block"],
    "universal": [
        "Positions count from 0",
        "both from 1 (first_position=1)",
        "With layers=, steps count only the layers that use the method",
    ],
    "wall": ["No paper was read", "Its initial bias is 5, and 8 in the authors' code"],
    "wavelet": ["The paper does not state the order of the channels", "No code was found"],
    "zhu": [
        "average and sum, so that both lead to the same model",
        "eight heads with biases",
        "the method ignores the label of a root",
    ],
}


@pytest.mark.parametrize("name", SAYS)
def test_its_page_says_so(name):
    for words in SAYS[name]:
        assert words in catalog.page(name), words


def test_the_exponent_of_kerple_power_is_a_sigmoid():
    """Beyond its limits, a clamp has no gradient. A sigmoid stays within the limits and always has a gradient."""
    attn = attention("kerple_power", "decoder")
    for raw in (-3.0, 0.0, 3.0):
        fill(attn.position.power, raw)
        one, four = -biases(attn, [-1, -4])[0]
        assert math.log(four / one, 4) == pytest.approx(0.01 + 1.99 / (1 + math.exp(-raw)))
    at = Positions.counted(0, 5)
    attn.position.power.grad = None
    attn.position.bias(AttentionContext(at, at)).sum().backward()
    assert (attn.position.power.grad != 0).all()


@pytest.mark.parametrize("heads", [2, 4, 8, 16])
def test_forms_of_alibi_for_encoders(heads):
    """The authors describe two forms. In both forms, all heads have a penalty.

    In the nonsymmetric form, the first half of the heads masks the future, and the second half masks the past.
    """
    n = 7
    distance = (torch.arange(n) - torch.arange(n)[:, None]).abs()
    hidden = torch.full((n, n), -math.inf)
    halves = torch.cat([hidden.triu(1).expand(heads // 2, n, n), hidden.tril(-1).expand(heads // 2, n, n)])
    x = torch.randn(n, 1, 2 * heads, dtype=torch.double)
    for spec, own, masks in (("alibi_symmetric", heads, 0), ("alibi_nonsymmetric", heads // 2, halves)):
        slopes = torch.tensor([2 ** (-8 * head / own) for head in range(1, own + 1)], dtype=torch.double)
        added = (-slopes[:, None, None] * distance).repeat(heads // own, 1, 1) + masks
        ours = attention(spec, heads=heads, width=2 * heads)
        q, k, v = (proj(x)[:, 0].unflatten(-1, (heads, 2)).transpose(0, 1) for proj in (ours.q_proj, ours.k_proj, ours.v_proj))
        weights = (q @ k.mT / 2**0.5 + added).softmax(-1)
        theirs = ours.out_proj((weights @ v).transpose(0, 1).flatten(1)).unsqueeze(1)
        close(ours(x, x, x)[0].detach(), theirs.detach())


def test_fire_shares_its_network_by_default():
    at = Positions.counted(0, 9)
    for spec, networks in (("fire", 1), ("fire:share=none", 3)):
        fire = randomise(method(spec, "decoder", layers=3))
        found = [fire.bias(AttentionContext(at, at, layer=layer)) for layer in range(3)]
        assert len({bias.detach().numpy().tobytes() for bias in found}) == networks


def test_steps_of_universal_count_the_layers_that_use_it():
    dims = Dims(C, H, 4, 12, 12)
    site = posenc.attention.site_positions.SitePositions(parsing.build("universal:layers=1/3", dims, "encoder"), dims, "encoder")
    at = Positions.counted(0, 1)  # at position 0, sines are 0 and cosines are 1. The rest is the vector of the step
    ctx = site.begin(AttentionContext(at, at))
    added = [site.apply_chain("before_layer", torch.zeros(1, 1, C), ctx=site.at_layer(ctx, layer)) for layer in range(4)]
    first, second = (torch.tensor([math.sin(step), math.cos(step) + 1]) for step in (1, 2))
    assert not added[0].any() and not added[2].any()
    torch.testing.assert_close(added[1][0, 0, :2], first)
    torch.testing.assert_close(added[3][0, 0, :2], second)


def test_the_last_bucket_of_t5_begins_at_91_and_in_the_decoder_at_113():
    attn = attention("t5")
    fill(attn.position.weight, torch.arange(32.0))
    found = biases(attn, [-90, -91, -1000])[0]
    assert found.tolist() == [14, 15, 15] and BOTH[-1] == 91
    assert log_buckets(torch.tensor([-112, -113, -1000]), 32, 128, False).tolist() == [30, 31, 31]


def test_what_the_survey_counts_of_tupe():
    """In n (d + 2), the survey counts n d for the position vectors, and 2 n for the relative bias: one scalar per distance.

    Its Table 1 has one row for TUPE, with the relative bias.
    """
    counted = [registry.card(name).survey_parameters for name in ("tupe_abs", "tupe_rel")]
    assert counted == ["", "2 d^2 + n (d+2)"]


def test_an_attention_that_is_asked_for_weights_makes_all_scores(monkeypatch):
    assert "need_weights=True, the default, stores all scores. need_weights=False is faster" in " ".join(
        posenc.build_attention.__doc__.split()
    )
    fused, used = F.scaled_dot_product_attention, []
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *given, **more: used.append(1) or fused(*given, **more))
    attn, x = attention("rope"), torch.randn(5, 1, C, dtype=torch.double)
    assert attn(x, x, x)[1] is not None and not used
    assert attn(x, x, x, need_weights=False)[1] is None and used
