"""`posenc verify`: compare a committed run, which is an original run in results/, with a repetition of this run."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...common.cells import aligned_table
from ...common.files import read_text
from ...common.messages import join, shorten
from ...core import PositionError
from ...registry.architectures import PREFIX, SIZES
from ..scoring.record import Record
from ..scoring.sentences import METRICS

RECIPE = "recipe"  # name of a file in a folder of results. This file contains the command that trained the runs
_LEVEL = 0.05  # maximum probability that at least one number is outside its range, if only the seed differs


@dataclass(frozen=True)
class Number:
    """The values of one number, such as a score, in the committed run and in the repetition."""

    name: str
    committed: float
    repeated: float
    low: float | None = None  # lower limit of the range that is expected for another seed. None: the seed variance is unknown
    high: float | None = None

    @property
    def outside(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= self.repeated <= self.high


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare a repetition of a training run with the committed run, which is the original run in results/. Print the "
        "scores, the validation loss and the number of parameters of both runs. Exit with status 1 if a difference is larger "
        "than the expected difference between two seeds of one method. Exit with status 1 also if the settings of the runs "
        "differ. recipes/reproduce trains the repetition and then calls this command."
    )
    parser.add_argument("committed", type=Path, metavar="COMMITTED", help="folder of the committed run: RESULTS/METHOD/seedN")
    parser.add_argument("repetition", type=Path, nargs="?", metavar="RUN", help="folder of the repetition, with a score.json")
    parser.add_argument(
        "--seed-variance",
        type=Path,
        metavar="FILE|FOLDER",
        help="other runs with several seeds (folder), or their scores (JSON file). The seed variance is computed from these runs "
        "and from the runs in RESULTS",
    )
    parser.add_argument(
        "--arguments", action="store_true", help="print only the recipe that repeats the run, and its arguments, one per line"
    )


def run(args: argparse.Namespace) -> int:
    from ..scoring import archive  # imported here, because archive imports numpy

    folder = results_folder(args.committed)
    records = {path.parent: record for path, record in archive.find(folder).items()}
    if args.committed not in records:
        raise PositionError(f"{args.committed}: no such run. Expected one of {join(list(map(str, records)), 4)}.")
    committed = records[args.committed]
    if args.arguments or args.repetition is None:
        arguments = recipe_arguments(folder, args.committed, committed)
        print("\n".join(arguments) if args.arguments else shlex.join(arguments))
        return 0
    return _verify(args, list(records.values()), committed)


def results_folder(run: Path) -> Path:
    """Return the folder of results that contains a run: the nearest parent folder with a file `recipe`.

    Raises:
        PositionError: There is no such folder.
    """
    for folder in run.parents:
        if (folder / RECIPE).is_file():
            return folder
    raise PositionError(
        f"{run}: no parent folder contains a file with the name '{RECIPE}'. Expected a committed run, "
        "such as results/multi30k_en-de/tiny/t5/seed1."
    )


def recipe_arguments(folder: Path, run: Path, record: Record) -> list[str]:
    """Return the command that repeats the training of a run, as a list of arguments.

    The variables METHODS and SEEDS of the recipe select only this run.
    """
    return [*shlex.split(read_text(folder / RECIPE)), f"METHODS={_recipe_row(run, record)}", f"SEEDS={record.seed}"]


def _recipe_row(run: Path, record: Record) -> str:
    """Return the row of a recipe that trains a run.

    The row is an architecture if the name of the run's parent folder begins with posenc_. If the run has random structure, the
    row ends with @random.
    """
    folder = run.parent.name  # recipes name the parent folder of a run after the row of the run
    control = "" if record.settings.get("random_structure") is None else "@random"
    if folder.startswith(PREFIX):
        return _architecture_row(folder.removesuffix(control.replace("@", "_")), record) + control
    specs = record.method
    both = specs["encoder"] == specs["decoder"] and specs["cross"] == "none"
    return (specs["encoder"] if both else ";".join(f"{site}={spec}" for site, spec in specs.items() if spec != "none")) + control


def _architecture_row(folder: str, record: Record) -> str:
    """Return the architecture of a run without its size. If the folder has another name, options of the method follow."""
    size = next((size for size in SIZES if size and record.arch.endswith(size)), "")
    name = record.arch.removesuffix(size)
    pieces = [f"{PREFIX}{piece}" for spec in record.method.values() for piece in spec.split("+")]
    return name if folder == name else next((piece for piece in pieces if piece.startswith(f"{name}:")), name)


def _verify(args: argparse.Namespace, records: list[Record], committed: Record) -> int:
    from .records import SeedVariance, conditions, differing, read_seed_variance, require_comparable

    found = _repetition(args.repetition, committed)
    variance = read_seed_variance(args.seed_variance) if args.seed_variance else SeedVariance()
    require_comparable(records)
    both = (committed, _with_scores_of(found, committed))
    own, other = ({name: value for group in conditions(r).values() for name, value in group.items()} for r in both)
    own["parameters"], other["parameters"] = committed.parameters, found.parameters
    # runs of earlier versions have no hashes of their side files
    unknown = {name for name in own.keys() ^ other.keys() if name.startswith("side_files.")}
    unequal = [name for name in differing(own, other) if name not in unknown]
    versions = [name for name in unequal if name.startswith("versions.")]
    settings = [name for name in unequal if name not in versions]
    numbers = compare(records, committed, found, variance)
    columns = ["", "committed", "repeated", "difference", "range of another seed"]
    rows = [
        [n.name, f"{n.committed:.3f}", f"{n.repeated:.3f}", f"{n.repeated - n.committed:+.3f}",
         "not known" if n.low is None else f"{n.low:.3f} to {n.high:.3f}"]
        for n in numbers
    ]  # fmt: skip
    print(aligned_table(columns, rows, "simple"))
    print(f"\nParameters: {committed.parameters:,} and {found.parameters:,}.")
    print(largest_difference(committed, found))
    for name in versions:
        print(f"{name.removeprefix('versions.')}: {own.get(name)} and {other.get(name)}.")
    if settings:
        different = [f"{name} ({shorten(str(own.get(name)), 40)} and {shorten(str(other.get(name)), 40)})" for name in settings]
        print(f"Not a repetition: {join(different, 6)} differ.")
        return 1
    outside = [number.name for number in numbers if number.outside]
    if (committed.diverged_at is None) != (found.diverged_at is None):
        print("Only one of the two runs has a validation loss that is NaN or infinite.")
        return 1
    if all(number.committed == number.repeated for number in numbers):
        print("The repetition has exactly the committed numbers.")
    elif outside:
        print(f"Further away than another seed would be: {', '.join(outside)}.")
    elif any(number.low is None for number in numbers):
        print("The seed variance is not known, so the difference cannot be judged.")
    else:
        print("The difference is within seed variance (95 %).")
    return 1 if outside else 0


def _repetition(folder: Path, committed: Record) -> Record:
    """Return the run below the folder with the method and seed of the committed run.

    Raise PositionError if there is no such run, if there are several, or if the training run did not end.
    """
    from .records import identity, label, load

    records = load([folder])
    same = [record for record in records if identity(record) == identity(committed) and record.seed == committed.seed]
    if len(same) != 1:
        names = [f"{label(record)} with seed {record.seed}" for record in records]
        raise PositionError(
            f"{folder}: found {join(names, 4)}. Expected one run of {label(committed)} with seed {committed.seed}. "
            "Name its folder."
        )
    if same[0].unfinished:
        raise PositionError(
            f"{folder}: the training run did not end. Expected a training run that has ended. Resume the training run, then "
            "decode and score again."
        )
    return same[0]


def _with_scores_of(found: Record, committed: Record) -> Record:
    """Return the repetition without the test sets and metrics with which the committed run was not scored."""
    parts = {part: scores for part, scores in found.parts.items() if part in committed.parts}
    for part, scores in parts.items():
        others = {name: other for name, other in scores.others.items() if name in committed.parts[part].others}
        parts[part] = scores.model_copy(update={"others": others})
    return found.model_copy(update={"parts": parts})


def compare(records: list[Record], committed: Record, found: Record, variance) -> list[Number]:
    """Return BLEU, chrF and the last validation loss of both runs, each with the range that is expected for another seed.

    Equation: range = committed +- t_nu(1 - 0.05 / (2 K)) s sqrt(2). s is the standard deviation over seeds, pooled over the rows
        of the table. For scores, the rows of --seed-variance are also pooled. nu is the number of degrees of freedom of s. K is
        the number of compared values. If the mean scores of the rows differ by more than 20 points, the range of a score is
        computed on the logit scale.
    """
    from .comparison import Row, make_report
    from .options import Options

    report = make_report(records, Options(sentences=False), None, variance)
    scores = [(part, metric) for part in committed.parts if part in found.parts for metric in METRICS]
    losses = [loss.mean for record in (committed, found) if (loss := Row("", [record]).final_loss)]
    count = len(scores) + (len(losses) == 2)
    numbers = []
    for part, metric in scores:
        one, two = (getattr(record.parts[part], metric) for record in (committed, found))
        limits = _score_range(one, report.columns[part, metric].spread, count)
        numbers.append(Number(f"{part} {METRICS[metric]}", one, two, *limits))
    if len(losses) == 2:
        groups = [list(row.final_loss.by_seed.values()) for row in report.rows if row.final_loss]
        numbers.append(Number("last validation loss", *losses, *_loss_range(losses[0], groups, count)))
    return numbers


def _score_range(value: float, spread, count: int) -> tuple[float | None, float | None]:
    import numpy as np
    from scipy import special

    from . import statistics

    if spread is None:
        return None, None
    margin = _margin(spread.deviation, spread.degrees, count)
    if spread.scale != statistics.LOGIT:
        return max(0.0, value - margin), min(100.0, value + margin)
    middle = statistics.logit(np.array(value))
    low, high = (float(100 * special.expit(middle + sign * margin)) for sign in (-1, 1))
    return min(low, value), max(high, value)  # `logit` limits scores near 0 and 100


def _loss_range(value: float, groups: Sequence[Sequence[float]], count: int) -> tuple[float | None, float | None]:
    import numpy as np

    several = [np.array(group) for group in groups if len(group) > 1]
    degrees = sum(len(group) - 1 for group in several)
    if degrees < 2:
        return None, None
    margin = _margin((sum(((group - group.mean()) ** 2).sum() for group in several) / degrees) ** 0.5, degrees, count)
    return max(0.0, value - margin), value + margin


def _margin(deviation: float, degrees: int, count: int) -> float:
    """Return half of the width of a range.

    The ranges of `count` numbers have Bonferroni's correction. If only the seed differs, all numbers of a repetition are within
    their ranges with a probability of at least 95 %.
    """
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 1 - _LEVEL / (2 * count))) * deviation * 2**0.5


def largest_difference(committed: Record, found: Record) -> str:
    """Return one sentence that describes where the learning curves differ most."""
    one, two = (dict(record.learning_curve or ()) for record in (committed, found))
    both = sorted(one.keys() & two.keys())
    if not both:
        return "Learning curves: no validation at the same number of updates."
    if all(one[update] == two[update] for update in both):
        return f"Learning curves: {len(both)} validations, all losses equal."
    unequal = [update for update in both if (one[update] is None) != (two[update] is None)]
    if unequal:
        return f"Learning curves: after {unequal[0]:,} updates, only one of the two losses is finite."
    at = max((update for update in both if one[update] is not None), key=lambda update: abs(one[update] - two[update]))
    return (
        f"Learning curves, {len(both)} validations: the losses differ most after {at:,} updates, {one[at]:.3f} and {two[at]:.3f}."
    )
