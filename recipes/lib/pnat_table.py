"""Write the table of recipes/studies/pnat, from the files of its stages in OUT.

pnat_table.py OUT ROW...

Writes OUT/table.md and OUT/table.csv, and prints table.md. A row contains the means over its training seeds. Each seed has a
folder in OUT/ROW. If a seed has a folder but no scores, the program fails. If a row has fewer seeds than other rows, a sentence
in table.md names the row and its seeds. With three or more seeds, BLEU has a 95 % interval. The difference to the first ROW then
has a 95 % interval and the p-value of Welch's t test after Holm's correction. The speeds are measured by decoding one sentence at
a time.
OUT/measured.json contains the accuracies and speeds of all runs, so that the table can be written without the logs.
"""

import csv
import json
import re
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
from tabulate import tabulate

from fairseq_posenc.core import PositionError
from fairseq_posenc.evaluation.report import statistics, tables
from fairseq_posenc.evaluation.report.records import require_comparable
from fairseq_posenc.evaluation.scoring import archive, record

#: name of a test set in score.json -> column of its BLEU
PARTS = {"test": "BLEU", "lengths": "length beam", "rescored": "rescored", "reference": "reference positions"}
#: name of a number in the log of fairseq-validate -> its column
ACCURACIES = {
    "position_accuracy": "position %",
    "order_accuracy": "order of pairs %",
    "near_order_accuracy": "of near pairs %",
}
SEEDS, PARAMETERS, BLEU, SPEED, FASTER = "seeds", "parameters", "BLEU", "sentences/s", "times the teacher"
#: statistics over seeds -> their columns in the CSV file
LIMITS = {"low": "BLEU low", "high": "BLEU high"}
DIFFERENCE = {
    "difference": "difference",
    "difference_low": "difference low",
    "difference_high": "difference high",
    "holm": "corrected p",
}


def main(out: str, *rows: str) -> None:
    folders = {"teacher": Path(out) / "teacher", **{row: Path(out) / row for row in rows}}
    try:
        scores = {path.parent: found for path, found in archive.find(Path(out)).items()}
    except PositionError as error:
        sys.exit(f"pnat_table.py: {error}")
    runs = {name: runs_of(folder, scores) for name, folder in folders.items()}
    missing = [folder for found in runs.values() for folder in found if folder not in scores]
    if missing:
        sys.exit(f"pnat_table.py: {missing[0] / record.FILE}: no such file. Run the stage score first.")
    try:
        for found in runs.values():
            require_comparable([scores[folder] for folder in found])
    except PositionError as error:
        sys.exit(f"pnat_table.py: {error}")
    file = Path(out) / "measured.json"
    measured = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for folder in (folder for found in runs.values() for folder in found):
        measured.setdefault(str(folder.relative_to(out)), {}).update(measure(folder))
    file.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    values = {
        name: [{**of(scores[folder]), **measured[str(folder.relative_to(out))]} for folder in found]
        for name, found in runs.items()
    }
    table = [
        {"model": name, **mean(found), PARAMETERS: found[0][PARAMETERS], SEEDS: len(found)} for name, found in values.items()
    ]
    for row, found in zip(table[1:], over_seeds([[one[BLEU] for one in values[name]] for name in rows])):
        row.update(found)
    for row in table:
        row[FASTER] = round(row[SPEED] / table[0][SPEED], 2) if SPEED in row and SPEED in table[0] else None
    rest = [*list(PARTS.values())[1:], *ACCURACIES.values(), SPEED, FASTER]
    teacher = scores[folders["teacher"]]
    seeds = of_seeds(teacher.seed, {name: [scores[folder].seed for folder in runs[name]] for name in rows})
    first = f"# PNAT and its teacher\n\n{teacher.parts['test'].sentences} test sentences, {seeds}"
    text = tabulate(
        [
            [row["model"], f"{row[PARAMETERS]:,}", bleu(row), difference(row), *(row.get(column) for column in rest)]
            for row in table
        ],
        ["model", PARAMETERS, BLEU, f"difference to {rows[0]}", *rest],
        tablefmt="github",
        missingval="",
        disable_numparse=[1, 2, 3],
        colalign=["left", *["right"] * (3 + len(rest))],
    )
    text = f"{first}\n\n{text}\n"
    (Path(out) / "table.md").write_text(text, encoding="utf-8")
    columns = ["model", SEEDS, PARAMETERS, BLEU, *LIMITS.values(), *DIFFERENCE.values(), *rest]
    with (Path(out) / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *([row.get(column) for column in columns] for row in table)])
    print(text, end="")


