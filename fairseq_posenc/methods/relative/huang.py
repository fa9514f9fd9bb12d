"""The four methods of Huang et al.

Methods 1 and 2 multiply the scores by one learned number per distance. Method 3 multiplies every channel of the product of
query and key by a learned number. This number depends on the distance and the channel. Method 4 adds the product of
the query with a learned vector of the distance, and the product of the key with the same vector.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops import devices
from ...ops.distances import by_distance, diagonals, from_table, require_integer, table_row
from ...ops.kernels.clipped_distances import clipped_columns
from ...ops.kernels.derivatives import first_derivative_only
from ...ops.kernels.outputs import write
from ...ops.precision import at_least_float32
from ...ops.relative import sum_products

#: on an accelerator, causal attention divides the number of queries by this number. The result, rounded up, is the maximum
#: number of queries in a block. Each block leaves out the keys after its last query
_FEWEST_CAUSAL_BLOCKS = 4


@dataclass(frozen=True)
class _Options(MethodOptions):
    max_distance: int | None = option(
        None, "distance at which the table ends (none: max_positions - 1)", minimum=1, maximum=65536
    )
    share: Literal["none", "heads", "layers", "all"] = option(
        "none", "sharing of the table: across heads, across layers, both (all), or none"
    )

    def reach(self, dims: Dims) -> int:
        return self.max_distance or dims.max_distance


class Huang1(PositionMethod):
    r"""Multiply the scores by a learned scalar of the absolute distance.

    Equation: $A_{ts} = (q_t \cdot k_s) r[|s-t|] / \sqrt{d_h}$. Huang et al. (2020), method 1.
    Shapes: rescale [B, H, T, S] -> same.
    Source: Huang, Liang, Xu and Xiang (2020). Survey, equation 18.
    Deviations:
        * Factors start at 1, because a start near 0 makes attention uniform. The paper does not state the initial values.
        * Distances beyond the table use its last factor.
        * Scores do not depend on the direction.
        * The survey's number of parameters belongs to methods 3 and 4 of Huang et al. This method has one scalar per distance.
        * Decoder and cross-attention are extensions of this project.
    Cost: L h n parameters per stack, and one elementwise product with the scores per layer.
    Raises: PositionError for positions that are not integers.
    """

    Options = _Options
    card = MethodCard(
        name="huang1",
        title="Huang et al., method 1 (multiplicative, unsigned distance)",
        citations=("huang-etal-2020-improve",),
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="paper",
        sites=("encoder",),
        extended_sites=("decoder", "cross"),
        parameters="tables * ((max_distance or max(n, m) - 1) + 1)",
        survey_parameters="d L h (2n-1)",
        directional=False,
    )
    position_type = "integer"

    def __init__(self, options: _Options, dims: Dims):
        super().__init__(options, dims)
        self.reach = options.reach(dims)
        self.factor = self.parameter_table(self.reach + 1, share=options.share)
        nn.init.ones_(self.factor)

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        factor = self.of_layer(self.factor, ctx, float32=True)  # [H or 1, reach + 1]

        def values(delta: Tensor) -> Tensor:
            return factor[:, require_integer(delta).abs().clamp(max=self.reach)]

        return scores * by_distance(ctx.queries, ctx.keys, values)


class Huang2(PositionMethod):
    r"""Multiply the scores by a learned scalar of the signed distance.

    Equation: $A_{ts} = (q_t \cdot k_s) r[s-t] / \sqrt{d_h}$. Huang et al. (2020), method 2.
    Shapes: rescale [B, H, T, S] -> same.
    Source: Huang, Liang, Xu and Xiang (2020). Survey, section 4.1.2.
    Deviations:
        * Factors start at 1, because a start near 0 makes attention uniform. The paper does not state the initial values.
        * Distances beyond the table use its first or last factor.
        * The survey's formula for parameters belongs to methods 3 and 4. This method has one scalar per distance.
        * Decoder and cross-attention are extensions of this project.
    Cost: L h (2n - 1) parameters per stack, and one elementwise product with the scores per layer.
    Raises: PositionError for positions that are not integers.
    """

    Options = _Options
    card = replace(
        Huang1.card,
        name="huang2",
        title="Huang et al., method 2 (multiplicative)",
        parameters="tables * (2 * (max_distance or max(n, m) - 1) + 1)",
        directional=True,
    )
    position_type = "integer"

    def __init__(self, options: _Options, dims: Dims):
        super().__init__(options, dims)
        self.reach = options.reach(dims)
        self.factor = self.parameter_table(2 * self.reach + 1, share=options.share)
        nn.init.ones_(self.factor)

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        return scores * from_table(self.of_layer(self.factor, ctx, float32=True), ctx.queries, ctx.keys)


class Huang3(PositionMethod):
    r"""Multiply every channel of the product of query and key by a learned number that depends on the signed distance.

    Equation: $A_{ts} = \sum_i q_{ti} k_{si} r[s-t]_i / \sqrt{d_h}$. Huang et al. (2020), method 3.
    Shapes: rescale [B, H, T, S] -> same.
    Source: Huang, Liang, Xu and Xiang (2020). Survey, equation 19.
    Deviations:
        * All entries of the vectors start at 1. The initial scores are therefore the scores without
          positions. The paper does not state the initial values.
        * Distances beyond the table use its first or last vector.
        * The survey's number of parameters is h times too large.
        * Decoder and cross-attention are extensions of this project.
    Cost: L (2n - 1) d parameters per stack. Each layer computes B H T S D products, but needs only O(B H T S) memory.
        The forward pass computes the products in blocks of queries. The backward pass computes the products again.
    Raises: PositionError for positions that are not integers.
    """

    Options = _Options
    card = replace(
        Huang2.card,
        name="huang3",
        title="Huang et al., method 3 (a factor for every channel)",
        parameters="tables * (2 * (max_distance or max(n, m) - 1) + 1) * d_h",
    )
    position_type = "integer"

    rescale_reads = "vectors"

    def __init__(self, options: _Options, dims: Dims):
        super().__init__(options, dims)
        self.reach = options.reach(dims)
        self.gate = self.parameter_table(2 * self.reach + 1, dims.head_dim, share=options.share)
        nn.init.ones_(self.gate)

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        gate = self.of_layer(self.gate, ctx).to(q.dtype)  # [H or 1, 2 * reach + 1, D]
        causal = ctx.causal and q.size(2) == k.size(2)
        rows, ascending = self._rows(ctx, _in_small_blocks(q))
        return GatedProduct.apply(q * ctx.scale, k, gate, rows, ascending, causal)

    def _rows(self, ctx: AttentionContext, small_blocks: bool) -> tuple[Tensor | None, Tensor | None]:
        """Return the arguments `rows` and `ascending` of `GatedProduct`."""
        queries, keys = ctx.queries, ctx.keys
        ascending = None if small_blocks else ctx.once((self, queries, keys), lambda: diagonals(queries, keys))
        if ascending is None:
            return clipped_columns(queries, keys, self.reach), None
        return None, ctx.once((self, queries, keys, "rows"), lambda: table_row(ascending, self.reach))


def _in_small_blocks(x: Tensor) -> bool:
    """Return whether the products are computed in blocks that fit into the cache of a core of the CPU.

    An accelerator uses larger blocks. torch.compile cannot compile the small blocks of the backward pass.
    """
    return devices.on_cpu(x) and not torch.compiler.is_compiling()


class GatedProduct(torch.autograd.Function):
    """Compute sum_i q_ti k_si gate[rows_ts]_i in blocks of queries.

    Shapes: q [B, H, T, D], k [B, H, S, D], gate [H or 1, W, D], rows [B or 1, T, S] -> [B, H, T, S].

    All blocks write their products to the same buffer, one block after the other. The products are not stored for the backward
    pass. With `causal`, a block leaves out the keys after its last query.

    On an accelerator, and under torch.compile, queries are read in reverse order. If `rows` depends only on s - t, the argument
    `ascending` replaces it: the T + S - 1 different rows, from the last query and the first key to the first query and the last
    key. The gates of all pairs are then a view of the gates of `ascending`.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, gate: Tensor, rows: Tensor | None, ascending: Tensor | None, causal: bool) -> Tensor:
        ctx.causal = causal
        ctx.save_for_backward(q, k, gate, rows, ascending)
        small = _in_small_blocks(k)
        out = (q.new_zeros if causal else q.new_empty)(*q.shape[:3], k.size(2))
        q = q if small else q.flip(2)
        gates = _selection(gate, rows, ascending)
        for some, seen, product in _blocks(q, k, causal):
            here, keys = q[:, :, some].unsqueeze(3), k[:, :, seen].unsqueeze(2)
            if small:
                torch.mul(here, gates(some, seen), out=product)  # [B, H, c, S, D]
                out[:, :, some, seen] = product.mul_(keys).sum(-1)
            else:
                write(product, torch.mul, keys, gates(some, seen))
                out[:, :, some, seen] = (product @ here.mT).squeeze(-1)
        return out if small else out.flip(2)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        gradients = _in_loops if _in_small_blocks(grad) else _with_products
        q, k, gate, rows, ascending = ctx.saved_tensors
        return *gradients(grad, q, k, gate, rows, ascending, ctx.causal), None, None, None


