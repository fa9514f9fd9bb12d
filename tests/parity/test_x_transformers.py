"""Compare with x-transformers: whole attention modules with the same weights."""

import pytest
import torch
from x_transformers.x_transformers import (
    Attention,
    DynamicPositionBias,
    PolarEmbedding,
    RotaryEmbedding,
    ScaledSinusoidalEmbedding,
)

from fairseq_posenc.core import AttentionContext, Dims, Positions
from fairseq_posenc.registry import spec as parsing

from .attentions import HEAD, HEADS, LENGTH, WIDTH, attend, build, copy, directed, matters, same


def pair(spec: str, site: str, **how):
    ours = build(spec, site)
    theirs = Attention(WIDTH, dim_head=HEAD, heads=HEADS, causal=site == "decoder", **how).eval()
    for name, projection in zip(("q", "k", "v", "out"), (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj)):
        copy(getattr(theirs, f"to_{name}"), projection)
    return ours, theirs


def agree(ours, theirs, x, padding, **how) -> None:
    """Compare the attention weights, and the outputs of all tokens that are not padding.

    At padding, the output of x-transformers is zero.
    """
    out, steps = theirs(x, mask=~padding, return_intermediates=True, **how)
    found, mean = attend(ours, x, padding)
    same(found[~padding], out[~padding])
    same(mean, steps.post_softmax_attn.mean(1))


@pytest.mark.parametrize("largest", [4, 20])
def test_cope_attention(largest, x, padding):
    """The table has fewer positions than the sentence (largest=4), or more positions (largest=20)."""
    ours, theirs = pair(f"cope:largest={largest}", "decoder", use_cope=True, cope_max_pos=largest)
    theirs.attend.cope.pos_emb.data = ours.position.table[0, 0].data
    matters(ours, x)
    agree(ours, theirs, x, padding)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_forgetting_attention(site, x, padding):
    ours, theirs = pair("forgetting", site, data_dependent_alibi=True)
    gates, method = theirs.data_dependent_alibi.to_forget_gates[0], ours.position
    sides = [(method.weight, method.offset), (method.right_weight, method.right_offset)][: 1 if site == "decoder" else 2]
    gates.weight.data = torch.cat([weight[0].data for weight, _ in sides])
    gates.bias.data = torch.cat([offset[0].data for _, offset in sides])
    matters(ours, x)
    agree(ours, theirs, x, padding)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("depth, log, norm", [(1, True, False), (2, False, False), (3, True, True)])
def test_dynamic_bias_attention(depth, log, norm, site, x, padding):
    ours, theirs = pair(f"dynamic_bias:hidden=16,depth={depth},log={log},norm={norm}".lower(), site)
    bias = DynamicPositionBias(16, heads=HEADS, depth=depth, log_distance=log, norm=norm)
    method = ours.position
    method.layers[-1].weight.data.mul_(5)  # with norms, weights of the usual size would have little effect
    for other, own in zip([*(block[0] for block in bias.mlp[:-1]), bias.mlp[-1]], method.layers):
        copy(other, own)
    bias.mlp[0][0].weight.data.neg_()  # in x-transformers, a distance is query minus key
    for number, own in enumerate(method.norms):
        if number == 0:  # the first norm of x-transformers has no offset
            bias.mlp[number][1].gamma.data = own.weight.data
            own.bias.data.zero_()
        else:
            copy(bias.mlp[number][1], own)
    directed(ours, x)
    agree(ours, theirs, x, padding, rel_pos=bias)


