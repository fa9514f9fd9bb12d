"""Equal to the position methods of Hugging Face's transformers: whole attentions, given the same weights."""

import pytest
import torch
from transformers import (
    BertConfig,
    BloomConfig,
    GPTJConfig,
    GPTNeoXConfig,
    RoFormerConfig,
    SeamlessM4Tv2Config,
    T5Config,
    Wav2Vec2BertConfig,
)
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention
from transformers.models.gptj.modeling_gptj import GPTJAttention
from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention, RoFormerSinusoidalPositionalEmbedding
from transformers.models.seamless_m4t_v2.modeling_seamless_m4t_v2 import SeamlessM4Tv2ConformerSelfAttention
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

import fairseq_posenc as posenc
from fairseq_posenc.contract import Positions
from fairseq_posenc.methods.attention.alibi import slopes
from fairseq_posenc.ops.buckets import log_buckets

WIDTH, HEADS, BATCH, LENGTH = 32, 4, 2, 13
HEAD = WIDTH // HEADS


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(BATCH, LENGTH, WIDTH)


@pytest.fixture
def padding() -> torch.Tensor:
    """The second sentence is shorter."""
    return torch.arange(LENGTH).expand(BATCH, -1) >= torch.tensor([[LENGTH], [LENGTH - 4]])


def build(spec: str, site: str = "encoder"):
    """Our attention in evaluation, with biases and tables of visible size."""
    attention = posenc.build_attention(spec, WIDTH, HEADS, site=site).eval()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return attention


def attend(attention, x, padding=None):
    """[B, T, C] -> output [B, T, C] and weights [B, T, T], mean over heads."""
    x = x.transpose(0, 1)
    out, weights = attention(x, x, x, key_padding_mask=padding)
    return out.transpose(0, 1), weights


def forbid(mask: torch.Tensor) -> torch.Tensor:
    """A bool mask, True where nobody may look, as transformers adds it to scores."""
    return torch.zeros(mask.shape).masked_fill(mask, torch.finfo(torch.float32).min)


def future() -> torch.Tensor:
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)


def copy(theirs: torch.nn.Linear, ours: torch.nn.Linear, factor: float = 1.0) -> None:
    theirs.weight.data = ours.weight.data * factor
    if theirs.bias is not None:
        theirs.bias.data = ours.bias.data * factor
    else:
        ours.bias.data.zero_()


def fuse(ours) -> torch.nn.Linear:
    """One projection of each head's query, key and value in turn, as GPT-NeoX and Bloom have it."""
    fused = torch.nn.Linear(WIDTH, 3 * WIDTH)
    parts = [ours.q_proj, ours.k_proj, ours.v_proj]
    fused.weight.data = torch.stack([p.weight.data.view(HEADS, HEAD, WIDTH) for p in parts], 1).view(3 * WIDTH, WIDTH)
    fused.bias.data = torch.stack([p.bias.data.view(HEADS, HEAD) for p in parts], 1).view(-1)
    return fused


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert theirs.abs().max() > 1e-2  # or the comparison says nothing
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-6)


# --- T5 ---


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize("buckets, furthest", [(32, 128), (32, 40), (16, 20), (8, 64), (64, 256), (4, 3), (10, 100)])
def test_t5_buckets(buckets, furthest, both_ways):
    delta = torch.arange(-300, 301)
    theirs = T5Attention._relative_position_bucket(delta, both_ways, buckets, furthest)
    assert torch.equal(log_buckets(delta, buckets, furthest, both_ways), theirs)


