"""Compare with the position methods of Hugging Face's transformers: whole attention modules with the same weights."""

from types import SimpleNamespace

import pytest
import torch
from transformers import (
    BertConfig,
    BloomConfig,
    DebertaConfig,
    DebertaV2Config,
    GPTJConfig,
    GPTNeoXConfig,
    LlamaConfig,
    RoFormerConfig,
    SeamlessM4Tv2Config,
    T5Config,
    Wav2Vec2BertConfig,
    XLNetConfig,
    XLNetModel,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor
from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention, build_relative_position
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Encoder, make_log_bucket_position
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention
from transformers.models.gptj.modeling_gptj import GPTJAttention
from transformers.models.llama.modeling_llama import LlamaAttention
from transformers.models.reformer.modeling_reformer import AxialPositionEmbeddings
from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention, RoFormerSinusoidalPositionalEmbedding
from transformers.models.seamless_m4t_v2.modeling_seamless_m4t_v2 import SeamlessM4Tv2ConformerSelfAttention
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

import fairseq_posenc as posenc
from fairseq_posenc.core import AttentionContext, Dims, Positions
from fairseq_posenc.methods.bias.alibi import slopes
from fairseq_posenc.ops.buckets import log_buckets
from fairseq_posenc.registry import spec as parsing

from .attentions import BATCH, HEAD, HEADS, LENGTH, WIDTH, attend, build, copy, directed, future, hidden, matters, same


def forbid(mask: torch.Tensor) -> torch.Tensor:
    """Convert a boolean mask to the mask that modules of Hugging Face add to scores.

    The boolean mask is True for forbidden keys.
    """
    return torch.zeros(mask.shape).masked_fill(mask, torch.finfo(torch.float32).min)


def fuse(ours) -> torch.nn.Linear:
    """Combine the projections of query, key and value, head by head, as in GPT-NeoX, Bloom and DeBERTa."""
    fused = torch.nn.Linear(WIDTH, 3 * WIDTH)
    parts = [ours.q_proj, ours.k_proj, ours.v_proj]
    fused.weight.data = torch.stack([p.weight.data.view(HEADS, HEAD, WIDTH) for p in parts], 1).view(3 * WIDTH, WIDTH)
    fused.bias.data = torch.stack([p.bias.data.view(HEADS, HEAD) for p in parts], 1).view(-1)
    return fused


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
    copy(theirs.q, ours.q_proj, HEAD**-0.5)  # T5 does not scale scores, so its query weights contain the scale
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
    out, _, _, weights = theirs(x, mask=forbid(hidden(site, padding)), query_length=LENGTH, output_attentions=True)
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


def bert(ours, table: torch.Tensor, kind: str):
    """Return BERT's attention with a table of this project, [2n - 1, D]. BERT's distance is query minus key."""
    config = BertConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, max_position_embeddings=(len(table) + 1) // 2,
        attention_probs_dropout_prob=0.0, position_embedding_type=kind,
    )  # fmt: skip
    theirs = BertSelfAttention(config).eval()
    for name in ("query", "key", "value"):
        copy(getattr(theirs, name), getattr(ours, f"{name[0]}_proj"))
    theirs.distance_embedding.weight.data = table.data.flip(0)
    return theirs


def test_shaw_keys_of_bert(x, padding):
    ours = build(f"shaw:values=false,max_distance={LENGTH - 1}")
    theirs = bert(ours, ours.position.key_table[0, 0], "relative_key")

    out, weights = theirs(x, attention_mask=forbid(padding[:, None, None]), output_attentions=True)
    found, mean = attend(ours, x, padding)
    same(found, ours.out_proj(out))
    same(mean, weights.mean(1))


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("reach", [LENGTH - 1, LENGTH + 2])
def test_huang4_attention(reach, site, x, padding):
    ours = build(f"huang4:share=heads,max_distance={reach}", site)
    theirs = bert(ours, ours.position.table[0, 0], "relative_key_query")
    directed(ours, x)

    out, weights = theirs(x, attention_mask=forbid(hidden(site, padding)), output_attentions=True)
    found, mean = attend(ours, x, padding)
    same(found, ours.out_proj(out))
    same(mean, weights.mean(1))


