"""Relative position representations of keys and values."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.distances import require_integer
from ...ops.pairs import pairs
from ...ops.relative import query_products, value_products


class Shaw(PositionMethod):
    r"""Add a learned vector of the clipped distance to keys, to values or to both.

    Equation: $A_{ts} = q_t \cdot (k_s + a^K[\operatorname{clip}(s-t)]) / \sqrt{d_h}$, $o_t = \sum_s \alpha_{ts} (v_s +
        a^V[\operatorname{clip}(s-t)])$. Shaw et al. (2018), equations 3 and 4.
    Shapes: content_scores -> [B, H, T, S], content_values -> [B, H, T, D].
    Source: Shaw et al. (2018). Code: tensor2tensor. Survey, equations 11 and 12.
    Deviations:
        * Heads share tables by default, as in the paper's big model and tensor2tensor. The paper's base model has one table
          per head (share=none).
        * In the parameter count of the survey, each head has its own tables, and distances are not clipped.
        * Cross-attention is an extension of this project. The authors use self-attention only.
    Cost: 2 (2k + 1) d_h parameters per layer if heads share tables. Memory O(B H T S), not O(T S D).
    Raises: PositionError for keys=false with values=false. PositionError for tie=true with keys=false or values=false.
        PositionError for positions that are not integers.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        max_distance: int = option(
            16,
            "largest distance k with separate vectors, in tokens (larger distances share the vectors of k)",
            minimum=0,
            maximum=65536,
        )
        keys: bool = option(True, "vectors added to keys")
        values: bool = option(True, "vectors added to values")
        tie: bool = option(False, "one table for keys and values, as in OpenNMT-py")
        share: Literal["heads", "none", "layers"] = option("heads", "sharing of the tables: across heads, across layers, or none")

    card = MethodCard(
        name="shaw",
        title="Relative position representations (Shaw et al.)",
        citations=("shaw-etal-2018-self",),
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="peer",
        sites=("encoder", "decoder"),
        extended_sites=("cross",),
        parameters="tables * (1 if tie else keys + values) * (2 * max_distance + 1) * d_h",
        survey_parameters="2 (2n-1) d L",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if not (options.keys or options.values):
            raise PositionError("shaw: keys=false and values=false leave no term. Remove one of the two, or use the method none.")
        if options.tie and not (options.keys and options.values):
            raise PositionError("shaw: tie=true requires keys=true and values=true. Remove tie, or set both.")
        rows = 2 * options.max_distance + 1
        for name in ("key_table", "value_table"):
            used = options.keys if name == "key_table" else options.values and not options.tie
            table = self.parameter_table(rows, dims.head_dim, share=options.share) if used else None
            self.register_parameter(name, table)
            if table is not None:
                bound = (6 / (rows + dims.head_dim)) ** 0.5  # Xavier initialisation with the size of one table
                nn.init.uniform_(table, -bound, bound)

    @property
    def hooks(self) -> frozenset[str]:
        unused = {"content_scores": not self.options.keys, "content_values": not self.options.values}
        return super().hooks - {hook for hook, left_out in unused.items() if left_out}

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        table, scale = self.of_layer(self.key_table, ctx), ctx.scale  # [H or 1, 2k + 1, D]
        return query_products(q, ctx, lambda delta: self._vectors(table, delta) * scale, self.options.max_distance)

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        table = self.of_layer(self.key_table if self.options.tie else self.value_table, ctx)
        return value_products(probs, ctx, lambda delta: self._vectors(table, delta), self.options.max_distance)

    def _vectors(self, table: Tensor, delta: Tensor) -> Tensor:
        return table.index_select(1, require_integer(delta) + self.options.max_distance)  # `delta` is clipped


class ShawAbsolute(PositionMethod):
    r"""Add a learned vector of every pair of positions to keys, to values or to both.

    Equation: $A_{ts} = q_t \cdot (k_s + a^K[t,s]) / \sqrt{d_h}$, $o_t = \sum_s \alpha_{ts} (v_s + a^V[t,s])$. Survey, equations
        9 and 10.
    Shapes: content_scores -> [B, H, T, S], content_values -> [B, H, T, D].
    Source: Shaw et al. (2018), equations 3 and 4, with vectors that are not tied by distance. Survey.
    Deviations:
        * Heads share tables by default. The survey counts one table per head (share=none).
        * Decoder and cross-attention are extensions of this project.
    Cost: 2 n^2 d_h parameters per layer if heads share tables. Each layer computes products with a table [T, S, D].
        If heads share tables, the table is copied only in two cases. First case: the precision of the table differs from the
        precision of queries or attention weights. Second case: sentences have different positions, for example with padding on
        the left.
    Raises: PositionError for keys=false with values=false, for sentences longer than the tables, and for positions that are
        not integers.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        keys: bool = option(True, "vectors added to keys")
        values: bool = option(True, "vectors added to values")
        share: Literal["heads", "none", "layers", "all"] = option(
            "heads", "sharing of the table: across heads, across layers, both (all), or none"
        )

    card = MethodCard(
        name="shaw_abs",
        title="Pairwise position representations (Shaw et al., absolute)",
        citations=("shaw-etal-2018-self",),
        survey="4.1.2",
        reference="absolute",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="error",
        evidence="paper",
        sites=("encoder",),
        extended_sites=("decoder", "cross"),
        parameters="tables * (keys + values) * n * m * d_h",
        survey_parameters="2 n^2 d L",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if not (options.keys or options.values):
            raise PositionError(
                "shaw_abs: keys=false and values=false leave no term. Remove one of the two, or use the method none."
            )
        for name, used in (("key_table", options.keys), ("value_table", options.values)):
            shape = dims.max_positions, dims.max_key_positions, dims.head_dim
            table = self.parameter_table(*shape, share=options.share) if used else None
            self.register_parameter(name, table)
            if table is not None:
                nn.init.normal_(table, std=dims.head_dim**-0.5)

    @property
    def hooks(self) -> frozenset[str]:
        unused = {"content_scores": not self.options.keys, "content_values": not self.options.values}
        return super().hooks - {hook for hook, left_out in unused.items() if left_out}

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        table = pairs(self.of_layer(self.key_table, ctx), ctx.queries, ctx.keys).to(q.dtype)  # [B or 1, H or 1, T, S, D]
        return self._product("bhtd,{}tsd->bhts", q * ctx.scale, table)

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        table = pairs(self.of_layer(self.value_table, ctx), ctx.queries, ctx.keys).to(probs.dtype)
        return self._product("bhts,{}tsd->bhtd", probs, table)

    @staticmethod
    def _product(equation: str, x: Tensor, table: Tensor) -> Tensor:
        """Compute einsum with a table [B or 1, H or 1, T, S, D].

        The function removes each of the first two axes of the table if the axis has size 1. Without this step, einsum would
        expand the axis to all sentences or heads. The gradient of the expanded table would need more memory.
        """
        axes = "".join(axis for axis, size in zip("bh", table.shape) if size > 1)
        return torch.einsum(
            equation.format(axes), x, table.reshape(*(size for size in table.shape[:2] if size > 1), *table.shape[2:])
        )
