"""Patch decoding.

Calls of one model do not depend on each other. Models return attention weights if alignments are requested.
--no-repeat-ngram-size has an effect. The log of fairseq-generate contains the checksum of each checkpoint, so that posenc score
can compare the checkpoint with the output.
"""

import logging
import math
from pathlib import Path

from fairseq import checkpoint_utils
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.sequence_generator import EnsembleModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from ...core import Refusal
from ..checkpoints.checksum import checksum
from .wrappers import wrapper

logger = logging.getLogger(__name__)


@wrapper
def with_alignments(build_generator, self, models, args, *rest, **kwargs):
    """Wrap fairseq's build_generator, so that models return attention weights if alignments are requested.

    `from_pretrained` prepares a model for decoding, which switches attention weights off. Alignments are requested later, in
    each call of the model. The wrapped function raises Refusal for a model without attention weights in the last layer.
    """
    if getattr(args, "print_alignment", None):
        for model in models:
            positions = getattr(model.decoder, "cross_position", None)
            layers = getattr(model.decoder, "num_layers", 0)
            if positions is not None and (layers == 0 or positions.uses("attend", layers - 1)):
                names = (method.card.name for method in positions.methods if "attend" in method.hooks)
                raise Refusal(
                    f"--print-alignment: {next(names, 'a decoder without layers')} computes no attention weights. "
                    "Expected softmax cross-attention in the last layer. Remove --print-alignment."
                )
            model.decoder.need_attn = True
    return build_generator(self, models, args, *rest, **kwargs)


@wrapper
def with_beam_of_one(set_decoder_beam_size, self, beam_size):
    """Wrap fairseq's set_decoder_beam_size, which ignores a beam size of 1. The model would keep the size of an earlier call."""
    set_decoder_beam_size(self, beam_size)
    if beam_size == 1:
        for model in self.models:
            if hasattr(model, "set_beam_size"):
                model.set_beam_size(1)


@wrapper
def with_checksums(load_model_ensemble, filenames, *args, **kwargs):
    """Wrap fairseq's load_model_ensemble, which fairseq-generate calls, so that it logs the checksum of each checkpoint."""
    for name in filenames:
        found = checksum(Path(name))
        if found is not None:
            logger.info(f"checksum {found} of the checkpoint {name}")
    return load_model_ensemble(filenames, *args, **kwargs)


def without_repeated_ngrams(
    self: NGramRepeatBlock, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int
) -> Tensor:
    """Set the scores [B * beam, V] of tokens to -inf if they would repeat an n-gram of `tokens` [B * beam, T].

    It replaces fairseq's function for CPUs, which compares padding at the end of `tokens` instead of the last generated tokens.
    Column 0 of `tokens` is the start symbol, and columns 1 to `step` are generated.
    """
    size = self.no_repeat_ngram_size
    for row, scores in zip(tokens[:, : step + 1].tolist(), lprobs):
        last = row[len(row) - size + 1 :]
        scores[[row[i + size - 1] for i in range(1, len(row) - size + 1) if row[i : i + size - 1] == last]] = -math.inf
    return lprobs


def apply() -> None:
    NGramRepeatBlock._no_repeat_ngram = without_repeated_ngrams
    checkpoint_utils.load_model_ensemble = with_checksums(checkpoint_utils.load_model_ensemble)
    FairseqTask.build_generator = with_alignments(FairseqTask.build_generator)
    EnsembleModel.set_decoder_beam_size = with_beam_of_one(EnsembleModel.set_decoder_beam_size)
