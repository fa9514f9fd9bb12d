"""Translation quality by source length, from the sentence statistics in score.json (Neishi and Yoshinaga 2019)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...common.messages import join, shorten
from ...core import PositionError
from ...plotting.style import add_legend, label_text, line_style, new_figure
from ..report.records import conditions, differing, label, read_from_references, require_comparable
from ..report.sentences import MIN_SENTENCES, Bucket, bucket_name, buckets_up_to, in_bucket, random_seed, sentence_test
from ..report.statistics import ALPHA, holm
from ..scoring.record import FILE, Record, read
from ..scoring.sentences import SentenceStatistics, corpus_score
from .results import Result
from .runs import scored_checkpoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Quality:
    """sacreBLEU's scores for a subset of the sentences of one run."""

    sentences: int  # number of sentences
    bleu: float
    chrf: float
    brevity: float  # brevity penalty, 1 if the hypotheses are at least as long as the references
    ratio: float  # length of the hypotheses divided by the length of the references


def quality(statistics: SentenceStatistics) -> Quality:
    """Return the scores of these sentences. At least one sentence is required."""
    bleu, chrf = corpus_score("bleu", statistics.bleu), corpus_score("chrf", statistics.chrf)
    return Quality(len(statistics.bleu), bleu.score, chrf.score, bleu.bp, bleu.ratio)


def select(statistics: SentenceStatistics, first: int, last: int | None) -> SentenceStatistics:
    """Return the statistics of the sentences whose source has `first` to `last` words.

    If `last` is None, there is no maximum.
    """
    kept = in_bucket(statistics.source_words, (first, last))
    pick = [[rows[number] for number in kept] for rows in (statistics.bleu, statistics.chrf, statistics.source_words)]
    return SentenceStatistics(*pick)


def _load(path: Path, parts: Sequence[str] | None, order: Sequence[str] = ()) -> tuple[Record, list[str], SentenceStatistics]:
    """Return the record of a run, the names of its selected test sets, and the concatenated statistics of these test sets.

    Without selected test sets, the test sets in `order` are first, in this order.
    """
    if not path.exists():
        raise PositionError(f"{path}: no such file or folder. Expected a scored run, or a checkpoint of a scored run.")
    folder = path if path.is_dir() else path.parent
    file = folder / FILE
    if not file.is_file():
        raise PositionError(f"{path}: {FILE} is missing. Expected a scored run. Run posenc score {path} PART=REFERENCE.")
    record = read(file)
    scored = scored_checkpoint(folder)
    if path.is_file() and scored is not None and scored.name != path.name:
        raise PositionError(
            f"{path}: not the scored checkpoint. {FILE} has the scores of {scored.name}. Expected this checkpoint. Name {folder}."
        )
    if record.unfinished:
        raise PositionError(f"{path}: the training did not end. Expected a run that has ended. Continue it, or leave it out.")
    names = list(parts or sorted(record.parts, key=lambda name: order.index(name) if name in order else len(order)))
    rows: list[list] = [[], [], []]
    for name in names:
        if name not in record.parts:
            raise PositionError(f"{file}: no test set {shorten(name)}. Expected {join(list(record.parts), 8)}.")
        packed = record.parts[name].statistics
        try:
            found = None if packed is None else SentenceStatistics.unpack(packed)
            if found is not None and len(found.bleu) != record.parts[name].sentences:
                raise ValueError("wrong number of sentences")
        except Exception:  # unpacking damaged statistics can raise errors of many types
            raise PositionError(
                f"{file}: the sentence statistics of test set {shorten(name)} are damaged. Run posenc score again."
            ) from None
        if found is None or found.source_words is None:
            raise PositionError(
                f"{file}: no source lengths for test set {shorten(name)}. Expected outputs of fairseq-generate with S- lines. "
                "Run posenc score again with such outputs."
            )
        for own, more in zip(rows, (found.bleu, found.chrf, found.source_words)):
            own += more
    return record, names, SentenceStatistics(*rows)


