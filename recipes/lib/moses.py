"""Use sacremoses to prepare text for translation, in the same way as the scripts of Moses.

moses.py tokenise LANGUAGE INPUT OUTPUT [LANGUAGE INPUT OUTPUT ...]     tokenise
moses.py multi30k LANGUAGE INPUT OUTPUT [LANGUAGE INPUT OUTPUT ...]     lowercase, normalise punctuation, tokenise and escape
"""

import sys

from sacremoses import MosesPunctNormalizer, MosesTokenizer


def prepare(language: str, source: str, target: str) -> None:
    """Prepare a text file like the script of Multi30K: lowercase, normalise punctuation, then tokenise and escape."""
    normaliser = MosesPunctNormalizer(language, perl_parity=True)
    tokeniser = MosesTokenizer(language)
    with open(source, encoding="utf-8", newline="\n") as lines, open(target, "w", encoding="utf-8", newline="\n") as out:
        # keep the line feed, as in Perl, because a pattern of the normaliser tests the character after a quotation mark
        for line in lines:
            out.write(" ".join(tokeniser.tokenize(normaliser.normalize(line.lower()))) + "\n")


def tokenise(language: str, source: str, target: str) -> None:
    """Tokenise a text file with one sentence per line. Detokenising restores the text, except for blanks around punctuation."""
    tokeniser = MosesTokenizer(language)
    with open(source, encoding="utf-8", newline="\n") as lines, open(target, "w", encoding="utf-8", newline="\n") as out:
        out.writelines(" ".join(tokeniser.tokenize(line, escape=False)) + "\n" for line in lines)


def main(how: str, *arguments: str) -> None:
    write = {"tokenise": tokenise, "multi30k": prepare}[how]
    for place in range(0, len(arguments), 3):
        write(*arguments[place : place + 3])


if __name__ == "__main__":
    main(*sys.argv[1:])
