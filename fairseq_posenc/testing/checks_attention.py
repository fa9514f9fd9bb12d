"""Check the attention modules that `build_attention` returns. These modules are for Transformers outside fairseq."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from ..attention import build_attention, multihead
from ..core import AttentionContext, Positions
from ..data.side import examples
from ..registry import spec as parsing
from .cases import SMALL, Case
from .models import close, refused
from .oracle import padding_mask


def attention(case: Case, seed: int = 36) -> nn.Module:
    """Return an attention module in float64, whose position parameters differ from their initial values."""
    torch.manual_seed(seed)
    sizes = {"max_positions": 32, "relations": SMALL.relations}
    built = build_attention(case.spec, SMALL.embed_dim, SMALL.num_heads, site=case.site, **sizes).double()
    with torch.no_grad():
        for parameter in built.position.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.5)
    return built.eval()


def inputs(case: Case, queries: int = 7, keys: int = 9) -> tuple[Tensor, Tensor]:
    torch.manual_seed(37)
    x = torch.randn(queries, 3, SMALL.embed_dim, dtype=torch.float64)
    return x, torch.randn(keys, 3, SMALL.embed_dim, dtype=torch.float64) if case.site == "cross" else x


def padding(keys: int, side: str) -> Tensor:
    """Return the padding mask [3, keys] of sentences with `keys`, `keys` - 1 and `keys` - 3 tokens."""
    return padding_mask([keys, keys - 1, keys - 3], side)


def side_inputs(built: nn.Module, mask: Tensor) -> dict[str, Tensor]:
    """Return the side inputs of random sentences. `mask` [B, S] is True at the padding."""
    lengths = enumerate((~mask).sum(1).tolist())
    sentences = (examples.random_sentence(range(50 * row, 50 * row + length)) for row, length in lengths)
    return examples.side_inputs(built.positions.methods, sentences, mask.size(1), bool(mask[:, 0].any()))


def check_kernels(case: Case) -> None:
    """Compare outputs and gradients with need_weights=False and need_weights=True, with and without padding and attn_mask.

    With need_weights=False, a fused kernel computes the attention if the method allows a fused kernel. A method that overrides
    `attend` must raise an error for attn_mask. A method that computes attention weights must raise an error for an attn_mask of
    numbers, and accept a boolean attn_mask.
    """
    built = attention(case)
    own_kernel = built.positions.uses("attend", 0)
    own_weights = any(method.rescale_reads == "weights" for method in built.positions.methods)
    for side in (None, "right", "left"):
        for limited in (False, True):
            x, source, given = _padded(case, built, side)
            if limited:
                given["attn_mask"] = torch.randn(len(x), len(source), dtype=torch.float64)
            if limited and (own_kernel or own_weights):
                with refused("attn_mask"):
                    built(x, source, source, **given)
                if own_kernel:
                    continue
                given["attn_mask"] = given["attn_mask"] > 1
            found = [_run(built, x, source, need_weights=asked, **given) for asked in (False, True)]
            close(found[0], found[1], 1e-9)


def check_blocks(case: Case) -> None:
    """Compare attention in blocks of queries with attention without blocks. Outputs and gradients must be equal.

    The check lowers the limits of `multihead.py`, because by default only long sentences are computed in blocks.
    """
    built = attention(case)
    for side in (None, "right", "left"):
        x, source, given = _padded(case, built, side)
        whole = _run(built, x, source, need_weights=False, **given)
        for queries in (1, 3):
            block = queries * 3 * SMALL.num_heads * len(source)
            with mock.patch.multiple(multihead, _BLOCK_ON_CPU=block, _FEWEST_BLOCKS=0, _LONG=0):
                close(_run(built, x, source, need_weights=False, **given), whole, 1e-9)


def _padded(case: Case, built: nn.Module, side: str | None) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Return the result of `inputs`, and the arguments for padding on one side. If `side` is None, there is no padding."""
    x, source = inputs(case)
    mask = padding(len(source), side or "right") & (side is not None)
    return x, source, {"key_padding_mask": None if side is None else mask, "side_inputs": side_inputs(built, mask)}


