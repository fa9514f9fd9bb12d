"""Figures of another work, which stand beside ours in the tables and enter no computation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...common.files import read_text
from ...common.messages import shorten
from ...core import PositionError
from ..scoring.record import Text

_FORM = 'it needs "source", "metric" (bleu or chrf), "part", and "figures", numbers by the spec of a method'


class Published(BaseModel):
    """One column of figures, by the name of a row."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    source: Text
    metric: Literal["bleu", "chrf"]
    part: Text
    same_task: bool = False  # data, model and training are meant to be ours
    figures: dict[Text, Annotated[int | float, Field(ge=0, le=100)]]


def read_published(path: Path) -> Published:
    """The figures of a JSON file; raises PositionError where it holds none."""
    try:
        return Published.model_validate_json(read_text(path))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
    if problem["type"] == "json_invalid":
        raise PositionError(f"{path} is not JSON ({shorten(problem['msg'])}); {_FORM}")
    raise PositionError(f"{path} holds no published figures; {_FORM}")
