"""Compare BLEU for original sources with BLEU for sources in which one word was moved.

This is the second experiment of Yang et al. (2019). This project moves whole words, not subwords. The last word is not moved.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...common.progress import Progress
from ...core import PositionError
from ...ops.characters import is_sentencepiece
from . import moves
from .results import Result, plot_by_distance
from .runs import Run, Runs, batch_of, pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: the loss of BLEU of a bucket is shown only if the bucket has at least this number of sentences
_FEWEST = 50
_BATCH = 32  # number of sentences
# SentencePiece marks the beginning of each word. subword-nmt marks the end of each subword, except the last subword of a word
_WORD_BEGIN, _WORD_GOES_ON = "▁", "@@"
#: unknown words of references in fairseq, and here
_ESCAPED, _UNKNOWN = "<<unk>>", "\ue000"
_BUCKETS = ["1-4", "5-9", *moves.bucket_names()[1:]]


def words_of(tokens: Sequence[int], symbols: Sequence[str]) -> list[Sequence[int]]:
    """Split a sentence of subwords into words. Each word is a list of subwords."""
    pieces = [symbols[token] for token in tokens]
    if joining(symbols) == "sentencepiece":
        begins = [piece.startswith(_WORD_BEGIN) for piece in pieces]
    else:
        begins = [number == 0 or not pieces[number - 1].endswith(_WORD_GOES_ON) for number in range(len(pieces))]
    starts = [number for number, first in enumerate(begins) if first or number == 0]
    return [tokens[first:end] for first, end in zip(starts, [*starts[1:], len(tokens)])]


def joining(symbols: Sequence[str]) -> str | None:
    """Return fairseq's name for the format of the subwords: "sentencepiece", "subword_nmt", or None for words."""
    if is_sentencepiece(symbols):
        return "sentencepiece"
    return "subword_nmt" if any(symbol.endswith(_WORD_GOES_ON) for symbol in symbols) else None


def bucket(distance: int) -> int:
    """Return the index of the bucket that contains a distance in words.

    The first two buckets are 1 to 4 and 5 to 9. For distances from 10, the buckets are
    the buckets of Yang et al. (2019).
    """
    return int(distance >= 5) if distance < moves.BUCKET else 1 + moves.bucket(distance)


class Translator:
    """Beam search of one model. The maximum output length is twice the source length plus 10."""

    def __init__(self, run: Run, beam: int):
        from fairseq.dataclass.configs import GenerationConfig

        self.run, self.target = run, run.task.target_dictionary
        self.generator = run.task.build_generator([run.model], GenerationConfig(beam=beam, max_len_a=2, max_len_b=10))
        self.joining = joining(self.target.symbols)

    @torch.no_grad()
    def translate(self, sources: Sequence[Sequence[int]], progress: Progress, what: str) -> list[str]:
        """Return the translations in the order of the sources. Batches contain sentences of similar lengths."""
        order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
        found = [""] * len(sources)
        for first in range(0, len(order), _BATCH):
            chosen = order[first : first + _BATCH]
            progress.show(f"moved words: {self.run.title}, {what}, sentence {first} of {len(order)}")
            tokens = batch_of([sources[number] for number in chosen], self.run)
            lengths = tokens.ne(self.run.words.pad()).sum(1)
            best = self.generator.generate([self.run.model], {"net_input": {"src_tokens": tokens, "src_lengths": lengths}})
            for number, hypotheses in zip(chosen, best):
                found[number] = self.text(hypotheses[0]["tokens"])
        return found

    def text(self, tokens: Tensor, reference: bool = False) -> str:
        """Return a sentence as text.

        In a reference, <unk> becomes a character that no hypothesis contains. sacreBLEU splits <unk> and fairseq's <<unk>> into
        several words, so that their parts would match.
        """
        return self.target.string(tokens, self.joining, escape_unk=reference).replace(_ESCAPED, _UNKNOWN)


