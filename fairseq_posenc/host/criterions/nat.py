"""The criterion for non-autoregressive models: losses, and the accuracy of predicted positions."""

from __future__ import annotations

from typing import Any

from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.criterions.nat_loss import LabelSmoothedDualImitationCriterion, LabelSmoothedDualImitationCriterionConfig
from fairseq.logging import metrics
from torch import Tensor

from . import NAT_CRITERION

_SUFFIX = "-loss"  # fairseq's criterion logs the values whose names have this suffix
_ACCURACY = "accuracy_of_"


@register_criterion(NAT_CRITERION, dataclass=LabelSmoothedDualImitationCriterionConfig)
class LossesOfParallelModel(LabelSmoothedDualImitationCriterion):
    """fairseq's nat_loss, extended by a log of position accuracies. The model selects the losses that use label smoothing.

    Each loss is a mean multiplied by a weight. The log contains each mean without its weight.
    """

    def forward(self, model: Any, sample: dict, reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """Return the loss, the number by which the trainer divides it (1), and the values to log."""
        given = sample["net_input"]
        terms = model(given["src_tokens"], given["src_lengths"], sample["prev_target"], sample["target"])
        losses = {name: self._loss(name, term) for name, term in terms.items()}
        loss = sum(found["loss"] for found in losses.values())
        nll_loss = sum(found["nll_loss"] for name, found in losses.items() if terms[name].get("nll_loss"))
        logged = {
            "loss": loss.data,
            "nll_loss": getattr(nll_loss, "data", nll_loss),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": 1,
            **{name + _SUFFIX: utils.item(found["loss"].data / found["factor"]) for name, found in losses.items()},
        }
        for term in terms.values():
            for name, (correct, total) in term.get("accuracy", {}).items():
                logged[f"{_ACCURACY}{name}_correct"], logged[f"{_ACCURACY}{name}_total"] = correct.data, total.data
        return loss, 1, logged

    def _loss(self, name: str, term: dict[str, Any]) -> dict[str, Any]:
        factor = term.get("factor", 1.0)
        if "loss" in term:
            return self._custom_loss(term["loss"], name, factor)
        smoothing = self.label_smoothing if term.get("smooth") else 0.0
        return self._compute_loss(term["out"], term["tgt"], term.get("mask"), smoothing, name, factor)

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        LabelSmoothedDualImitationCriterion.reduce_metrics(logging_outputs)
        ends = (f"{_ACCURACY}", "_total")
        names = {key for logged in logging_outputs for key in logged if key.startswith(ends[0]) and key.endswith(ends[1])}
        for key in sorted(names):
            name = key.removeprefix(ends[0]).removesuffix(ends[1])
            total = float(sum(logged.get(key, 0) for logged in logging_outputs))
            correct = float(sum(logged.get(f"{_ACCURACY}{name}_correct", 0) for logged in logging_outputs))
            metrics.log_scalar(f"{name}_accuracy", 100 * correct / total if total else 0.0, total, round=2)
