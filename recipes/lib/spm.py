"""SentencePiece for the recipes: learn one model for both languages, and split text with it.

spm.py train [--symbol=TOKEN] bpe|unigram NORMALISATION VOCABULARY MODEL_PREFIX SENTENCES FILE...
    TOKEN: a separate piece, such as the separator of sentences
    NORMALISATION: SentencePiece's rule: nmt_nfkc, its default, or identity, which changes no character
    SENTENCES: learn from at most this number of lines of a file
spm.py encode MODEL THREADS INPUT OUTPUT [INPUT OUTPUT ...]
"""

import itertools
import re
import sys
from collections.abc import Iterator

import sentencepiece

#: SentencePiece's message about a vocabulary that does not fit the text -> its meaning
REFUSALS = {
    r"smaller than required_chars\. \d+ vs (\d+)": "vocabulary size {2}: too small for this text. "
    "Expected at least {0} pieces ({1})",
    r"set it to a value <= (\d+)": "vocabulary size {2}: too large for this text. Expected at most {0} pieces ({1})",
}


BATCH = 20_000  # lines that are split at once
UNKNOWN = "<unk>"  # the symbols of fairseq and of SentencePiece


def spaced(line: str) -> str:
    """Replace white space of any kind by single blanks, because fairseq would split a piece that contains white space."""
    return " ".join(line.split())


def sample(name: str, sentences: int) -> Iterator[str]:
    """Yield every n-th line of a file, with the smallest n that results in at most this number of lines.

    SentencePiece keeps all lines from which it learns in memory.
    """
    with open(name, "rb") as lines:
        count = sum(1 for _ in lines)
    step = -(-count // sentences) or 1
    with open(name, "rb") as lines:
        for line in itertools.islice(lines, 0, None, step):
            yield spaced(line.decode())


def train(*arguments: str) -> None:
    """Write PREFIX.model and PREFIX.vocab. A symbol in the first argument becomes a separate piece."""
    symbols = [argument.removeprefix("--symbol=") for argument in arguments[:1] if argument.startswith("--symbol=")]
    _train(symbols, *arguments[len(symbols) :])


def _train(
    symbols: list[str], model_type: str, normalisation: str, vocabulary: str, prefix: str, sentences: str, *files: str
) -> None:
    """Write PREFIX.model and PREFIX.vocab.

    If the text is too small for the vocabulary, print one line on standard error and exit.
    """
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
    """Split every INPUT into pieces, one sentence per line, and write them to the OUTPUT that follows it.

    SentencePiece returns a run of characters that the model does not contain as if this run were a piece. The dictionary would
    then contain a type for each run. `UNKNOWN` replaces the run.
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
