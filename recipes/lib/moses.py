"""Prepare text as Moses' scripts prepare it for translation, with sacremoses.

moses.py tokenise LANGUAGE INPUT OUTPUT [LANGUAGE INPUT OUTPUT ...]     tokenised
moses.py multi30k LANGUAGE INPUT OUTPUT [LANGUAGE INPUT OUTPUT ...]     lowercased, with plain punctuation, tokenised, escaped
"""

import sys

from sacremoses import MosesPunctNormalizer, MosesTokenizer


def prepare(language: str, source: str, target: str) -> None:
    """Prepare one sentence per line in the order of Multi30K's own script: lowercase, normalise punctuation, tokenise."""
    normaliser = MosesPunctNormalizer(language, perl_parity=True)
    tokeniser = MosesTokenizer(language)
    with open(source, encoding="utf-8", newline="\n") as lines, open(target, "w", encoding="utf-8", newline="\n") as out:
        # with its line feed, as in Perl: a pattern of the normaliser tests the character after the last quotation mark
        for line in lines:
            out.write(" ".join(tokeniser.tokenize(normaliser.normalize(line.lower()))) + "\n")


def tokenise(language: str, source: str, target: str) -> None:
    """Tokenise one sentence per line. Detokenising restores the text, except for blanks around punctuation."""
    tokeniser = MosesTokenizer(language)
    with open(source, encoding="utf-8", newline="\n") as lines, open(target, "w", encoding="utf-8", newline="\n") as out:
        out.writelines(" ".join(tokeniser.tokenize(line, escape=False)) + "\n" for line in lines)


def main(how: str, *arguments: str) -> None:
    write = {"tokenise": tokenise, "multi30k": prepare}[how]
    for place in range(0, len(arguments), 3):
        write(*arguments[place : place + 3])


if __name__ == "__main__":
    main(*sys.argv[1:])
