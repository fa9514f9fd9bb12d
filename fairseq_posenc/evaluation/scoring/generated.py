"""Read the output of fairseq-generate for one test set, and check it against the reference."""

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

_LINE = re.compile(r"^([STDH])-([0-9]{1,9})\t", re.MULTILINE)
_HYPOTHESIS = re.compile(r"^([DH])-([0-9]{1,9})\t[^\t\n]*\t?(.*)$", re.MULTILINE)
_SOURCE = re.compile(r"^S-([0-9]{1,9})\t(.*)$", re.MULTILINE)
_TARGET = re.compile(r"^T-([0-9]{1,9})\t(.*)$", re.MULTILINE)
_CHECKSUM = re.compile(r"^[^\t\n]*\bchecksum ([0-9a-f]{16}) of the checkpoint ", re.MULTILINE)  # the line has no tab
_SETTINGS = "{'_name': "
_MODELS = re.compile(r"\bloading model\(s\) from (.{1,20000})$", re.MULTILINE)
_LONGEST_SETTINGS = 1_000_000  # maximum number of characters of the line with the settings
_COMPARED = 5_000  # maximum number of characters that are compared per sentence, because the time is quadratic in this number

#: marker in a text whose subwords were not joined -> type of the subwords
_SUBWORDS = {"▁": "sentencepiece", "@@": "subword_nmt"}
#: fraction of the lines that may contain such a marker without an error, if references contain the marker as text
_FEW = 0.05
_UNKNOWN = "<<unk>>"  # the unknown token in fairseq's T- lines
#: minimum similarity between the letters of a reference and the letters of its target in the prepared data. The reference
#: and the target can differ, for example because the target is tokenised
_SIMILAR = 0.5


@dataclass(frozen=True)
class Generated:
    """The output of fairseq-generate for one test set, in the order of the references."""

    hypotheses: list[str]
    sources: list[str]  # sources in words. Empty if the output does not contain all sources
    targets: dict[int, str]  # index of the sentence -> target in the prepared data
    decoding: dict[str, Any]  # decoding settings. Empty if the output does not contain the log
    checkpoint: str | None
    checksums: frozenset[str] = frozenset()  # of the checkpoint and of a reranker. Empty in outputs of earlier versions


_MARKS = (".", "!", "?")


def parse(text: str, references: int, name: str) -> Generated:
    """Read an output.

    Raise PositionError unless the output is from one call of fairseq-generate, and has one hypothesis per reference.
    """
    _require_one_decoding(text, name)
    best = hypotheses(text, references, name)
    sources = {int(index): line for index, line in _SOURCE.findall(text)}
    decoding, checkpoint = _settings(text)
    return Generated(
        hypotheses=best,
        sources=[sources[index] for index in range(references)] if len(sources) == references else [],
        targets={int(index): line for index, line in _TARGET.findall(text)},
        decoding=decoding,
        checkpoint=checkpoint,
        checksums=frozenset(_CHECKSUM.findall(text)),
    )


def _require_one_decoding(text: str, name: str) -> None:
    """Raise PositionError if a sentence occurs again after another sentence, or if its source or target occurs twice.

    fairseq-generate prints all hypotheses of a sentence together, and the source and the target once.
    """
    last: dict[str, str] = {}  # kind of line -> sentence
    seen: set[tuple[str, str]] = set()
    for kind, index in _LINE.findall(text):
        if (kind, index) in seen and (kind in "ST" or last[kind] != index):
            raise PositionError(
                f"{name}: sentence {int(index)} was decoded twice. Expected the output of one call of fairseq-generate. "
                "Decode again, into a new file."
            )
        seen.add((kind, index))
        last[kind] = index


def hypotheses(text: str, references: int, name: str) -> list[str]:
    """Return the best hypothesis of every sentence, in the order of the references.

    The hypotheses are read from the D- lines. If there are no D- lines, they are read from the H- lines.
    """
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
    """Return the decoding settings and the path of the checkpoint from the log of fairseq-generate. `text` contains the log."""
    for line in text.split("\n"):
        start = line.find(_SETTINGS)
        if start < 0 or not line.endswith("}") or len(line) > _LONGEST_SETTINGS:
            continue
        try:
            config = ast.literal_eval(line[start:])
            common = config["common_eval"]
            path = common["path"]
            if config["generation"].get("iter_decode_with_external_reranker"):
                path = path.rpartition(os.pathsep)[0]  # the last path is the reranker, which only rescores
            forced = (config.get("task") or {}).get("segments_forced")
            more = {"segments_forced": forced} if forced else {}  # missing in the log of earlier versions
            overrides = common.get("model_overrides", "{}")
            if overrides != "{}":  # such as a larger table of positions
                more["model_overrides"] = overrides
            return {**config["generation"], "post_process": common["post_process"], **more}, path
        except (ValueError, SyntaxError, LookupError, TypeError, RecursionError, MemoryError):
            continue  # another line with braces, or a setting that is not a literal
    return {}, None


