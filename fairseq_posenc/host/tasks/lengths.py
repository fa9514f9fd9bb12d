"""Base class of the translation task. The base class handles output lengths and forced separators."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from ...core import Refusal
from ..generation.lengths import OutputLengths, with_smallest_remaining
from ..generation.options import OutputLengthConfig, SegmentConfig
from ..generation.segments import ForcedSegments

#: options of decoding, which a training run reads only for --eval-bleu
_DECODING = {
    "length_from": OutputLengthConfig.length_from,
    "length_ratio": OutputLengthConfig.length_ratio,
    "length_eos": OutputLengthConfig.length_eos,
    "segments_forced": SegmentConfig.segments_forced,
}


class OutputLengthTask(TranslationTask):
    """fairseq's translation task with output lengths in training and decoding, and with forced separators in decoding.

    A forced separator is a sentence separator that --segments-forced requires in the translation of a document. Lengths are
    computed in the main process of a command, not in its data loader processes.
    """

    def __init__(self, cfg: Any, src_dict: Any, tgt_dict: Any):
        super().__init__(cfg, src_dict, tgt_dict)
        self.lengths = OutputLengths(cfg, src_dict, tgt_dict)
        self.segments = ForcedSegments(cfg.segments_forced, src_dict, tgt_dict)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        if getattr(cfg, "decoder_position", None):
            cfg.decoder_position = with_smallest_remaining(cfg.decoder_position, self.lengths.noise)
        model = super().build_model(cfg, from_checkpoint)
        self.lengths.add_model(model)
        if self.cfg.eval_bleu and not from_checkpoint:  # options of an earlier training run may have no effect
            self.lengths.require_effect()
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        super().load_dataset(split, epoch, combine, **kwargs)
        if split != self.cfg.train_subset or not self.cfg.eval_bleu:  # --eval-bleu decodes only the validation set
            self.lengths.require_lines(len(self.datasets[split]), split)

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Prepare a training epoch. Raise Refusal for options of decoding if the training run decodes nothing."""
        super().begin_epoch(epoch, model)
        self.lengths.epoch = epoch
        for name, default in _DECODING.items() if not self.cfg.eval_bleu else ():
            value, option = getattr(self.cfg, name), "--" + name.replace("_", "-")
            if str(value) != str(default):
                raise Refusal(
                    f"{option} {value}: no effect, because training without --eval-bleu decodes nothing. Expected an option of "
                    f"training. Remove {option}, or add --eval-bleu."
                )

    def train_step(self, sample: dict[str, Any], *args: Any, **kwargs: Any) -> tuple:
        self.lengths.add_reference(sample, noisy=True)
        return super().train_step(sample, *args, **kwargs)

    def valid_step(self, sample: dict[str, Any], *args: Any, **kwargs: Any) -> tuple:
        self.lengths.add_reference(sample)
        return super().valid_step(sample, *args, **kwargs)

    def build_generator(self, models: list[Any], args: Namespace, *rest: Any, **kwargs: Any) -> Any:
        if getattr(args, "beam", 1) < 1:
            raise Refusal(f"--beam {args.beam}: not allowed. Expected at least 1. Increase --beam.")
        for model in models:  # for validation, fairseq builds the generator before `build_model` of this class adds the model
            self.lengths.add_model(model)
        if not self.cfg.eval_bleu:  # otherwise, `build_model` builds the generator
            self.lengths.require_effect()
        generator = self.lengths.prepare(super().build_generator(models, args, *rest, **kwargs), models)
        return self.segments.prepare(generator, models)

    def inference_step(
        self,
        generator: Any,
        models: list[Any],
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Any = None,
    ) -> Any:
        if prefix_tokens is not None and self.segments.token:
            raise Refusal(
                f"--segments-forced {self.segments.token} and prefixes of the output can contradict each other. Expected one. "
                "Leave --prefix-size or --segments-forced out."
            )
        ends = self.segments.token or (self.lengths.wanted and self.lengths.eos == "exact")
        if constraints is not None and ends:
            option = f"--segments-forced {self.segments.token}" if self.segments.token else "--length-eos exact"
            raise Refusal(f"{option} and --constraints can contradict each other. Expected one. Leave one of them out.")
        sample = {**sample, "net_input": dict(sample["net_input"])}  # the caller may use the batch again
        prefix_tokens = self.lengths.ask(sample, generator, prefix_tokens)
        return super().inference_step(generator, models, sample, prefix_tokens, constraints)
