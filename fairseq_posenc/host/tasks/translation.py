"""fairseq's translation task, extended by side inputs, output lengths and forced separators."""

from __future__ import annotations

import contextlib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fairseq import utils
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor

from ...common.option_types import read_as_written
from ...core import PositionError, Refusal, SideInput
from ...registry.architectures import TASK
from ..generation.lengths import OutputLengths, with_smallest_remaining
from ..generation.options import DECODING, OutputLengthConfig, SegmentConfig
from ..generation.segments import ForcedSegments
from ..side.dataset import SideInputDataset
from ..side.load import FileInputs
from ..side.options import SideFileConfig


@dataclass
class PositionTranslationConfig(SideFileConfig, OutputLengthConfig, SegmentConfig, TranslationConfig):
    """The options of fairseq's translation task, and the options for side files, output lengths and documents."""


@register_task(TASK, dataclass=PositionTranslationConfig)
class PositionTranslation(TranslationTask):
    """fairseq's translation task with the side inputs that the models declare, output lengths and forced separators.

    All commands of fairseq build models before they load data sets. The task therefore knows which side files the models read,
    and loads only these side files.

    A forced separator is a sentence separator that --segments-forced requires in the translation of a document. Lengths are
    computed in the main process of a command, not in its data loader processes.
    """

    cfg: PositionTranslationConfig

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        others = len(parser._actions)
        super().add_args(parser)
        own = {*SideFileConfig.__annotations__, *OutputLengthConfig.__annotations__, *SegmentConfig.__annotations__}
        read_as_written(action for action in parser._actions[others:] if action.dest in own)

    def __init__(self, cfg: PositionTranslationConfig, src_dict: Any, tgt_dict: Any):
        super().__init__(cfg, src_dict, tgt_dict)
        self.lengths = OutputLengths(cfg, src_dict, tgt_dict)
        self.segments = ForcedSegments(cfg.segments_forced, src_dict, tgt_dict)
        self.side_inputs: dict[str, SideInput] = {}  # side inputs that the models declare
        languages = (cfg.source_lang, cfg.target_lang)
        self.files = FileInputs(utils.split_paths(cfg.data or ""), languages, cfg.random_structure, cfg.train_subset)

    def build_model(self, cfg: Any, from_checkpoint: bool = False):
        with refusing():
            if getattr(cfg, "decoder_position", None):
                cfg.decoder_position = with_smallest_remaining(cfg.decoder_position, self.lengths.noise)
            model = self.files.build(lambda cfg: super(PositionTranslation, self).build_model(cfg, from_checkpoint), cfg)
        self.side_inputs.update(getattr(model.encoder, "side_inputs", {}))
        self.lengths.add_model(model)
        if self.cfg.eval_bleu and not from_checkpoint:  # options of an earlier training run may have no effect
            self.lengths.require_effect()
        return model

    def require_same_structure(self, path: str, trained: Any, args: Any) -> None:
        """Raise Refusal if a training run loads a checkpoint that was trained with other side files.

        `trained` contains the model options of the checkpoint, and `args` the model options of the training run.
        """
        with refusing():
            self.files.require_same(path, trained, args)

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        if self.files.readers and self.cfg.truncate_source:
            raise Refusal(
                "SIDE-TRUNC: --truncate-source: not supported with side files, which are for complete sentences. "
                "Remove --truncate-source."
            )
        self.files.require_effect()
        folders = self.files.folders if split == self.cfg.train_subset else self.files.folders[:1]
        folder = folders[(epoch - 1) % len(folders)]
        if combine and self.cfg.upsample_primary < 0 and len(self.files.parts(split, folder)) > 1:
            raise Refusal(
                f"--upsample-primary {self.cfg.upsample_primary}: not supported for {split} and {split}1. Expected the "
                f"number of copies of {split}. Add --upsample-primary 1."
            )
        super().load_dataset(split, epoch, combine, **kwargs)
        if split != self.cfg.train_subset or not self.cfg.eval_bleu:  # --eval-bleu decodes only the validation set
            self.lengths.require_lines(len(self.datasets[split]), split)
        if self.files.readers:
            with refusing():
                maker = self.files.maker(split, folder, combine, self.cfg.upsample_primary)
            self.datasets[split] = SideInputDataset(self.datasets[split], maker, self.side_inputs)

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Prepare a training epoch. Raise Refusal for options of decoding if the training run decodes nothing."""
        super().begin_epoch(epoch, model)
        self.lengths.epoch = epoch
        for name, default in DECODING.items() if not self.cfg.eval_bleu else ():
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
        if self.side_inputs and not all(hasattr(model.encoder, "side_inputs") for model in models):
            names = ", ".join(self.side_inputs)
            raise Refusal(
                f"--path: one model reads {names}, and another model is not of this plugin. Expected an ensemble of models of "
                "this plugin. Decode them separately."
            )
        if getattr(args, "beam", 1) < 1:
            raise Refusal(f"--beam {args.beam}: not allowed. Expected at least 1. Increase --beam.")
        for model in models:  # for validation, fairseq builds the generator before `build_model` of this class adds the model
            self.lengths.add_model(model)
        if not self.cfg.eval_bleu:  # otherwise, `build_model` builds the generator
            self.lengths.require_effect()
        generator = self.lengths.prepare(super().build_generator(models, args, *rest, **kwargs), models)
        return self.segments.prepare(generator, models)

    def build_dataset_for_inference(self, src_tokens: Any, src_lengths: Any, constraints: Any = None):
        """Build the data set of fairseq-interactive. Raise Refusal if a model reads side files."""
        if self.files.readers:
            names = ", ".join(sorted(self.files.kinds))
            raise Refusal(
                f"SIDE-INTERACTIVE: fairseq-interactive: not supported, because the model reads side files ({names}). "
                "Run posenc side binarise and fairseq-generate."
            )
        return super().build_dataset_for_inference(src_tokens, src_lengths, constraints)

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


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Inside the `with` block, replace a PositionError with a Refusal.

    A Refusal prints an error message of one line and ends the program.
    """
    try:
        yield
    except PositionError as error:
        raise Refusal(error) from None
