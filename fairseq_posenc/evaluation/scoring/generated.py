"""The output of fairseq-generate for one test set: hypotheses and settings, and checks against a reference."""

from __future__ import annotations

import ast
import difflib
import html
import os
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from ...common.messages import shorten
from ...core import PositionError

_HYPOTHESIS = re.compile(r"^([DH])-([0-9]{1,9})\t[^\t]*\t?(.*)$", re.MULTILINE)
_SOURCE = re.compile(r"^S-([0-9]{1,9})\t(.*)$", re.MULTILINE)
_TARGET = re.compile(r"^T-([0-9]{1,9})\t(.*)$", re.MULTILINE)
_SETTINGS = "{'_name': "
_LONGEST_SETTINGS = 1_000_000  # maximum number of characters
_COMPARED = 5_000  # compared characters of a sentence. The time of the comparison grows with the square of this number

#: markers of SentencePiece and subword-nmt in a text whose subwords were not joined
_SUBWORDS = {"▁": "sentencepiece", "@@": "subword_nmt"}
_UNKNOWN = "<<unk>>"  # the unknown token in fairseq's T- lines
#: minimum similarity of the letters of two sentences that count as the same. Tokenisation and unknown words change much less
_SIMILAR = 0.5


@dataclass(frozen=True)
class Generated:
    """The output of fairseq-generate for one test part, in the order of the references."""

    hypotheses: list[str]
    sources: list[str]  # sources without subwords. Empty if the output contains no sources
    targets: dict[int, str]  # the targets of the prepared data, by number of the sentence
    decoding: dict[str, Any]  # empty if the output does not contain the log
    checkpoint: str | None


_MARKS = (".", "!", "?")


def parse(text: str, references: int, name: str) -> Generated:
    """Read an output. Raise PositionError unless the output has one hypothesis per reference."""
    best = hypotheses(text, references, name)
    sources = {int(index): line for index, line in _SOURCE.findall(text)}
    decoding, checkpoint = _settings(text)
    return Generated(
        hypotheses=best,
        sources=[sources[index] for index in range(references)] if len(sources) == references else [],
        targets={int(index): line for index, line in _TARGET.findall(text)},
        decoding=decoding,
        checkpoint=checkpoint,
    )


def hypotheses(text: str, references: int, name: str) -> list[str]:
    """Return the best hypothesis of every sentence, in the order of the references: D lines, or H lines if there is no D line."""
    found: dict[str, dict[int, str]] = {"D": {}, "H": {}}
    for kind, index, hypothesis in _HYPOTHESIS.findall(text):
        found[kind].setdefault(int(index), hypothesis)  # the first of several hypotheses is the best
    best = found["D"] or found["H"]
    if not best:
        raise PositionError(f"{name}: no hypotheses (D- or H- lines). Expected the output of fairseq-generate without --quiet.")
    missing = [index for index in range(references) if index not in best]
    if missing or len(best) > references:
        lost = f" Sentence {missing[0]} is the first missing one." if missing else ""
        hint = " Use fairseq-generate --required-batch-size-multiple 1, which drops no sentences." if missing else ""
        raise PositionError(f"{name}: {len(best)} hypotheses for {references} references.{lost} Expected one each.{hint}")
    return [best[index] for index in range(references)]


def _settings(text: str) -> tuple[dict[str, Any], str | None]:
    """Return the decoding settings and the checkpoint from the log of fairseq-generate, which precedes its output."""
    for line in text.split("\n"):
        start = line.find(_SETTINGS)
        if start < 0 or not line.endswith("}") or len(line) > _LONGEST_SETTINGS:
            continue
        try:
            config = ast.literal_eval(line[start:])
            common = config["common_eval"]
            path = common["path"]
            if config["generation"].get("iter_decode_with_external_reranker"):
                path = path.rpartition(os.pathsep)[0]  # the last path only rescores
            forced = (config.get("task") or {}).get("segments_forced")
            more = {"segments_forced": forced} if forced else {}  # earlier versions have no such setting
            return {**config["generation"], "post_process": common["post_process"], **more}, path
        except (ValueError, SyntaxError, LookupError, TypeError, RecursionError, MemoryError):
            continue  # another line with braces, or a setting that is not a literal
    return {}, None


def require_translations(generated: Generated, references: list[str], name: str) -> None:
    """Raise PositionError if the hypotheses are not translations in words."""
    if generated.decoding.get("score_reference"):
        raise PositionError(f"{name}: scores of the references. Expected translations. Decode without --score-reference.")
    for mark, kind in _SUBWORDS.items():
        lines = [*generated.hypotheses, *generated.targets.values()]  # a poor hypothesis can be a single subword without a marker
        number = sum(mark in line for line in lines)
        if number and not any(mark in reference for reference in references):
            raise PositionError(
                f"{name}: subwords ({mark!r} in {number} of {len(lines)} hypotheses and targets). Expected words. "
                f"Decode with --remove-bpe {kind}."
            )


def tokenised_lines(hypotheses: list[str], references: list[str]) -> tuple[int, int]:
    """Return how many hypotheses end in a separate punctuation mark, and how many references end in an attached mark.

    Only lines whose reference ends in an attached mark are counted. In these lines, a separate mark shows that the hypothesis is
    tokenised, for example by Moses.
    """
    ends = [(line, text.strip()) for line, text in zip(hypotheses, references)]
    attached = [line for line, text in ends if text[-1:] in _MARKS and text[-2:-1].strip()]
    return sum(line.strip()[-2:-1] == " " and line.strip()[-1] in _MARKS for line in attached), len(attached)


def require_same_sentences(generated: Generated, references: list[str], name: str, reference_name: str) -> None:
    """Raise PositionError if a reference differs from the target of the same sentence in the prepared data."""
    known = {index: _letters(text) for index, text in generated.targets.items() if _UNKNOWN not in text}
    everywhere = set(known.values())
    wrong = []
    for index, target in known.items():
        reference = _letters(references[index]) if index < len(references) else target
        if reference != target and (reference in everywhere or not _similar(reference, target)):
            wrong.append(index)
    if wrong:
        first = min(wrong)
        raise PositionError(
            f"{reference_name}: {len(wrong)} of {len(references)} lines differ from the targets in {name}, first line "
            f"{first + 1} ({shorten(references[first], 40)!r}, T-{first} is {shorten(generated.targets[first], 40)!r}). "
            "Expected the reference in the order of the prepared data. For another reference, use --other-reference."
        )


def _letters(text: str) -> str:
    """Return the letters that are independent of tokenisation, casing and character normalisation."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", html.unescape(text)).casefold()))


def _similar(one: str, other: str) -> bool:
    return difflib.SequenceMatcher(None, one[:_COMPARED], other[:_COMPARED], autojunk=False).ratio() >= _SIMILAR
