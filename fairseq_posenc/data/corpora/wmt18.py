"""Write WMT18 English-German or English-Czech as raw text: Europarl v7, CommonCrawl, News Commentary v13, and news test sets.

Training text is read and written line by line. Only a line feed ends a sentence. White space within a sentence becomes a single
blank, because fairseq-preprocess would end a sentence at a carriage return.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import itertools
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...common.files import replace_file
from ...core import PositionError
from ..archives import Archive, Store, extract, require_room

#: (sentence in the other language, sentence in English). None: the line is not UTF-8
Pairs = Iterator[tuple[str | None, str | None]]

_STATMT = "http://www.statmt.org/wmt13/"
_STATMT18 = "http://data.statmt.org/wmt18/translation-task/"
_HUB13 = "https://huggingface.co/datasets/wmt/wmt13/resolve/main/"
_HUB18 = "https://huggingface.co/datasets/wmt/wmt18-data/resolve/main/translation-task/"
_PARACRAWL = "https://s3.amazonaws.com/web-language-models/paracrawl/release1/paracrawl-release1.en-{}.zipporah0-dedup-clean.tgz"


@dataclass(frozen=True)
class Corpus:
    """A corpus of parallel training text.

    archives: a mapping from the language other than English ("de" or "cs") to the archive.
    member: template for the names of the files in the archive.
    """

    name: str
    archives: dict[str, Archive]
    member: str

    def members(self, other: str) -> dict[str, str]:
        """Return a mapping from each language to the name of its file in the archive."""
        return {language: self.member.format(other=other, language=language) for language in (other, "en")}


#: the training data of Chen et al. (2021)
CORPORA = (
    Corpus(
        "europarl",
        dict.fromkeys(
            ("de", "cs"),
            Archive(
                tuple(home + "training-parallel-europarl-v7.tgz" for home in (_STATMT, _HUB13)),
                "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
                657_632_379,
            ),
        ),
        "training/europarl-v7.{other}-en.{language}",
    ),
    Corpus(
        "commoncrawl",
        dict.fromkeys(
            ("de", "cs"),
            Archive(
                tuple(home + "training-parallel-commoncrawl.tgz" for home in (_STATMT, _HUB13)),
                "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
                918_311_367,
            ),
        ),
        "commoncrawl.{other}-en.{language}",
    ),
    Corpus(
        "news_commentary",
        dict.fromkeys(
            ("de", "cs"),
            Archive(
                tuple(home + "training-parallel-nc-v13.tgz" for home in (_STATMT18, _HUB18)),
                "17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91",
                113_157_482,
            ),
        ),
        "training-parallel-nc-v13/news-commentary-v13.{other}-en.{language}",
    ),
)
#: name of an option -> additional training data that WMT18's constrained condition allows
MORE = {
    "rapid": Corpus(
        "rapid",
        {
            "de": Archive(
                tuple(home + "rapid2016.tgz" for home in (_STATMT18, _HUB18)),
                "41557dd5d8f0ed3a6d98bce3b798b1a9d3b68361eb99d902329ddbb943a6b55a",
                161_050_516,
            )
        },
        "rapid2016.{other}-en.{language}",
    ),
    "paracrawl": Corpus(
        "paracrawl",
        {
            "de": Archive(
                (_PARACRAWL.format("de"),), "435ce65e26ed2d44dd0d627f0b558d25bfe31d9ccb35caef050938745c23ea8c", 1_918_708_277
            ),
            "cs": Archive(
                (_PARACRAWL.format("cs"),), "221f88bac9f48ed6ef94bad5490890066f508be00e8f102cf19edf2a1413c350", 299_052_360
            ),
        },
        "paracrawl-release1.en-{other}.zipporah0-dedup-clean.{language}",
    ),
}
DEV = Archive(
    ("http://data.statmt.org/wmt17/translation-task/dev.tgz",), "9d5ff04a28496b7796904ea65e50e3837bab14dbdca88b1e063105f17513dca9"
)
TEST = Archive((_STATMT18.replace("http:", "https:") + "test.tgz",), "f996c245ecffea23d0006fa4c34e9064")

#: published counts for German: number of lines of two corpora, and number of pairs without empty sides in all three corpora
KNOWN_LINES = {"europarl": 1_920_209, "commoncrawl": 2_399_123}
KNOWN_PAIRS = 4_592_289

#: number of bytes of text, subwords and binary data, per byte of the archives
_GROWTH = 2.2

VALID = "newstest2013"
TESTED = "newstest2018"


# --- reading ---


def lines(path: Path) -> Iterator[str | None]:
    """Yield the lines of a file with single blanks between words. Yield None for a line that is not UTF-8."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield " ".join(line.decode("utf-8").split())
            except UnicodeDecodeError:
                yield None


