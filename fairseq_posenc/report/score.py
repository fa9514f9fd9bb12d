"""posenc score: BLEU and chrF of what fairseq-generate printed, with all that the numbers depend on, in one score.json a run."""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
from pathlib import Path
from statistics import median
from typing import Any

from ..contract import PositionError
from ..version import __version__
from . import checkpoint

FILE = "score.json"

_HYPOTHESIS = re.compile(r"^([DH])-(\d+)\t[^\t]*\t?(.*)$", re.MULTILINE)
_TOKENS_PER_SECOND = re.compile(r"\bwps\b\W+([\d.]+)")  # of a simple and of a json log
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")


def hypotheses(generated: str, references: int, name: str) -> list[str]:
    """The best hypothesis of every sentence, in the order of the references: D lines, or H lines where there is no D."""
    found: dict[str, dict[int, str]] = {"D": {}, "H": {}}
    for kind, index, text in _HYPOTHESIS.findall(generated):
        found[kind].setdefault(int(index), text)  # the first of several is the best
    best = found["D"] or found["H"]
    if not best:
        raise PositionError(f"{name} holds no hypothesis (D- or H- lines); it must be what fairseq-generate printed, without --quiet")
    missing = [index for index in range(references) if index not in best]
    if missing or len(best) > references:
        lost = f", the first missing one is {missing[0]}" if missing else ""
        hint = "; fairseq drops sentences of an incomplete batch: give it --required-batch-size-multiple 1" if missing else ""
        raise PositionError(f"{name} has {len(best)} hypotheses for {references} references{lost}{hint}")
    return [best[index] for index in range(references)]


def decoding(generated: str) -> dict[str, Any]:
    """The settings that fairseq-generate logged before its output; empty where the output was kept without its log."""
    for line in re.findall(r"(\{'_name': .*\})$", generated, re.MULTILINE):
        config = ast.literal_eval(line)
        return {**config["generation"], "post_process": config["common_eval"]["post_process"], "path": config["common_eval"]["path"]}
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

    found = {module.__name__: str(module.__version__) for module in (fairseq, torch, sacrebleu)}
    return {"posenc": __version__, **found}


def update(path: Path, run: dict[str, Any], part: str, scores: dict[str, Any]) -> dict[str, Any]:
    """Adds one test part to the score.json of a run; parts of another training than this one do not stay."""
    record = {**run, "parts": {}}
    if path.is_file():
        old = json.loads(path.read_text(encoding="utf-8"))
        measured = ("parts", "tokens_per_second")
        if all(old.get(key) == value for key, value in run.items() if key not in measured):
            record["parts"] = old["parts"]
    record["parts"][part] = scores
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps(record, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(path)
    return record


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Score what fairseq-generate printed for one test part, into RUN/score.json."
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="the folder of one trained model, its --save-dir")
    parser.add_argument("--part", required=True, help="the name of the test part in the table, e.g. test")
    parser.add_argument("--reference", required=True, type=Path, help="its raw reference, one sentence a line")
    parser.add_argument("--generated", type=Path, help="what fairseq-generate printed (default: RUN/PART.out)")
    parser.add_argument("--log", type=Path, help="what fairseq-train printed, simple or json (default: RUN/train.log)")
    parser.add_argument("--checkpoint", type=Path, help="the decoded one (default: the one that the output names)")


def run(args: argparse.Namespace) -> int:
    generated_file = args.generated or args.run_dir / f"{args.part}.out"
    log_file = args.log or args.run_dir / "train.log"
    generated, log, reference = map(_text, (generated_file, log_file, args.reference))
    references = reference.removesuffix("\n").split("\n")
    scores = measure(hypotheses(generated, len(references), str(generated_file)), references)
    settings = decoding(generated)
    path = args.checkpoint or settings.pop("path", None)
    if path is None:
        raise PositionError(f"{generated_file} does not name the checkpoint that made it; name it with --checkpoint")
    training = checkpoint.read(Path(path))
    record = {
        "arch": training.arch,
        "method": training.method,
        "signature": training.signature,
        "seed": training.seed,
        "updates": training.updates,
        "data": checkpoint.digest(training.data),
        **training_log(log, str(log_file)),
        "versions": versions(),
        "settings": training.settings,
    }
    scores |= {"reference": hashlib.sha256(reference.encode()).hexdigest()[:16], "decoding": settings}
    update(args.run_dir / FILE, record, args.part, scores)
    print(f"{args.run_dir}: {args.part} BLEU {scores['bleu']:.2f}, chrF {scores['chrf']:.2f}, {scores['sentences']} sentences")
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PositionError(f"{path} is missing") from None
