"""`posenc score`: compute BLEU and chrF from the output of fairseq-generate, and write them to RUN/score.json.

score.json also contains the settings that are needed to reproduce the scores. RUN is the folder of one trained model. It contains
the checkpoint, the output of fairseq-train (`train.log`), and one file `PART.out` per test set. `PART.out` is the complete output
of fairseq-generate, with the log and the T- lines. The prepared data must be at the path that was used in training.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.files import read_text
from ...common.messages import join, shorten
from ...common.option_types import print_json
from ...core import PositionError

if TYPE_CHECKING:
    from .generated import Generated
    from .record import PartScores, Record

#: fields of a test set that --json prints
_SHOWN = frozenset({"sentences", "bleu", "bleu_signature", "chrf", "chrf_signature"})
#: fields of score.json that may change if the same training run is scored again
_MEASURED = frozenset(
    {"parts", "row", "tokens_per_second", "learning_curve", "training_seconds", "peak_memory", "device", "commit", "ended"}
)

#: tokenizers of sacreBLEU that do not require a download
TOKENS = ("13a", "none", "intl", "char", "zh")

_DESCRIPTION = """\
Compute BLEU and chrF of the outputs of one trained model, and write them to RUN/score.json.

RUN is the folder of the model, usually its --save-dir. The folder must contain three kinds of files.
The file train.log is the complete output of fairseq-train, such as `fairseq-train ... 2>&1 | tee -a RUN/train.log`.
The file PART.out is the complete output of fairseq-generate for the test set PART, such as
`fairseq-generate ... --remove-bpe > RUN/PART.out 2>&1`.
The checkpoint (*.pt) is the checkpoint that fairseq-generate decoded with. PART.out names this checkpoint.
The prepared data must still be in the folder that the training run used.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="folder of the model")
    parser.add_argument(
        "parts", nargs="+", metavar="PART=REFERENCE",
        help="test set, and file with its raw reference, one sentence per line. For several references, repeat "
        "PART=REFERENCE",
    )  # fmt: skip
    parser.add_argument(
        "--generated", default="{part}.out", metavar="NAME", help="output of fairseq-generate in RUN (default: %(default)s)"
    )
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="output of fairseq-train, in simple or json format (default: RUN/train.log)"
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="checkpoint that fairseq-generate decoded with (default: the checkpoint that PART.out names)",
    )
    parser.add_argument(
        "--tokenize", choices=TOKENS, help="tokenizer of sacreBLEU; none for tokenised text (default: the default of sacreBLEU)"
    )
    parser.add_argument(
        "--other-reference", action="store_true", help="accept a reference that differs from the target side of the prepared data"
    )
    parser.add_argument(
        "--ter",
        action="store_true",
        help="TER, in addition to BLEU and chrF. With --tokenize zh or char, TER counts each Chinese character as a word",
    )
    parser.add_argument(
        "--segment-scores", action="append", default=[], metavar="NAME=FILE",
        help="scores of another program, such as COMET, one number per sentence; {part} in FILE is the test set",
    )  # fmt: skip
    parser.add_argument(
        "--segment-errors", action="append", default=[], metavar="NAME=FILE",
        help="same as --segment-scores, for a metric whose smaller values are better, such as MetricX",
    )  # fmt: skip
    parser.add_argument(
        "--row", nargs="+", default=[], metavar="SETTING",
        help="options of fairseq-train, such as lr, that are added to row names in tables. Use --row if rows of one method "
        "differ in these options",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="JSON output: an array with one object per test set")


