"""Optional options of fairseq's configurations.

fairseq recognises `Optional[int]` by its printed form. Python 3.14 prints `int | None`, and argparse rejects that type.
"""

import types
import typing
from typing import Any

from fairseq.dataclass import utils


def without_none(interpret):
    """fairseq's interpret_dc_type, which returns X for `Optional[X]` and for `X | None`."""

    def interpret_option(field_type: Any) -> Any:
        if typing.get_origin(field_type) in (typing.Union, types.UnionType) and type(None) in typing.get_args(field_type):
            return next(kind for kind in typing.get_args(field_type) if kind is not type(None))
        return interpret(field_type)

    return interpret_option


def apply() -> None:
    utils.interpret_dc_type = without_none(utils.interpret_dc_type)
