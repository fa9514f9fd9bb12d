"""What stands below the tables of a report: what all rows share, and how the numbers were made."""

from __future__ import annotations

from collections.abc import Iterator

from ...common.messages import join
from ..scoring.record import PartScores, Record
from ..scoring.sentences import METRICS
from .chance import Chance
from .records import stops_early
from .significance import SAMPLES, TESTS, random_seed
from .summary import Summary

#: methods that a note names one by one; of more it gives the number
_NAMED = 8


def notes(summary: Summary, full: bool = False) -> list[str]:
    """One sentence or list an item; `full` adds decoding, devices and what is meant by time and memory."""
    runs = summary.runs
    versions = ", ".join(f"{name} {version}" for name, version in runs[0].versions.items())
    scored = {part: scores for run in runs for part, scores in run.parts.items()}
    sizes = ", ".join(f"{part} {scores.sentences} sentences" for part, scores in scored.items())
    signatures = dict.fromkeys(
        f"{name} {getattr(scores, f'{metric}_signature')}" for metric, name in METRICS.items() for scores in scored.values()
    )
    data = " ".join(filter(None, (runs[0].corpus, runs[0].data)))
    found = [f"data {data}: {sizes}; {_updates(runs)}; {versions}", *signatures]
    if summary.seeds > 1:
        found.append(f"mean ± sample standard deviation over seeds {', '.join(map(str, sorted({run.seed for run in runs})))}")
    if any(row.reconstruction for row in summary.rows):
        found.append("†: a reconstruction, the exact form of the paper could not be read (posenc show NAME)")
    if sources := sorted({source for row in summary.rows for source in row.asked}):
        found.append(f"‡: decoding asked for output lengths ({', '.join(sources)}); rows without this mark were told none")
    if summary.baseline:
        found.append(_test_note(summary))
    if summary.chance:
        found += _chance_notes(summary, summary.chance)
    if summary.published:
        figures = summary.published
        ours = "are ours as well" if figures.same_task else "are not ours"
        source = f"{figures.source.rstrip('.')}. Its data and settings {ours}"
        found.append(f"published {figures.part} {METRICS[figures.metric]}: {source}, and it enters no computation")
    return found + (_decoding_notes(scored) + _training_notes(runs) if full else [])


def _updates(runs: list[Record]) -> str:
    if not stops_early(runs[0]):
        return f"{runs[0].updates} updates"
    reached = sorted({run.updates for run in runs})
    numbers = " to ".join(map(str, dict.fromkeys((reached[0], reached[-1]))))
    settings = runs[0].settings
    limit = f" or {settings['max_update']} updates" if settings.get("max_update") else ""
    return f"{numbers} updates, until {settings['patience']} validations without a smaller loss{limit}"


def _test_note(summary: Summary) -> str:
    samples = f"{summary.samples or SAMPLES[summary.test]:,} {'resamples' if summary.test == 'bs' else 'trials'}"
    over = ", mean over common training seeds, one p each in their order" if summary.seeds > 1 else ""
    return (
        f"difference to {summary.baseline}{over}; p: sacreBLEU's {TESTS[summary.test]} (--paired-{summary.test}, {samples}, "
        f"seed {random_seed()}), * p < 0.05; it covers the choice of the test sentences, not the chance in training"
    )


def _chance_notes(summary: Summary, chance: Chance) -> Iterator[str]:
    """What trainings of one method differ by, and which differences to the baseline are larger."""
    study = "of the study chance, with the same data, model and training"
    where = " and ".join(["in this table"] * chance.of_this_table + [study] * chance.of_the_study)
    sizes = [f"{part} {METRICS[metric]} {spread.deviation:.1f}" for (part, metric), spread in chance.spreads.items()]
    margins = {key: margin for key in chance.spreads if (margin := chance.margin(*key)) is not None}
    below = ", ".join(f"{part} {METRICS[metric]} {margin:.1f}" for (part, metric), margin in margins.items())
    pairs = f"19 in 20 pairs of trainings differ by less than {below} (Student's t)" if margins else "too few to say more"
    yield (
        f"chance: the standard deviation over seeds of {join(chance.methods, 4)}, {chance.trainings} trainings {where}: "
        f"{', '.join(sizes)}; {pairs}"
    )
    if not summary.baseline:
        return
    larger = []
    for part in summary.parts:
        known = {row.name: summary.is_chance(row.name, part, "bleu") for row in summary.rows}
        compared = [small for small in known.values() if small is not None]
        names = [name for name, small in known.items() if small is False]
        which = f" ({'; '.join(names)})" if 0 < len(names) <= _NAMED else ""
        if compared:
            larger.append(f"{part} {len(names)} of {len(compared)}{which}")
    if larger:
        yield f"~: a difference that is no larger than chance. Larger in BLEU: {', '.join(larger)}"


def _decoding_notes(scored: dict[str, PartScores]) -> list[str]:
    keys = ("beam", "lenpen", "max_len_a", "max_len_b", "post_process")
    texts: dict[str, list[str]] = {}
    for part, scores in scored.items():
        text = ", ".join(f"{key} {scores.decoding[key]}" for key in keys if scores.decoding.get(key) is not None)
        texts.setdefault(text or "settings not known", []).append(part)
    return [f"decoding of {', '.join(names)}: {text}" for text, names in texts.items()]


def _training_notes(runs: list[Record]) -> list[str]:
    devices = sorted({run.device or ("CPU" if run.settings.get("cpu") else "not known") for run in runs})
    several = "; speed and time of different devices do not compare" if len(devices) > 1 else ""
    found = [
        f"device: {', '.join(devices)}{several}",
        "training tokens/s: of the target, the median of the log",
        "training time (h:mm:ss): in updates, without validation and saving",
    ]
    kinds = {run.peak_memory.of for run in runs if run.peak_memory}
    meanings = {"GPU": "allocated on the GPU, at the logged updates", "process": "resident in the training process"}
    if kinds:
        found.append(f"peak memory: the largest of the seeds; {', '.join(meanings[kind] for kind in sorted(kinds))}")
    return found
