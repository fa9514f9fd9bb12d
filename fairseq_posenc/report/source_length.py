"""BLEU of the sentences of a test part by the number of their source words."""

from __future__ import annotations

from ..scoring.sentences import SentenceStatistics, corpus_bleu

#: number of words, the last without an upper limit
BUCKETS = ((1, 9), (10, 19), (20, 29), (30, 39), (40, 49), (50, 59), (60, None))


def bucket_names() -> list[str]:
    return [f"{first}-{last}" if last else f"{first}+" for first, last in BUCKETS]


def bleu_by_length(sentences: SentenceStatistics) -> list[tuple[int, float | None]]:
    """For every bucket the number of sentences and their BLEU; nothing where the source lengths are unknown."""
    found = []
    for first, last in BUCKETS if sentences.source_words else ():
        inside = [
            row
            for row, words in zip(sentences.bleu, sentences.source_words)
            if max(words, 1) >= first and (last is None or words <= last)
        ]
        found.append((len(inside), corpus_bleu(inside) if inside else None))
    return found