def runs_of(folder: Path, scored: Collection[Path]) -> list[Path]:
    """Return the folders of the training runs of a row: one folder per seed. Without seeds, the row's folder is the only run.

    Archived runs have no folders. They are found in `scored`.
    """
    found = {*folder.glob("seed*"), *(run for run in scored if run.parent == folder)}
    return sorted(found, key=lambda run: int(run.name.removeprefix("seed"))) or [folder]


def of_seeds(teacher: int, rows: dict[str, list[int]]) -> str:
    """Return the part of a sentence that names the training seeds, and a sentence about rows that lack some of these seeds."""
    seeds = sorted({seed for found in rows.values() for seed in found})
    if seeds == [teacher]:
        return f"seed {teacher}."
    lacking = [f"{name} ({named(found)})" for name, found in rows.items() if len(found) < len(seeds)]
    more = f" Rows with fewer seeds: {'; '.join(lacking)}." if lacking else ""
    return f"means over the {named(seeds)}.{more}"


def named(seeds: list[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def over_seeds(scores: list[list[float]]) -> list[dict]:
    """Return the statistics of every row over its seeds. Rows of fewer than three seeds have no intervals and no p-value."""
    padded = np.full((len(scores), max(map(len, scores))), np.nan)
    for row, found in zip(padded, scores):
        row[: len(found)] = found
    compared = vars(statistics.compare(padded, baseline=0))
    of_rows = [{column: compared[name][i] for name, column in {**LIMITS, **DIFFERENCE}.items()} for i in range(len(scores))]
    return [{column: round(float(value), 4) for column, value in found.items() if np.isfinite(value)} for found in of_rows]


def bleu(row: dict) -> str:
    """Return the cell of BLEU with its interval, for example '34.80 [34.02, 35.58]'."""
    low, high = (row.get(column) for column in LIMITS.values())
    return f"{row[BLEU]:.2f}{tables.interval(low, high, 2)}"


def difference(row: dict) -> str:
    """Return the cell of the difference, for example '+1.60 [+0.41, +2.79], p = .030'. Return "" if p is unknown."""
    value, low, high, p = (row.get(column) for column in DIFFERENCE.values())
    return "" if p is None else f"{value:+.2f}{tables.interval(low, high, 2, '+')}, {tables.p_text(p)}"


def mean(rows: list[dict]) -> dict:
    """Return the mean of each column over the training runs of one model.

    A column that is missing in one of these runs is left out.
    """
    columns = [column for column in rows[0] if all(column in row for row in rows)]
    return {column: round(sum(row[column] for row in rows) / len(rows), 2) for column in columns}


def of(scores: record.Record) -> dict:
    """Return the number of parameters and the scores of a run."""
    parts = scores.parts
    bleu = {column: round(parts[part].bleu, 2) for part, column in PARTS.items() if part in parts}
    return {PARAMETERS: scores.parameters, **bleu}


def measure(folder: Path) -> dict:
    """Return the accuracies and the speed in the logs of a run, if the logs exist."""
    found = {}
    for name, column in ACCURACIES.items():
        numbers = re.findall(rf"\| {name} ([\d.]+)", text_of(folder / "accuracy.out"))
        if numbers:
            found[column] = float(numbers[-1])
    speed = re.search(r"Translated [\d,]+ sentences .* in [\d.]+s \(([\d.]+) sentences/s", text_of(folder / "speed.out"))
    if speed:
        found[SPEED] = float(speed[1])
    return found


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
