"""BLEU of the sentences of a test part by the number of their source words."""

from __future__ import annotations

from ..scoring.sentences import SentenceStatistics, corpus_bleu

#: the least and the largest number of words, or None for no limit
Bucket = tuple[int, int | None]


def buckets_up_to(longest: int) -> list[Bucket]:
    """Of ten words each; those of 60 and more are one unless sentences are longer than that one would hold."""
    tens = range(60, longest + 1, 10) if longest >= 70 else ()
    return [(1, 9), *((first, first + 9) for first in (10, 20, 30, 40, 50, *tens)), *([] if tens else [(60, None)])]


def bucket_name(bucket: Bucket) -> str:
    first, last = bucket
    return f"{first}-{last}" if last else f"{first}+"


def bleu_by_length(sentences: SentenceStatistics, buckets: list[Bucket]) -> list[tuple[int, float | None]]:
    """For every bucket the number of sentences and their BLEU; nothing where the source lengths are unknown."""
    found = []
    for first, last in buckets if sentences.source_words else ():
        inside = [
            row
            for row, words in zip(sentences.bleu, sentences.source_words)
            if max(words, 1) >= first and (last is None or words <= last)
        ]
        found.append((len(inside), corpus_bleu(inside) if inside else None))
    return found