def require_one_model(text: str, checkpoint: str | None, name: str) -> None:
    """Raise PositionError if an output is from an ensemble.

    `checkpoint` is the path in the settings. If it is None, the path is read from the line in which fairseq names the models.
    """
    logged = _MODELS.search(text)
    path = checkpoint or (logged[1] if logged else "")
    number = len(path.split("|" if "://" in path else os.pathsep))  # as fairseq
    if number > 1:
        raise PositionError(
            f"{name}: decoded with an ensemble of {number} models ({shorten(path)}). Expected one model. "
            "Decode with one checkpoint, or average the checkpoints with posenc average."
        )


def require_translations(generated: Generated, references: list[str], name: str) -> None:
    """Raise PositionError if the output contains scores of references, or subwords instead of words."""
    if generated.decoding.get("score_reference"):
        raise PositionError(f"{name}: scores of the references. Expected translations. Decode without --score-reference.")
    # the targets are also searched, because a poor hypothesis may have no such marker
    targets = ((line, references[n]) for n, line in generated.targets.items() if n < len(references))
    lines = [*zip(generated.hypotheses, references), *targets]
    for mark, kind in _SUBWORDS.items():
        number = sum(mark in line and mark not in reference for line, reference in lines)
        few = number <= len(lines) * _FEW and any(mark in reference for reference in references)
        if number and not few:
            raise PositionError(
                f"{name}: subwords ({mark!r} in {number} of {len(lines)} hypotheses and targets). Expected words. "
                f"Decode with --remove-bpe {kind}."
            )


def tokenised_lines(hypotheses: list[str], references: list[str]) -> tuple[int, int]:
    """Count the hypotheses that have a space before their final punctuation mark, although their references do not.

    Only references that end in a punctuation mark without a space before it are counted. The space shows that the hypothesis is
    tokenised, for example by Moses. Return (number of hypotheses, number of references).
    """
    ends = [(line, text.strip()) for line, text in zip(hypotheses, references)]
    attached = [line for line, text in ends if text[-1:] in _MARKS and text[-2:-1].strip()]
    return sum(line.strip()[-2:-1] == " " and line.strip()[-1] in _MARKS for line in attached), len(attached)


def lines_of_other_case(generated: Generated, references: list[str]) -> int:
    """Count the sentences in which only the hypothesis or only the reference has uppercase letters.

    A sentence is not counted if the target in the prepared data has the case of the reference. The model was then trained on text
    of this case.
    """
    number = 0
    for index, (hypothesis, reference) in enumerate(zip(generated.hypotheses, references)):
        if any(map(str.isalpha, hypothesis)):
            own, target = (any(map(str.isupper, text)) for text in (hypothesis, generated.targets.get(index, hypothesis)))
            number += own == target != any(map(str.isupper, reference))
    return number


def require_same_sentences(generated: Generated, references: list[str], name: str, reference_name: str) -> None:
    """Raise PositionError if the references do not belong to the same sentences as the targets of the prepared data.

    Only letters and digits are compared. A reference that differs from its target is wrong in two cases. It is equal to the
    target of another sentence, or the similarity to its own target is below `_SIMILAR`. Targets with unknown words are not
    compared.
    """
    known = {index: _letters(text) for index, text in generated.targets.items() if _UNKNOWN not in text}
    everywhere = set(known.values())
    given = {index: _letters(references[index]) for index in known if index < len(references)}
    wrong = [
        index
        for index, reference in given.items()
        if reference != known[index] and (reference in everywhere or not _similar(reference, known[index]))
    ]
    if wrong:
        first = min(wrong)
        raise PositionError(
            f"{reference_name}: {len(wrong)} of {len(references)} lines differ from the targets in {name}, first line "
            f"{first + 1} ({shorten(references[first], 40)!r}, T-{first} is {shorten(generated.targets[first], 40)!r}). "
            "Expected the reference in the order of the prepared data. For another reference, use --other-reference."
        )


def _letters(text: str) -> str:
    """Return the letters and digits of a text, in a form that does not depend on tokenisation, case and Unicode normalisation."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", html.unescape(text)).casefold()))


def _similar(one: str, other: str) -> bool:
    return difflib.SequenceMatcher(None, one[:_COMPARED], other[:_COMPARED], autojunk=False).ratio() >= _SIMILAR
