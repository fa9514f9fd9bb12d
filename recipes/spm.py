"""SentencePiece for the recipes: trains one model for both languages, and splits text with it.

spm.py train MODEL_PREFIX VOCABULARY FILE...             byte-pair encoding
spm.py train-unigram MODEL_PREFIX VOCABULARY FILE...     SentencePiece's unigram model
spm.py encode MODEL INPUT OUTPUT [INPUT OUTPUT ...]
"""

import functools
import re
import sys

import sentencepiece


def train(prefix: str, vocabulary: str, *files: str, model_type: str = "bpe") -> None:
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
        limit = re.search(r"set it to a value <= (\d+)", str(error))
        if not limit:
            raise
        sys.exit(f"spm.py: this text allows a vocabulary of at most {limit[1]} pieces ({model_type}), fewer than {vocabulary}")


def encode(model: str, *files: str) -> None:
    pieces = sentencepiece.SentencePieceProcessor(model_file=model)
    for source, target in zip(files[::2], files[1::2]):
        with open(source, encoding="utf-8") as lines, open(target, "w", encoding="utf-8") as out:
            out.writelines(" ".join(pieces.encode(line.rstrip("\n"), out_type=str)) + "\n" for line in lines)


if __name__ == "__main__":
    unigram = functools.partial(train, model_type="unigram")
    {"train": train, "train-unigram": unigram, "encode": encode}[sys.argv[1]](*sys.argv[2:])
