"""The table of recipes/studies/pnat, from what its stages have left in OUT.

pnat_table.py OUT ROW...

Writes OUT/table.md and OUT/table.csv and prints the first. Speeds are those of decoding sentence by sentence.
"""

import csv
import re
import sys
from pathlib import Path

from tabulate import tabulate

from fairseq_posenc.core import PositionError
from fairseq_posenc.evaluation.scoring import record

#: score of a part -> its column
PARTS = {"test": "BLEU", "lengths": "length beam", "rescored": "rescored", "reference": "reference positions"}
#: what fairseq-validate logs -> its column
ACCURACIES = {
    "position_accuracy": "position %",
    "order_accuracy": "order of pairs %",
    "near_order_accuracy": "of near pairs %",
}
SPEED, FASTER = "sentences/s", "times the teacher"


def main(out: str, *rows: str) -> None:
    folders = {"teacher": Path(out) / "teacher", **{row: Path(out) / row for row in rows}}
    missing = [str(folder / "score.json") for folder in folders.values() if not (folder / "score.json").is_file()]
    if missing:
        sys.exit(f"pnat_table.py: {missing[0]} is missing; the stage score makes it")
    table = [{"model": name, **read(folder)} for name, folder in folders.items()]
    for row in table:
        row[FASTER] = round(row[SPEED] / table[0][SPEED], 2) if row.get(SPEED) else None
    columns = ["model", *PARTS.values(), *ACCURACIES.values(), SPEED, FASTER]
    cells = [[row.get(column) for column in columns] for row in table]
    text = tabulate(cells, columns, tablefmt="github", missingval="")
    teacher = scores(folders["teacher"])
    first = f"# PNAT and its teacher\n\n{teacher.parts['test'].sentences} test sentences, seed {teacher.seed}."
    (Path(out) / "table.md").write_text(f"{first}\n\n{text}\n", encoding="utf-8")
    with (Path(out) / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *cells])
    print(text)


def read(folder: Path) -> dict:
    """One row: scores, accuracies and speed, as far as they are there."""
    parts = scores(folder).parts
    found = {column: round(parts[part].bleu, 2) for part, column in PARTS.items() if part in parts}
    for name, column in ACCURACIES.items():
        numbers = re.findall(rf"\| {name} ([\d.]+)", text_of(folder / "accuracy.out"))
        if numbers:
            found[column] = float(numbers[-1])
    speed = re.search(r"Translated [\d,]+ sentences .* in [\d.]+s \(([\d.]+) sentences/s", text_of(folder / "speed.out"))
    if speed:
        found[SPEED] = float(speed[1])
    return found


def scores(folder: Path) -> record.Record:
    try:
        return record.read(folder / record.FILE)
    except PositionError as error:
        sys.exit(f"pnat_table.py: {error}")


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