def analyse(args: argparse.Namespace) -> Result:
    random_seed()  # check SACREBLEU_SEED before the long computation, because a wrong seed raises an error
    folders = [path if path.is_dir() else path.parent for path in args.runs]
    if twice := [folder for number, folder in enumerate(folders) if folder in folders[:number]]:
        raise PositionError(f"{twice[0]}: given twice. Expected each run once. Remove one of the two.")
    first = _load(args.runs[0], args.parts)
    loaded = [first, *(_load(path, args.parts, order=first[1]) for path in args.runs[1:])]
    titles = _titles([record for record, _, _ in loaded], args.runs)
    runs = {title: statistics for title, (_, _, statistics) in zip(titles, loaded)}
    _require_same_sentences(loaded, titles)
    selected = [(record, {name: record.parts[name] for name in names}) for record, names, _ in loaded]
    require_comparable([record.model_copy(update={"parts": parts}) for record, parts in selected])
    baseline = args.baseline or ("sinusoidal" if "sinusoidal" in runs else titles[0])
    if baseline not in runs:
        raise PositionError(f"--baseline {shorten(baseline)}: no such run. Expected one of {join(titles, 8)}.")
    read = {title: [read_from_references(record, name) for name in names] for title, (record, names, _) in zip(titles, loaded)}
    other_inputs = [title for title in titles if read[title] != read[baseline]]
    records, curves, heads = [], {title: {} for title in titles}, {}
    buckets = _buckets(args.seen, runs[baseline])
    for name, bucket in buckets.items():
        inside = {title: select(statistics, *bucket) for title, statistics in runs.items()}
        heads[name] = f"{name} (n = {len(inside[baseline].bleu)})"
        enough = len(inside[baseline].bleu) >= MIN_SENTENCES
        others = [title for title in inside if title not in (baseline, *other_inputs)] if enough else []
        counts = {title: np.array(own.bleu) for title, own in inside.items()}
        p_values = np.array([sentence_test("bleu", counts[baseline], counts[title]) for title in others])
        tested = dict(zip(others, map(float, holm(p_values))))
        for title, own in inside.items():
            found = quality(own) if enough else None
            p = tested.get(title)
            numbers = [found.bleu, found.chrf, found.brevity, found.ratio] if found else [None] * 4
            records.append([title, name, len(own.bleu), *numbers, p])
            curves[title][name] = None if found is None else (found.bleu, p)
    rows = [[title, *map(_bleu, own.values()), *_difference(own, args.seen)] for title, own in curves.items()]
    head = ["method", *heads.values(), *["unseen - seen"] * bool(args.seen)]
    notes = [
        f"BLEU of the test sets {', '.join(loaded[0][1])} combined, by the number of source words before subword splitting.",
        f"*: the difference to {baseline} is significant for other test sentences (p at most .05, two-sided paired approximate "
        "randomization). p is corrected for the number of runs, in each length group separately. The test does not include "
        "the seed variance.",
        f"'-': fewer than {MIN_SENTENCES} sentences.",
        "The CSV file also contains chrF, brevity penalty, length ratio and corrected p.",
    ]
    if other_inputs:
        notes.append(
            f"not compared with {baseline}, because decoding read other properties of the references (length or order): "
            f"{'; '.join(other_inputs)}."
        )
    if args.seen:
        notes.append(
            f"seen: source sentences of at most {args.seen} words, the length of the longest training source. The vertical line "
            f"of the plot is at {args.seen} words. It divides the interval that contains sentences on both sides."
        )
    names = {name: bucket for name, bucket in buckets.items() if name == bucket_name(bucket)}  # not the buckets of --seen
    detail = ["method", "source words", "n", "BLEU", "chrF", "brevity penalty", "length ratio", "p"], records
    title = "Quality by length of the source"
    return Result("lengths", title, head, rows, notes, lambda: _plot(curves, names, args.seen), 1, detail)


