"""Attention modules of other libraries. Each is the public peer of one method of this project."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Attend = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Sizes:
    """Sizes of one attention module. `positions` is the maximum sentence length for tables of positions."""

    width: int
    heads: int
    length: int

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def positions(self) -> int:
        return max(self.length, 512)  # the usual maximum, which is longer than most sentences


class PeerAttention(nn.Module):
    """Attention module of another library, [B, T, C] -> [B, T, C]. The module includes the output projection."""

    def __init__(self, module: nn.Module, attend: Attend, projection: nn.Linear | None = None):
        super().__init__()
        self.module, self.attend, self.projection = module, attend, projection

    def forward(self, x: Tensor) -> Tensor:
        out = self.attend(x)
        return out if self.projection is None else self.projection(out)


@dataclass(frozen=True)
class Pair:
    """A spec of this project, and the peer with the same computation.

    `spec_for` replaces `{reach}` in the spec by the largest distance in a table of relative positions.
    """

    spec: str
    site: str
    package: str
    peer: str
    build: Callable[[Sizes], PeerAttention]
    biases: bool = True  # whether the projections of queries, keys, values and outputs have a bias

    @property
    def method(self) -> str:
        return self.spec.partition(":")[0]

    def spec_for(self, sizes: Sizes) -> str:
        return self.spec.format(reach=sizes.positions - 1)

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None

    @property
    def available(self) -> bool:
        """Whether the library is installed, and the installed version contains the peer."""
        try:
            return self.installed and self.build(Sizes(8, 2, 8)) is not None
        except ImportError:
            return False

    @property
    def library(self) -> str:
        """Name and version of the installed library, such as `transformers 5.24.0`."""
        # on Python 3.10, packages_distributions() returns only packages with a file top_level.txt
        (name, *_) = _distributions().get(self.package, [self.package.replace("_", "-")])
        return f"{name} {importlib.metadata.version(name)}"


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _bert(sizes: Sizes, kind: str) -> PeerAttention:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertSelfAttention

    config = BertConfig(
        hidden_size=sizes.width, num_attention_heads=sizes.heads, max_position_embeddings=sizes.positions,
        attention_probs_dropout_prob=0.0, position_embedding_type=kind,
    )  # fmt: skip
    module = BertSelfAttention(config)
    if not hasattr(module, "distance_embedding"):
        raise ImportError("This version of transformers has no relative positions in BERT.")
    return PeerAttention(module, lambda x: module(x)[0], nn.Linear(sizes.width, sizes.width))


def _bert_key(sizes: Sizes) -> PeerAttention:
    return _bert(sizes, "relative_key")


def _bert_key_query(sizes: Sizes) -> PeerAttention:
    return _bert(sizes, "relative_key_query")


def _wav2vec2_bert(sizes: Sizes) -> PeerAttention:
    from transformers import Wav2Vec2BertConfig
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

    reach = sizes.positions - 1
    config = Wav2Vec2BertConfig(
        hidden_size=sizes.width, num_attention_heads=sizes.heads, attention_dropout=0.0, attn_implementation="sdpa",
        position_embeddings_type="relative_key", left_max_position_embeddings=reach, right_max_position_embeddings=reach,
    )  # fmt: skip
    module = Wav2Vec2BertSelfAttention(config)
    return PeerAttention(module, lambda x: module(x)[0])


def _t5(sizes: Sizes) -> PeerAttention:
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        d_model=sizes.width, d_kv=sizes.head_width, num_heads=sizes.heads, dropout_rate=0.0, attn_implementation="sdpa"
    )
    module = T5Attention(config, has_relative_attention_bias=True)
    return PeerAttention(module, lambda x: module(x, query_length=x.size(1))[0])


def _deberta(sizes: Sizes) -> PeerAttention:
    from transformers import DebertaConfig
    from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention, build_relative_position

    config = DebertaConfig(
        hidden_size=sizes.width, num_attention_heads=sizes.heads, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0,
        relative_attention=True, max_relative_positions=sizes.positions, pos_att_type=["c2p", "p2c"],
    )  # fmt: skip
    module = DisentangledSelfAttention(config)
    module.table = nn.Parameter(torch.randn(2 * sizes.positions, sizes.width))
    mask = torch.ones(1, 1, sizes.length, sizes.length, dtype=torch.bool)

    def attend(x: Tensor) -> Tensor:
        positions = {"relative_pos": build_relative_position(x, x), "rel_embeddings": module.table}
        return module(x, mask.to(x.device).expand(len(x), -1, -1, -1), output_attentions=True, **positions)[0]

    return PeerAttention(module, attend, nn.Linear(sizes.width, sizes.width))


def _espnet(sizes: Sizes) -> PeerAttention:
    from fairseq.modules.espnet_multihead_attention import RelPositionMultiHeadedAttention
    from fairseq.modules.positional_encoding import RelPositionalEncoding

    module = RelPositionMultiHeadedAttention(sizes.width, sizes.heads, dropout=0.0)
    waves = RelPositionalEncoding(sizes.positions, sizes.width)

    def attend(x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        return module(x, x, x, waves(x))[0].transpose(0, 1)

    return PeerAttention(module, attend)


def _gpt_neox(sizes: Sizes) -> PeerAttention:
    from transformers import GPTNeoXConfig
    from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention, GPTNeoXRotaryEmbedding

    config = GPTNeoXConfig(
        hidden_size=sizes.width, num_attention_heads=sizes.heads, rotary_pct=1.0, max_position_embeddings=sizes.positions,
        attention_dropout=0.0, hidden_dropout=0.0, attn_implementation="sdpa",
    )  # fmt: skip
    module = GPTNeoXAttention(config, layer_idx=0)
    module.rotary_emb = GPTNeoXRotaryEmbedding(config=config)  # not part of GPTNeoXAttention since transformers 4.48

    def attend(x: Tensor) -> Tensor:
        at = torch.arange(x.size(1), device=x.device).unsqueeze(0)
        return module(x, None, position_ids=at, position_embeddings=module.rotary_emb(x, at))[0]

    return PeerAttention(module, attend)


def _x_transformers(sizes: Sizes, causal: bool, **options: object) -> PeerAttention:
    from x_transformers.x_transformers import Attention

    module = Attention(sizes.width, dim_head=sizes.head_width, heads=sizes.heads, causal=causal, **options)
    return PeerAttention(module, lambda x: module(x))


def _x_cope(sizes: Sizes) -> PeerAttention:
    return _x_transformers(sizes, causal=True, use_cope=True, cope_max_pos=64)


def _x_forgetting(sizes: Sizes) -> PeerAttention:
    return _x_transformers(sizes, causal=True, data_dependent_alibi=True)


def _x_dynamic_bias(sizes: Sizes) -> PeerAttention:
    from x_transformers.x_transformers import DynamicPositionBias

    peer = _x_transformers(sizes, causal=False)
    module = peer.module
    module.dynamic_bias = DynamicPositionBias(64, heads=sizes.heads, depth=2, log_distance=True)
    peer.attend = lambda x: module(x, rel_pos=module.dynamic_bias)
    return peer


_HF, _X = "transformers", "x_transformers"
PAIRS = (
    Pair("shaw:values=false,max_distance={reach}", "encoder", _HF, "Hugging Face BERT, relative_key", _bert_key),
    Pair("shaw:values=false,max_distance={reach}", "encoder", _HF, "Hugging Face Wav2Vec2-BERT", _wav2vec2_bert),
    Pair("huang4:share=heads,max_distance={reach}", "encoder", _HF, "Hugging Face BERT, relative_key_query", _bert_key_query),
    Pair("t5", "encoder", _HF, "Hugging Face T5", _t5, biases=False),
    Pair("deberta:max_distance={reach}", "encoder", _HF, "Hugging Face DeBERTa", _deberta),
    Pair("xl", "encoder", "fairseq", "fairseq's ESPnet relative attention", _espnet),
    Pair("rope", "decoder", _HF, "Hugging Face GPT-NeoX", _gpt_neox),
    Pair("cope", "decoder", _X, "x-transformers", _x_cope, biases=False),
    Pair("forgetting", "decoder", _X, "x-transformers", _x_forgetting, biases=False),
    Pair("dynamic_bias", "encoder", _X, "x-transformers", _x_dynamic_bias, biases=False),
)
