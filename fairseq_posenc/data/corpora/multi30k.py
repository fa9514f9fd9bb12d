"""Read Multi30K or Multi30k-uk as raw text from the public host, a mirror or a folder, and write one sentence per line.

Multi30k-uk has the files train.json and test_2016_flickr.json, with one object {"en": ..., "uk": ...} per line. Multi30k-uk has
no validation set. Multi30K has the files {train,val,test_2016_flickr}.LANGUAGE or .LANGUAGE.gz. Multi30K also has additional
test sets in English and German.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path

from ...common.files import require_regular, unwritable
from ...common.option_types import not_negative
from ...core import PositionError
from ..download import Source
from ..text import read_gzip, require_other_files

#: name of a part in fairseq -> name of its files
PARTS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
MORE_TESTS = ("test_2017_flickr", "test_2017_mscoco")  # names of additional test sets and of their files
# maximum number of bytes and of lines of a file. The largest file of the corpus has 5 MB and 29,000 lines
_LARGEST, _MOST_LINES = 2**26, 1_000_000
VALID_SIZE = 1014  # number of sentence pairs of the validation set, as in Multi30K
HUB = "https://huggingface.co/datasets/turuta/Multi30k-uk/resolve/main"
REPOSITORY = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"

#: file -> mapping from the SHA-256 of the file's text to the name of the corpus
KNOWN = {
    "train.en": {"460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6": "Multi30K"},
    "val.en": {"1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227": "Multi30K"},
    "test_2016_flickr.en": {"399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182": "Multi30K"},
    "train.de": {"2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72": "Multi30K"},
    "val.de": {"660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660": "Multi30K"},
    "test_2016_flickr.de": {"4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16": "Multi30K"},
    "test_2017_flickr.en": {"ce1450ddc5ab0834502579d77a170849952e15a2938b34cc503bdc25ebb4fb98": "Multi30K"},
    "test_2017_flickr.de": {"c3078bc3b36808bf9d20eb2347ed6137016179ef59ec0d2b9b8ecc3fb2880081": "Multi30K"},
    "test_2017_mscoco.en": {"43051fdfa86fd5395182e718a94ca67b1b227b9f7c79596ff0f6b813216981d2": "Multi30K"},
    "test_2017_mscoco.de": {"58277df3c75f92f7145a11b910b553d1cf82c439249d4dc237c899609eafac22": "Multi30K"},
    "train.cs": {"2be68b38c8d586ff4f54eb13cc6e1baaaa053695b3f070d3038303a47f2268da": "Multi30K"},
    "val.cs": {"d53827e469b0a1ca8d57e9e26b2b64c4bc4b33f5479c7b03ae87ae5c882c3e33": "Multi30K"},
    "test_2016_flickr.cs": {"45adb85f688de8407fddcbe1b36dca15d12aab868149b337e2576f2d6d2ff8d8": "Multi30K"},
    "train.uk": {"ddc94a1d581fe9397d5bc41797617a6229ce351ab8eba9165bd4f6179481657a": "MultiScript30k"},
    "val.uk": {"02e94b1dc2e8c96cb828fddedf0606739ccdb65f66bd5d178a2731d18ff7df61": "MultiScript30k"},
    "test_2016_flickr.uk": {"aeddaefc167aaba40ff3d44d338eaf993f097c411f6e01891d30fbe7868d1aa7": "MultiScript30k"},
}

Text = dict[str, list[str]]  # language -> lines


def read(source: Source, languages: tuple[str, str], more_tests: Sequence[str] = ()) -> dict[str, Text]:
    """Return a mapping from part ("train", ...) to its unchanged text. Multi30k-uk does not have the part "valid"."""
    if source.get("train.json"):
        parts = ("train", "test", *more_tests)
        return {part: _read_json(source, f"{_file(part)}.json", languages) for part in parts}
    return {part: {lang: _read_lines(source, f"{_file(part)}.{lang}") for lang in languages} for part in (*PARTS, *more_tests)}


def _file(part: str) -> str:
    return PARTS.get(part, part)


def _read_json(source: Source, name: str, languages: tuple[str, str]) -> Text:
    path, address = source.get(name), source.address(name)
    if path is None:
        raise _missing(source, name)
    text: Text = {language: [] for language in languages}
    for number, line in enumerate(_lines(_decoded(path, address), address), 1):
        try:
            pair = json.loads(line)
            sides = [pair[language] for language in languages]
        except (ValueError, KeyError, TypeError, RecursionError):
            sides = []
        if not (sides and all(isinstance(side, str) for side in sides)):
            raise PositionError(
                f"{address}, line {number}: wrong content. Expected a JSON object with {' and '.join(languages)} as strings. "
                "Check the file."
            )
        for language, side in zip(languages, sides):
            text[language].append(side)
    return text


def _read_lines(source: Source, name: str) -> list[str]:
    for candidate in (f"{name}.gz", name):
        path = source.get(candidate)
        if path is not None:
            address = source.address(candidate)
            return _lines(_decoded(path, address), address)
    raise _missing(source, f"{name}.gz")


def _missing(source: Source, name: str) -> PositionError:
    wanted = f"{{{','.join(PARTS.values())}}}.LANGUAGE.gz, or train.json and {PARTS['test']}.json"
    return PositionError(f"{source.origin}: {name} is missing. Expected {wanted}. Choose another source with --from.")


def _decoded(path: Path, name: str) -> str:
    try:
        if path.suffix == ".gz":
            return read_gzip(path, name, _LARGEST).decode("utf-8-sig")
        require_regular(path, _LARGEST)
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PositionError(f"{name}: not UTF-8 text, from byte {error.start}. Expected UTF-8. Check the file.") from None


def _lines(text: str, name: str) -> list[str]:
    """Split a text at line feeds. str.splitlines would also split at other characters."""
    if text.count("\n") > _MOST_LINES:
        raise PositionError(f"{name}: more than {_MOST_LINES:,} lines. Expected a part of Multi30K. Check the file.")
    return text.removesuffix("\n").split("\n") if text else []


def hold_out(train: Text, seed: int) -> dict[str, Text]:
    """Divide the training set into the parts "train" and "valid". The pairs of "valid" are drawn with this seed."""
    size = min(map(len, train.values()))
    if size <= VALID_SIZE:
        raise PositionError(
            f"train: {size} sentence pairs. Expected more than {VALID_SIZE}, because {VALID_SIZE} are held out for validation."
        )
    draw = random.Random(seed)
    # random() returns the same numbers in every version of Python
    held = set(sorted(range(size), key=[draw.random() for _ in range(size)].__getitem__)[:VALID_SIZE])
    return {
        part: {language: [line for i, line in enumerate(lines) if (i in held) == inside] for language, lines in train.items()}
        for part, inside in (("train", False), ("valid", True))
    }


def clean(part: str, text: Text, drop_empty: bool = False) -> Text:
    """Return the text with normalised white space.

    If `drop_empty` is set and the part is "train", remove pairs with an empty side. Otherwise, raise PositionError for these
    pairs. Also raise PositionError if the numbers of lines differ, or if no pair remains.
    """
    counts = {language: len(lines) for language, lines in text.items()}
    if len(set(counts.values())) > 1:
        listed = " and ".join(f"{count:,} lines in {language}" for language, count in counts.items())
        raise PositionError(f"{part}: {listed}. Expected equal numbers of lines. Check the files.")
    text = {language: [" ".join(line.split()) for line in lines] for language, lines in text.items()}
    empty = {i for lines in text.values() for i, line in enumerate(lines) if not line}
    if empty and not (drop_empty and part == "train"):
        first = min(empty)
        sides = " and ".join(language for language, lines in text.items() if not lines[first])
        hint = "To remove these pairs, use --drop-empty." if part == "train" else "Check the files."
        raise PositionError(f"{part}: {len(empty)} empty lines, the first is line {first + 1} of {sides}. Expected none. {hint}")
    text = {language: [line for i, line in enumerate(lines) if i not in empty] for language, lines in text.items()}
    if not all(text.values()):
        raise PositionError(f"{part}: no sentence pairs. Expected at least one. Check the files.")
    return text


def title(parts: dict[str, Text], origin: str) -> str:
    """Return the name of the corpus, which is found by the SHA-256 of its texts.

    If the SHA-256 of a text is not known, `origin` determines the name. For the public host of Multi30k-uk, the name begins
    with "Multi30k-uk". For any other origin, the name begins with "unknown data".
    """
    files = {f"{_file(part)}.{language}": lines for part, text in parts.items() for language, lines in text.items()}
    texts = {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in files.items()}
    corpora = {KNOWN.get(name, {}).get(hashlib.sha256(text).hexdigest()) for name, text in texts.items()}
    pair = "-".join(parts["train"])
    if None in corpora:
        return f"Multi30k-uk {pair}" if origin == HUB else f"unknown data {pair} of {origin}"
    return f"{'Multi30K' if corpora == {'Multi30K'} else 'MultiScript30k (machine-translated)'} {pair}"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write Multi30K or Multi30k-uk as raw text to FOLDER/{train,valid,test}.LANGUAGE, and the name of the "
        "data to FOLDER/corpus.txt."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the text files")
    parser.add_argument("--source", default="en", metavar="LANGUAGE", help="source language (default: %(default)s)")
    parser.add_argument("--target", default="uk", metavar="LANGUAGE", help="target language: uk, de or cs (default: %(default)s)")
    parser.add_argument(
        "--tests",
        nargs="+",
        default=[],
        choices=MORE_TESTS,
        metavar="PART",
        help=f"additional test sets: {', '.join(MORE_TESTS)}",
    )
    parser.add_argument(
        "--from",
        dest="origin",
        default="",
        metavar="PLACE",
        help="folder or mirror of the downloads (default: the public servers)",
    )
    parser.add_argument(
        "--downloads",
        type=Path,
        metavar="FOLDER",
        help="folder of downloaded files (default: downloads in the folder of the text files)",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="file with the SHA-256 checksums of earlier downloads (default: DOWNLOADS/trusted.sha256)",
    )
    parser.add_argument(
        "--valid-seed",
        type=not_negative,
        default=1,
        metavar="N",
        help="seed that selects validation pairs from the training pairs, if the corpus has no validation set "
        "(default: %(default)s)",
    )
    parser.add_argument("--drop-empty", action="store_true", help="removal of training pairs with an empty side")


def run(args: argparse.Namespace) -> int:
    languages = (args.source, args.target)
    if args.source == args.target:
        raise PositionError(
            f"--source {args.source} --target {args.target}: the same language twice. Expected two languages, such as en and uk."
        )
    origin = args.origin or (HUB if "uk" in languages else REPOSITORY)
    downloads = args.downloads or args.folder / "downloads"
    source = Source(origin, downloads, args.record or downloads / "trusted.sha256")
    parts = read(source, languages, args.tests)
    name = title(parts, origin)
    if origin == REPOSITORY and not name.startswith("Multi30K "):
        raise PositionError(
            f"{origin}: the text differs from the known Multi30K. Expected the known version. Use your own copy with --from."
        )
    parts = {part: clean(part, text, args.drop_empty) for part, text in parts.items()}
    if "valid" not in parts:
        parts.update(hold_out(parts["train"], args.valid_seed))
    outputs = [args.folder / f"{part}.{language}" for part in parts for language in languages]
    require_other_files([*outputs, args.folder / "corpus.txt"], source.used, "Give another FOLDER.")
    source.record_downloads()
    try:
        write(args.folder, parts, name)
    except OSError as error:
        raise PositionError(unwritable(args.folder, error)) from None
    return 0


def write(folder: Path, parts: dict[str, Text], name: str) -> None:
    """Write FOLDER/PART.LANGUAGE, and the name of the corpus to FOLDER/corpus.txt. Print the numbers of sentence pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in parts.items():
        for language, lines in text.items():
            (folder / f"{part}.{language}").write_bytes("".join(f"{line}\n" for line in lines).encode())
    (folder / "corpus.txt").write_text(f"{name}\n", encoding="utf-8")
    sizes = ", ".join(
        f"{part} {len(next(iter(parts[part].values()))):,}" for part in [*PARTS, *(part for part in parts if part not in PARTS)]
    )
    print(f"{folder}: {name}: {sizes} sentence pairs")