def _run(built: nn.Module, x: Tensor, source: Tensor, **given: Any) -> tuple[Tensor, ...]:
    """Return the output, and the gradients of the input and of all parameters."""
    built.zero_grad()
    x = x.clone().requires_grad_()
    out, _ = built(x, x if source.size(0) == x.size(0) else source, source, **given)
    out.square().sum().backward()
    return (out.detach(), x.grad, *(p.grad.clone() for p in built.parameters() if p.grad is not None))


@torch.no_grad()
def check_weights(case: Case) -> None:
    """Check that attention weights, averaged over heads, are zero at padding and have the correct sum.

    The correct sum over the keys is the fraction of heads in which the query can attend to at least one key. For most methods,
    this sum is one.
    """
    built = attention(case)
    for side in ("right", "left"):
        x, source = inputs(case)
        hidden = padding(len(source), side)
        out, weights = built(x, source, source, key_padding_mask=hidden, side_inputs=side_inputs(built, hidden))
        assert out.isfinite().all()
        if built.positions.uses("attend", 0):
            assert weights is None
            continue
        close(weights.masked_select(hidden.unsqueeze(1)), torch.zeros(()).double().expand(int(hidden.sum()) * len(x)))
        total, expected = weights.sum(-1), _share_of_heads_that_see(case, hidden, len(x))
        if case.site == "cross":
            close(total, expected)
        else:
            close(total[~hidden], expected[~hidden])  # outputs at padding are undefined


def _share_of_heads_that_see(case: Case, hidden: Tensor, queries: int) -> Tensor:
    """Return for each query the fraction of heads in which the query can attend to at least one key, [B, T]."""
    keys = hidden.size(1)
    seen = ~hidden[:, None, None].expand(-1, SMALL.num_heads, queries, -1)
    if case.site == "decoder":
        seen = seen & torch.ones(queries, keys, dtype=torch.bool).tril()
    real = (~hidden).cumsum(1).sub(1).clamp(min=0)  # positions, which do not count padding
    at = Positions(torch.arange(queries)[None]) if case.site == "cross" else Positions(real)
    ctx = AttentionContext(at, Positions(real), causal=case.site == "decoder", cross=case.site == "cross")
    for method in parsing.build(case.spec, SMALL.at(case.site), case.site):
        if "mask" in method.hooks:
            seen = seen & method.mask(ctx)
    return seen.any(-1).double().mean(1)


def check_fully_masked(case: Case) -> None:
    """Check that outputs and gradients are finite if queries cannot attend to any key, and that masked weights are zero.

    The sentences have one, three or five words. Sentences of five words have an attn_mask: a causal mask, or a mask that hides
    the diagonal.
    """
    built = attention(case)
    causal, diagonal = torch.ones(5, 5, dtype=torch.bool).triu(1), torch.eye(5, dtype=torch.bool)
    for keys, mask in ((1, None), (3, None), (5, causal), (5, diagonal)):
        if mask is not None and built.positions.uses("attend", 0):
            continue  # a method that overrides `attend` raises an error for attn_mask
        x = torch.randn(keys, 2, SMALL.embed_dim, dtype=torch.float64, requires_grad=True)
        for asked in (False, True):
            out, weights = built(x, x, x, attn_mask=mask, need_weights=asked)
            grads = torch.autograd.grad(out.square().sum(), [x, *built.parameters()], allow_unused=True)
            for found in (out, weights, *grads):
                assert found is None or found.isfinite().all()
            if weights is not None and mask is not None:
                assert weights.masked_select(mask).eq(0).all()


