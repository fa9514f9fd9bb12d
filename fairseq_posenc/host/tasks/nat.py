"""fairseq's task for non-autoregressive translation, adapted to models that decode in one step."""

# fairseq reads the types of the fields at run time. Therefore, this file does not import `annotations` from `__future__`
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationTask
from fairseq.tasks.translation_lev import NOISE_CHOICES, TranslationLevenshteinConfig, TranslationLevenshteinTask

from ...core import Refusal
from ...registry.architectures import NAT_TASK
from ..generation.parallel import ParallelGenerator


@dataclass
class ParallelTranslationConfig(TranslationLevenshteinConfig):
    """The options of fairseq's translation_lev, and one decoding option.

    The default of --noise is full_mask, which masks all target tokens in the decoder input.
    """

    noise: NOISE_CHOICES = field(
        default="full_mask", metadata={"help": "type of noise in the decoder input. PNAT does not use it"}
    )
    decode_positions: ChoiceEnum(["predicted", "reference"]) = field(
        default="predicted",
        metadata={
            "help": "positions and lengths in decoding: predicted (default), or reference (from the reference, for analysis)"
        },
    )


@register_task(NAT_TASK, dataclass=ParallelTranslationConfig)
class ParallelTranslation(TranslationLevenshteinTask):
    """fairseq's translation_lev with BLEU in validation, and with one decoding step. Sentences begin with <s>."""

    cfg: ParallelTranslationConfig

    def build_generator(self, models: list, args: Any, **unused: Any) -> ParallelGenerator:
        beam, reranking = getattr(args, "iter_decode_with_beam", 1), getattr(args, "iter_decode_with_external_reranker", False)
        use_reference = self.cfg.decode_positions == "reference"
        for option in ("score_reference", "print_alignment"):
            if getattr(args, option, None):
                flag = f"--{option.replace('_', '-')}"
                raise Refusal(f"{flag}: not supported by a non-autoregressive model. Remove {flag}.")
        if reranking and beam == 1:
            raise Refusal(
                "--iter-decode-with-external-reranker: requires several lengths. Expected --iter-decode-with-beam of at least 2."
            )
        if use_reference and beam > 1:
            raise Refusal(
                "--iter-decode-with-beam: not supported with --decode-positions reference, which uses the length of "
                "the reference. "
                "Remove --iter-decode-with-beam."
            )
        return ParallelGenerator(
            self.target_dictionary,
            beam_size=beam,
            reranking=reranking,
            retain_dropout=getattr(args, "retain_dropout", False),
            retain_history=getattr(args, "retain_iter_history", False),
            use_reference=use_reference,
        )

    def train_step(self, sample: dict, *args: Any, **kwargs: Any) -> tuple:
        """Compute the loss and its gradients. fairseq's translation_lev ignores --amp."""
        sample["prev_target"] = self.inject_noise(sample["target"])
        return TranslationTask.train_step(self, sample, *args, **kwargs)

    def valid_step(self, sample: dict, model: Any, criterion: Any) -> tuple:
        """Compute the validation losses. With --eval-bleu, also compute BLEU.

        fairseq's translation_lev does not compute BLEU.
        """
        model.eval()
        with torch.no_grad():
            sample["prev_target"] = self.inject_noise(sample["target"])
        return TranslationTask.valid_step(self, sample, model, criterion)