def _bleu(found: tuple[float, float | None] | None) -> str | None:
    if found is None:
        return None
    return f"{found[0]:.1f}{'*' if found[1] is not None and found[1] <= ALPHA else ''}"


def _difference(own: dict[str, tuple[float, float | None] | None], seen: int | None) -> list[float | None]:
    """Return BLEU of the sources that are longer than all training sources, minus BLEU of all other sources."""
    if not seen:
        return []
    far, near = own[_unseen(seen)], own[_seen(seen)]
    return [None if far is None or near is None else far[0] - near[0]]


def _titles(records: Sequence[Record], paths: Sequence[Path]) -> list[str]:
    found: list[str] = []
    for record, path in zip(records, paths):
        title = label(record)
        found.append(title if title not in found else f"{title} ({path})")
    return found


def _require_same_sentences(loaded: Sequence[tuple[Record, list[str], SentenceStatistics]], titles: Sequence[str]) -> None:
    """Raise PositionError unless the conditions of every test set, such as reference and decoding, are equal in all runs."""
    first, wanted, _ = loaded[0]
    known = conditions(first)
    for (record, names, _), title in zip(loaded, titles):
        both = f"{shorten(title)} and {shorten(titles[0])}"
        if names != wanted:
            raise PositionError(f"{both}: different test sets. Expected the same sentences. Select test sets with --parts.")
        own = conditions(record)
        for name in names:
            if differ := differing(own[name], known[name]):
                keys = join([key.removeprefix("parts.") for key in differ], 4)
                raise PositionError(f"{both}: {keys} differ. Expected the same sentences, scored with the same settings.")


def _seen(words: int) -> str:
    return f"seen (up to {words})"


def _unseen(words: int) -> str:
    return f"unseen ({words + 1}+)"


def _buckets(seen: int | None, statistics: SentenceStatistics) -> dict[str, Bucket]:
    """Return name -> limits of the buckets of source lengths that contain sentences. The limits are from `buckets_up_to`.

    `seen` is the length of the longest training source. If `seen` is given, add one bucket of lengths up to `seen`, and one
    bucket of longer sources.
    """
    words = statistics.source_words or []
    found = {bucket_name(bucket): bucket for bucket in buckets_up_to(max(words, default=0)) if in_bucket(words, bucket)}
    return found | ({_seen(seen): (1, seen), _unseen(seen): (seen + 1, None)} if seen else {})


def line_at(seen: int, shown: Sequence[Bucket]) -> float:
    """Return the place of the line between the lengths up to `seen` and larger lengths.

    Bucket i extends from i - 0.5 to i + 0.5. If a bucket contains lengths on both sides, the line divides the bucket in
    proportion. In a bucket without a maximum, the line is in the middle.
    """
    known = [place for place, (first, _) in enumerate(shown) if first <= seen]
    if not known:
        return -0.5
    first, last = shown[known[-1]]
    return known[-1] - 0.5 + (0.5 if last is None else min((seen + 1 - first) / (last + 1 - first), 1.0))


def _plot(
    curves: dict[str, dict[str, tuple[float, float | None] | None]], names: dict[str, Bucket], seen: int | None
) -> Figure | None:
    shown = [name for name in names if any(own.get(name) is not None for own in curves.values())]
    if not shown:
        return None
    figure, ((axis,),) = new_figure(6.5, 4)
    for number, (title, own) in enumerate(curves.items()):
        points = [(place, own[name][0]) for place, name in enumerate(shown) if own.get(name) is not None]
        axis.plot(*zip(*points), markersize=5, label=label_text(title), **line_style(number))
    if seen:
        axis.axvline(line_at(seen, [names[name] for name in shown]), color="#999999", linewidth=1)
    axis.set(xticks=range(len(shown)), xticklabels=shown, xlabel="source words", ylabel="BLEU")
    add_legend(figure, axis)
    return figure
