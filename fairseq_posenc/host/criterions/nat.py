"""The losses of a non-autoregressive model, and the accuracy of its positions."""

from __future__ import annotations

from typing import Any

from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.criterions.nat_loss import LabelSmoothedDualImitationCriterion, LabelSmoothedDualImitationCriterionConfig
from fairseq.logging import metrics
from torch import Tensor

from . import NAT_CRITERION

_SUFFIX = "-loss"  # name by which fairseq's criterion selects the values to log
_ACCURACY = "accuracy_of_"


@register_criterion(NAT_CRITERION, dataclass=LabelSmoothedDualImitationCriterionConfig)
class LossesOfParallelModel(LabelSmoothedDualImitationCriterion):
    """fairseq's nat_loss, which also logs accuracies of positions. The model chooses label smoothing for each of its losses.

    Each loss is a mean times its weight. The log contains each mean under its name, without the weight.
    """

    def forward(self, model: Any, sample: dict, reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """Return the loss, the number by which it is divided (1), and the values that are logged."""
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
