"""fairseq's dataset of sentence pairs, with side inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from fairseq.data import BaseWrapperDataset, LanguagePairDataset
from torch import Tensor

from ...core import SideInput

#: (index of the sentence pair in the dataset, item of LanguagePairDataset) -> side inputs by name, without the axis B
Maker = Callable[[int, Mapping[str, Any]], Mapping[str, Tensor]]


class SideInputDataset(BaseWrapperDataset):
    """A data set of sentence pairs whose batches contain net_input["side_inputs"]: tensors by name, padded like the tokens.

    Data loader processes call `maker` for every sentence pair. `declared` contains the declaration of each side input.
    """

    def __init__(self, dataset: LanguagePairDataset, maker: Maker, declared: Mapping[str, SideInput]):
        super().__init__(dataset)
        self.maker, self.declared = maker, declared

    def __getitem__(self, index: int) -> dict[str, Any]:
        pair = self.dataset[index]
        return {**pair, "side_inputs": self.maker(int(index), pair)}

    def collater(self, samples: Sequence[Mapping[str, Any]], pad_to_length: Any = None) -> dict[str, Any]:
        batch = self.dataset.collater(samples, pad_to_length=pad_to_length)
        if batch:  # fairseq passes an empty batch to a worker without sentences
            by_id = {int(sample["id"]): sample["side_inputs"] for sample in samples}
            ordered = [by_id[number] for number in batch["id"].tolist()]
            batch["net_input"]["side_inputs"] = {
                name: side.collate([rows[name] for rows in ordered], *self._place(side, batch))
                for name, side in self.declared.items()
                if name in ordered[0]
            }
        return batch

    def _place(self, side: SideInput, batch: Mapping[str, Any]) -> tuple[int, bool]:
        """Return the number of columns of the source or target batch, and whether its padding is on the left."""
        if side.of == "source":
            return batch["net_input"]["src_tokens"].size(1), self.dataset.left_pad_source
        return batch["target"].size(1) if batch.get("target") is not None else 0, self.dataset.left_pad_target

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        return self.dataset.num_tokens_vec(indices)
