"""Label-smoothed cross-entropy with the loss terms of position methods."""

from __future__ import annotations

from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from torch import Tensor

from . import CRITERION

_PREFIX = "loss_of_"
#: prefixes of the log entries for the sum and the count of a mean
_SUM, _COUNT = "sum_of_", "count_of_"


@register_criterion(CRITERION, dataclass=LabelSmoothedCrossEntropyCriterionConfig)
class CrossEntropyWithLosses(LabelSmoothedCrossEntropyCriterion):
    """fairseq's label_smoothed_cross_entropy plus the terms of `ctx.add_loss`.

    The criterion logs these terms, and the means of `ctx.add_mean`.
    """

    def forward(self, model: Any, sample: dict, reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """Return the loss, the number by which it is divided, and the values that are logged."""
        net_output = model(**sample["net_input"])
        loss, nll_loss = self.compute_loss(model, net_output, sample, reduce=reduce)
        added = {name: value.sum() for name, value in net_output[1].get("losses", {}).items()}
        loss = loss + sum(added.values())
        sample_size = sample["target"].size(0) if self.sentence_avg else sample["ntokens"]
        logged = {
            "loss": loss.data,
            "nll_loss": nll_loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": sample["target"].size(0),
            "sample_size": sample_size,
            **{_PREFIX + name: value.data for name, value in added.items()},
            **{_SUM + name: pairs[:, 0].sum().data for name, pairs in net_output[1].get("means", {}).items()},
            **{_COUNT + name: pairs[:, 1].sum().data for name, pairs in net_output[1].get("means", {}).items()},
        }
        if self.report_accuracy:
            correct, total = self.compute_accuracy(model, net_output, sample)
            logged.update(n_correct=int(correct), total=int(total))
        return loss, sample_size, logged

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        super().reduce_metrics(logging_outputs)
        size = sum(logged.get("sample_size", 0) for logged in logging_outputs)
        total = lambda name: sum(logged.get(name, 0) for logged in logging_outputs)  # noqa: E731
        for name in sorted({name for logged in logging_outputs for name in logged}):
            if name.startswith(_PREFIX):
                metrics.log_scalar(name.removeprefix(_PREFIX), total(name) / size, size, round=3)
            if name.startswith(_SUM) and total(_COUNT + name.removeprefix(_SUM)) > 0:
                mean = name.removeprefix(_SUM)
                metrics.log_scalar(mean, total(name) / total(_COUNT + mean), total(_COUNT + mean), round=3)
