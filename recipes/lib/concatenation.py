"""Score translations of texts with several sentences per line. Write tables and a plot of the scores.

This is a helper of recipes/studies/concatenation.

concatenation.py score FOLDER TEXT TARGET SEPARATOR
    Scores FOLDER/kN.out and FOLDER/forced.kN.out with the references TEXT/test.kN.TARGET, for N from 1 to 6. N is the number
    of sentences per line. For forced.kN.out, the recipe decodes with --segments-forced: each output has N sentences.
    Writes FOLDER/concatenation.json.
concatenation.py table OUT CONDITION...
    Reads OUT/CONDITION/ROW/seed*/concatenation.json. CONDITION is the name of a training text, such as L2,
    or L1_captions for the models of the option CAPTIONS. The environment variable METHODS contains the specs of the rows.
    Writes OUT/table.md, OUT/table.csv and OUT/bleu.png, and prints table.md.

Scores of a file with k sentences per line, after the separators were removed from outputs and references:
    bleu, chrf: sacreBLEU's corpus scores
    ratio: number of words of the outputs, divided by the number of words of the references
    sentences: fraction of the outputs that have k sentences
    kept: bleu, divided by bleu of the same model with one sentence per line (only in the tables)
    places: k scores, computed only from the outputs with k sentences. The first score is BLEU of the first sentences of all these
        outputs, the second is BLEU of the second sentences, and so on. null: no output has k sentences
"""

import csv
import json
import os
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from scipy import stats
from tabulate import tabulate

from fairseq_posenc import registry
from fairseq_posenc.core import PositionError
from fairseq_posenc.evaluation.report.tables import interval
from fairseq_posenc.evaluation.scoring.generated import hypotheses
from fairseq_posenc.plotting.style import line_style, new_figure, render

LENGTHS = range(1, 7)
STORED = "scores.json"  # condition -> row -> seed -> scores
#: scores of the tables: name, title and decimals
SHOWN = (
    ("bleu", "BLEU by sentences per line", 1),
    ("kept", "BLEU divided by the BLEU with one sentence per line", 2),
    ("chrf", "chrF by sentences per line", 1),
    ("ratio", "Words of outputs / words of references by sentences per line", 2),
    ("sentences", "Share of outputs with as many sentences as the source by sentences per line", 2),
)

Scores = dict[str, dict[str, dict[str, dict]]]


def split(line: str, separator: str) -> list[str]:
    """Return the sentences of a line, with single blanks between words."""
    found: list[list[str]] = [[]]
    for word in line.replace(separator, f" {separator} ").split():  # there may be no blank between separator and word
        if word == separator:
            found.append([])
        else:
            found[-1].append(word)
    return [" ".join(words) for words in found]


def measured(outputs: list[str], references: list[str], separator: str) -> dict:
    """Return the scores of one test set, whose references all have the same number of sentences per line."""
    ours, theirs = ([split(line, separator) for line in lines] for lines in (outputs, references))
    joined = [[" ".join(" ".join(line).split()) for line in lines] for lines in (ours, theirs)]
    words = [sum(len(line.split()) for line in lines) for lines in joined]
    complete = [(one, other) for one, other in zip(ours, theirs) if len(one) == len(other)]
    places = [
        BLEU().corpus_score([one[place] for one, _ in complete], [[other[place] for _, other in complete]]).score
        if complete
        else None
        for place in range(len(theirs[0]))
    ]
    return {
        "bleu": BLEU().corpus_score(joined[0], [joined[1]]).score,
        "chrf": CHRF().corpus_score(joined[0], [joined[1]]).score,
        "ratio": words[0] / words[1],
        "sentences": len(complete) / len(ours),
        "places": places,
    }