def t5_pair(site: str):
    ours = build("t5:buckets=8,max_distance=11", site)
    config = T5Config(
        d_model=WIDTH, d_kv=HEAD, num_heads=HEADS, dropout_rate=0, is_decoder=site == "decoder",
        relative_attention_num_buckets=8, relative_attention_max_distance=11,
    )  # fmt: skip
    theirs = T5Attention(config, has_relative_attention_bias=True).eval()
    theirs.relative_attention_bias.weight.data = ours.position.weight[0].T.clone()
    copy(theirs.q, ours.q_proj, HEAD**-0.5)  # T5 has folded the scale into these weights
    for name in "kv":
        copy(getattr(theirs, name), getattr(ours, f"{name}_proj"))
    copy(theirs.o, ours.out_proj)
    return ours, theirs


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_t5_bias(site):
    ours, theirs = t5_pair(site)
    zero = torch.zeros(LENGTH, 1, WIDTH)
    same(ours.scores(zero, zero), theirs.compute_bias(LENGTH, LENGTH))


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_t5_attention(site, x, padding):
    ours, theirs = t5_pair(site)
    hidden = padding[:, None, None] | (future() if site == "decoder" else torch.zeros(1, 1, dtype=torch.bool))
    out, _, _, weights = theirs(x, mask=forbid(hidden), query_length=LENGTH, output_attentions=True)
    found, mean = attend(ours, x, padding)
    same(found, out)
    same(mean, weights.mean(1))


# --- relative position representations ---


@pytest.mark.parametrize("limit", [1, 4, 30])
@pytest.mark.parametrize("model", ["wav2vec2-bert", "seamless-m4t-v2"])
def test_shaw_keys_of_conformers(model, limit, x, padding):
    ours = build(f"shaw:values=false,max_distance={limit}")
    limits = {"left_max_position_embeddings": limit, "right_max_position_embeddings": limit}
    common = dict(hidden_size=WIDTH, position_embeddings_type="relative_key", **limits)
    if model == "wav2vec2-bert":
        config = Wav2Vec2BertConfig(num_attention_heads=HEADS, attention_dropout=0.0, **common)
        theirs = Wav2Vec2BertSelfAttention(config).eval()
    else:
        config = SeamlessM4Tv2Config(speech_encoder_attention_heads=HEADS, speech_encoder_dropout=0.0, **common)
        theirs = SeamlessM4Tv2ConformerSelfAttention(config).eval()
    for name, projection in zip(("q", "k", "v", "out"), (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj)):
        copy(getattr(theirs, f"linear_{name}"), projection)
    theirs.distance_embedding.weight.data = ours.position.key_table[0, 0].clone()

    out, weights = theirs(x, attention_mask=forbid(padding[:, None, None]), output_attentions=True)
    found, mean = attend(ours, x, padding)
    same(found, out)
    same(mean, weights.mean(1))


def test_shaw_keys_of_bert(x, padding):
    ours = build(f"shaw:values=false,max_distance={LENGTH - 1}")
    config = BertConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, max_position_embeddings=LENGTH, attention_probs_dropout_prob=0.0,
        position_embedding_type="relative_key",
    )  # fmt: skip
    theirs = BertSelfAttention(config).eval()
    for name in ("query", "key", "value"):
        copy(getattr(theirs, name), getattr(ours, f"{name[0]}_proj"))
    theirs.distance_embedding.weight.data = ours.position.key_table[0, 0].flip(0)  # BERT's distance is query minus key

    out, weights = theirs(x, attention_mask=forbid(padding[:, None, None]), output_attentions=True)
    found, mean = attend(ours, x, padding)
    same(found, ours.out_proj(out))
    same(mean, weights.mean(1))


# --- rotary ---


@pytest.mark.parametrize("fraction, base", [(1.0, 10000), (0.5, 10000), (0.25, 100)])
def test_rope_halves_of_gpt_neox(fraction, base, x, padding):
    ours = build(f"rope:fraction={fraction},base={base}", "decoder")
    config = GPTNeoXConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, rotary_pct=fraction, rotary_emb_base=base,
        max_position_embeddings=64, attention_dropout=0.0, hidden_dropout=0.0,
    )  # fmt: skip
    theirs = GPTNeoXAttention(config, layer_idx=0).eval()
    theirs.query_key_value = fuse(ours)
    copy(theirs.dense, ours.out_proj)

    out, _, weights = theirs(x, forbid(padding[:, None, None]), torch.arange(LENGTH).unsqueeze(0), output_attentions=True)
    found, mean = attend(ours, x, padding)
    same(found, out)
    same(mean, weights.mean(1))