def parallel(paths: dict[str, Path], other: str) -> Pairs:
    """Yield the sentence pairs of two files. Raise PositionError if the numbers of lines differ."""
    ends = object()
    sides = [lines(paths[language]) for language in (other, "en")]
    for number, (one, two) in enumerate(itertools.zip_longest(*sides, fillvalue=ends)):
        if one is ends or two is ends:
            shorter, longer = (other, "en") if one is ends else ("en", other)
            raise PositionError(
                f"{paths[shorter]} has {number:,} lines, but {paths[longer].name} has more. Expected parallel text. "
                "Remove both files and run the command again."
            )
        yield one, two


def sgm(path: Path) -> list[str]:
    """Return the sentences of an SGML file. As in sacreBLEU, entities are not decoded."""
    with path.open(encoding="utf-8") as file:
        try:
            found = [line for line in file if line.startswith("<seg ")]
        except UnicodeDecodeError as error:
            raise PositionError(
                f"{path}: not UTF-8 text, from byte {error.start}. Expected UTF-8. Extract the file again."
            ) from None
    return [" ".join(re.sub(r"<seg.*?>(.*)</seg>.*?", r"\1", line).split()) for line in found]


def czeng(folder: Path) -> Pairs:
    """Yield the sentence pairs of CzEng from the user's tar files.

    The tar files contain gzip files. Each line of a gzip file has four fields: id, score, Czech and English.

    If the folder contains the script convert_czeng16_to_17.pl, the blocks that version 1.7 excludes are skipped.
    """
    archives = sorted(folder.glob("*.tar"))
    if not archives:
        raise PositionError(
            f"{folder}: no .tar files in this folder. Expected the files of CzEng. Download them from "
            "https://ufal.mff.cuni.cz/czeng (registration required)."
        )
    script = folder / "convert_czeng16_to_17.pl"
    listed = re.search(r"qw\{([\s\d]*)\}", script.read_text(encoding="utf-8")) if script.is_file() else None
    bad = set(listed[1].split()) if listed else set()
    for archive in archives:
        try:
            with tarfile.open(archive, mode="r|") as members:
                for member in members:
                    if re.fullmatch(r"(.*/)?\d\dtrain\.gz", member.name) and member.isfile():
                        yield from _czeng_pairs(members.extractfile(member), bad)
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise PositionError(f"{archive}: damaged ({error}). Expected a complete file. Download it again.") from None


def _czeng_pairs(member, bad: set[str]) -> Pairs:
    for line in gzip.GzipFile(fileobj=member):
        fields = line.rstrip(b"\n").split(b"\t")
        block = re.match(rb"[^-]+-b(\d+)-\d\d[tde]", fields[0])
        if len(fields) != 4 or (block and block[1].decode() in bad):
            continue
        try:
            yield " ".join(fields[2].decode("utf-8").split()), " ".join(fields[3].decode("utf-8").split())
        except UnicodeDecodeError:
            yield None, None


# --- cleaning ---


class Cleaning:
    """Decide which sentence pairs are kept, and count the removed pairs by reason.

    "none": remove pairs with an empty side or a side that is not UTF-8, as in Tensor2Tensor.
    "basic": also remove pairs with control characters, pairs with more than 250 words on a side, pairs whose numbers of words
    differ by a factor of more than 1.5, pairs with equal sides, and repeated pairs.
    """

    _CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd]")

    def __init__(self, how: str):
        self.basic = how == "basic"
        self.seen: Counter[str] = Counter()  # corpus -> number of pairs
        self.left_out: Counter[str] = Counter()  # reason -> number of removed pairs
        self._hashes: set[bytes] = set()

    def __call__(self, corpus: str, one: str | None, two: str | None) -> bool:
        self.seen[corpus] += 1
        reason = self._reason(one, two)
        if reason:
            self.left_out[reason] += 1
        return not reason

    def _reason(self, one: str | None, two: str | None) -> str:
        if one is None or two is None:
            return "not UTF-8"
        if not one or not two:
            return "empty"
        if not self.basic:
            return ""
        if self._CONTROL.search(one) or self._CONTROL.search(two):
            return "control characters"
        counts = sorted((one.count(" ") + 1, two.count(" ") + 1))
        if counts[1] > 250:
            return "more than 250 words"
        if counts[1] > 1.5 * counts[0]:
            return "other length"
        if one == two:
            return "equal sides"
        key = hashlib.blake2b(f"{one}\n{two}".encode(), digest_size=8).digest()
        if key in self._hashes:
            return "repeated"
        self._hashes.add(key)
        return ""


