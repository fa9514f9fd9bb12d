"""The generator for non-autoregressive models: it produces all tokens in one step."""

from __future__ import annotations

from typing import Any

import torch
from fairseq.distributed import DistributedTimeoutWrapper, ModuleProxyWrapper
from fairseq.iterative_refinement_generator import IterativeRefinementGenerator
from torch import Tensor, nn

from ...core import Refusal
from ..models.pnat.model import PNATModel
from ..models.transformer.encoder import roll


def _unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside the wrappers that fairseq adds in training with several workers."""
    if isinstance(model, DistributedTimeoutWrapper):
        model = model.module
    return model.module.module if isinstance(model, ModuleProxyWrapper) else model


class ParallelGenerator(IterativeRefinementGenerator):
    """A generator with one step. It replaces fairseq's iterative refinement generator.

    The generator supports a length beam: it decodes each source sentence with several output lengths. It also supports
    rescoring of these hypotheses with an autoregressive model. More steps would have no effect, because the model does not read
    the result of the previous step.
    """

    def __init__(self, *args: Any, use_reference: bool = False, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "max_iter": 0, "adaptive": False})
        self.use_reference = use_reference

    @torch.no_grad()
    def generate(self, models: list, sample: dict, prefix_tokens: Any = None, constraints: Any = None) -> list:
        """Return the hypothesis with the best score for each source sentence. Hypotheses of a length beam differ in length."""
        if prefix_tokens is not None:
            raise Refusal("--prefix-size: not supported by a non-autoregressive model. Remove --prefix-size.")
        models = [_unwrapped(model) for model in models]
        parallel = models[:-1] if self.reranking else models
        if len(parallel) != 1 or not isinstance(parallel[0], PNATModel):
            rest = " and an autoregressive model for rescoring" if self.reranking else ""
            raise Refusal(
                f"--path: {len(models)} checkpoints of {', '.join(type(model).__name__ for model in models)}. "
                f"Expected one posenc_pnat checkpoint{rest}."
            )
        if not self.retain_dropout:
            for model in models:
                model.eval()
        reference = {}
        if self.use_reference:
            if sample.get("target") is None:
                raise Refusal("--decode-positions reference: the data has no references. Expected data with the target side.")
            reference = {"reference": [sample["target"]]}
        source = [sample["net_input"][name] for name in ("src_tokens", "src_lengths")]
        finalized = self._one_step(models[0], source, reference)
        if self.beam_size == 1:
            return finalized
        if self.reranking:
            finalized = self.rerank(models[-1], finalized, source, self.beam_size)
        # fairseq's generator selects the length with numpy, which cannot read tensors on a GPU
        scores = torch.stack([found[0]["score"] for found in finalized]).view(-1, self.beam_size)
        return [finalized[row * self.beam_size + best] for row, best in enumerate(scores.argmax(1).tolist())]

    def _one_step(self, model: Any, source: list[Tensor], reference: dict[str, list[Tensor]]) -> list:
        """Return `beam_size` hypotheses per source sentence. As in fairseq, each hypothesis is in its own list.

        `reference` is added to the encoder output. With a reference, the model decodes with the length of the reference, and
        with positions from a search. The search uses the tokens of the reference. It assigns a target position to each decoder
        input.
        """
        encoder_out = {**model.forward_encoder(source), **reference}
        given = model.initialize_output_tokens(encoder_out, source[0])
        if self.beam_size > 1:
            order = torch.arange(len(source[0]), device=source[0].device).repeat_interleave(self.beam_size)
            encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
            given = model.regenerate_length_beam(given, self.beam_size)
        written = model.forward_decoder(given, encoder_out)
        finalized = [[self._hypothesis(*row)] for row in zip(written.output_tokens, written.output_scores)]
        if self.retain_history:
            for (found,), tokens in zip(finalized, given.output_tokens):
                found["history"] = [self._hypothesis(tokens)]
        return finalized

    def _hypothesis(self, tokens: Tensor, scores: Tensor | None = None) -> dict[str, Any]:
        """Return a hypothesis without padding, with the log-probabilities of its tokens and their mean."""
        words = tokens.ne(self.pad)
        scores = None if scores is None else scores[words]
        return {
            "steps": 0,
            "tokens": tokens[words],
            "positional_scores": scores,
            "score": None if scores is None else scores.mean(),
            "hypo_attn": None,
            "alignment": None,
        }

    def rerank(self, reranker: Any, finalized: list, encoder_input: list[Tensor], beam_size: int) -> list:
        """Replace every score with the mean log-probability of the tokens under an autoregressive model.

        As in training, the autoregressive model reads the source without the start symbol, and targets that begin with </s>.
        """
        tokens = torch.nn.utils.rnn.pad_sequence([found[0]["tokens"] for found in finalized], True, self.pad)
        tokens[:, 0] = self.eos
        source = roll(encoder_input[0], self.pad)[0][:, 1:]
        encoder_out = reranker.encoder(source, encoder_input[1] - 1)
        order = torch.arange(len(source), device=source.device).repeat_interleave(beam_size)
        encoder_out = reranker.encoder.reorder_encoder_out(encoder_out, order)
        out = reranker.decoder(tokens[:, :-1], encoder_out)
        words = tokens[:, 1:].ne(self.pad)
        scores = reranker.get_normalized_probs(out, True).gather(2, tokens[:, 1:, None]).squeeze(2)
        means = scores.masked_fill(~words, 0.0).sum(1) / words.sum(1)
        for found, mean in zip(finalized, means):
            found[0]["score"] = mean
        return finalized
