"""State of incremental decoding."""

from __future__ import annotations

import torch
from torch import Tensor


class State:
    """Read and write fairseq's incremental_state.

    `store_per_row` stores tensors with one row per row of the batch. These tensors are reordered with the beams. `store_shared`
    stores tensors that do not depend on the sentence. `per_source` returns a view for cross-attention. In this view, each row
    of a tensor belongs to all beams of a source sentence.
    """

    def __init__(self, store: dict, scope: str = "", kind: str = "rows"):
        self._store, self._scope, self._kind = store, scope, kind

    def within(self, scope: str) -> State:
        """Return a view whose names have the prefix `scope`."""
        return State(self._store, f"{self._scope}{scope}.", self._kind)

    def per_source(self) -> State:
        """Return a view for tensors with one row for all beams of a source sentence."""
        return State(self._store, self._scope, "sources")

    def get(self, name: str) -> Tensor | None:
        """Return the tensor that is stored under this name, or None."""
        stored = self._tensors(self._kind).get(self._scope + name)
        return stored if stored is not None else self._tensors("shared").get(self._scope + name)

    def store_per_row(self, name: str, tensor: Tensor) -> Tensor:
        """Store a tensor with one row per row of the batch, and return it. `reorder` reorders this tensor with the beams."""
        self._tensors(self._kind)[self._scope + name] = tensor
        return tensor

    def store_shared(self, name: str, tensor: Tensor) -> Tensor:
        """Store a tensor that does not depend on the sentence, and return it."""
        self._tensors("shared")[self._scope + name] = tensor
        return tensor

    def reorder(self, order: Tensor, beam: int = 1) -> None:
        """Select the rows with the indices `order`.

        Some tensors have one row per source sentence, and `order` contains `beam` indices per source sentence. In these
        tensors, select one row for each group of `beam` indices.
        """
        sources = order if beam == 1 else order.view(-1, beam)[:, 0] // beam
        same = [(x == torch.arange(len(x), device=x.device)).all() for x in (order, sources)]
        rows_unchanged, sources_unchanged = torch.stack(same).tolist()  # a single synchronisation for both
        self._select("rows", order, rows_unchanged)
        self._select("sources", sources, sources_unchanged)

    def _select(self, kind: str, order: Tensor, unchanged: bool) -> None:
        stored = self._tensors(kind)
        names = [name for name in stored if name.startswith(self._scope)]
        if not unchanged or any(stored[name].size(0) != len(order) for name in names):
            for name in names:  # one tensor at a time, so that memory is reused
                stored[name] = stored[name].index_select(0, order)

    def _tensors(self, kind: str) -> dict:
        return self._store.setdefault(f"posenc.{kind}", {})
