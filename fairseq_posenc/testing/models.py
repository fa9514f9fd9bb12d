"""Build and run small fairseq models for the checks."""

from __future__ import annotations

import contextlib
import functools
from argparse import Namespace
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch import Tensor, nn

from ..core import PositionError, Positions, Sentence
from ..data.side import examples
from ..host import plugin  # noqa: F401  registers the architectures
from ..host.models.transformer.model import PositionTransformer
from .cases import SMALL, Case

PAD = SMALL.padding_idx
FIRST, LAST = 4, SMALL.vocab_size  # indices of words in the dictionary: FIRST to LAST - 1
END = 2
SEPARATOR = END  # token between the sentences of a document
TARGET_ROOM = 40  # maximum number of target words in models with side inputs

#: function that returns the tree, graph and reordering (`Sentence`) of a source sentence with the tokens [S]
Describe = Callable[[Tensor], Sentence]


def build(
    encoder: str = "none",
    decoder: str = "none",
    cross: str = "none",
    seed: int = 0,
    arch: str = "posenc_transformer_tiny",
    **changes: Any,
) -> PositionTransformer:
    """Return a model with two layers, width 16 and no dropout. Noise is added to position parameters and to the padding vector.

    Some methods multiply by a factor that is one at initialisation. Without noise, such a method has no effect. A test could
    then not detect that the model never calls this method. Without noise, the padding vector is zero. A test could then not
    detect that a method reads padding.
    """
    args = Namespace(encoder_position=encoder, decoder_position=decoder, cross_position=cross)
    ARCH_CONFIG_REGISTRY[arch](args)
    sizes = {"layers": 2, "embed_dim": SMALL.embed_dim, "attention_heads": SMALL.num_heads, "ffn_embed_dim": 24}
    given = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    limits = {f"max_{side}_positions": SMALL.max_positions for side in ("source", "target")}
    given = {**given, **limits, "dropout": 0.0, "relations": SMALL.relations, **changes}
    width = given["decoder_embed_dim"]
    vars(args).update({"decoder_output_dim": width, "decoder_input_dim": width, **given})
    torch.manual_seed(seed)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, _task())
    with torch.no_grad():
        for name, parameter in position_parameters(model).items():
            # less noise for these parameters, because they are used in sums and integrals over positions
            large = "mixer" in name or "flow" in name
            parameter.add_(torch.randn_like(parameter), alpha=0.5 / (parameter.size(-1) ** 0.5 if large else 1))
        for side in (model.encoder, model.decoder):
            side.embed_tokens.weight[PAD].normal_()
    return model.eval()


def build_for(case: Case, **changes: Any) -> PositionTransformer:
    """Return a model in which the site of the case has the spec of the case. Other sites have the spec none.

    The stack (encoder or decoder) that contains the site has two layers. The other stack has one layer.
    """
    model = build(**{case.site: case.spec}, **{f"{other_stack(case)}_layers": 1, **changes})
    model.side = case.side
    return model


def other_stack(case: Case) -> str:
    """Return the stack that does not contain the site of the case: encoder or decoder."""
    return "decoder" if case.site == "encoder" else "encoder"


@functools.cache
def _task() -> SimpleNamespace:
    words = Dictionary()
    for number in range(LAST - words.nspecial):
        words.add_symbol(f"w{number}")
    words.indices["<sep>"] = SEPARATOR
    return SimpleNamespace(source_dictionary=words, target_dictionary=words, cfg=Namespace(left_pad_target=False), side_inputs={})


def positions_by_site(model: PositionTransformer) -> dict[str, nn.Module]:
    return {"encoder": model.encoder.position, "decoder": model.decoder.position, "cross": model.decoder.cross_position}


def position_parameters(model: PositionTransformer) -> dict[str, nn.Parameter]:
    """Return a mapping from SITE.NAME to the trainable parameters of the position methods, for all sites."""
    return {
        f"{site}.{name}": parameter
        for site, positions in positions_by_site(model).items()
        for name, parameter in positions.named_parameters()
        if parameter.requires_grad
    }


# --- sentences ---


