"""Decode documents so that a translation has as many sentences as its source, and each sentence has a maximum length."""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.sequence_generator import EnsembleModelWithAlignment
from torch import Tensor

from ...core import Refusal
from .lengths import LengthEnsemble, last_step

logger = logging.getLogger(__name__)

#: keys of entries in the encoder output. Beam search reorders these entries together with the beams
_LIMITS, _LAST_STEP = "sentence_limits", "last_step_of_document"


class ForcedSegments:
    """The option --segments-forced of one task. Raise Refusal if the dictionaries or the models do not support it.

    With this option, a translation must have as many sentences as its source. A separator that this option requires is called
    a forced separator.

    Source: Bao et al. (2021), baoguangsheng/g-transformer.
    Deviations: a forced separator has the model's log-probability. In the authors' code, it has log-probability 0.
    """

    def __init__(self, token: str, source: Dictionary, target: Dictionary):
        self.token = token
        for side, dictionary in (("source", source), ("target", target)) if token else ():
            if token not in dictionary.indices or dictionary.index(token) == dictionary.eos():
                raise Refusal(
                    f"--segments-forced {token}: the {side} dictionary has no such separator. "
                    "Expected a token of both dictionaries, other than </s>. Name the separator of the training text."
                )
        self.source, self.target = (dictionary.index(token) if token else -1 for dictionary in (source, target))
        self.begin, self.end, self.pads = target.bos(), target.eos(), (source.pad(), source.eos())

    def prepare(self, generator: Any, models: list[Any]) -> Any:
        """Make a generator decode with forced separators, and return this generator.

        Raise Refusal if the generator or the models do not support forced separators.
        """
        if not self.token:
            return generator
        option = f"--segments-forced {self.token}"
        if not hasattr(generator, "model"):
            raise Refusal(f"{option} is an option of beam search. Expected no --score-reference. Leave one of them out.")
        if isinstance(generator.model, LengthEnsemble):
            raise Refusal(
                f"{option} and output lengths both decide where a translation ends. Expected one. Leave one of them out."
            )
        if generator.min_len > 1:
            raise Refusal(
                f"{option} and --min-len {generator.min_len} can contradict each other. Expected one. Leave one of them out."
            )
        if not all(hasattr(model.encoder, "side_inputs") for model in models):
            raise Refusal(f"{option} works with models of this plugin only. Expected such a model. Leave the option out.")
        generator.model = SegmentEnsemble(models, self, generator).eval()
        logger.info("forced sentences: separator %s", self.token)
        return generator

    def limits(self, tokens: Tensor) -> Tensor:
        """Compute the maximum number of tokens of each target sentence from the source: [B, S] -> [B, sentences].

        The entries of sentences that do not exist are 0.
        """
        separators = tokens.eq(self.source)
        sentence = separators.long().cumsum(1) - separators.long()  # a separator belongs to the sentence before it
        words = ~separators & tokens.ne(self.pads[0]) & tokens.ne(self.pads[1])
        count = separators.sum(1, keepdim=True) + 1  # [B, 1]
        sizes = torch.zeros(len(tokens), int(count.max()), dtype=torch.long, device=tokens.device)
        sizes.scatter_add_(1, sentence, words.long())
        limits = torch.div(12 * sizes, 10, rounding_mode="floor") + 10
        return limits * (torch.arange(sizes.size(1), device=tokens.device) < count)


class SegmentEnsemble(EnsembleModelWithAlignment):
    """Force the models to generate as many sentences as the source has.

    At each step, the class reads the tokens generated up to now. It also reads the maximum lengths of the target sentences,
    which are stored in the encoder output. The class has no incremental state.
    """

    def __init__(self, models: list[Any], segments: ForcedSegments, generator: Any):
        super().__init__(models)
        # not the generator itself, which would become a part of its own model
        self.segments, self.last_step = segments, functools.partial(last_step, generator)

    def forward_encoder(self, net_input: dict[str, Any]) -> list[dict[str, list[Tensor]]]:
        outs = super().forward_encoder(net_input)
        limits = self.segments.limits(net_input["src_tokens"])
        steps = limits.new_full((len(limits),), self.last_step(net_input))
        outs[0] = {**outs[0], _LIMITS: [limits], _LAST_STEP: [steps]}
        return outs

    def forward_decoder(
        self, tokens: Tensor, encoder_outs: list, incremental_states: list, temperature: float = 1.0
    ) -> tuple[Tensor, Tensor | None]:
        scores, attention = super().forward_decoder(tokens, encoder_outs, incremental_states, temperature)
        limits, steps = encoder_outs[0][_LIMITS][0], encoder_outs[0][_LAST_STEP][0]
        return self.forced(scores, tokens, limits, steps > tokens.size(1) - 1), attention

    def forced(self, scores: Tensor, tokens: Tensor, limits: Tensor, free: Tensor) -> Tensor:
        """Forbid tokens that would lead to a wrong number of sentences, or to an empty or too long sentence. [B, V] -> [B, V].

        `free` [B] is False in the last step of the generator, in which every translation must end.
        """
        separator, end = self.segments.target, self.segments.end
        written = tokens.eq(separator)  # [B, T]; the first token is </s>
        done = written.sum(1)  # [B], number of separators up to now
        wanted = limits.gt(0).sum(1) - 1  # [B], number of separators of the source
        columns = torch.arange(tokens.size(1), device=tokens.device)
        size = tokens.size(1) - 1 - (columns * written).amax(1)  # [B], number of tokens of the current sentence
        full = size >= limits.gather(1, done.minimum(wanted).unsqueeze(1)).squeeze(1)
        last, empty = done >= wanted, size < 1
        no_end, no_separator = (~last | empty) & free, last | empty
        ending, separating = scores[:, end].clone(), scores[:, separator].clone()
        scores[full & free] = -torch.inf
        scores[:, self.segments.begin] = -torch.inf  # fairseq-generate prints a sentence of only <s> as an empty sentence
        scores[:, end] = ending.masked_fill(no_end, -torch.inf)
        scores[:, separator] = separating.masked_fill(no_separator, -torch.inf)
        return scores