def check_attention_padding(case: Case) -> None:
    """Check that padding on either side does not change the outputs of an attention module."""
    built = attention(case)
    x, source = inputs(case)
    keys = x if case.site != "cross" else source
    lengths = [(~row).sum() for row in padding(len(keys), "right")]
    alone, side_of_all = [], side_inputs(built, padding(len(keys), "right"))
    for row, length in enumerate(lengths):
        own = keys[:length, row : row + 1]
        given = {name: tensor[row : row + 1, :length] for name, tensor in side_of_all.items()}
        given = {name: x[:, :, :length] if built.positions.side_inputs[name].words == 2 else x for name, x in given.items()}
        alone.append(built(own if keys is x else x[:, row : row + 1], own, own, side_inputs=given)[0][:, 0])
    for side in ("right", "left"):
        mask = padding(len(keys), side)
        moved = keys.clone() if side == "right" else _to_the_right(keys, lengths)
        out, _ = built(moved if keys is x else x, moved, moved, key_padding_mask=mask, side_inputs=side_inputs(built, mask))
        for row, expected in enumerate(alone):
            close(out[~mask[row], row] if keys is x else out[:, row], expected, 1e-9)


def _to_the_right(x: Tensor, lengths: list) -> Tensor:
    return torch.stack([x[:, row].roll(len(x) - int(length), 0) for row, length in enumerate(lengths)], 1)


@torch.no_grad()
def check_attention_steps(case: Case) -> None:
    """Compare each step of step-by-step decoding with a forward pass over all steps up to this step.

    The rows of the batch are reordered after every step. The check runs without padding and with left padding.
    """
    built = attention(case)
    for shorter in ([0, 0, 0], [0, 1, 3]):
        x, source = inputs(case)
        mask = torch.arange(max(len(x), len(source))) < torch.tensor(shorter).unsqueeze(1)  # [B, S], True at padding
        state: dict = {}
        for step in range(len(x)):
            new, seen = x[step : step + 1], x[: step + 1]
            keys = (source, source) if case.site == "cross" else (new, seen)
            hidden = mask[:, : len(keys[1])] if any(shorter) else None
            stepped, _ = built(new, keys[0], keys[0], key_padding_mask=hidden, incremental_state=state)
            forced, _ = built(seen, keys[1], keys[1], key_padding_mask=hidden)
            real = slice(None) if case.site == "cross" else ~mask[:, step]  # outputs at padding are undefined
            close(stepped[0, real], forced[-1, real], 1e-9)
            order = torch.tensor([[2, 0, 1], [1, 1, 0], [0, 2, 2]][step % 3])
            built.reorder_incremental_state(state, order)
            x, source, mask = x[:, order], source[:, order], mask[order]


@torch.no_grad()
def check_scores(case: Case) -> None:
    """Check that the softmax of the scores from `PositionalAttention.scores` equals the attention weights.

    Methods with the hook `mask` are left out of this comparison. For all methods with scores, the check also computes the
    scores of some of the queries in a separate call. These scores must equal the scores of the same queries in the call with
    all queries.
    """
    built = attention(case)
    x, source = inputs(case)
    keys = x if case.site != "cross" else source
    if built.positions.uses("attend", 0):
        with refused("there are no scores"):
            built.scores(x, keys)
        return
    given = side_inputs(built, padding(len(keys), "right") & False)
    scores = built.scores(x, keys, side_inputs=given)
    if not built.positions.uses("mask", 0):
        causal = torch.ones(len(x), len(keys), dtype=torch.bool).triu(1) & (case.site == "decoder")
        weights = scores.masked_fill(causal, float("-inf")).softmax(-1).mean(1)
        close(built(x, keys, keys, side_inputs=given)[1], weights, 1e-9)
    if any(side.words == 1 for side in built.positions.side_inputs.values()):
        return  # a side input with one axis of tokens describes queries and keys, so all queries are needed
    some, ids = torch.tensor([4, 6]), torch.arange(len(keys))
    of_some = {name: tensor[:, some] for name, tensor in given.items()}
    close(built.scores(x[some], keys, some, ids, of_some), scores[:, :, some], 1e-6)
