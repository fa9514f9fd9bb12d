"""Read the user's parallel text from plain or gzipped files, check it, and write training, validation and test sets.

Each side of a text is a file PREFIX.LANGUAGE or PREFIX.LANGUAGE.gz, with one sentence per line. A test set may have additional
references: PREFIX.TARGET.1, PREFIX.TARGET.2, and so on. Test sets of sacreBLEU are read from sacreBLEU's folder and are never
downloaded.

The language codes in the names of written files contain no dash, because fairseq separates two languages by a dash.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...common.files import unwritable, write_files
from ...common.messages import join, shorten
from ...core import PositionError
from ..side.outputs import Outputs
from ..text import Lines, in_step, require_other_files

MORE_REFERENCES = 99  # maximum number of additional references

LANGUAGE = re.compile(r"[A-Za-z]{1,8}([-_][A-Za-z0-9]{1,8})*")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,40}")
_RESERVED = ("train", "valid", "corpus", "pairs")


@dataclass(frozen=True)
class TestSet:
    """A test set: name in tables, source file, and one file per reference."""

    name: str
    source: Path
    references: list[Path]


def find(path: Path) -> Path:
    """Return the path if the file exists, or else the path of the gzipped file PATH.gz. Raise PositionError if neither exists."""
    for candidate in (path, path.with_name(f"{path.name}.gz")):
        with contextlib.suppress(OSError):
            if stat.S_ISREG(candidate.stat().st_mode):
                return candidate
            raise PositionError(f"{candidate}: not a regular file. Expected text, one sentence per line, plain or gzipped.")
    raise PositionError(f"{path}: no such file. Expected text, one sentence per line, in this file or in the same file with .gz.")


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a plain or gzipped text file, with single blanks between words. See `Lines` for the errors."""
    with Lines(path) as file:
        for line in file:
            yield " ".join(line.split())


def aligned(files: list[Path]) -> Iterator[tuple[str, ...]]:
    """Yield one tuple per line index, with the line of each file. Raise PositionError if the numbers of lines differ."""

    def unequal(counts: list[int]) -> PositionError:
        listed = " and ".join(f"{path} has {count:,} lines" for path, count in zip(files, counts))
        return PositionError(
            f"the two sides have different numbers of lines: {listed}. Expected line n to be the translation of line n."
        )

    return in_step([lines(path) for path in files], unequal)


def write_part(files: list[Path], written: list[Path], drop_empty: bool | None) -> tuple[int, int]:
    """Write one part. Return the number of written lines, and the number of lines that were removed.

    drop_empty: True removes lines with an empty side. False raises PositionError if there are such lines. None is for test sets.
    None also raises PositionError, but the error message does not recommend the option --drop-empty.
    """
    kept = dropped = first = 0
    with Outputs() as outputs, contextlib.ExitStack() as stack:  # after an error, earlier files are unchanged
        partial = [outputs.partial(path) for path in written]
        outs: list[IO[str]] = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in partial]
        for number, row in enumerate(aligned(files), 1):
            if all(row):
                kept += 1
                for out, line in zip(outs, row):
                    out.write(f"{line}\n")
            else:
                dropped += 1
                first = first or number
        if dropped and not drop_empty:
            hint = (
                "Correct the test set."
                if drop_empty is None
                else "To remove these pairs, use DROP_EMPTY=1 (posenc data parallel --drop-empty)."
            )
            raise PositionError(
                f"{join([str(path) for path in files])}: {dropped:,} pairs have an empty side, the first is line {first}. "
                f"Expected none. {hint}"
            )
        if not kept:
            raise PositionError(f"{files[0]}: no sentences. Expected one sentence per line.")
    return kept, dropped


def test_set(given: str, source: str, target: str) -> TestSet:
    """Return the test set for NAME=PREFIX, or for the name of a test set of sacreBLEU."""
    name, equals, prefix = given.partition("=")
    if not equals:
        return _of_sacrebleu(given, source, target)
    if not prefix:
        raise PositionError(f"test set {given!r}: no files. Expected NAME=PREFIX, or the name of a test set of sacreBLEU.")
    path = Path(prefix)
    references = [find(Path(f"{prefix}.{target}"))]
    for number in range(1, MORE_REFERENCES + 1):
        try:
            references.append(find(path.with_name(f"{path.name}.{target}.{number}")))
        except PositionError:
            break
    return TestSet(name, find(Path(f"{prefix}.{source}")), references)