def score(folder: str, text: str, target: str, separator: str) -> None:
    """Compute the scores of one run, and write them to FOLDER/concatenation.json."""
    found: dict = {}
    for kind, prefix in (("plain", "k"), ("forced", "forced.k")):
        for length in LENGTHS:
            path = Path(folder) / f"{prefix}{length}.out"
            if path.is_file():
                references = (Path(text) / f"test.k{length}.{target}").read_text(encoding="utf-8").splitlines()
                outputs = hypotheses(path.read_text(encoding="utf-8"), len(references), str(path))
                found.setdefault(kind, {})[str(length)] = measured(outputs, references, separator)
    (Path(folder) / "concatenation.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def read(out: Path, conditions: list[str]) -> Scores:
    """Return condition -> row -> seed -> scores, from OUT/scores.json or from the folders of the runs."""
    found: Scores = {}
    if (out / STORED).is_file():
        stored = json.loads((out / STORED).read_text(encoding="utf-8"))
        found = {condition: stored[condition] for condition in conditions if condition in stored}
    else:
        for condition in conditions:
            paths = sorted((out / condition).glob("*/seed*/concatenation.json"))
            require_equal_settings(paths)
            for path in paths:
                scores, row = json.loads(path.read_text(encoding="utf-8")), spec_of(path.parents[1].name)
                found.setdefault(condition, {}).setdefault(row, {})[path.parent.name.removeprefix("seed")] = scores
    if not found:
        sys.exit(f"concatenation.py: {out} has no scored run. Expected the stage score before. Run it.")
    return found


def require_equal_settings(paths: list[Path]) -> None:
    """Exit with one line if two runs have different settings. The recipe has written the settings next to the scores.

    Runs of earlier versions lack some settings, which are not compared. CAPTIONS_MODEL is the checksum of the model of a run, and
    differs between all runs.
    """
    stamps = {path.parent: path.with_name(".score.done") for path in paths}
    lines = {run: stamp.read_text(encoding="utf-8").splitlines() for run, stamp in stamps.items() if stamp.is_file()}
    known: dict[str, tuple[str, Path]] = {}
    for run, found in lines.items():
        for line in found:
            name = line.partition("=")[0]
            other, first = known.setdefault(name, (line, run))
            if line != other and name != "CAPTIONS_MODEL":
                sys.exit(
                    f"concatenation.py: {run} has other settings ({line}) than {first} ({other}). Expected equal settings. "
                    "Move one of the runs away."
                )


def spec_of(folder: str) -> str:
    """Return the spec of a row. The name of its folder contains `_` in place of a colon and of other characters.

    For a row that is not in METHODS, only the colon before the options of a method is restored.
    """
    for row in os.environ.get("METHODS", "").split():
        if folder == re.sub(r"[^A-Za-z0-9.,=+_-]", "_", row):  # as run_folder in methods.sh
            return row
    parts = []
    for part in folder.split("+"):
        known = [name for method in registry.names() for name in (method, f"posenc_{method}") if part.startswith(f"{name}_")]
        name = max(known, key=len, default="") if "=" in part else ""
        parts.append(f"{name}:{part[len(name) + 1 :]}" if name else part)
    return "+".join(parts)


def store(results: str, out: str, *conditions: str) -> None:
    """Add the scores of all runs of OUT to RESULTS/scores.json."""
    path = Path(results) / STORED
    stored: Scores = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for condition, rows in read(Path(out), list(conditions)).items():
        for row, seeds in rows.items():
            stored.setdefault(condition, {}).setdefault(row, {}).update(seeds)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rounded(stored), indent=0) + "\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """Return a value of JSON in which all numbers have at most four decimals."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value


def with_kept(run: dict) -> dict:
    """Return the scores of one run with the score `kept` of each test set."""
    found = {}
    for kind, lengths in run.items():
        first = lengths.get("1", {}).get("bleu")
        found[kind] = {k: {**scores, "kept": scores["bleu"] / first if first else None} for k, scores in lengths.items()}
    return found


def mean(runs: list[dict], kind: str, length: int, *keys: str | int) -> float | None:
    """Return the mean of one score over seeds, without seeds that lack this score."""
    values = over_seeds(runs, kind, length, *keys)
    return statistics.mean(values) if values else None