# --- disentangled attention ---


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("terms", ["both", "c2p", "p2c"])
@pytest.mark.parametrize("reach", [5, LENGTH, LENGTH + 3])
def test_deberta_attention(reach, terms, site, x, padding):
    ours = build(f"deberta:max_distance={reach},terms={terms}", site)
    ours.k_proj.bias.data.zero_()  # Hugging Face's key projection has no bias
    config = DebertaConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attention_probs_dropout_prob=0.0, relative_attention=True,
        max_relative_positions=reach, pos_att_type=["c2p", "p2c"] if terms == "both" else [terms],
    )  # fmt: skip
    theirs, method = DisentangledSelfAttention(config).eval(), ours.position
    theirs.in_proj.weight.data = fuse(ours).weight.data
    theirs.q_bias.data, theirs.v_bias.data = ours.q_proj.bias.data, ours.v_proj.bias.data
    if terms != "p2c":
        theirs.pos_proj.weight.data = method.key_weight[0].data
    if terms != "c2p":
        theirs.pos_q_proj.weight.data, theirs.pos_q_proj.bias.data = method.query_weight[0].data, method.query_bias[0].data
    directed(ours, x)

    positions = {"relative_pos": build_relative_position(x, x), "rel_embeddings": method.table}
    out, weights = theirs(x, ~hidden(site, padding), output_attentions=True, **positions)
    found, mean = attend(ours, x, padding)
    same(found, ours.out_proj(out))
    same(mean, weights.mean(1))


@pytest.mark.parametrize("buckets, furthest", [(256, 512), (32, 128), (8, 20), (4, 9), (10, 1000)])
def test_deberta_buckets(buckets, furthest):
    distance = torch.arange(-1100, 1101)
    method = posenc.build_attention(f"deberta:buckets={buckets},max_distance={furthest}", WIDTH, HEADS).position
    theirs = make_log_bucket_position(distance, buckets, furthest).long()
    assert torch.equal(method.row(distance), (theirs + buckets).clamp(0, 2 * buckets - 1))


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("buckets, furthest", [(None, 5), (4, 9), (6, 40)])
def test_deberta_shared_keys_of_version_2(buckets, furthest, norm, x, padding):
    exact = f"deberta:share_key=true,norm={norm},max_distance={furthest}".lower()
    ours = build(f"{exact},buckets={buckets}" if buckets else exact)
    config = DebertaV2Config(
        hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=1, attention_probs_dropout_prob=0.0,
        relative_attention=True, share_att_key=True, pos_att_type=["c2p", "p2c"], max_relative_positions=furthest,
        position_buckets=buckets or -1, norm_rel_ebd="layer_norm" if norm else "none",
    )  # fmt: skip
    encoder = DebertaV2Encoder(config).eval()
    theirs, method = encoder.layer[0].attention.self, ours.position
    for name in ("query", "key", "value"):
        copy(getattr(theirs, f"{name}_proj"), getattr(ours, f"{name[0]}_proj"))
    encoder.rel_embeddings.weight.data = method.table.data
    if norm:
        copy(encoder.LayerNorm, method.norm)
    directed(ours, x)

    embeddings = encoder.get_rel_embedding()
    out, weights = theirs(x, ~hidden("encoder", padding), output_attentions=True, rel_embeddings=embeddings)
    found, mean = attend(ours, x, padding)
    same(found, ours.out_proj(out))
    same(mean, weights.mean(1))