def _in_loops(
    grad: Tensor, q: Tensor, k: Tensor, gate: Tensor, rows: Tensor, ascending: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and gates."""
    grad_q, grad_k = torch.empty_like(q), torch.zeros_like(at_least_float32(k))
    grad_gate = torch.zeros_like(at_least_float32(gate))
    gates = _selection(gate, rows, ascending)
    for some, seen, product in _blocks(q, k, causal):
        g, here, keys = grad[:, :, some, seen].unsqueeze(-1), q[:, :, some].unsqueeze(3), k[:, :, seen].unsqueeze(2)
        torch.mul(g, gates(some, seen), out=product)
        of_k = grad_k[:, :, seen]
        for own, query in zip(product.unbind(2), here.unbind(2)):
            of_k.addcmul_(own, query)
        grad_q[:, :, some] = product.mul_(keys).sum(-2)
        torch.mul(g, keys, out=product)
        chosen = rows[:, some, seen]
        summed = product.mul_(here).sum_to_size(chosen.size(0), gate.size(0), *product.shape[2:])
        grad_gate.index_add_(1, chosen.flatten(), at_least_float32(summed.transpose(0, 1).flatten(1, 3)))
    return grad_q, grad_k.to(k.dtype), grad_gate.to(gate.dtype)


def _with_products(
    grad: Tensor, q: Tensor, k: Tensor, gate: Tensor, rows: Tensor, ascending: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the same gradients as `_in_loops`, but with matrix products. This function is used on an accelerator.

    Two elementwise products are written to a buffer, one after the other. The gradients of queries and keys are matrix products
    of the first one, the product of `grad` and the gates. The gradient of the gates is a matrix product of the second one, the
    product of queries and keys.

    The gradient of the gates is an exception if positions differ between sentences. The function then multiplies the
    elementwise products by `grad` elementwise.
    """
    q, heads, width = q.flip(2), q.size(1), gate.size(1)
    grad_q, grad_gate = [], []
    grad_k: Tensor | None = None
    gates, numbers = _selection(gate, rows, ascending), _reversed(rows, ascending)
    channels_of_q, channels_of_k = q.mT.contiguous(), k.mT.contiguous()  # [B, H, D, T], [B, H, D, S]
    # the first row of every head, if the tables of all heads are one table
    first = torch.arange(0, heads * width, width, device=q.device) if len(gate) > 1 else torch.zeros_like(q[0, :, 0, 0]).long()
    for some, seen, product in _blocks(q, k, causal):
        g = grad[:, :, q.size(2) - some.stop : q.size(2) - some.start, seen].flip(2)  # [B, H, c, S]
        own = gates(some, seen)
        by_channel = product.view(*channels_of_k.shape[:3], *g.shape[2:])  # [B, H, D, c, S]
        write(by_channel, torch.mul, g.unsqueeze(2), own.movedim(-1, 2))
        grad_q.append((by_channel @ channels_of_k[..., seen, None]).squeeze(-1))  # [B, H, D, c, S] @ [B, H, D, S, 1]
        of_k = (channels_of_q[..., None, some] @ by_channel).squeeze(-2)  # [B, H, D, 1, c] @ [B, H, D, c, S]
        if grad_k is None:  # the block with the last queries, which attend to all keys
            grad_k = at_least_float32(of_k)
        else:
            grad_k[..., seen].add_(of_k)
        write(product, torch.mul, q[:, :, some].unsqueeze(3), k[:, :, seen].unsqueeze(2))
        chosen = numbers(some, seen).unsqueeze(1)  # [B or 1, 1, c, S]
        if len(chosen) == 1:  # [H c S, 1, B] @ [H c S, B, D]
            summed = g.flatten(1).mT.unsqueeze(1) @ product.flatten(1, 3).transpose(0, 1)
        else:
            summed = product.mul_(g.unsqueeze(-1))
        index = (chosen + first[:, None, None]).flatten()
        vectors = summed.reshape(len(index), -1)
        found = torch.ops.aten.embedding_dense_backward(vectors, index, len(gate) * width, -1, False)  # adds in float32
        grad_gate.append(found)
    of_keys = torch.zeros_like(k) if grad_k is None else grad_k.to(k.dtype).mT
    return torch.cat(grad_q, 3).flip(3).mT, of_keys, torch.stack(grad_gate).sum(0).view_as(gate)


def _blocks(q: Tensor, k: Tensor, causal: bool) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield for each block the slice of queries, the slice of keys, and a buffer for the products of all channels.

    With `causal`, the slice of keys ends at the last query of the block. On an accelerator, the queries are in reverse order. On
    a CPU, the buffer fits into the cache of a core. There is one exception: a buffer for one query per sentence can be larger
    than the cache.
    """
    small = _in_small_blocks(k)
    held = 2**18 if small else 2**28
    size = min(max(1, held // k.numel()), q.size(2))
    if causal and not small:
        size = min(size, -(-q.size(2) // _FEWEST_CAUSAL_BLOCKS))
    buffer = q.new_empty(q.size(0) * q.size(1) * size * k.size(2) * k.size(3))
    for start in range(0, q.size(2), size):
        stop = min(start + size, q.size(2))
        seen = (stop if small else q.size(2) - start) if causal else k.size(2)
        shape = (*q.shape[:2], stop - start, seen, k.size(3))
        yield slice(start, stop), slice(0, seen), buffer[: math.prod(shape)].view(shape)


def _selection(gate: Tensor, rows: Tensor | None, ascending: Tensor | None) -> Callable[[slice, slice], Tensor]:
    """Return a function that returns the gates of slices of queries and keys: [B or 1, H or 1, c, S, D].

    On an accelerator, the slice of queries belongs to the queries in reverse order.
    """
    if ascending is not None:
        band = gate[:, ascending]  # [H or 1, T + S - 1, D]. The pair (t, s) has the index s + T - 1 - t
        return lambda some, seen: band.unfold(1, seen.stop, 1)[:, some].transpose(2, 3).unsqueeze(0)
    chosen = _reversed(rows, None)
    # [H or 1, B or 1, c, S, D] -> [B or 1, H or 1, c, S, D]
    return lambda some, seen: gate[:, chosen(some, seen)].transpose(0, 1)


def _reversed(rows: Tensor | None, ascending: Tensor | None) -> Callable[[slice, slice], Tensor]:
    """Return a function that returns the rows of the table for slices of queries and keys: [B or 1, c, S].

    On an accelerator, the slice of queries belongs to the queries in reverse order.
    """
    if ascending is not None:
        return lambda some, seen: ascending.unfold(0, seen.stop, 1)[some].unsqueeze(0)
    assert rows is not None
    own = rows if _in_small_blocks(rows) else rows.flip(1)
    return lambda some, seen: own[:, some, seen]


class Huang4(PositionMethod):
    r"""Add the product of the query with a learned vector of the signed distance, and the product of the key with the same
    vector.

    Equation: $A_{ts} = (q_t \cdot k_s + q_t \cdot r[s-t] + k_s \cdot r[s-t]) / \sqrt{d_h}$. Huang et al. (2020), method 4,
        equations 16 and 17.
    Shapes: content_scores -> [B, H, T, S].
    Source: Huang, Liang, Xu and Xiang (2020). Survey, equation 20. Code: Hugging Face's relative_key_query, which indexes t - s.
    Deviations:
        * By default, every head of every layer has its own table. The paper's numbers of parameters imply one table per head.
          In Hugging Face's code, all heads of a layer share one table (share=heads).
        * Distances beyond the table use its first or last vector.
        * The survey's number of parameters is h times too large.
        * Decoder and cross-attention are extensions of this project.
    Cost: L (2n - 1) d parameters per stack. Memory O(B H T (T + S)).
    Raises: PositionError for positions that are not integers.
    """

    Options = _Options
    card = replace(
        Huang3.card,
        name="huang4",
        title="Huang et al., method 4",
        evidence="peer",
    )
    position_type = "integer"

    def __init__(self, options: _Options, dims: Dims):
        super().__init__(options, dims)
        self.reach = options.reach(dims)
        self.table = self.parameter_table(2 * self.reach + 1, dims.head_dim, share=options.share)
        nn.init.normal_(self.table, std=0.02)

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        table, scale = self.of_layer(self.table, ctx), ctx.scale  # [H or 1, 2 * reach + 1, D]

        def vectors(delta: Tensor) -> Tensor:
            return table.index_select(1, table_row(delta, self.reach)) * scale

        return sum_products(q, k, ctx, vectors, self.reach)
