"""fairseq's translation task, extended by side inputs."""

from __future__ import annotations

import contextlib
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fairseq import utils
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig

from ...common.option_types import read_as_written
from ...core import PositionError, Refusal, SideInput
from ...registry.architectures import TASK
from ..generation.options import OutputLengthConfig, SegmentConfig
from ..side.dataset import SideInputDataset
from ..side.load import FileInputs
from ..side.options import SideFileConfig
from .lengths import OutputLengthTask


@dataclass
class PositionTranslationConfig(SideFileConfig, OutputLengthConfig, SegmentConfig, TranslationConfig):
    """The options of fairseq's translation task, and the options for side files, output lengths and documents."""


@register_task(TASK, dataclass=PositionTranslationConfig)
class PositionTranslation(OutputLengthTask):
    """fairseq's translation task with the side inputs that the models declare.

    All commands of fairseq build models before they load data sets. The task therefore knows which side files the models read,
    and loads only these side files.
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
        self.side_inputs: dict[str, SideInput] = {}  # side inputs that the models declare
        languages = (cfg.source_lang, cfg.target_lang)
        self.files = FileInputs(utils.split_paths(cfg.data or ""), languages, cfg.random_structure)

    def build_model(self, cfg: Any, from_checkpoint: bool = False):
        with refusing():
            model = self.files.build(lambda cfg: super(PositionTranslation, self).build_model(cfg, from_checkpoint), cfg)
        self.side_inputs.update(getattr(model.encoder, "side_inputs", {}))
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
        super().load_dataset(split, epoch, combine, **kwargs)
        if self.files.readers:
            folders = self.files.folders if split == self.cfg.train_subset else self.files.folders[:1]
            with refusing():
                maker = self.files.maker(split, folders[(epoch - 1) % len(folders)], combine, self.cfg.upsample_primary)
            self.datasets[split] = SideInputDataset(self.datasets[split], maker, self.side_inputs)

    def build_generator(self, models: list[Any], args: Any, *rest: Any, **kwargs: Any) -> Any:
        if self.side_inputs and not all(hasattr(model.encoder, "side_inputs") for model in models):
            names = ", ".join(self.side_inputs)
            raise Refusal(
                f"--path: one model reads {names}, and another model is not of this plugin. Expected an ensemble of models of "
                "this plugin. Decode them separately."
            )
        return super().build_generator(models, args, *rest, **kwargs)

    def build_dataset_for_inference(self, src_tokens: Any, src_lengths: Any, constraints: Any = None):
        """Build the data set of fairseq-interactive. Raise Refusal if a model reads side files."""
        if self.files.readers:
            names = ", ".join(sorted(self.files.kinds))
            raise Refusal(
                f"SIDE-INTERACTIVE: fairseq-interactive: not supported, because the model reads side files ({names}). "
                "Run posenc side binarise and fairseq-generate."
            )
        return super().build_dataset_for_inference(src_tokens, src_lengths, constraints)


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Inside the `with` block, replace a PositionError with a Refusal.

    A Refusal prints an error message of one line and ends the program.
    """
    try:
        yield
    except PositionError as error:
        raise Refusal(error) from None