def run(args: argparse.Namespace) -> int:
    from ...host.checkpoints.checksum import checksum
    from . import others

    references = _parts(args.parts, args.generated)
    log = args.log or args.run_dir / "train.log"
    measured = _measured(log)
    trainings: dict[Path, dict[str, Any]] = {}
    scored: dict[str, PartScores] = {}
    for part, (reference, *more) in references.items():
        output = args.run_dir / args.generated.replace("{part}", part)
        scores, generated = score_part(output, reference, not args.other_reference, args.tokenize, more, args.ter)
        named, hypotheses = generated.checkpoint, _hash("\n".join(generated.hypotheses))
        scores["others"].update(_segment_scores(args, part, scores["sentences"], len(references)))
        for other in scores["others"].values():
            other["hypotheses"] = hypotheses
        path = args.checkpoint or (Path(named) if named else None)
        if path is None:
            raise PositionError(
                f"{output}: no checkpoint named. Expected the complete output of fairseq-generate. Or use --checkpoint FILE."
            )
        if path not in trainings:
            best = re.match(r"checkpoint[._]best", path.name) is not None
            trainings[path] = {**training_fields(path), "best_checkpoint": best}
            trainings[path]["row"] = _row(args.row, trainings[path]["settings"])
        if generated.checksums and checksum(path) not in generated.checksums:
            raise PositionError(
                f"{output}: {path} has changed after this decoding, or is another checkpoint. Expected the checkpoint of this "
                "output. Decode again, or name its checkpoint with --checkpoint."
            )
        fields = dict(trainings[path])
        _require_one_training(trainings, path, part)
        averaged = fields.pop("averaged")
        if averaged:
            scores["decoding"]["averaged_checkpoints"] = averaged
        limit = fields["settings"].get("max_update")  # a recipe does not resume a training run that has reached this limit
        ended = measured["ended"] or (isinstance(limit, int) and 0 < limit <= fields["updates"])
        written = update(args.run_dir, {**fields, **measured, "ended": ended}, part, scores, hypotheses)
        found = scored[part] = written.parts[part]
        if not args.json:
            more_scores = "".join(f", {others.title(name)} {other.score:.4g}" for name, other in found.others.items())
            print(
                f"{args.run_dir}: {part} BLEU {found.bleu:.2f}, chrF {found.chrf:.2f}{more_scores}, {found.sentences} sentences"
            )
    if written.unfinished:
        print(
            f"posenc: {log}: the training run did not end, or its end is not in the log. Expected the complete log of a training "
            "run that has ended. Resume the training run, then decode and score again. posenc report leaves out this run.",
            file=sys.stderr,
        )
    if written.diverged_at is not None:
        losses = [loss for _, loss in written.learning_curve or ()]
        print(
            f"posenc: {log}: the validation loss is NaN or infinite in {losses.count(None)} of {len(losses)} validations, first "
            f"at update {written.diverged_at}. Expected finite losses. Train again, for example with a smaller learning rate.",
            file=sys.stderr,
        )
    if args.json:
        print_json([
            {
                "run": str(args.run_dir), "part": part, **found.model_dump(include=_SHOWN),
                "others": {name: other.score for name, other in found.others.items()},
            }
            for part, found in scored.items()
        ])  # fmt: skip
    return 0


def _require_one_training(trainings: dict[Path, dict[str, Any]], path: Path, part: str) -> None:
    """Raise PositionError if this checkpoint is from another training run, or another update, than the first checkpoint."""
    first = next(iter(trainings))
    differ = [key for key in trainings[path] if key not in _MEASURED and trainings[path][key] != trainings[first][key]]
    if set(differ) - {"averaged"}:
        raise PositionError(
            f"{part}: decoded with {path}, but the first test set was decoded with {first} ({differ[0]} differs). "
            "Expected one training run and one number of updates. Score the test sets in separate folders."
        )


def _parts(given: list[str], generated: str) -> dict[str, list[Path]]:
    """Return test set -> paths of its references, from arguments PART=REFERENCE."""
    found: dict[str, list[Path]] = {}
    for item in given:
        part, equals, reference = item.partition("=")
        if not (part and equals):
            raise PositionError(f"{item!r}: not a test set. Expected PART=REFERENCE, for example test=test.de.")
        if Path(reference) in found.setdefault(part, []):
            raise PositionError(f"test set {part}: the reference {reference} is given twice. Expected each reference once.")
        found[part].append(Path(reference))
    if len(found) > 1 and "{part}" not in generated:
        raise PositionError(
            f"--generated {generated!r}: one file for {len(found)} test sets. "
            "Expected {part} in the name, for the name of the test set."
        )
    return found


