"""Train a SentencePiece model on text in several languages, and split text into pieces with it.

spm.py train [--symbol=TOKEN] bpe|unigram NORMALISATION VOCABULARY MODEL_PREFIX SENTENCES FILE...
    TOKEN: a token that is never split, such as the separator of sentences
    NORMALISATION: SentencePiece's normalisation rule: nmt_nfkc (SentencePiece's default), or identity (no change)
    SENTENCES: maximum number of lines per file from which the model is learnt
spm.py encode MODEL THREADS INPUT OUTPUT [INPUT OUTPUT ...]
"""

import itertools
import re
import sys
from collections.abc import Iterator

import sentencepiece

#: pattern of SentencePiece's message if the vocabulary size does not fit the text -> message of this program
REFUSALS = {
    r"smaller than required_chars\. \d+ vs (\d+)": "vocabulary size {2}: too small for this text. "
    "Expected at least {0} pieces ({1}). Set VOCABULARY to at least {0}",
    r"set it to a value <= (\d+)": "vocabulary size {2}: too large for this text. Expected at most {0} pieces ({1}). "
    "Set VOCABULARY to at most {0}",
}


BATCH = 20_000  # number of lines that are split at once
UNKNOWN = "<unk>"  # unknown token in fairseq and in SentencePiece


def spaced(line: str) -> str:
    """Replace all white space by single blanks, because fairseq would split a piece that contains other white space."""
    return " ".join(line.split())


def sample(name: str, sentences: int) -> Iterator[str]:
    """Yield at most `sentences` lines of a file: every n-th line, with the smallest possible n.

    The number is limited because SentencePiece stores all training lines in memory.
    """
    with open(name, "rb") as lines:
        count = sum(1 for _ in lines)
    step = -(-count // sentences) or 1
    with open(name, "rb") as lines:
        for line in itertools.islice(lines, 0, None, step):
            yield spaced(line.decode())


def train(*arguments: str) -> None:
    """Write MODEL_PREFIX.model and MODEL_PREFIX.vocab."""
    symbols = [argument.removeprefix("--symbol=") for argument in arguments[:1] if argument.startswith("--symbol=")]
    _train(symbols, *arguments[len(symbols) :])


def _train(
    symbols: list[str], model_type: str, normalisation: str, vocabulary: str, prefix: str, sentences: str, *files: str
) -> None:
    """Write PREFIX.model and PREFIX.vocab. If the vocabulary size does not fit the text, exit with a one-line message."""
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.chain.from_iterable(sample(name, int(sentences)) for name in files),
            model_prefix=prefix,
            vocab_size=int(vocabulary),
            model_type=model_type,
            normalization_rule_name=normalisation,
            character_coverage=1.0,
            user_defined_symbols=symbols,
            minloglevel=2,
        )
    except RuntimeError as error:
        for pattern, meaning in REFUSALS.items():
            limit = re.search(pattern, str(error))
            if limit:
                sys.exit(f"spm.py: {meaning.format(limit[1], model_type, vocabulary)}.")
        sys.exit(f"spm.py: {', '.join(files)}: SentencePiece failed ({error}).")


def encode(model: str, threads: str, *files: str) -> None:
    """Split the sentences of every INPUT into pieces, and write the pieces to the OUTPUT that follows this INPUT.

    SentencePiece returns a sequence of unknown characters as one piece. This function replaces such pieces by `UNKNOWN`, because
    each of them would become a type of the dictionary.
    """
    pieces = sentencepiece.SentencePieceProcessor(model_file=model)
    known = {pieces.id_to_piece(number) for number in range(pieces.get_piece_size())}
    for source, target in zip(files[::2], files[1::2]):
        with open(source, encoding="utf-8", newline="\n") as lines, open(target, "w", encoding="utf-8", newline="\n") as out:
            while batch := [spaced(line) for line in itertools.islice(lines, BATCH)]:
                for sentence in pieces.encode(batch, out_type=str, num_threads=int(threads)):
                    out.write(" ".join(piece if piece in known else UNKNOWN for piece in sentence) + "\n")


if __name__ == "__main__":
    {"train": train, "encode": encode}[sys.argv[1]](*sys.argv[2:])
