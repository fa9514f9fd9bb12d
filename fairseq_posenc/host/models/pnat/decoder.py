"""The decoder of PNAT. It generates all tokens in one step, at the predicted positions of its inputs."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from ....attention.site_positions import SitePositions
from ....core import PositionError
from ....ops.sinusoids import sinusoid
from ....registry.architectures import NAT_TASK
from ..transformer.decoder import Decoder
from .bridge import BRIDGES
from .predictor import Matching, Pointer, Reader, RelativeClasses
from .search import MATCHINGS, inner_words, log_probabilities, moved, similarity

EncoderOut = dict[str, list[Tensor]]


@dataclasses.dataclass(frozen=True)
class Placement:
    """The decoder inputs of a batch and their positions.

    z: the target position of every input, from the search or from the position predictor. Without a position predictor, the
        inputs keep their order.
    searched: the positions [B, T] that the search has found.
    scores: the scores [B, T, T] of all pairs of an input and a target token. The search computes the positions from these
        scores.
    read: the output of the layers `Reader` for every input, [B, T, C]. These layers belong to the position predictor.
    """

    inputs: Tensor  # [B, T, C], in the order of the source
    inner: Tensor  # bool [B, T], True at inputs that may move. False at the first token, the last token and padding
    z: Tensor  # [B, T]
    searched: Tensor | None = None
    scores: Tensor | None = None
    read: Tensor | None = None


class ParallelDecoder(Decoder):
    """A Transformer decoder without a causal mask. Its inputs are computed from the source and moved to predicted positions.

    Shapes: tokens [B, T], padded on the right -> logits [B, T, V]. The decoder reads only the number of
        tokens of each sentence.
    """

    def __init__(
        self,
        cfg: Any,
        dictionary: Any,
        embed_tokens: nn.Embedding,
        positions: SitePositions,
        cross_positions: SitePositions,
        reader: Reader | None,
    ):
        super().__init__(cfg, dictionary, embed_tokens, positions, cross_positions)
        width = cfg.decoder.embed_dim
        self.bridge = BRIDGES[cfg.bridge]
        self.bridge_states = cfg.bridge_states
        self.share_predicted = cfg.predicted_positions
        self.search, self.reader, self.head = None, reader, None
        if reader is not None:
            self.search, self.search_score = MATCHINGS[cfg.position_search], cfg.search_score
            heads = {
                "matching": lambda: Matching(width, cfg.position_matching),
                "pointer": lambda: Pointer(width),
                "relative": lambda: RelativeClasses(width, cfg.relative_classes),
            }
            self.head = heads[cfg.position_predictor]()
        # if the output projection has its own weights, only the search loss with --search-score cosine has a gradient for the
        # target embeddings. DistributedDataParallel expects a gradient for every trained parameter
        trained = reader is not None and cfg.search_score == "cosine" and cfg.search_loss_weight > 0
        if self.output_projection.weight is not self.embed_tokens.weight and not trained:
            self.embed_tokens.weight.requires_grad_(False)

    # -- positions ---------------------------------------------------------------------------------------------------

    def inputs(self, encoder_out: EncoderOut, words: Tensor) -> Tensor:
        """Return the decoder inputs [B, T, C] that the bridge computes from the source, without target positions."""
        if self.bridge_states == "encoder":
            source = encoder_out["encoder_out"][0].transpose(0, 1)  # [S, B, C] -> [B, S, C]
        else:
            source = encoder_out["encoder_embedding"][0]  # [B, S, C]
        if self.bridge_states == "embedding":
            at = torch.arange(source.size(1), device=source.device)
            source = source + sinusoid(at, source.size(2), "interleaved", "paper").to(source.dtype)
        return self.bridge(source, _source_lengths(encoder_out), words.sum(1), words.size(1))

    def without_words(self, tokens: Tensor) -> Tensor:
        """Replace all tokens between the first and the last token with <unk>, as in decoding: [B, T] -> [B, T].

        Position methods that read tokens would otherwise read the target in training.
        """
        return tokens.masked_fill(inner_words(tokens.ne(self.padding_idx)), self.dictionary.unk())

    def place(self, encoder_out: EncoderOut, tokens: Tensor, target: Tensor | None = None) -> Placement:
        """Return the decoder inputs and their positions for sentences with the lengths of `tokens`.

        Position methods read `tokens`. The words of `tokens` must be <unk> (see `without_words`).
        With a target [B, T], a search assigns a position to each input. In training, a share of the sentences
        (--predicted-positions) uses predicted positions instead. Without a target, the positions are predicted. Without a
        position predictor, the inputs keep their order.
        """
        words = tokens.ne(self.padding_idx)
        inner = inner_words(words)
        inputs = self.inputs(encoder_out, words)
        if self.reader is None:
            return Placement(inputs, inner, torch.arange(words.size(1), device=words.device).expand_as(tokens))
        source = encoder_out["encoder_out"][0].transpose(0, 1)  # [S, B, C] -> [B, S, C]
        padding = encoder_out["encoder_padding_mask"][0] if encoder_out["encoder_padding_mask"] else None
        read = self.reader(inputs, tokens, words, source, padding)
        if target is None:
            return Placement(inputs, inner, self.head.positions(read, inner), read=read)
        if self.search_score == "cosine":
            scores = similarity(inputs, self.embed_tokens(target))
        else:
            scores = log_probabilities(self.output_layer(inputs), target)
        z = searched = self.search(scores.detach(), inner)
        if self.training and self.share_predicted:
            predicted = torch.rand(len(z), 1, device=z.device) < self.share_predicted
            z = torch.where(predicted, self.head.positions(read.detach(), inner), searched)
        return Placement(inputs, inner, z, searched, scores, read)

    def logits_at(self, placement: Placement, encoder_out: EncoderOut, tokens: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Return the logits at every target position [B, T, V], and the additional outputs of the decoder."""
        x = moved(placement.inputs, placement.z)
        features, extra = self.extract_features(tokens, encoder_out, vectors=x)
        return self.output_layer(features), extra

    def forward(self, prev_output_tokens: Tensor, encoder_out: EncoderOut, incremental_state: dict | None = None, **unused: Any):
        """Predict the positions of the inputs, then the tokens. Only the lengths of `prev_output_tokens` are read."""
        if incremental_state is not None:
            raise PositionError(f"posenc_pnat: decoding step by step is not supported. Use --task {NAT_TASK}.")
        tokens = self.without_words(prev_output_tokens)
        return self.logits_at(self.place(encoder_out, tokens), encoder_out, tokens)


def _source_lengths(encoder_out: EncoderOut) -> Tensor:
    """Return the source lengths [B], including the start symbol and the end symbol."""
    return encoder_out["src_lengths"][0].squeeze(1).long()