def _segment_scores(args: argparse.Namespace, part: str, sentences: int, parts: int) -> dict[str, Any]:
    """Return the scores of other programs for a test set: name of the metric -> fields of `OtherScore`."""
    from . import others

    options = {"--segment-scores": args.segment_scores, "--segment-errors": args.segment_errors}
    found: dict[str, Any] = {}
    for option, item in ((option, item) for option, items in options.items() for item in items):
        name, equals, file = item.partition("=")
        if not (name and equals and file):
            raise PositionError(f"{option} {item!r}: not allowed. Expected NAME=FILE, for example comet=comet.txt.")
        if parts > 1 and "{part}" not in file:
            raise PositionError(
                f"{option} {item}: one file for {parts} test sets. Expected {{part}} in the name, for the name of the test set."
            )
        if name in found:
            raise PositionError(f"{option} {name}: given twice. Expected each name once.")
        found[name] = others.given(name, Path(file.replace("{part}", part)), sentences, option == "--segment-errors")
    return found


def _row(names: list[str], settings: dict[str, Any]) -> list[str]:
    """Return the names of settings given by --row. Raise PositionError for a name that is not a setting of the training run."""
    unknown = [name for name in names if name not in settings]
    if unknown:
        raise PositionError(
            f"--row {unknown[0]}: not a setting of the training. Expected a name in the settings of score.json, such as lr."
        )
    return sorted(set(names))


def _measured(log: Path) -> dict[str, Any]:
    """Return the fields of score.json that are read from the training log."""
    from .training_log import parse_training_log

    fields = parse_training_log(read_text(log, errors="replace"))
    if fields["parameters"] is None:
        raise PositionError(f"{log}: no number of parameters found. Expected the complete output of fairseq-train.")
    return fields


def training_fields(checkpoint: Path) -> dict[str, Any]:
    """Return the fields of score.json from the checkpoint, from its data, and from the installed software.

    The result also contains the number of averaged checkpoints.
    """
    from ...common.versions import commit, versions
    from ...host.checkpoints.read import corpus_name, data_digest, read

    training = read(checkpoint)
    return {
        **{name: getattr(training, name) for name in ("arch", "method", "signature", "seed", "updates", "settings", "averaged")},
        "settings": _as_json(training.settings),
        "data": data_digest(training.data),
        "corpus": corpus_name(training.data[0]),
        "versions": versions(),
        "commit": commit(),
    }


def score_part(
    output: Path,
    reference: Path,
    compare: bool = True,
    tokenize: str | None = None,
    more_references: Sequence[Path] = (),
    ter: bool = False,
) -> tuple[dict[str, Any], Generated]:
    """Return the fields of `PartScores` for one output of fairseq-generate, and the output.

    With `compare`, raise PositionError if the reference and the T- lines of the output do not belong to the same sentences.
    """
    from . import generated as outputs
    from . import lengths, others
    from .sentences import count

    text = read_text(reference)
    references = text.removesuffix("\n").split("\n")
    printed = read_text(output)
    generated = outputs.parse(printed, len(references), str(output))
    outputs.require_one_model(printed, generated.checkpoint, str(output))
    outputs.require_translations(generated, references, str(output))
    if compare:
        outputs.require_same_sentences(generated, references, str(output), str(reference))
    tokenised, sentences = outputs.tokenised_lines(generated.hypotheses, references)
    if tokenize != "none" and 2 * tokenised > sentences:
        print(
            f"posenc: {output}: {tokenised} of {sentences} hypotheses look tokenised, and their references do not. "
            "Expected plain text. Detokenise the hypotheses, or score tokenised text with --tokenize none.",
            file=sys.stderr,
        )
    other_case = outputs.lines_of_other_case(generated, references)
    if 2 * other_case > len(references):
        print(
            f"posenc: {output}: in {other_case} of {len(references)} sentences, only the hypothesis or only the reference has "
            "uppercase letters. Expected text of the same case, because BLEU and chrF are case-sensitive. Use a reference with "
            "the case of the prepared data, or restore the case of the hypotheses.",
            file=sys.stderr,
        )
    more = [_more_references(path, len(references), reference) for path in more_references]
    words = [len(line.split()) for line in generated.sources]
    scores = {
        **measure(generated.hypotheses, references, tokenize, more),
        "reference": _hash("\0".join(["\n".join([*references, ""]), *map("\n".join, more)])),
        "source": _hash("\n".join(generated.sources)) if generated.sources else None,
        "decoding": _as_json(generated.decoding),
        "statistics": count(generated.hypotheses, references, words or None, tokenize, more).pack(),
        **lengths.parse(printed, generated.hypotheses, str(output)),
        "others": {others.TER: others.ter(generated.hypotheses, [references, *more], tokenize)} if ter else {},
    }
    return scores, generated


