"""fairseq's translation, with what the model's methods read beside the words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig

from ..architectures import TASK
from ..core import SideInput
from ..data.side.dataset import Maker, SideInputDataset
from ..generation.options import OutputLengthConfig
from .lengths import OutputLengthTask


@dataclass
class PositionTranslationConfig(OutputLengthConfig, TranslationConfig):
    """The options of fairseq's translation, and those of side inputs."""


@register_task(TASK, dataclass=PositionTranslationConfig)
class PositionTranslation(OutputLengthTask):
    """fairseq's translation whose batches carry the side inputs that the models declare.

    Models come before datasets in all of fairseq's commands, so the task asks the models what to load.
    """

    cfg: PositionTranslationConfig

    def __init__(self, cfg: PositionTranslationConfig, src_dict: Any, tgt_dict: Any):
        super().__init__(cfg, src_dict, tgt_dict)
        self.side_inputs: dict[str, SideInput] = {}  # what the models read

    def build_model(self, cfg: Any, from_checkpoint: bool = False):
        model = super().build_model(cfg, from_checkpoint)
        self.side_inputs.update(getattr(model.encoder, "side_inputs", {}))
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        super().load_dataset(split, epoch, combine, **kwargs)
        self.datasets[split] = self._with_side_inputs(self.datasets[split], split)

    def _with_side_inputs(self, dataset: Any, split: str) -> Any:
        makers = self._makers(split)
        return SideInputDataset(dataset, makers, self.side_inputs) if makers else dataset

    def _makers(self, split: str) -> list[Maker]:
        """What makes the side inputs of a sentence."""
        return []