def test_rope_interleaved_of_roformer(x, padding):
    ours = build("rope:layout=interleaved")
    config = RoFormerConfig(hidden_size=WIDTH, num_attention_heads=HEADS, attention_probs_dropout_prob=0.0)
    theirs = RoFormerSelfAttention(config).eval()
    for name in ("query", "key", "value"):
        copy(getattr(theirs, name), getattr(ours, f"{name[0]}_proj"))
    waves = RoFormerSinusoidalPositionalEmbedding(LENGTH, HEAD)(x.shape[:-1])[None, None]

    out, weights = theirs(x, forbid(padding[:, None, None]), waves, output_attentions=True)
    found, mean = attend(ours, x, padding)
    same(found, ours.out_proj(out))
    same(mean, weights.mean(1))


@pytest.mark.parametrize("rotated", [HEAD, HEAD // 2])
def test_rope_interleaved_of_gpt_j(rotated, x):
    ours = build(f"rope:layout=interleaved,fraction={rotated / HEAD}", "decoder")
    config = GPTJConfig(n_embd=WIDTH, n_head=HEADS, n_positions=64, rotary_dim=rotated, attn_pdrop=0.0, resid_pdrop=0.0)
    theirs = GPTJAttention(config, layer_idx=0).eval()
    for name in "qkv":
        copy(getattr(theirs, f"{name}_proj"), getattr(ours, f"{name}_proj"))
    copy(theirs.out_proj, ours.out_proj)

    at = torch.arange(LENGTH).expand(BATCH, -1)
    out, _, weights = theirs(x, attention_mask=forbid(future())[None, None], position_ids=at, output_attentions=True)
    found, mean = attend(ours, x)
    same(found, out)
    same(mean, weights.mean(1))


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_rope_far_from_the_start(layout):
    """Angles of positions that no table holds, in float64 of our own, to the accuracy of float32."""
    method = build(f"rope:layout={layout}").position
    far = torch.tensor([[0, 1, 1023, 1024, 100_000]])
    q = torch.randn(1, HEADS, far.size(1), HEAD)
    pairs = q.double().unflatten(-1, (2, -1)).unbind(-2) if layout == "halves" else (q.double()[..., ::2], q.double()[..., 1::2])
    angles = far.double()[0, :, None] * torch.tensor([10000.0 ** (-2 * i / HEAD) for i in range(HEAD // 2)], dtype=torch.float64)
    turned = torch.complex(*pairs) * torch.polar(torch.ones_like(angles), angles)
    parts = [turned.real, turned.imag]
    expected = torch.cat(parts, -1) if layout == "halves" else torch.stack(parts, -1).flatten(-2)
    same(method.rotate(q, Positions(far)), expected.float())


# --- linear biases ---


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 16, 20])
def test_alibi_slopes(heads):
    theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(torch.tensor(slopes(heads)), theirs)


def test_alibi_attention(x):
    ours = build("alibi", "decoder")
    theirs = BloomAttention(
        BloomConfig(hidden_size=WIDTH, n_head=HEADS, attention_dropout=0.0, hidden_dropout=0.0), layer_idx=0
    ).eval()
    theirs.query_key_value = fuse(ours)
    copy(theirs.dense, ours.out_proj)

    alibi = build_alibi_tensor(torch.ones(BATCH, LENGTH), HEADS, torch.float32)
    mask = forbid(future())[None, None].expand(BATCH, -1, -1, -1)
    out, _, weights = theirs(x, torch.zeros_like(x), alibi, mask, output_attentions=True)
    found, mean = attend(ours, x)
    same(found, out)
    same(mean, weights.mean(1))


def test_alibi_bias_is_that_of_bloom_up_to_a_constant_of_every_query():
    zero = torch.zeros(LENGTH, 1, WIDTH)
    difference = build("alibi", "decoder").scores(zero, zero)[0] - build_alibi_tensor(torch.ones(1, LENGTH), HEADS, torch.float32)
    allowed = ~future()
    for head in range(HEADS):
        for row in range(LENGTH):
            seen = difference[head, row][allowed[row]]
            torch.testing.assert_close(seen, seen[:1].expand_as(seen))
