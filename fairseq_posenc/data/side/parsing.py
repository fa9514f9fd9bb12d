"""Parse a text with the user's parser. The text is divided into pieces, and several pieces are parsed at the same time.

The parser is a shell command. It reads one sentence per line from standard input, with words separated by blanks. It writes
CoNLL-U with the same sentences and words. Parsed pieces are stored in the folder TEXT.parsed until all pieces are parsed. After
an interruption, the same posenc command parses only the remaining pieces.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from ...core import PositionError
from ..text import Lines
from .conllu import EMPTY, Block, blocks
from .outputs import Outputs


def parse(text: Path, command: str, workers: int = 1, lines: int = 2000) -> Path:
    """Write TEXT.conllu with one tree per line of the text. Raise PositionError if the parser fails or skips sentences."""
    with Lines(text) as file:
        sentences = [line.rstrip("\n") for line in file]
    folder, result = text.with_name(f"{text.name}.parsed"), text.with_name(f"{text.name}.conllu")
    _begin(folder, text, command, lines)
    full = [sentence for sentence in sentences if sentence.strip()]
    pieces = [full[start : start + lines] for start in range(0, len(full), lines)]
    tasks = [(command, piece, folder / f"{number:06}.conllu") for number, piece in enumerate(pieces)]
    with ThreadPoolExecutor(workers) as pool, tqdm(desc=str(text), unit=" sentences", total=len(full), disable=None) as progress:
        try:
            for count in pool.map(_parse, tasks):
                progress.update(count)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    with Outputs() as outputs, outputs.partial(result).open("w", encoding="utf-8", newline="\n") as out:
        trees = (block for _, _, path in tasks for block in _blocks(path))
        for sentence in sentences:
            out.write(next(trees).text.rstrip("\n") + "\n\n" if sentence.strip() else f"{EMPTY}\n\n")
    shutil.rmtree(folder)
    return result


def _begin(folder: Path, text: Path, command: str, lines: int) -> None:
    """Create the folder for the parsed pieces of a text.

    If the folder contains pieces that were made with another text, command or piece size, remove these pieces first.
    """
    made_from = hashlib.sha256(text.read_bytes() + f"\0{command}\0{lines}\0blanks".encode()).hexdigest()
    stamp = folder / "made_from"
    if folder.is_dir() and not (stamp.is_file() and stamp.read_bytes() == made_from.encode()):
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    stamp.write_text(made_from)


def _parse(task: tuple[str, list[str], Path]) -> int:
    command, sentences, path = task
    if path.is_file():
        return len(sentences)
    partial, errors = path.with_suffix(".part"), path.with_suffix(".errors")
    for old in (partial, errors):  # remove old files, because the parser of an interrupted run may still write to them
        old.unlink(missing_ok=True)
    with partial.open("wb") as out, errors.open("wb") as told:
        # single blanks between words, because fairseq also splits words at any white space
        given = "".join(" ".join(sentence.split()) + "\n" for sentence in sentences).encode()
        status = subprocess.run(command, shell=True, input=given, stdout=out, stderr=told, check=False).returncode
    if status:
        raise PositionError(
            f"the parser failed with exit status {status}. For its messages, see {errors}. To resume, run the same command again."
        )
    found = sum(1 for _ in _blocks(partial))
    if found != len(sentences):
        raise PositionError(
            f"the parser wrote {found} trees for {len(sentences)} sentences to {partial}. Expected one tree per sentence. "
            "Use a parser that reads one tokenised sentence per line."
        )
    partial.rename(path)
    errors.unlink()
    return found


def _blocks(path: Path) -> list[Block]:
    with Lines(path) as file:
        return [*blocks(file)]
