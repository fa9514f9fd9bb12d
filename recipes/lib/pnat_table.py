"""Write the table of recipes/studies/pnat, from the files of its stages in OUT.

pnat_table.py OUT ROW...

Writes OUT/table.md and OUT/table.csv, and prints the Markdown table. A row is the mean over its seeds, which are folders of
OUT/ROW. Speeds are speeds of decoding one sentence at a time.
"""

import csv
import re
import sys
from pathlib import Path

from tabulate import tabulate

from fairseq_posenc.core import PositionError
from fairseq_posenc.evaluation.scoring import archive, record

#: score of a part -> its column
PARTS = {"test": "BLEU", "lengths": "length beam", "rescored": "rescored", "reference": "reference positions"}
#: number in the log of fairseq-validate -> its column
ACCURACIES = {
    "position_accuracy": "position %",
    "order_accuracy": "order of pairs %",
    "near_order_accuracy": "of near pairs %",
}
SPEED, FASTER = "sentences/s", "times the teacher"


def main(out: str, *rows: str) -> None:
    folders = {"teacher": Path(out) / "teacher", **{row: Path(out) / row for row in rows}}
    runs = {name: runs_of(folder) for name, folder in folders.items()}
    try:
        scores = {path.parent: found for path, found in archive.find(Path(out)).items()}
    except PositionError as error:
        sys.exit(f"pnat_table.py: {error}")
    missing = [folder for found in runs.values() for folder in found if folder not in scores]
    if missing:
        sys.exit(f"pnat_table.py: {missing[0] / record.FILE}: no such file. Run the stage score first.")
    table = [{"model": name, **mean([read(folder, scores[folder]) for folder in found])} for name, found in runs.items()]
    for row in table:
        row[FASTER] = round(row[SPEED] / table[0][SPEED], 2) if row.get(SPEED) else None
    columns = ["model", *PARTS.values(), *ACCURACIES.values(), SPEED, FASTER]
    cells = [[row.get(column) for column in columns] for row in table]
    text = tabulate(cells, columns, tablefmt="github", missingval="")
    teacher = scores[folders["teacher"]]
    seeds = sorted({scores[folder].seed for name, found in runs.items() if name != "teacher" for folder in found})
    shown = f"seed {teacher.seed}" if seeds == [teacher.seed] else f"means over the seeds {', '.join(map(str, seeds))}"
    first = f"# PNAT and its teacher\n\n{teacher.parts['test'].sentences} test sentences, {shown}."
    (Path(out) / "table.md").write_text(f"{first}\n\n{text}\n", encoding="utf-8")
    with (Path(out) / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *cells])
    print(text)


def runs_of(folder: Path) -> list[Path]:
    """Return the training runs of a row: one for each seed, or the folder itself."""
    return sorted(folder.glob("seed*"), key=lambda run: int(run.name.removeprefix("seed"))) or [folder]


def mean(rows: list[dict]) -> dict:
    """Return the mean of every column that all rows have."""
    columns = [column for column in rows[0] if all(column in row for row in rows)]
    return {column: round(sum(row[column] for row in rows) / len(rows), 2) for column in columns}


def read(folder: Path, scores: record.Record) -> dict:
    """Return one row: scores, accuracies and speed, if their files exist."""
    parts = scores.parts
    found = {column: round(parts[part].bleu, 2) for part, column in PARTS.items() if part in parts}
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