def analyse(args: argparse.Namespace) -> Result:
    runs, found, numbers = Runs(args.runs, args.data), {}, [0] * len(_BUCKETS)
    beams: set[int] = set()
    rows: list[list[Any]] = []
    for run in runs.measured(rows, 3 + len(_BUCKETS)):
        both = [pair for subset in args.subsets for pair in pairs(run, subset)]
        changed = [_moved(source, run, args.seed + number) for number, (source, _) in enumerate(both)]
        kept = [(source, target, *one) for (source, target), one in zip(both, changed) if one is not None]
        if not kept:
            raise PositionError(
                f"{run.path}: all sentences of {', '.join(args.subsets)} are too short. Expected sentences of at least 3 words."
            )
        translator = Translator(run, args.beam)
        beams.add(translator.generator.beam_size)  # 1 for non-autoregressive models, which ignore the beam
        references = [translator.text(torch.tensor(target), reference=True) for _, target, _, _ in kept]
        sources = ([_text(run, source), _text(run, moved), distance] for source, _, moved, distance in kept)
        runs.require_same_sentences(run, zip(sources, references))
        plain = translator.translate([source for source, _, _, _ in kept], runs.progress, "as they are")
        moved = translator.translate([source for _, _, source, _ in kept], runs.progress, "with a moved word")
        buckets = [bucket(distance) for *_, distance in kept]
        numbers = [buckets.count(number) for number in range(len(_BUCKETS))]
        clean, other = (_bleu(texts, references, args.tokenize) for texts in (plain, moved))
        drops: list[float | None] = []
        for number, count in enumerate(numbers):
            inside = [place for place, own in enumerate(buckets) if own == number]
            *pick, wanted = ([texts[place] for place in inside] for texts in (plain, moved, references))
            before, after = (_bleu(texts, wanted, args.tokenize) for texts in pick) if count >= _FEWEST else (None, None)
            drops.append(None if before is None or after is None else before - after)
        found[run.title] = clean - other, drops
        rows.append([run.title, clean, other, clean - other, *drops])
    shown = [number for number, count in enumerate(numbers) if count]
    rows = [[*row[:4], *(row[4 + number] for number in shown)] for row in rows]
    head = ["method", "BLEU", "one word moved", "loss", *(f"loss, by {_BUCKETS[n]} (n = {numbers[n]})" for n in shown)]
    notes = [
        f"The test has {sum(numbers)} sentences of {', '.join(args.subsets)}. One word of each sentence is moved. All "
        f"rows have the same moves (seed {args.seed}).",
        "The reference does not change.",
        f"BLEU is computed by sacreBLEU{f' with the tokenizer {args.tokenize}' if args.tokenize else ''} on words, with beam "
        f"{' or '.join(map(str, sorted(beams, reverse=True)))}. The loss is BLEU of the original source minus "
        "BLEU of the source with a moved word.",
        "A large loss shows that the model uses the word order. A model that ignores the order has no loss.",
        f"'-': fewer than {_FEWEST} sentences.",
        *runs.notes(),
    ]

    def plot() -> Figure:
        shown_drops = {title: (loss, [drops[number] for number in shown]) for title, (loss, drops) in found.items()}
        titles = "loss of BLEU", "by distance of the move"
        return plot_by_distance(shown_drops, [_BUCKETS[number] for number in shown], titles, "words")

    return Result("moved", "Translation of sources with a moved word", head, rows, notes, plot, digits=1)


def _moved(source: Sequence[int], run: Run, seed: int) -> tuple[list[int], int] | None:
    """Return the source with one word moved, and the distance of the move in words. Return None for fewer than three words."""
    words = words_of(source, run.words.symbols)
    drawn = moves.draw(len(words), Random(seed))
    return None if drawn is None else ([piece for word in moves.move(words, *drawn) for piece in word], abs(drawn[0] - drawn[1]))


def _text(run: Run, source: Sequence[int]) -> str:
    return run.words.string(torch.tensor(source), joining(run.words.symbols))


def _bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str | None) -> float:
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize=tokenize, force=True).corpus_score(list(hypotheses), [list(references)]).score