# --- the command ---


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write WMT18 as raw text for both directions to FOLDER/{train,valid}.LANGUAGE and "
        "FOLDER/newstest2018.SOURCE-TARGET.LANGUAGE. Write the name of the data to FOLDER/corpus.txt."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the text files")
    parser.add_argument("--other", choices=("de", "cs"), default="de", help="language paired with English (default: %(default)s)")
    parser.add_argument(
        "--from",
        dest="origin",
        default="",
        metavar="PLACE",
        help="folder or mirror of the archives (default: the public servers)",
    )
    parser.add_argument(
        "--downloads",
        type=Path,
        metavar="FOLDER",
        help="folder of downloaded archives (default: downloads in the folder of the text files)",
    )
    parser.add_argument(
        "--checksums",
        type=Path,
        metavar="FILE",
        help="file with the SHA-256 checksums of the archives at PLACE, in the format of sha256sum (default: the "
        "checksums of the public archives)",
    )
    parser.add_argument(
        "--clean",
        choices=("none", "basic"),
        default="none",
        help="filter of sentence pairs. The filter none removes only pairs with an empty side and pairs that are not UTF-8. The "
        "filter basic also removes repeated pairs, pairs with equal sides, pairs with control characters, pairs with more than "
        "250 words on a side, and pairs whose numbers of words differ by a factor of more than 1.5 (default: %(default)s)",
    )
    for name in MORE:
        parser.add_argument(f"--{name}", action="store_true", help=f"additional training data: {name}")
    parser.add_argument("--czeng", type=Path, metavar="FOLDER", help="additional training data: CzEng in this folder")


def run(args: argparse.Namespace) -> int:
    corpora = [*CORPORA, *(corpus for name, corpus in MORE.items() if getattr(args, name))]
    for corpus in corpora:
        if args.other not in corpus.archives:
            raise PositionError(
                f"--other {args.other}: not available for {corpus.name}. Expected {' or '.join(corpus.archives)}. "
                f"Use another language, or remove {corpus.name}."
            )
    if args.czeng and args.other != "cs":
        raise PositionError(f"--czeng: CzEng is Czech-English. Expected --other cs, not {args.other}. Remove --czeng.")
    raw = args.folder / "raw"
    store = Store(args.downloads or args.folder / "downloads", args.origin, args.checksums)
    wanted = {corpus.archives[args.other]: corpus.members(args.other) for corpus in corpora}
    wanted[DEV] = {language: f"dev/{VALID}.{language}" for language in (args.other, "en")}
    wanted[TEST] = _test_members(args.other)
    archives = store.get(wanted)
    require_room(args.folder, int(_GROWTH * sum(path.stat().st_size for path in archives.values())), "text and binary data")
    members = [raw / member for names in wanted.values() for member in names.values()]
    stamp = _begin(raw, members, archives.values())
    for archive, path in archives.items():
        print(f"{path}: unpacking", flush=True)
        extract(path, {member: raw / member for member in wanted[archive].values() if not (raw / member).is_file()})
    pairs: dict[str, Pairs] = {
        corpus.name: parallel({language: raw / member for language, member in corpus.members(args.other).items()}, args.other)
        for corpus in corpora
    }
    if args.czeng:
        pairs["czeng"] = czeng(args.czeng)
    cleaning = Cleaning(args.clean)
    kept = write_train(args.folder, args.other, pairs, cleaning)
    write_news(args.folder, args.other, raw)
    name = f"WMT18 en-{args.other}: {', '.join(pairs)}"
    name += f"; {args.clean} cleaning" if args.clean != "none" else ""
    name += f"; unknown data of {args.origin}" if args.checksums else ""
    (args.folder / "corpus.txt").write_text(f"{name}\n", encoding="utf-8")
    if not args.checksums and args.other == "de":
        _compare(args.folder, cleaning, kept)
    _remove_unpacked(raw, [*members, stamp])
    return 0