def _of_sacrebleu(name: str, source: str, target: str) -> TestSet:
    """Return a test set of sacreBLEU with the references that sacreBLEU uses.

    The files are read from sacreBLEU's folder, which is $SACREBLEU or ~/.sacrebleu.
    """
    from sacrebleu.dataset import DATASETS
    from sacrebleu.utils import SACREBLEU_DIR

    pair = f"{source}-{target}"
    if name not in DATASETS:
        raise PositionError(
            f"test set {name!r}: sacreBLEU has no such test set. Expected NAME=PREFIX, or a name of sacrebleu --list."
        )
    if pair not in DATASETS[name].langpairs:
        raise PositionError(
            f"test set {name!r}: not in sacreBLEU for {pair}. Expected one of {join(sorted(DATASETS[name].langpairs), 8)}."
        )
    stem = name.replace("/", "_")
    begin = Path(SACREBLEU_DIR) / name / f"{stem}.{pair}"  # sacreBLEU's functions would download missing files
    allowed = getattr(DATASETS[name], "_get_langpair_allowed_refs", None)  # sacreBLEU scores with these references only
    if allowed is None:
        references = sorted(begin.parent.glob(f"{glob.escape(begin.name)}.ref*"))
    else:
        files = [begin.with_name(f"{begin.name}.{field.replace(':', '-')}") for field in allowed(pair)]  # such as ref:A
        references = [path for path in files if path.is_file()]
    source_file = begin.with_name(f"{begin.name}.src")
    if not references or not source_file.is_file():
        raise PositionError(
            f"test set {name!r}: {source_file} or its references are missing. Download them with "
            f"sacrebleu -t {name} -l {pair} --echo src."
        )
    return TestSet(stem, source_file, references)


def in_training(test: Path, train: Path) -> int:
    """Return the number of lines of a test set that also occur in the training text."""
    sentences = set(lines(test))
    found = {line for line in lines(train) if line in sentences}
    return sum(line in found for line in lines(test))


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check parallel text and write it to FOLDER/{train,valid,NAME}.CODE. Write the name of the corpus to "
        "FOLDER/corpus.txt. The input of each language is a file PREFIX.LANGUAGE or PREFIX.LANGUAGE.gz in "
        "UTF-8, with one sentence per line."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the checked text")
    parser.add_argument("--train", required=True, metavar="PREFIX", help="prefix of the training text")
    parser.add_argument("--valid", required=True, metavar="PREFIX", help="prefix of the validation text")
    parser.add_argument(
        "--tests", required=True, nargs="+", metavar="NAME=PREFIX",
        help="test sets: NAME=PREFIX, or the name of a test set of sacreBLEU. The reference is PREFIX.TARGET. Further "
        "references are PREFIX.TARGET.1, PREFIX.TARGET.2, ...",
    )  # fmt: skip
    parser.add_argument("--source", required=True, metavar="LANGUAGE", help="source language, such as en, pt-BR or zh_Hans")
    parser.add_argument("--target", required=True, metavar="LANGUAGE", help="target language")
    parser.add_argument("--name", default="parallel text", help="name of the corpus in tables (default: %(default)s)")
    parser.add_argument("--drop-empty", action="store_true", help="removal of training and validation pairs with an empty side")
    parser.add_argument(
        "--codes",
        nargs=2,
        metavar="CODE",
        help="codes of both languages in the names of the written files (default: --source and --target, with _ instead of -)",
    )