def bounds(runs: list[dict], kind: str, length: int, key: str) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of one score over seeds (Student's t), or None for fewer than three seeds."""
    values = over_seeds(runs, kind, length, key)
    if len(values) < 3:
        return None
    middle, half = statistics.mean(values), float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return middle - half, middle + half


def over_seeds(runs: list[dict], kind: str, length: int, *keys: str | int) -> list[float]:
    """Return one score of every seed, without seeds that lack this score."""
    values = []
    for run in runs:
        value = run.get(kind, {}).get(str(length))
        for key in keys:
            value = None if value is None else value[key]
        values += [] if value is None else [value]
    return values


def table(out: str, *conditions: str) -> None:
    """Write and print all tables, and plot BLEU by the number of sentences per line."""
    read_runs = read(Path(out), list(conditions))
    runs = {
        (condition, row): list(map(with_kept, seeds.values()))
        for condition, rows in read_runs.items()
        for row, seeds in rows.items()
    }
    # models that were trained without separators write no separators, so their outputs cannot be divided into sentences
    divided = {names: found for names, found in runs.items() if not names[0].startswith("L1")}
    parts, cells = [], []
    kinds = [("plain", ""), ("forced", ", number of sentences forced")]
    for kind, how in kinds:
        for key, title, digits in SHOWN:
            measured_rows = divided if key == "sentences" else runs
            rows = [[*names, len(found), *(mean(found, kind, k, key) for k in LENGTHS)] for names, found in measured_rows.items()]
            rows = [row for row in rows if any(value is not None for value in row[3:])]
            if rows:
                found = {row[:2]: [bounds(runs[row[:2]], kind, k, key) for k in LENGTHS] for row in map(tuple, rows)}
                intervals = found if key in ("bleu", "chrf") else {}
                parts.append(_markdown(f"{title}{how}", rows, [str(k) for k in LENGTHS], digits, intervals))
                cells += [[key, kind, *row] for row in rows]
        last = max(LENGTHS)
        rows = [
            [*names, len(found), *(mean(found, kind, last, "places", n) for n in range(last))] for names, found in divided.items()
        ]
        rows = [row for row in rows if any(value is not None for value in row[3:])]
        if rows:
            parts.append(
                _markdown(f"BLEU by place in lines of {last} sentences{how}", rows, [str(n + 1) for n in range(last)], 1)
            )
            cells += [["place", kind, *row] for row in rows]
    if any(len(found) > 2 for found in runs.values()):
        parts.append(
            "Brackets contain the 95 % interval of the mean over seeds (Student's t). The file table.csv has only the means."
        )
    shown = list(read_runs)
    if divided and len(divided) < len(runs):
        parts.append("Models of L1 were trained without separators. The tables of sentences and places therefore leave them out.")
    if "L1_captions" in shown:
        note = "The models of L1_captions were trained by recipes/multi30k_uk"
        others = " and ".join(condition for condition in shown if condition != "L1_captions")
        if others:
            note += f", with other training settings and another vocabulary than the models of {others}"
            note += ". Compare the models of L1_captions only with each other"
        parts.append(f"{note}.")
    text = "\n\n".join(["# Concatenated sentences", *parts]) + "\n"
    (Path(out) / "table.md").write_text(text, encoding="utf-8")
    with (Path(out) / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["measure", "decoding", "training", "method", "seeds", *LENGTHS], *rounded(cells)])
    _draw(runs, Path(out) / "bleu.png")
    print(text, end="")


def _markdown(title: str, rows: list, columns: list[str], digits: int, intervals: dict | None = None) -> str:
    """Return a table. `intervals` maps the training text and the method of a row to the intervals of its numbers."""

    def cell(value: float | None, bounds: tuple[float, float] | None) -> str:
        return "" if value is None else f"{value:.{digits}f}{interval(*(bounds or (None, None)), digits)}"

    unknown = [None] * len(columns)
    shown = [[*row[:3], *map(cell, row[3:], (intervals or {}).get(tuple(row[:2]), unknown))] for row in rows]
    align = ("left", "left", *["right"] * (1 + len(columns)))
    body = tabulate(shown, ["training", "method", "seeds", *columns], tablefmt="github", colalign=align, disable_numparse=True)
    return f"## {title}\n\n{body}"


def _draw(runs: dict, path: Path) -> None:
    """Plot BLEU by the number of sentences per line, with one panel for each training text."""
    plot = render("bleu", lambda: _figure(runs))
    assert plot is not None
    path.write_bytes(plot.png)


def _figure(runs: dict) -> Any:
    conditions, names = (list(dict.fromkeys(found)) for found in zip(*runs))  # a row has the same colour in all panels
    figure, axes = new_figure(5 * len(conditions), 4, 1, len(conditions), sharey=True)
    for axis, condition in zip(axes[0], conditions):
        for (own, row), found in runs.items():
            if own == condition:
                axis.plot(LENGTHS, [mean(found, "plain", k, "bleu") for k in LENGTHS], label=row, **line_style(names.index(row)))
        axis.set(title=f"training text {condition}", xlabel="sentences per line", ylabel="BLEU")
        axis.legend(fontsize=6)
    return figure


if __name__ == "__main__":
    try:
        {"score": score, "table": table, "store": store}[sys.argv[1]](*sys.argv[2:])
    except PositionError as error:
        sys.exit(f"concatenation.py: {error}")
