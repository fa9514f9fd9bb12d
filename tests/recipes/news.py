"""A small mirror of WMT18. Paths, archives and members are named as in the public WMT18.

Every training archive also contains files that the recipe does not read, such as a French text.

python -m tests.recipes.news FOLDER PAIRS     writes a mirror with PAIRS training pairs and with the large vocabulary of `news`
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import random
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from fairseq_posenc.data.corpora.wmt18 import CORPORA, DEV, MORE, TEST

SIZES = {"europarl": 160, "commoncrawl": 90, "news_commentary": 60, "rapid": 30, "paracrawl": 40, "valid": 20, "test": 12}
_SYLLABLES = [first + second for first in "bdgkmst" for second in "aiou"]


def sentences(seed: int, count: int) -> dict[str, list[str]]:
    """Return short sentences from a vocabulary of 40 words, in all languages. The vocabulary is equal for every seed."""
    draw = random.Random(0)
    words = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 3))) for _ in range(40)]
    draw.seed(seed)
    return in_all_languages([draw.choices(words, k=draw.randint(3, 8)) for _ in range(count)])


def news(seed: int, count: int) -> dict[str, list[str]]:
    """Return sentences of 25 words on average from a large vocabulary, in all languages.

    Short words are more frequent (Zipf's law).
    """
    draw = random.Random(0)
    syllables = [first + second for first in "bcdfghjklmnpqrstvwxyz" for second in ("a", "e", "i", "o", "u", "an", "er", "in")]
    words = sorted({"".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(450_000)}, key=lambda w: (len(w), w))
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    draw.seed(seed)
    lengths = [min(100, round(draw.lognormvariate(3.05, 0.6)) + 1) for _ in range(count)]
    return in_all_languages([draw.choices(words, cum_weights=weights, k=length) for length in lengths])


def in_all_languages(english: list[list[str]]) -> dict[str, list[str]]:
    """Return the sentences in English, German and Czech.

    German and Czech sentences have the words in reverse order, with reversed letters. Every Czech word also ends with one more
    letter.
    """
    turned = [[word[::-1] for word in reversed(sentence)] for sentence in english]
    found = {"en": english, "de": turned, "cs": [[f"{word}ě" for word in sentence] for sentence in turned]}
    return {language: [" ".join(sentence).capitalize() + "." for sentence in text] for language, text in found.items()}


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def sgm(lines: list[str], kind: str) -> bytes:
    """Return one side of a test set (`kind`: src or ref) in the SGM format of the WMT news tasks."""
    body = "".join(f'<seg id="{number}">{line} </seg>\n' for number, line in enumerate(lines, 1))
    return f'<{kind}set setid="newstest2018">\n<doc docid="a &amp; b">\n<hl>\n{body}</hl>\n</doc>\n</{kind}set>\n'.encode()


def tgz(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # level 1 is fast enough for millions of sentence pairs
    with tarfile.open(path, mode, **({"compresslevel": 1} if mode == "w:gz" else {})) as archive:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))


def write_mirror(folder: Path, sizes: dict[str, int] = SIZES, draw: Callable[[int, int], dict] = sentences) -> Path:
    """Write the mirror. Return the file of checksums."""
    archives: dict[str, dict[str, bytes]] = {}
    for seed, corpus in enumerate([*CORPORA, *MORE.values()]):
        pairs = draw(seed, sizes[corpus.name])
        if corpus.name == "europarl":
            dirty(pairs)
        for other, archive in corpus.archives.items():
            members = archives.setdefault(archive.place, {})
            members[f"{corpus.members(other)[other]}.info"] = b"not wanted\n"
            members.update({member: text(pairs[language]) for language, member in corpus.members(other).items()})
            members[corpus.member.format(other="fr", language="fr")] = b"Bonjour.\n"
    found = draw(100, sizes["valid"])
    archives[DEV.place] = {f"dev/newstest2013.{language}": text(lines) for language, lines in found.items()}
    tests = draw(101, sizes["test"])
    tests = {language: [f"{lines[0][:-1]} &amp; Co.", *lines[1:]] for language, lines in tests.items()}
    members = archives[TEST.place] = {}
    for other in ("de", "cs"):
        for one, two in (("en", other), (other, "en")):
            members[f"test/newstest2018-{one}{two}-src.{one}.sgm"] = sgm(tests[one], "src")
            members[f"test/newstest2018-{one}{two}-ref.{two}.sgm"] = sgm(tests[two], "ref")
    for place, content in archives.items():
        tgz(folder / place, content)
    sums = folder / "sums"
    lines = [f"{hashlib.sha256((folder / place).read_bytes()).hexdigest()}  {place}" for place in archives]
    sums.write_text("".join(f"{line}\n" for line in lines))
    return sums


def dirty(pairs: dict[str, list[str]]) -> None:
    """Add problems of real text: characters that some programs read as line ends, blanks, and pairs with an empty side."""
    pairs["en"][3] = pairs["en"][3].replace(" ", "\r", 1)
    pairs["de"][4] = pairs["de"][4].replace(" ", "\u2028", 1) + "  \t"
    pairs["cs"][4] = pairs["cs"][4].replace(" ", "\x85", 1)
    pairs["en"][5] = "  "
    pairs["de"][6] = pairs["cs"][6] = ""


def write_czeng(folder: Path) -> None:
    """Write two tar files of gzipped lines, and the script convert_czeng16_to_17.pl.

    The script lists blocks 7 and 8, which are not part of CzEng 1.7.
    """
    pairs = sentences(1, 40)
    rows = [
        f"subtitles-b{number % 10}-00train-f1\t0.9\t{cs}\t{en}\n" for number, (cs, en) in enumerate(zip(pairs["cs"], pairs["en"]))
    ]
    for number in (0, 1):
        body = gzip.compress("".join(rows[number::2]).encode())
        tgz(folder / f"data-plaintext-format.{number}.tar", {f"data.plaintext-format/0{number}train.gz": body}, "w")
    (folder / "convert_czeng16_to_17.pl").write_text("my %bad = map { $_ => 1 } qw{7\n 8};\n")


def main(folder: str, pairs: str) -> None:
    """Write a mirror whose corpora have the proportions of the public English-German pairs."""
    europarl, commentary = int(pairs) * 42 // 100, int(pairs) * 6 // 100
    training = {"europarl": europarl, "commoncrawl": int(pairs) - europarl - commentary, "news_commentary": commentary}
    write_mirror(Path(folder), {**SIZES, **training, "valid": 3000, "test": 2998}, news)


if __name__ == "__main__":
    main(*sys.argv[1:])