def run(args: argparse.Namespace) -> int:
    for code in (args.source, args.target):
        if not LANGUAGE.fullmatch(code):
            raise PositionError(f"language {code!r}: not a language code. Expected a code such as en, pt-BR or zh_Hans.")
    codes = tuple(args.codes or (code.replace("-", "_") for code in (args.source, args.target)))
    if codes[0] == codes[1]:
        raise PositionError(f"--source and --target are both {codes[0]}. Expected two languages, such as en and pt-BR.")
    if not all(code.isidentifier() for code in codes):
        raise PositionError(f"codes {' '.join(codes)}: not allowed in file names. Expected letters, digits and underscores.")
    pairs = {
        part: [find(Path(f"{prefix}.{language}")) for language in (args.source, args.target)]
        for part, prefix in (("train", args.train), ("valid", args.valid))
    }
    tests = [test_set(given, args.source, args.target) for given in args.tests]
    _require_names(tests)
    if not args.name.strip() or not args.name.isprintable() or len(args.name) > 200:
        raise PositionError(f"name {shorten(args.name)!r}: not a name. Expected up to 200 printable characters on one line.")
    inputs = [*pairs["train"], *pairs["valid"], *(path for test in tests for path in [test.source, *test.references])]
    require_other_files(_outputs(args.folder, codes, tests), inputs, "Give another FOLDER.")
    args.folder.mkdir(parents=True, exist_ok=True)
    try:
        _write(args.folder, codes, pairs, tests, args.drop_empty)
    except OSError as error:
        raise PositionError(unwritable(args.folder, error)) from None
    title = f"{args.name.strip()} {args.source}-{args.target}"
    write_files(args.folder, {"corpus.txt": f"{title}\n"})
    return 0


def _require_names(tests: list[TestSet]) -> None:
    names = [test.name for test in tests]
    for name in names:
        if not NAME.fullmatch(name) or name in _RESERVED:
            raise PositionError(
                f"test set {name!r}: not a name. Expected letters, digits, . _ + and -, and none of {', '.join(_RESERVED)}."
            )
        if names.count(name) > 1:
            raise PositionError(f"test set {name!r}: given twice. Expected a different name for each test set.")


def _outputs(folder: Path, codes: tuple[str, str], tests: list[TestSet]) -> list[Path]:
    """Return the paths of all files that the command writes or removes."""
    parts = [folder / f"{part}.{code}" for part in ("train", "valid") for code in codes]
    of_tests = [path for test in tests for path in (*_written(folder, codes, test), *_earlier_references(folder, codes, test))]
    return [*parts, *of_tests, folder / "corpus.txt", folder / "pairs"]


def _written(folder: Path, codes: tuple[str, str], test: TestSet) -> list[Path]:
    """Return the paths of the files of a test set: the source, and one file per reference."""
    endings = [*codes, *(f"{codes[1]}.{number}" for number in range(1, len(test.references)))]
    return [folder / f"{test.name}.{ending}" for ending in endings]


def _earlier_references(folder: Path, codes: tuple[str, str], test: TestSet) -> set[Path]:
    """Return the references of an earlier call that the test set does not have."""
    prefix = f"{test.name}.{codes[1]}."  # a test set can have the name of another test set, with a language and a year
    found = {path for path in folder.glob(f"{glob.escape(prefix)}*") if re.fullmatch("[0-9]+", path.name.removeprefix(prefix))}
    return found - set(_written(folder, codes, test))


def _write(folder: Path, codes: tuple[str, str], pairs: dict[str, list[Path]], tests: list[TestSet], drop_empty: bool) -> None:
    sizes = {}
    for part, files in pairs.items():
        sizes[part], dropped = write_part(files, [folder / f"{part}.{code}" for code in codes], drop_empty)
        if part == "train":
            read_pairs = sizes[part] + dropped
        if dropped:
            print(f"{folder}: {part}: {dropped:,} pairs with an empty side are left out")
    for test in tests:
        written = _written(folder, codes, test)
        for old in _earlier_references(folder, codes, test):
            old.unlink()
        sizes[test.name], _ = write_part([test.source, *test.references], written, None)
        known = in_training(written[0], folder / f"train.{codes[0]}")
        if known:
            print(
                f"{folder}: WARNING: {known:,} of {sizes[test.name]:,} sentences of test set {test.name} are in the training text"
            )
    write_files(folder, {"pairs": f"{read_pairs}\n"})
    print(f"{folder}: " + ", ".join(f"{part} {size:,}" for part, size in sizes.items()) + " sentence pairs")
