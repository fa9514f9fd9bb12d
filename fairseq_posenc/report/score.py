"""posenc score: BLEU and chrF of what fairseq-generate printed, with all that the numbers depend on, in one score.json a run."""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import re
from pathlib import Path
from statistics import median
from typing import Any

from ..contract import PositionError
from ..version import __version__
from . import checkpoint
from .sentences import count
from .training_log import course

FILE = "score.json"

_HYPOTHESIS = re.compile(r"^([DH])-(\d+)\t[^\t]*\t?(.*)$", re.MULTILINE)
_SOURCE = re.compile(r"^S-(\d+)\t(.*)$", re.MULTILINE)
_TOKENS_PER_SECOND = re.compile(r"\bwps\b\W+([\d.]+)")  # of a simple and of a json log
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")


def hypotheses(generated: str, references: int, name: str) -> list[str]:
    """The best hypothesis of every sentence, in the order of the references: D lines, or H lines where there is no D."""
    found: dict[str, dict[int, str]] = {"D": {}, "H": {}}
    for kind, index, text in _HYPOTHESIS.findall(generated):
        found[kind].setdefault(int(index), text)  # the first of several is the best
    best = found["D"] or found["H"]
    if not best:
        raise PositionError(
            f"{name} holds no hypothesis (D- or H- lines); it must be what fairseq-generate printed, without --quiet"
        )
    missing = [index for index in range(references) if index not in best]
    if missing or len(best) > references:
        lost = f", the first missing one is {missing[0]}" if missing else ""
        hint = "; fairseq drops sentences of an incomplete batch: give it --required-batch-size-multiple 1" if missing else ""
        raise PositionError(f"{name} has {len(best)} hypotheses for {references} references{lost}{hint}")
    return [best[index] for index in range(references)]


def sources(generated: str, references: int) -> list[str]:
    """The source of every sentence as fairseq-generate prints it, without subwords; none where it prints no sources."""
    found = {int(index): text for index, text in _SOURCE.findall(generated)}
    return [found[index] for index in range(references)] if len(found) == references else []


def decoding(generated: str) -> dict[str, Any]:
    """The settings that fairseq-generate logged before its output; empty where the output was kept without its log."""
    for line in re.findall(r"(\{'_name': .*\})$", generated, re.MULTILINE):
        config = ast.literal_eval(line)
        return {
            **config["generation"],
            "post_process": config["common_eval"]["post_process"],
            "path": config["common_eval"]["path"],
        }
    return {}


def training_log(log: str, name: str) -> dict[str, Any]:
    """Parameters, and the median of the training tokens (of the target) a second."""
    parameters, speeds = _PARAMETERS.search(log), _TOKENS_PER_SECOND.findall("\n".join(re.findall(r".*\btrain_inner\b.*", log)))
    if not parameters or not speeds:
        raise PositionError(f"{name} shows no parameters and tokens a second; it must be what fairseq-train printed")
    return {"parameters": int(parameters[1].replace(",", "")), "tokens_per_second": round(median(map(float, speeds)))}


def measure(hypothesis: list[str], reference: list[str]) -> dict[str, Any]:
    from sacrebleu.metrics import BLEU, CHRF

    scores: dict[str, Any] = {"sentences": len(reference)}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        scores[name] = round(metric.corpus_score(hypothesis, [reference]).score, 2)
        scores[f"{name}_signature"] = str(metric.get_signature())
    return scores


def versions() -> dict[str, str]:
    """Of everything that makes the numbers."""
    import fairseq
    import sacrebleu
    import torch

    return {"posenc": __version__, **{module.__name__: str(module.__version__) for module in (fairseq, torch, sacrebleu)}}


def update(path: Path, run: dict[str, Any], part: str, scores: dict[str, Any]) -> dict[str, Any]:
    """Adds one test part to the score.json of a run; parts of another training than this one do not stay."""
    record = {**run, "parts": {}}
    if path.is_file():
        old = json.loads(path.read_text(encoding="utf-8"))
        measured = {"parts", "tokens_per_second", *course("")}
        if all(old.get(key) == value for key, value in run.items() if key not in measured):
            record["parts"] = old["parts"]
    record["parts"][part] = scores
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)
    return record


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Score what fairseq-generate printed for the test parts of one trained model, into RUN/score.json."
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="the folder of the model, its --save-dir")
    parser.add_argument(
        "parts", nargs="+", metavar="PART=REFERENCE", help="a test part and its raw reference, one sentence a line"
    )
    parser.add_argument("--generated", default="{part}.out", metavar="NAME", help="its output in RUN (default: %(default)s)")
    parser.add_argument("--log", type=Path, help="what fairseq-train printed, simple or json (default: RUN/train.log)")
    parser.add_argument("--checkpoint", type=Path, help="the decoded one (default: the one that the output names)")


def run(args: argparse.Namespace) -> int:
    log = args.log or args.run_dir / "train.log"
    text = _text(log)
    measured = {**training_log(text, str(log)), **course(text)}
    for part, equals, reference in (item.partition("=") for item in args.parts):
        if not (part and equals):
            raise PositionError(f"{part or equals + reference!r} is no test part; give PART=REFERENCE, e.g. test=test.de")
        output = args.run_dir / args.generated.format(part=part)
        scores, named = score_part(_text(output), _text(Path(reference)), str(output))
        path = args.checkpoint or named
        if path is None:
            raise PositionError(f"{output} does not name the checkpoint that made it; name it with --checkpoint")
        update(args.run_dir / FILE, {**training_record(Path(path)), **measured}, part, scores)
        print(f"{args.run_dir}: {part} BLEU {scores['bleu']:.2f}, chrF {scores['chrf']:.2f}, {scores['sentences']} sentences")
    return 0


def score_part(generated: str, reference: str, name: str) -> tuple[dict[str, Any], str | None]:
    """The scores of one output and how it was decoded, and the checkpoint that it names."""
    references = reference.removesuffix("\n").split("\n")
    settings = decoding(generated)
    path = settings.pop("path", None)
    best = hypotheses(generated, len(references), name)
    source = sources(generated, len(references))
    scores = {
        **measure(best, references),
        "reference": _hash(reference),
        "source": _hash("\n".join(source)) if source else None,
        "decoding": settings,
        "statistics": count(best, references, [len(line.split()) for line in source] or None).pack(),
    }
    return scores, path


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def training_record(path: Path) -> dict[str, Any]:
    """All that a score.json says of the training, except for what is read off its log."""
    training = checkpoint.read(path)
    fields = {name: getattr(training, name) for name in ("arch", "method", "signature", "seed", "updates", "settings")}
    data = {"data": checkpoint.digest(training.data), "corpus": checkpoint.corpus(training.data)}
    return {**fields, **data, "versions": versions()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PositionError(f"{path} cannot be read: {error.strerror}") from None