def sentences(seed: int, *lengths: int) -> list[Tensor]:
    """Return one random sentence per length. Each sentence contains a separator."""
    generator = torch.Generator().manual_seed(seed)
    found = [torch.randint(FIRST, LAST, (length,), generator=generator) for length in lengths]
    for words in found:
        words[len(words) // 3] = END
    return found


def batch(rows: list[Tensor], side: str = "right", extra: int = 0) -> Tensor:
    """Return a batch of sentences with padding on one side.

    The number of columns is the length of the longest sentence plus `extra`.
    """
    width = max(map(len, rows)) + extra
    out = torch.full((len(rows), width), PAD)
    for row, words in zip(out, rows):
        row[: len(words)] = words
    return out if side == "right" else torch.stack([row.roll(width - len(words)) for row, words in zip(out, rows)])


# --- running ---


def describe(words: Tensor) -> Sentence:
    """Return a random tree, graph and reordering for the tokens of a sentence. The result depends only on the tokens."""
    return examples.random_sentence(words.tolist())


def encode(model: PositionTransformer, source: Tensor, describe: Describe = describe) -> dict[str, list[Tensor]]:
    return model.encoder(source, side_inputs=side_inputs(model, source, describe))


def logits(model: PositionTransformer, source: Tensor, target: Tensor, describe: Describe = describe) -> Tensor:
    return model(source, None, target, side_inputs=side_inputs(model, source, describe))[0]


def side_inputs(model: PositionTransformer, source: Tensor, describe: Describe = describe) -> dict[str, Tensor]:
    """Return the side inputs of a batch of sentences, padded like the tokens.

    If `model.side` is set, `model.side` computes the side inputs. Otherwise, the methods compute the side inputs from the
    `Sentence` objects that `describe` returns.
    """
    rows, left_pad = [row[row.ne(PAD)] for row in source], bool(source[:, 0].eq(PAD).any())
    made = [] if getattr(model, "side", None) is None else [model.side(row) for row in rows]
    methods = [] if made else [method for at in positions_by_site(model).values() for method in at.methods]
    found = examples.side_inputs(methods, map(describe, rows), source.size(1), left_pad)
    for name, side in model.encoder.side_inputs.items() if made else ():
        length = source.size(1) if side.of == "source" else TARGET_ROOM
        found[name] = side.collate([row[name] for row in made], length, left_pad and side.of == "source")
    return found


@contextlib.contextmanager
def moved(positions: nn.Module, queries: float = 0, keys: float = 0, counted: bool = True) -> Iterator[None]:
    """Within the context, shift the position ids at a site. `counted`: whether the shifted `Positions` have a `start`."""
    begin = positions.begin

    def shift(at: Positions, offset: Any) -> Positions:
        return Positions.counted(at.start + offset, at.ids.size(1)) if counted else Positions(at.ids + offset)

    positions.begin = lambda ctx, rows=1: begin(
        ctx.replace(queries=shift(ctx.queries, queries), keys=shift(ctx.keys, keys)), rows
    )
    try:
        yield
    finally:
        del positions.begin


def close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Check that tensors are equal up to rounding errors."""
    if not _are_close(actual, expected, tolerance):
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def _are_close(actual: Any, expected: Any, tolerance: float) -> bool:
    """Return whether `assert_close` accepts the tensors. This function is faster, because it does not prepare a message.

    The result is False for other values than tensors, tuples and lists. `close` then calls `assert_close`.
    """
    if isinstance(actual, Tensor) and isinstance(expected, Tensor):
        same = actual.shape == expected.shape and actual.dtype == expected.dtype and actual.device == expected.device
        return same and torch.allclose(actual, expected, rtol=tolerance, atol=tolerance)
    if isinstance(actual, (tuple, list)) and isinstance(expected, (tuple, list)) and len(actual) == len(expected):
        return all(_are_close(one, other, tolerance) for one, other in zip(actual, expected))
    return False


def differ(actual: Tensor, expected: Tensor, why: str, tolerance: float = 1e-4) -> None:
    """Check that at least one element differs by more than the tolerance."""
    largest = (actual - expected).abs().max().item()
    assert largest > tolerance, f"{why}: the largest difference is {largest}"


@contextlib.contextmanager
def refused(words: str) -> Iterator[None]:
    """Check that the code in the `with` block raises a PositionError whose message contains `words`."""
    try:
        yield
    except PositionError as error:
        assert words in str(error), error
        return
    raise AssertionError(f"no PositionError contains {words!r}")


@functools.cache
def fixed(case: Case) -> PositionTransformer:
    """Return the model of a case. The model is built only once, so checks that call this function must not change the model."""
    return build_for(case)


@contextlib.contextmanager
def training(*models: nn.Module) -> Iterator[None]:
    """Within the context, the models are in training mode. Then the models are in evaluation mode."""
    for model in models:
        model.train()
    try:
        yield
    finally:
        for model in models:
            model.eval()