# --- Transformer-XL ---


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("clamp", [None, 4])
def test_xl_attention_of_xlnet(clamp, site, x, padding):
    ours = build("xl" + (f":clamp={clamp}" if clamp else ""), site)
    config = XLNetConfig(
        vocab_size=1, d_model=WIDTH, n_head=HEADS, n_layer=1, d_inner=1, clamp_len=clamp or -1,
        attn_type="bi" if site == "encoder" else "uni",
    )  # fmt: skip
    model = XLNetModel(config).eval()
    theirs, method = model.layer[0].rel_attn, ours.position
    projections = {name: getattr(ours, f"{name}_proj").weight for name in "qkv"} | {"r": method.projection[0]}
    for name, weight in projections.items():
        getattr(theirs, name).data = weight.data.T.reshape(WIDTH, HEADS, HEAD)
    theirs.o.data = ours.out_proj.weight.data.view(WIDTH, HEADS, HEAD)
    for projection in (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj):
        projection.bias.data.zero_()  # XLNet's projections have no biases
    theirs.r_w_bias.data, theirs.r_r_bias.data = method.content_bias[0].data, method.position_bias[0].data
    theirs.layer_norm = torch.nn.Identity()  # this norm follows the residual connection
    directed(ours, x)

    out, _, weights = theirs(
        x.transpose(0, 1), None, attn_mask_h=hidden(site, padding).permute(2, 3, 0, 1).float(), attn_mask_g=None,
        r=model.relative_positional_encoding(LENGTH, LENGTH, BATCH), seg_mat=None, output_attentions=True,
    )  # fmt: skip
    found, mean = attend(ours, x, padding)
    same(found, out.transpose(0, 1) - x)
    same(mean, weights.mean(-1).permute(2, 0, 1))


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

    mask = forbid(hidden("decoder", padding))
    out, _, weights = theirs(x, mask, torch.arange(LENGTH).unsqueeze(0), output_attentions=True)
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
    """The position 100000 is beyond the table of sinusoids.

    The expected angles are computed in float64. The result is compared in float32.
    """
    method = build(f"rope:layout={layout}").position
    far = torch.tensor([[0, 1, 1023, 1024, 100_000]])
    q = torch.randn(1, HEADS, far.size(1), HEAD)
    pairs = q.double().unflatten(-1, (2, -1)).unbind(-2) if layout == "halves" else (q.double()[..., ::2], q.double()[..., 1::2])
    angles = far.double()[0, :, None] * torch.tensor([10000.0 ** (-2 * i / HEAD) for i in range(HEAD // 2)], dtype=torch.float64)
    turned = torch.complex(*pairs) * torch.polar(torch.ones_like(angles), angles)
    parts = [turned.real, turned.imag]
    expected = torch.cat(parts, -1) if layout == "halves" else torch.stack(parts, -1).flatten(-2)
    at = Positions(far)
    same(method.rotate("query", q, at, AttentionContext(at, at)), expected.float())


# --- rotary, with scaled frequencies ---


def llama(width: int, heads: int, scaling: str, factor: float, base: float, trained: int, **more) -> LlamaConfig:
    rope = {"rope_type": scaling, "factor": factor}
    if scaling == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": trained}
        trained = int(trained * factor)
    return LlamaConfig(
        hidden_size=width, num_attention_heads=heads, max_position_embeddings=trained, rope_theta=base, attention_bias=True,
        rope_scaling=rope, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    "scaling, factor, base, trained, length, fraction",
    [
        ("linear", 3.0, 10000.0, None, 1, 1.0),
        ("yarn", 4.0, 10000.0, 2048, 1, 1.0),
        ("yarn", 16.0, 500000.0, 4096, 1, 0.5),
        ("yarn", 2.0, 10000.0, 100, 1, 1.0),
        ("dynamic", 2.0, 10000.0, 512, 400, 1.0),
        ("dynamic", 2.0, 10000.0, 512, 2000, 1.0),
        ("dynamic", 4.0, 500.0, 100, 101, 0.5),
        ("llama3", 8.0, 500000.0, 8192, 1, 1.0),  # as Llama 3.1
        ("llama3", 4.0, 10000.0, 64, 1, 0.5),
        # ntk with factor f equals dynamic with factor f - 1, if the sentence length is twice `trained`
        ("ntk", 3.0, 10000.0, None, 2, 1.0),
    ],
)
def test_rope_scaled_frequencies(scaling, factor, base, trained, length, fraction):
    """The rotation angles at position 1 are the frequencies. The head has 64 channels, as in practice."""
    width = 64
    spec = f"rope_scaled:scaling={scaling},factor={factor},base={base},fraction={fraction}"
    method = posenc.build_attention(f"{spec},trained={trained}" if trained else spec, width, 1).position
    kind, grown = ("dynamic", factor - 1) if scaling == "ntk" else (scaling, factor)
    config = llama(width, 1, kind, grown, base, trained or 1, partial_rotary_factor=fraction)
    frequencies, size = ROPE_INIT_FUNCTIONS[kind](config, None, seq_len=length)

    one = Positions(torch.tensor([[1]]))
    pairs = len(frequencies)
    units = torch.zeros(1, 1, 1, width)
    units[..., :pairs] = 1.0
    ctx = AttentionContext(one, Positions.counted(0, length))
    real, imaginary, rest = method.rotate("query", units, one, ctx).flatten().split([pairs, pairs, width - 2 * pairs])
    torch.testing.assert_close(torch.atan2(imaginary, real), frequencies, rtol=1e-5, atol=0)
    torch.testing.assert_close(torch.hypot(real, imaginary), torch.full((pairs,), size))
    assert not rest.any()


def scaled_pair(scaling: str, site: str, trained: int):
    """Return the attention modules of this project and of Hugging Face, with a small rotary base.

    With the usual base, channel pairs with low frequencies would hardly rotate in short sentences.
    """
    spec = f"rope_scaled:scaling={scaling},factor=4,base=100"
    ours = build(spec if scaling == "linear" else f"{spec},trained={trained}", site)
    theirs = LlamaAttention(llama(WIDTH, HEADS, scaling, 4.0, 100.0, trained), layer_idx=0).eval()
    for name in "qkv":
        copy(getattr(theirs, f"{name}_proj"), getattr(ours, f"{name}_proj"))
    copy(theirs.o_proj, ours.out_proj)
    return ours, theirs


def of_llama(theirs, x, mask=None):
    waves = theirs.rotary_emb(x, torch.arange(x.size(1)).unsqueeze(0))
    out, weights, _ = theirs(x, mask, output_attentions=True, position_embeddings=waves)
    return out, weights.mean(1)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("scaling", ["linear", "yarn", "llama3"])
def test_rope_scaled_attention(scaling, site, x, padding):
    ours, theirs = scaled_pair(scaling, site, 64)
    matters(ours, x, "rope:base=100")
    directed(ours, x)
    out, weights = of_llama(theirs, x, forbid(hidden(site, padding)))
    found, mean = attend(ours, x, padding)
    same(found, out)
    same(mean, weights)


def test_rope_scaled_dynamic_attention_of_encoders(x, padding):
    """Each sentence has its own scale. Hugging Face receives one sentence at a time.

    Hugging Face's rotary module is created again for every sentence, because it stores the longest length so far.
    """
    ours, theirs = scaled_pair("dynamic", "encoder", 5)
    matters(ours, x, "rope:base=100")
    directed(ours, x)
    found, mean = attend(ours, x, padding)
    for row, length in enumerate((~padding).sum(1).tolist()):
        theirs.rotary_emb = type(theirs.rotary_emb)(config=theirs.config)
        out, weights = of_llama(theirs, x[row : row + 1, :length])
        same(found[row : row + 1, :length], out)
        same(mean[row : row + 1, :length, :length], weights)


def test_rope_scaled_dynamic_attention_of_decoders(x):
    """For each query, Hugging Face's module receives the sentence up to this query.

    The last output of this module equals the output of this project for the query.
    """
    ours, theirs = scaled_pair("dynamic", "decoder", 5)
    matters(ours, x, "rope:base=100")
    directed(ours, x)
    found, mean = attend(ours, x)
    for length in range(1, LENGTH + 1):
        out, weights = of_llama(theirs, x[:, :length])
        same(found[:, length - 1], out[:, -1])
        same(mean[:, length - 1, :length], weights[:, -1])


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


@pytest.mark.parametrize("rows, columns, row_width", [(4, 4, 8), (3, 7, 20), (13, 1, 16)])
def test_axial_positions_of_reformer(rows, columns, row_width):
    """The sentence has 13 tokens. The grid 13 x 1 has 13 positions. The grids 4 x 4 and 3 x 7 have more positions."""
    config = SimpleNamespace(
        axial_pos_shape=(rows, columns), axial_pos_embds_dim=(row_width, WIDTH - row_width), hidden_dropout_prob=0.0,
        hidden_size=WIDTH, attn_layers=["local"], local_attn_chunk_length=1, lsh_attn_chunk_length=1,
    )  # fmt: skip
    theirs = AxialPositionEmbeddings(config).eval()
    spec = f"axial:rows={rows},columns={columns},row_width={row_width}"
    ours = parsing.build(spec, Dims(WIDTH, HEADS, 1, LENGTH, LENGTH), "encoder")[0]
    for weight, own in zip(theirs.weights, (ours.of_row, ours.of_column)):
        weight.data = own.data.view(weight.shape)
    at, x = Positions.counted(0, LENGTH), torch.zeros(BATCH, LENGTH, WIDTH)
    found = ours.embed(x, torch.zeros(BATCH, LENGTH, dtype=torch.long), AttentionContext(at, at))
    same(found, theirs(torch.arange(LENGTH).expand(BATCH, -1)))
