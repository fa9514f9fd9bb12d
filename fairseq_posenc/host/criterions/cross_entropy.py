"""The criterion that adds the loss terms of position methods to the label-smoothed cross-entropy."""

from dataclasses import dataclass, field
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from torch import Tensor

from ...core import Refusal
from ...ops.kernels.token_losses import TokenLosses
from . import CRITERION

_PREFIX = "loss_of_"
#: prefixes of two log entries from which a mean is computed: the sum of the values, and the number of values
_SUM, _COUNT = "sum_of_", "count_of_"


@dataclass
class CrossEntropyConfig(LabelSmoothedCrossEntropyCriterionConfig):
    loss_in_blocks: bool = field(
        default=False,
        metadata={
            "help": "loss computed in blocks of tokens. Large vocabularies need less time and memory. The loss is equal up to "
            "rounding (default: false)"
        },
    )


@register_criterion(CRITERION, dataclass=CrossEntropyConfig)
class CrossEntropyWithLosses(LabelSmoothedCrossEntropyCriterion):
    """fairseq's label_smoothed_cross_entropy, plus the loss terms that methods add with `ctx.add_loss`.

    The criterion logs these terms, and the means that methods add with `ctx.add_mean`.

    With `--loss-in-blocks`, `TokenLosses` computes the cross-entropy in blocks of tokens. fairseq also logs the loss without
    label smoothing. PyTorch's `F.linear_cross_entropy` does not return this loss and therefore cannot be used.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        loss_in_blocks: bool = False,
    ):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        self.in_blocks = loss_in_blocks

    def forward(self, model: Any, sample: dict, reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """Return the loss summed over the batch, the number by which the trainer divides it, and the values to log."""
        net_output = model(**sample["net_input"])
        loss, nll_loss = self.compute_loss(model, net_output, sample, reduce=reduce)
        # the second output of fairseq's lstm and fconv is not a dictionary
        extra = net_output[1] if isinstance(net_output[1], dict) else {}
        added = {name: value.sum() for name, value in extra.get("losses", {}).items()}
        loss = loss + sum(added.values())
        sample_size = sample["target"].size(0) if self.sentence_avg else sample["ntokens"]
        logged = {
            "loss": loss.data,
            "nll_loss": nll_loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": sample["target"].size(0),
            "sample_size": sample_size,
            **{_PREFIX + name: value.data for name, value in added.items()},
            **{_SUM + name: pairs[:, 0].sum().data for name, pairs in extra.get("means", {}).items()},
            **{_COUNT + name: pairs[:, 1].sum().data for name, pairs in extra.get("means", {}).items()},
        }
        if self.report_accuracy:
            correct, total = self.compute_accuracy(model, net_output, sample)
            logged.update(n_correct=int(correct), total=int(total))
        return loss, sample_size, logged

    def compute_loss(self, model: Any, net_output: Any, sample: dict, reduce: bool = True) -> tuple[Tensor, Tensor]:
        """Return the label-smoothed loss and the loss without label smoothing."""
        if not self.in_blocks:
            return super().compute_loss(model, net_output, sample, reduce=reduce)
        if getattr(model.decoder, "adaptive_softmax", None) is not None:
            raise Refusal(
                "--loss-in-blocks: an adaptive softmax has no logits of all words. Expected a model without one. "
                "Remove --loss-in-blocks."
            )
        logits, target = net_output[0], model.get_targets(sample, net_output)
        logits, target = logits[:, self.ignore_prefix_size :].flatten(0, 1), target[:, self.ignore_prefix_size :].flatten()
        nll, smooth = TokenLosses.apply(logits, target, self.padding_idx)
        if reduce:
            nll, smooth = nll.sum(), smooth.sum()
        share = self.eps / (logits.size(-1) - 1)  # probability of each incorrect word
        return (1.0 - self.eps - share) * nll + share * smooth, nll

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
