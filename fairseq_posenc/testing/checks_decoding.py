"""Checks of complete models: padding, batches, step-by-step decoding, and causality.

Some code of a forward pass depends on whether gradients are computed. `check_padding` and `check_batch` therefore compare a
forward pass that computes gradients with forward passes that do not. The other checks do not compute gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core import AttentionContext, PositionMethod, Positions
from .cases import Case
from .models import FIRST, LAST, SEPARATOR, batch, build_for, close, differ, encode, fixed, logits, sentences


def run(model: Any, source: Tensor, target: Tensor, **options: Any) -> dict[str, Tensor | None]:
    """Return encoder output [B, S, C], logits [B, T, V], and cross-attention weights [B, T, S].

    The weights have the same order of columns as `source`. In the encoder output, padding is always on the right.
    """
    encoded = encode(model, source)
    found, extra = model.decoder(target, encoded, **options)
    return {"encoder": encoded["encoder_out"][0].transpose(0, 1), "logits": found, "weights": extra["attn"] and extra["attn"][0]}


def check_padding(case: Case) -> None:
    """Check that padding on either side does not change the outputs of a sentence."""
    model = fixed(case)
    sources, targets = sentences(1, 6, 9, 1), sentences(2, 5, 8, 2)
    with torch.no_grad():
        alone = [run(model, s[None], t[None]) for s, t in zip(sources, targets)]
    for side, extra in (("left", 0), ("right", 3)):
        found = run(model, batch(sources, side, extra), batch(targets, "right", extra))
        for row, expected in enumerate(alone):
            _same_sentence({name: None if x is None else x[row] for name, x in found.items()}, expected, side)


def _same_sentence(found: dict[str, Tensor | None], expected: dict[str, Tensor | None], side: str) -> None:
    words, steps = expected["encoder"].size(1), expected["logits"].size(1)
    close(found["encoder"][:words], expected["encoder"][0])  # the encoder moves left padding to the right
    close(found["logits"][:steps], expected["logits"][0])
    if expected["weights"] is None:
        assert found["weights"] is None
        return
    weights = found["weights"][:steps]
    real = weights[:, -words:] if side == "left" else weights[:, :words]
    close(real, expected["weights"][0])
    close(weights.sum(-1), real.sum(-1))  # no weight at padding


def check_batch(case: Case) -> None:
    """Compare a batch of three sentences with two batches of one sentence, the first and the last sentence."""
    model = fixed(case)
    source, target = torch.stack(sentences(3, 7, 7, 7)), torch.stack(sentences(4, 6, 6, 6))
    together = logits(model, source, target)
    for row in (0, 2):
        with torch.no_grad():
            alone = logits(model, source[row : row + 1], target[row : row + 1])
        close(together[row], alone[0])


#: methods whose attention weights at distant keys are almost zero. For these methods, check_full_context changes the second
#: word, not the last word
NEAR_KEYS = {"localness", "kerple_power"}

#: row indices that beam search selects after each step, for three sentences with two beams each. Some steps swap or
#: duplicate the rows of a sentence, or remove a finished sentence
GROUPED = ([0, 1, 2, 3, 4, 5], [1, 0, 2, 2, 5, 4], [0, 0, 3, 2, 4, 4], [3, 2, 5, 4], [0, 0, 3, 2], [3, 2])
#: row indices for decoding with one beam. Some steps also exchange rows between sentences
ANY = ([0, 1, 2, 3, 4, 5], [1, 4, 2, 2, 5, 0], [0, 0, 3, 2, 4, 4], [3, 1, 2, 5], [2, 2, 0, 1], [1, 3])


@torch.no_grad()
def check_incremental(case: Case, beam: int = 1, **changes: Any) -> None:
    """Compare step-by-step decoding with teacher forcing.

    After each step, the rows of the batch are reordered as in beam search. For a method in the encoder, three steps are
    sufficient, because a step does not compute the encoder.
    """
    model = build_for(case, **changes) if changes else fixed(case)
    rows = [words for words in sentences(5, 7, 4, 6) for _ in range(2)]
    encoded = encode(model, batch(rows, "left"))
    draw = torch.Generator().manual_seed(6)
    prefix, state = torch.zeros(6, 0, dtype=torch.long), {}
    model.set_beam_size(beam)
    for order in (ANY if beam == 1 else GROUPED)[3 if case.site == "encoder" else 0 :]:
        new = torch.randint(FIRST, LAST, (prefix.size(0), 1), generator=draw)
        if case.card.documents and prefix.size(1) % 2:
            new[: 1 + prefix.size(1)] = SEPARATOR
        prefix = torch.cat([prefix, new], 1)
        stepped, extra = model.decoder(prefix, encoded, incremental_state=state)
        forced, expected = model.decoder(prefix, encoded)
        close(stepped, forced[:, -1:])
        if expected["attn"] is not None:
            close(extra["attn"][0], expected["attn"][0][:, -1:])
        prefix, rows = prefix[order], [rows[row] for row in order]
        encoded = model.encoder.reorder_encoder_out(encoded, torch.tensor(order))
        model.decoder.reorder_incremental_state_scripting(state, torch.tensor(order))
    model.set_beam_size(1)
    close(model.decoder(prefix, encoded)[0], logits(model, batch(rows, "left"), prefix))


def check_beams(case: Case) -> None:
    """Run check_incremental with two beams per sentence. The beams of a sentence share the keys of the source sentence."""
    check_incremental(case, beam=2)


def check_tied_layers(case: Case) -> None:
    """Run check_incremental with tied layers in encoder and decoder."""
    check_incremental(case, tie_encoder_layers=True, tie_decoder_layers=True)


@torch.no_grad()
def check_causality(case: Case) -> None:
    """Check that later target words do not change earlier outputs. All rows of the batch have the same source sentence."""
    (source,), (target,), kept = sentences(7, 6), sentences(8, 6), (1, 3, 5)
    rows = [target, *(torch.cat([target[:words], _other_words(target[words:])]) for words in kept)]
    before, *after = logits(fixed(case), source.expand(len(rows), -1), torch.stack(rows))
    for words, found in zip(kept, after):
        close(found[:words], before[:words])


@torch.no_grad()
def check_full_context(case: Case) -> None:
    """Check the decoder with full_context_alignment=True. The decoder must not attend to padding.

    The first word must attend to later words, unless the method masks these words.
    """
    # with two layers, the first word reads words that a mask hides, through words in between
    model = build_for(case, decoder_layers=1) if "mask" in case.method().hooks else fixed(case)
    source, targets = torch.stack(sentences(9, 6, 6)), sentences(10, 6, 4)
    found = run(model, source, batch(targets, "right", 2), full_context_alignment=True)["logits"]
    alone = [run(model, source[row : row + 1], t[None], full_context_alignment=True) for row, t in enumerate(targets)]
    for row, words in enumerate(targets):
        close(found[row, : len(words)], alone[row]["logits"][0])
    last = 1 if case.name in NEAR_KEYS else len(targets[0]) - 1
    later = targets[0].clone()[None]
    later[0, last] = _other_words(later[0, last])
    changed = run(model, source[:1], later, full_context_alignment=True)["logits"]
    if case.site == "decoder" and _looks_back(model.decoder.position.methods[0], later):
        close(changed[:, 0], alone[0]["logits"][:, 0])
    else:
        differ(changed[:, 0], alone[0]["logits"][:, 0], "the first word does not attend to later words")


def _looks_back(method: PositionMethod, tokens: Tensor) -> bool:
    """Return whether the mask of the method hides the last of these words [1, T] from the first word."""
    at = Positions.counted(0, tokens.size(1))
    masks = "mask" in type(method)._overridden
    return masks and not bool(method.mask(AttentionContext(at, at, tokens=tokens))[..., 0, -1].any())


def _other_words(words: Tensor) -> Tensor:
    return FIRST + (words - FIRST + 1) % (LAST - FIRST)


RUNNING: list[Any] = [check_padding, check_batch, check_incremental, check_causality, check_full_context]
