"""SentencePiece for the recipes: learns one model for both languages, and splits text with it.

spm.py train bpe|unigram VOCABULARY MODEL_PREFIX FILE...
spm.py encode MODEL INPUT OUTPUT [INPUT OUTPUT ...]
"""

import re
import sys

import sentencepiece

#: what SentencePiece says of a vocabulary that does not fit the text -> what it means
REFUSALS = {
    r"smaller than required_chars\. \d+ vs (\d+)": "needs a vocabulary of at least {} pieces ({}), more than {}",
    r"set it to a value <= (\d+)": "allows a vocabulary of at most {} pieces ({}), fewer than {}",
}


def train(model_type: str, vocabulary: str, prefix: str, *files: str) -> None:
    """Write PREFIX.model and PREFIX.vocab; a vocabulary that the text cannot fill is one line on standard error."""
    try:
        sentencepiece.SentencePieceTrainer.train(
            input=list(files),
            model_prefix=prefix,
            vocab_size=int(vocabulary),
            model_type=model_type,
            character_coverage=1.0,
            minloglevel=2,
        )
    except RuntimeError as error:
        for pattern, meaning in REFUSALS.items():
            limit = re.search(pattern, str(error))
            if limit:
                sys.exit(f"spm.py: this text {meaning.format(limit[1], model_type, vocabulary)}")
        sys.exit(f"spm.py: SentencePiece cannot learn from {', '.join(files)}: {error}")


def encode(model: str, *files: str) -> None:
    """Split every INPUT into pieces, one sentence a line, into the OUTPUT that follows it."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=model)
    for source, target in zip(files[::2], files[1::2]):
        with open(source, encoding="utf-8") as lines, open(target, "w", encoding="utf-8") as out:
            out.writelines(" ".join(pieces.encode(line.rstrip("\n"), out_type=str)) + "\n" for line in lines)


if __name__ == "__main__":
    {"train": train, "encode": encode}[sys.argv[1]](*sys.argv[2:])
