"""Write the training text of a student model (knowledge distillation): source sentences and their translations by a teacher.

hypotheses.py GENERATED SOURCES SOURCES_OUT TARGETS_OUT

GENERATED is the output of fairseq-generate for SOURCES without --remove-bpe, so that the translations consist of subwords.
Sources with no translation, or with an empty translation, are omitted. The number of remaining sentence pairs is printed.
"""

import re
import sys
from pathlib import Path

HYPOTHESIS = re.compile(r"^H-(\d+)\t[^\t]*\t(.*)$", re.MULTILINE)


def main(generated: str, sources: str, sources_out: str, targets_out: str) -> None:
    found: dict = {}
    for number, words in HYPOTHESIS.findall(Path(generated).read_text(encoding="utf-8")):
        found.setdefault(int(number), words.strip())  # the first of several translations is the best
    lines = Path(sources).read_text(encoding="utf-8").splitlines()
    if not found or max(found) >= len(lines):
        sys.exit(f"hypotheses.py: {generated}: translations are missing. Expected {len(lines)}, one per line of {sources}.")
    kept = [number for number in range(len(lines)) if found.get(number)]
    Path(sources_out).write_text("".join(f"{lines[number]}\n" for number in kept), encoding="utf-8")
    Path(targets_out).write_text("".join(f"{found[number]}\n" for number in kept), encoding="utf-8")
    print(f"{len(kept)} of {len(lines)} sentences have a translation")


if __name__ == "__main__":
    main(*sys.argv[1:])
