"""SentencePiece for the recipes: learns one model for both languages, and splits text with it.

spm.py train [--symbol=TOKEN] bpe|unigram NORMALISATION VOCABULARY MODEL_PREFIX SENTENCES FILE...
    TOKEN: one piece of its own, such as the separator of sentences
    NORMALISATION: SentencePiece's rule: nmt_nfkc, its default, or identity, which changes no character
    SENTENCES: learn from at most this number of lines of a file
spm.py encode MODEL THREADS INPUT OUTPUT [INPUT OUTPUT ...]
"""

import itertools
import re
import sys
from collections.abc import Iterator

import sentencepiece

#: what SentencePiece says of a vocabulary that does not fit the text -> what it means
REFUSALS = {
    r"smaller than required_chars\. \d+ vs (\d+)": "vocabulary size {2}: too small for this text. "
    "Expected at least {0} pieces ({1})",
    r"set it to a value <= (\d+)": "vocabulary size {2}: too large for this text. Expected at most {0} pieces ({1})",
}


BATCH = 20_000  # lines that are split at once
UNKNOWN = "<unk>"  # fairseq's symbol, and SentencePiece's


def spaced(line: str) -> str:
    """Replace white space of any kind by single blanks: fairseq would split a piece that contains white space."""
    return " ".join(line.split())


def sample(name: str, sentences: int) -> Iterator[str]:
    """Every n-th line of a file, with the smallest n that gives at most so many; SentencePiece holds all that it learns from."""
    with open(name, "rb") as lines:
        count = sum(1 for _ in lines)
    step = -(-count // sentences) or 1
    with open(name, "rb") as lines:
        for line in itertools.islice(lines, 0, None, step):
            yield spaced(line.decode())


def train(*arguments: str) -> None:
    """Write PREFIX.model and PREFIX.vocab, with the symbol of the first argument, if there is one."""
    symbols = [argument.removeprefix("--symbol=") for argument in arguments[:1] if argument.startswith("--symbol=")]
    _train(symbols, *arguments[len(symbols) :])


def _train(
    symbols: list[str], model_type: str, normalisation: str, vocabulary: str, prefix: str, sentences: str, *files: str
) -> None:
    """Write PREFIX.model and PREFIX.vocab; a vocabulary that the text cannot fill is one line on standard error."""
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
    """Split every INPUT into pieces, one sentence per line, into the OUTPUT that follows it.

    SentencePiece returns a run of characters that the model does not contain as if it were a piece. The dictionary would then
    contain a type for each run. `UNKNOWN` replaces the run.
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