@pytest.mark.parametrize("scale_base", [4, 512])
def test_xpos_attention(scale_base, x, padding):
    """In x-transformers, the exponents of the decay are 0 at the middle of the sentence. This has no effect on scores."""
    ours, theirs = pair(f"xpos:scale_base={scale_base}", "decoder")
    if scale_base < LENGTH:  # with 512, these sentences would be too short for a visible decay
        matters(ours, x, "rope:layout=interleaved")
    directed(ours, x)
    agree(ours, theirs, x, padding, rotary_pos_emb=RotaryEmbedding(HEAD, True, scale_base).forward_from_seq_len(LENGTH))


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("scaling, theirs_factor", [("linear", "interpolation_factor"), ("ntk", "base_rescale_factor")])
def test_rope_scaled_attention(scaling, theirs_factor, site, x, padding):
    """The rotary base is small.

    With the usual base, channel pairs with low frequencies would hardly rotate in short sentences.
    """
    ours, theirs = pair(f"rope_scaled:scaling={scaling},factor=3,base=50,layout=interleaved", site)
    rotary = RotaryEmbedding(HEAD, base=50, **{theirs_factor: 3})
    matters(ours, x, "rope:base=50,layout=interleaved")
    directed(ours, x)
    agree(ours, theirs, x, padding, rotary_pos_emb=rotary.forward_from_seq_len(LENGTH))


@pytest.mark.parametrize("start", [1.0, WIDTH**-0.5])
def test_scaled_sinusoidal_positions(start, x):
    """Both modules have the same scale: the value of this project's option `start`."""
    ours, theirs = (
        parsing.build(f"scaled_sinusoidal:start={start}", Dims(WIDTH, HEADS), "encoder")[0],
        ScaledSinusoidalEmbedding(WIDTH),
    )
    assert theirs.scale.item() == pytest.approx(WIDTH**-0.5)
    theirs.scale.data.fill_(start)
    at, tokens = Positions.counted(0, LENGTH), torch.zeros(x.shape[:2], dtype=torch.long)
    same(ours.embed(torch.zeros_like(x), tokens, AttentionContext(at, at)), theirs(x).expand_as(x))


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("base", [10000, 50])
def test_pope_attention(base, site, x, padding):
    ours, theirs = pair(f"pope:base={base}", site)
    polar = PolarEmbedding(HEAD, HEADS, base=base)
    torch.nn.init.uniform_(ours.position.phase, -6.0, 0.0)  # x-transformers limits the phases to one turn
    polar.learned_bias.data = ours.position.phase[0].data.unsqueeze(1)
    directed(ours, x)
    agree(ours, theirs, x, padding, polar_pos_emb=polar(torch.arange(LENGTH)))


@pytest.mark.parametrize("vectors, reach", [(16, 1024), (3, 5)])
def test_rel_proj_attention(vectors, reach, x, padding):
    """With reach=1024, all distances have learned values. With reach=5, distances from 5 on have no learned value."""
    ours, theirs = pair(
        f"rel_proj:vectors={vectors},reach={reach},bias=true", "decoder",
        use_rel_proj_pos_bias=True, rel_proj_num_distance_basis=vectors, rel_proj_max_dist=reach,
    )  # fmt: skip
    method, bias = ours.position, theirs.rel_proj_pos_bias
    project = bias.to_distance_weights[0]
    project.weight.data = method.weight[0].data.mT.flatten(0, 1)  # [H, C, vectors] -> [H vectors, C]
    project.bias.data = method.offset[0].data.flatten()
    bias.distance_bank.data = method.bank[0, 0].data.flip(-1)  # this project orders the bank from far to near keys
    matters(ours, x)
    agree(ours, theirs, x, padding)


@pytest.mark.parametrize("width", [8, 3])
def test_row_gates_attention(width, x, padding):
    ours, theirs = pair(
        f"row_gates:width={width},sum=from_key", "decoder",
        data_dependent_alibi=True, data_dependent_alibi_per_row=True, data_dependent_alibi_per_row_dim_head=width,
    )  # fmt: skip
    tables = ours.position.query_weight[0].data, ours.position.key_weight[0].data  # [H, C, width]
    theirs.data_dependent_alibi.to_forget_gates[0].weight.data = torch.cat([table.mT.flatten(0, 1) for table in tables])
    matters(ours, x)
    agree(ours, theirs, x, padding)