def _begin(raw: Path, members: Iterable[Path], archives: Iterable[Path]) -> Path:
    """Remove members that an interrupted call has unpacked from other archives. Return a file that identifies the archives."""
    stamp = raw / "made_from"
    made_from = "".join(f"{path.resolve()} {path.stat().st_size} {path.stat().st_mtime_ns}\n" for path in archives)
    if not (stamp.is_file() and stamp.read_bytes() == made_from.encode()):
        for path in members:
            path.unlink(missing_ok=True)
        raw.mkdir(parents=True, exist_ok=True)
        stamp.write_text(made_from, encoding="utf-8")
    return stamp


def _remove_unpacked(raw: Path, files: Iterable[Path]) -> None:
    """Remove these files, and the folders that are then empty: `raw` and the folders between `raw` and the files."""
    for path in files:
        path.unlink()
        for folder in path.parents[: len(path.relative_to(raw).parts)]:
            if any(folder.iterdir()):
                break
            folder.rmdir()


def _test_members(other: str) -> dict[str, str]:
    """Return written file -> member of the archive, for source and reference of both translation directions."""
    return {
        f"{TESTED}.{one}-{two}.{language}": f"test/{TESTED}-{one}{two}-{side}.{language}.sgm"
        for one, two in (("en", other), (other, "en"))
        for side, language in (("src", one), ("ref", two))
    }


def write_train(folder: Path, other: str, corpora: Mapping[str, Pairs], keep: Cleaning) -> dict[str, int]:
    """Write the pairs that `keep` accepts to FOLDER/train.LANGUAGE.

    Return a mapping from the name of each corpus to the number of its written pairs.
    """
    kept: dict[str, int] = {}

    def write(first: Path, second: Path) -> None:
        with open(first, "wb") as left, open(second, "wb") as right:
            for name, pairs in corpora.items():
                kept[name] = 0
                for one, two in pairs:
                    if keep(name, one, two):
                        left.write(f"{one}\n".encode())
                        right.write(f"{two}\n".encode())
                        kept[name] += 1
                print(f"{folder}: {name}: {kept[name]:,} of {keep.seen[name]:,} sentence pairs", flush=True)

    one, two = folder / f"train.{other}", folder / "train.en"
    replace_file(one, lambda first: replace_file(two, lambda second: write(first, second)))
    if keep.left_out:
        print(f"{folder}: left out: {', '.join(f'{count:,} {reason}' for reason, count in keep.left_out.items())}", flush=True)
    return kept


def write_news(folder: Path, other: str, raw: Path) -> None:
    """Write the validation set, and one test set for each translation direction. No line is removed."""
    parts = {f"valid.{language}": list(lines(raw / f"dev/{VALID}.{language}")) for language in (other, "en")}
    parts |= {name: sgm(raw / member) for name, member in _test_members(other).items()}
    names = list(parts)
    for first, second in zip(names[::2], names[1::2]):
        if len(parts[first]) != len(parts[second]):
            raise PositionError(
                f"{first} has {len(parts[first]):,} lines, but {second} has {len(parts[second]):,}. Expected parallel text. "
                "Download the test sets again."
            )
        for name in (first, second):
            if not all(parts[name]):
                number = next(number for number, line in enumerate(parts[name], 1) if not line)
                wrong = "empty" if parts[name][number - 1] == "" else "not UTF-8"
                raise PositionError(f"{name}, line {number}: {wrong}. Expected a sentence. Download the test sets again.")
    for name, text in parts.items():
        (folder / name).write_bytes("".join(f"{line}\n" for line in text).encode())
    print(f"{folder}: {', '.join(f'{name} {len(parts[name]):,}' for name in names[::2])} sentence pairs", flush=True)


def _compare(folder: Path, cleaning: Cleaning, kept: Mapping[str, int]) -> None:
    """Print a line for each count that differs from the published count."""
    counts = [(f"{name} has", cleaning.seen[name], "lines", known) for name, known in KNOWN_LINES.items()]
    if not cleaning.basic:
        counts.append(("the three corpora have", sum(kept[corpus.name] for corpus in CORPORA), "pairs", KNOWN_PAIRS))
    for subject, found, unit, known in counts:
        if found != known:
            print(f"{folder}: {subject} {found:,} {unit}; others count {known:,}", flush=True)