def _more_references(path: Path, number: int, first: Path) -> list[str]:
    lines = read_text(path).removesuffix("\n").split("\n")
    if len(lines) != number:
        raise PositionError(
            f"{path}: {len(lines):,} lines, but {first} has {number:,}. Expected references of the same sentences."
        )
    return lines


def measure(
    hypotheses: list[str], references: list[str], tokenize: str | None = None, more_references: Sequence[list[str]] = ()
) -> dict[str, Any]:
    """Return sacreBLEU's BLEU and chrF of a test set, with their signatures. `tokenize` is the tokenizer for BLEU."""
    from sacrebleu.metrics import BLEU, CHRF

    scores: dict[str, Any] = {"sentences": len(references)}
    for name, metric in (("bleu", BLEU(tokenize=tokenize, force=tokenize == "none")), ("chrf", CHRF())):
        scores[name] = min(
            metric.corpus_score(hypotheses, [references, *more_references]).score, 100.0
        )  # rounding errors may lead to a score slightly above 100
        scores[f"{name}_signature"] = str(metric.get_signature())
    return scores


def update(run_dir: Path, training: dict[str, Any], part: str, scores: dict[str, Any], hypotheses: str) -> Record:
    """Add one test set to the score.json of a run, and return its content.

    If score.json is from another training run or from other versions of the software, its test sets are removed.

    Other scores of this test set, such as TER, are kept if they belong to the same hypotheses, references and sources.
    `hypotheses` is the hash of the hypotheses.
    """
    from . import record

    path = run_dir / record.FILE
    parts: dict[str, Any] = {}
    if path.is_file():
        earlier = record.read(path).model_dump(mode="json")
        differ = [key for key, value in training.items() if key not in _MEASURED and earlier[key] != value]
        if not _same_curve(earlier["learning_curve"], training.get("learning_curve")):
            differ.append("learning_curve")
        if not differ:
            parts = earlier["parts"]
        elif removed := sorted(earlier["parts"].keys() - {part}):
            whose = "from other versions of the software" if differ == ["versions"] else "from another training run"
            print(
                f"posenc: {path}: {whose} (another {join(differ, 3)}), so the scores of {shorten(', '.join(removed))} are "
                "removed. Score these test sets again.",
                file=sys.stderr,
            )
        scores = {**scores, "others": _with_earlier(earlier["parts"].get(part), part, scores, hypotheses, path)}
    return record.write(path, {**training, "parts": {**parts, part: scores}})


def _same_curve(earlier: list[list[float | None]] | None, found: list[list[float | None]] | None) -> bool:
    """Return whether two learning curves have equal losses at common updates. Two trainings with equal settings differ."""
    known = {updates: loss for updates, loss in earlier or []}
    return all(known.get(updates, loss) == loss for updates, loss in found or [])


def _with_earlier(
    earlier: dict[str, Any] | None, part: str, scores: dict[str, Any], hypotheses: str, path: Path
) -> dict[str, Any]:
    """Return the other scores of a test set, and earlier scores of the same text.

    Print the names of earlier scores of another text, which are removed.
    """
    found: dict[str, Any] = scores["others"]
    if earlier is None:
        return found
    same = all(earlier[key] == scores[key] for key in ("reference", "source"))
    kept = {name: other for name, other in earlier["others"].items() if same and other["hypotheses"] == hypotheses}
    if removed := [name for name in earlier["others"] if name not in kept and name not in found]:
        print(
            f"posenc: {path}: {part} may have other hypotheses or references than before, so its earlier scores of "
            f"{shorten(', '.join(removed))} are removed. To add them again, use --ter or --segment-scores.",
            file=sys.stderr,
        )
    return {**kept, **found}


def _as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """Convert settings to JSON types. Values without a JSON type, such as infinity, become text."""
    return json.loads(json.dumps(settings, default=str), parse_constant=str)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
