"""Gates that forget what lies behind them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, PositionMethod
from ...ops.distances import distances
from .cable import RunningSum


class Forgetting(RunningSum):
    """Every word has a gate for every head, and a query sees an earlier key through all gates between them.

    Equation: A_ts = q_t . k_s / sqrt(d_h) + sum_(j=s+1..t) ln sigmoid(w . x_j + b); Lin et al. (2025).
    Shapes: bias -> [B, H, T, S].
    Source: Lin et al. (2025); x-transformers (data-dependent ALiBi).
    Deviations: in the encoder, keys to the right are seen through a second set of gates, as in x-transformers.
    Cost: L (d h + h) parameters a stack, twice as many in the encoder; running sums [B, H, S].
    """

    card = MethodCard(
        name="forgetting",
        title="Forgetting Transformer",
        citation="""@inproceedings{lin-etal-2025-forgetting,
  title = {Forgetting Transformer: Softmax Attention with a Forget Gate},
  author = {Lin, Zhixuan and Nikishin, Evgenii and He, Xu and Courville, Aaron},
  booktitle = {ICLR}, year = {2025}}""",
        equation="A_ts = q_t . k_s / sqrt(d_h) + sum_(j=s+1..t) ln sigmoid(w . x_j + b)",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="runs",
        evidence="peer",
        sites=("decoder",),
        our_sites=("encoder",),
        parameters="L (d h + h); encoder: twice as many",
        count=lambda options, dims, site: PositionMethod.table_count(
            options.share, dims, (dims.embed_dim + 1) * (2 if site == "encoder" else 1)
        ),
        deviations=("gates start open, at b = 5, as in x-transformers", "the encoder's second set of gates is an extension"),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        both = site == "encoder"
        self.right_weight = self.parameter_table(dims.embed_dim, share=options.share) if both else None
        self.right_offset = self.parameter_table(share=options.share) if both else None
        for weight, offset in ((self.weight, self.offset), (self.right_weight, self.right_offset)):
            if weight is not None:
                nn.init.normal_(weight, std=dims.embed_dim**-0.5)
                nn.init.constant_(offset, 5.0)

    def bias(self, ctx: AttentionContext) -> Tensor:
        fall = -self._seen_through(self.weight, self.offset, ctx)
        if self.right_weight is None:
            return fall
        after = self._seen_through(self.right_weight, self.right_offset, ctx)
        return torch.where(distances(ctx.queries, ctx.keys).unsqueeze(1) <= 0, fall, after)

    def _seen_through(self, weight: Tensor, offset: Tensor, ctx: AttentionContext) -> Tensor:
        """The sum of the gates' logarithms up to the key minus that up to the query."""
        return self.differences(self.running(F.logsigmoid(self.increments(ctx.inputs[1], weight, offset, ctx)), ctx), ctx)
