"""The schema of score.json. All code that reads or writes score.json uses this module."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Set
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError

from ...common.files import read_text, replace_file
from ...common.messages import join, shorten
from ...core import SITES, PositionError
from .sentences import unpack_json

FILE = "score.json"
_LARGEST = 10**15  # maximum of counts and quantities, far above the values of a training run

Text = Annotated[str, StringConstraints(max_length=2000, pattern=r"^[^\p{Cc}]+$")]  # one line, because tables print it
Count = Annotated[int, Field(ge=0, le=_LARGEST)]
Quantity = Annotated[int | float, Field(ge=0, le=_LARGEST)]
Score = Annotated[float, Field(ge=0, le=100)]


def _require_finite(value: Any) -> Any:
    """Return a JSON value. Raise ValueError if it contains a number that is not finite or has more than 64 bits."""
    if isinstance(value, (int, float)) and not (math.isfinite(value) and abs(value) < 2**64):
        raise ValueError("a number is too large or not finite")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _require_finite(inner)
    return value


Settings = Annotated[dict[str, JsonValue], AfterValidator(_require_finite)]


def _require_sites(method: dict[str, str]) -> dict[str, str]:
    if method and set(method) != set(SITES):
        raise ValueError(f"expected a spec for each of {', '.join(SITES)}")
    return method


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class AskedLengths(_Model):
    """The output lengths that were requested in decoding."""

    source: Text  # reference, source, predictor, file, or a number
    ratio: Annotated[float, Field(gt=0, le=1000)]
    unit: Literal["token", "char"]
    end: Literal["free", "min", "exact"]


class OtherScore(_Model):
    """A score other than BLEU and chrF."""

    score: Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]  # score of the test set
    metric: Text  # signature of the metric
    statistics: str  # statistics of every sentence, packed by `others.pack`
    smaller_is_better: bool = False
    hypotheses: Text | None = None  # hash of the hypotheses. None in files of earlier versions


class PartScores(_Model):
    """The scores of one test set, and its decoding settings."""

    sentences: Annotated[Count, Field(ge=1)]
    bleu: Score
    bleu_signature: Text
    chrf: Score
    chrf_signature: Text
    reference: Text | None = None  # hash of the reference text
    source: Text | None = None  # hash of the source text
    decoding: Settings = Field(default_factory=dict)
    statistics: str | None = None  # packed SentenceStatistics
    asked: AskedLengths | None = None
    lengths: str | None = None  # packed Lengths: requested and produced length of every sentence
    others: dict[Text, OtherScore] = Field(default_factory=dict)  # name of the metric -> score


class PeakMemory(_Model):
    """The peak memory of the training run."""

    of: Literal["GPU", "process"]
    gib: Quantity


class Record(_Model):
    """The content of one score.json: a training run, and the scores of its test sets."""

    arch: Text
    # site -> spec. Empty for a model of stock fairseq
    method: Annotated[dict[str, Text], AfterValidator(_require_sites)]
    signature: dict[str, Text] = Field(default_factory=dict)  # site -> spec with the values of all options
    seed: Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)]
    updates: Count
    settings: Settings = Field(default_factory=dict)
    row: list[Text] = Field(default_factory=list)  # names of settings that are added to the name of the row
    data: Text  # hash of the prepared data
    corpus: Text | None = None
    versions: Annotated[dict[Text, Text], Field(min_length=1)]
    commit: Text | None = None  # commit of this project. None: installed without a checkout
    parameters: Count
    tokens_per_second: Quantity | None = None  # None in this and the next four fields: the value is not in the log
    # (number of updates, validation loss). A loss of None is NaN or infinite
    learning_curve: list[tuple[Count, Quantity | None]] | None = None
    training_seconds: Quantity | None = None
    peak_memory: PeakMemory | None = None
    device: Text | None = None
    # whether the training run has ended, so that it is not a run that was killed. None in files of earlier versions
    ended: bool | None = None
    # whether the decoded checkpoint is the best one of the training run (checkpoint_best.pt), according to its validations
    best_checkpoint: bool = False
    parts: Annotated[dict[Text, PartScores], Field(min_length=1)]

    @property
    def stops_early(self) -> bool:
        """Return whether the training run used --patience, so that its number of updates depends on the validation loss."""
        patience = self.settings.get("patience")
        return isinstance(patience, int) and patience > 0

    @property
    def updates_vary(self) -> bool:
        """Return whether the number of updates depends on the validation loss: with --patience, or for checkpoint_best.pt."""
        return self.stops_early or self.best_checkpoint

    @property
    def unfinished(self) -> bool:
        """Return whether the training run did not end, and the number of updates does not show this (see `updates_vary`)."""
        return self.updates_vary and self.ended is False

    @property
    def diverged_at(self) -> int | None:
        """Return the number of updates of the first validation whose loss is NaN or infinite. Return None if all are finite."""
        return next((updates for updates, loss in self.learning_curve or () if loss is None), None)


def parse(text: str, name: str) -> Record:
    """Return the record of a JSON text. If the text is not a record, raise a PositionError that names the wrong fields."""
    try:
        return Record.model_validate_json(text)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
    except ValueError as error:  # the text contains a lone surrogate character
        problems = [{"type": "json_invalid", "msg": str(error), "loc": ()}]
    if problems[0]["type"] == "json_invalid":
        raise PositionError(f"{name}: damaged ({shorten(problems[0]['msg'])}). Remove it and run posenc score again.")
    # pydantic adds names for the types of a union
    steps = ([str(step) for step in problem["loc"] if step not in ("int", "float", "[key]")] for problem in problems)
    places = dict.fromkeys(shorten(".".join(place) or "the whole file") for place in steps)
    raise PositionError(
        f"{name}: wrong fields ({join(list(places))}). Expected the output of posenc score of this version. "
        "Run posenc score again."
    )


def read(path: Path) -> Record:
    """Return the record of a score.json file. Raise PositionError if the file cannot be read or is damaged."""
    return parse(read_text(path), str(path))


def same_content(one: Record, two: Record, without: Set[str] = frozenset()) -> bool:
    """Return whether two records have equal fields, except the fields `without`.

    Packed statistics are compared after unpacking, because versions of zlib compress the same numbers to different texts.
    """
    return one == two or _content(one, without) == _content(two, without)


def _content(record: Record, without: Set[str]) -> dict[str, Any]:
    found = record.model_dump(exclude={*without})
    for scores in found["parts"].values():
        packed = [(scores, "statistics"), (scores, "lengths"), *((other, "statistics") for other in scores["others"].values())]
        for fields, name in packed:
            with contextlib.suppress(Exception):  # unpacking None or damaged statistics can raise errors of many types
                fields[name] = unpack_json(fields[name])
    return found


def write(path: Path, fields: dict[str, Any]) -> Record:
    """Check the fields of a record, write them to a file, and return the record."""
    text = json.dumps(fields, indent=1, ensure_ascii=False)
    record = parse(text, str(path))
    replace_file(path, lambda partial: partial.write_text(text + "\n", encoding="utf-8"))
    return record
