"""The tables of a report as text, the same for every format, and what stands below them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from .records import Record
from .sentences import METRICS, SAMPLES, TESTS, bucket_names
from .summary import FEWEST, Difference, Row, Summary, Values

NOT_RUN = "not run"
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Block:
    title: str
    head: list[str]
    body: list[list[str]]
    figure: str | None = None  # the plot of the same numbers


def blocks(summary: Summary, full: bool = True) -> list[Block]:
    found = [_scores(summary), _differences(summary)]
    return [*found, _training(summary), *_lengths(summary)] if full else found


def small(summary: Summary) -> Block:
    """The one table for the screen."""
    block = _scores(summary)
    head = [*block.head, "parameters", "training tokens/s"]
    return replace(
        block, head=head, body=[[*cells, _parameters(row), _speed(row)] for cells, row in zip(block.body, summary.rows)]
    )


def _values(values: Values | None, runs: int, digits: int = 1) -> str:
    if values is None:
        return NOT_RUN
    spread = "" if values.sd is None else f" ± {values.sd:.{digits}f}"
    lacking = f" (n = {values.n})" if values.n != runs else ""
    return f"{values.mean:.{digits}f}{spread}{lacking}"


def _names(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """The first columns; the number of seeds where there are several."""
    if summary.seeds == 1:
        return ["method"], [[row.name] for row in summary.rows]
    return ["method", "seeds"], [[row.name, str(len(row.runs)) if row.runs else NOT_RUN] for row in summary.rows]


def _scores(summary: Summary) -> Block:
    head, body = _names(summary)
    for part in summary.parts:
        for metric, name in METRICS.items():
            head.append(f"{part} {name}")
            for row, cells in zip(summary.rows, body):
                cells.append(_values(row.score(part, metric), len(row.runs)))
            published = summary.published
            if published and (published.part, published.metric) == (part, metric):
                head.append(f"published {part} {name}")
                for row, cells in zip(summary.rows, body):
                    cells.append(f"{published.figures[row.name]:g}" if row.name in published.figures else "")
    return Block("Scores", head, body, "scores")


def _differences(summary: Summary) -> Block:
    head, body = ["method"], [[row.name] for row in summary.rows]
    for part in summary.parts:
        for metric, name in METRICS.items():
            head.append(f"{part} {name}")
            for row, cells in zip(summary.rows, body):
                cells.append(_difference(summary, row, part, metric))
    return Block(f"Difference to {summary.baseline}", head, body)


def _difference(summary: Summary, row: Row, part: str, metric: str) -> str:
    if row.name == summary.baseline:
        return "baseline"
    if row.score(part, metric) is None:
        return NOT_RUN
    found = summary.differences.get((row.name, part, metric))
    if found is None:
        return "no common seed"
    return f"{found.values.mean:+.1f} ({_p_values(found)})"


def _p_values(difference: Difference) -> str:
    if not difference.p:
        return "not tested"
    return "p = " + ", ".join(f"{p:.4f}{'*' if p < 0.05 else ''}" for p in difference.p.values())


def _training(summary: Summary) -> Block:
    head, body = ["method", "parameters"], [[row.name, _parameters(row)] for row in summary.rows]
    added = {"added to none": _added} if summary.reference else {}
    columns = {
        **added,
        "training tokens/s": lambda summary, row: _speed(row),
        "training time": lambda summary, row: _time(row),
        "peak memory": lambda summary, row: _memory(row),
        "validation loss": lambda summary, row: _loss(row),
    }
    for name, cell in columns.items():
        head.append(name)
        for row, cells in zip(summary.rows, body):
            cells.append(cell(summary, row) if row.runs else NOT_RUN)
    return Block("Training", head, body, "learning")


def _parameters(row: Row) -> str:
    return f"{row.runs[0]['parameters']:,}" if row.runs else NOT_RUN


def added_parameters(summary: Summary, row: Row) -> int | None:
    """Over those of the row without any position."""
    return row.runs[0]["parameters"] - summary.reference.runs[0]["parameters"] if summary.reference and row.runs else None


def _added(summary: Summary, row: Row) -> str:
    return f"{added_parameters(summary, row):,}"


def _speed(row: Row) -> str:
    values = row.values(lambda run: run["tokens_per_second"])
    return f"{values.mean:,.0f}" if values else NOT_RUN


def _time(row: Row) -> str:
    values = row.values(lambda run: run.get("training_seconds"))
    if values is None:
        return NOT_MEASURED
    seconds = round(values.mean)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def peak_memory(row: Row) -> float | None:
    values = row.values(lambda run: (run.get("peak_memory") or {}).get("gib"))
    return max(values.by_seed.values()) if values else None


def _memory(row: Row) -> str:
    gib = peak_memory(row)
    return NOT_MEASURED if gib is None else f"{gib:.2f} GiB"


def final_loss(run: Record) -> float | None:
    """The validation loss of the model that was decoded, or the last one before it."""
    reached = [loss for updates, loss in run.get("learning_curve") or () if updates <= run["updates"]]
    return reached[-1] if reached else None


def _loss(row: Row) -> str:
    values = row.values(final_loss)
    return _values(values, len(row.runs), 3) if values else NOT_MEASURED


def _lengths(summary: Summary) -> list[Block]:
    found = []
    for part, lengths in summary.lengths.items():
        names = bucket_names()
        head = ["method", *(f"{names[i]} words (n = {lengths.sentences[i]})" for i in lengths.shown)]
        body = [
            [
                row.name,
                *(
                    f"n < {FEWEST}" if lengths.sentences[i] < FEWEST else _values(lengths.rows[row.name][i], len(row.runs))
                    for i in lengths.shown
                ),
            ]
            for row in summary.rows
        ]
        found.append(Block(f"BLEU by source length: {part}", head, body))
    if found:
        found[-1] = replace(found[-1], figure="length")
    return found


def notes(summary: Summary, full: bool = False) -> list[str]:
    """What all rows share, and how the numbers were made."""
    runs = summary.runs
    versions = ", ".join(f"{name} {version}" for name, version in runs[0]["versions"].items())
    scored = {part: scores for run in runs for part, scores in run["parts"].items()}
    sizes = ", ".join(f"{part} {scores['sentences']} sentences" for part, scores in scored.items())
    signatures = dict.fromkeys(
        f"{name} {scores[f'{metric}_signature']}" for metric, name in METRICS.items() for scores in scored.values()
    )
    data = " ".join(filter(None, (runs[0].get("corpus"), runs[0]["data"])))
    found = [f"data {data}: {sizes}; {runs[0]['updates']} updates; {versions}", *signatures]
    if summary.seeds > 1:
        found.append(f"mean ± sample standard deviation over seeds {', '.join(map(str, sorted({run['seed'] for run in runs})))}")
    if summary.baseline:
        found.append(_test_note(summary))
    if summary.published:
        figures = summary.published
        source = f"{figures.source.rstrip('.')}. Its data and settings are not ours"
        found.append(f"published {figures.part} {METRICS[figures.metric]}: {source}, and it enters no computation")
    return found + (_decoding_notes(scored) + _training_notes(runs) if full else [])


def _test_note(summary: Summary) -> str:
    samples = f"{summary.samples or SAMPLES[summary.test]:,} {'resamples' if summary.test == 'bs' else 'trials'}"
    seed = os.environ.get("SACREBLEU_SEED", "12345")  # as sacreBLEU reads it
    over = ", mean over common training seeds, one p each in their order" if summary.seeds > 1 else ""
    return (
        f"difference to {summary.baseline}{over}; p: sacreBLEU's {TESTS[summary.test]} (--paired-{summary.test}, {samples}, "
        f"seed {seed}), * p < 0.05; it covers the choice of the test sentences, not the chance in training"
    )


def _decoding_notes(scored: dict[str, Record]) -> list[str]:
    keys = ("beam", "lenpen", "max_len_a", "max_len_b", "post_process")
    texts = {}
    for part, scores in scored.items():
        settings = scores.get("decoding") or {}
        text = ", ".join(f"{key} {settings[key]}" for key in keys if settings.get(key) is not None)
        texts.setdefault(text or "settings not known", []).append(part)
    return [f"decoding of {', '.join(names)}: {text}" for text, names in texts.items()]


def _training_notes(runs: list[Record]) -> list[str]:
    devices = sorted({run.get("device") or ("CPU" if (run.get("settings") or {}).get("cpu") else "not known") for run in runs})
    several = "; speed and time of different devices do not compare" if len(devices) > 1 else ""
    found = [
        f"device: {', '.join(devices)}{several}",
        "training tokens/s: of the target, the median of the log",
        "training time (h:mm:ss): in updates, without validation and saving",
    ]
    kinds = {run["peak_memory"]["of"] for run in runs if run.get("peak_memory")}
    meanings = {"GPU": "allocated on the GPU, at the logged updates", "process": "resident in the training process"}
    if kinds:
        found.append(f"peak memory: the largest of the seeds; {', '.join(meanings[kind] for kind in sorted(kinds))}")
    return found
