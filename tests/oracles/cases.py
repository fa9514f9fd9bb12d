"""Common parts of the tests in this folder: all oracles and their cases."""

import importlib
from pathlib import Path

import pytest

from fairseq_posenc.testing.oracle import (
    HEADS,
    MAX_POSITIONS,
    WIDTH,
    assert_close,
    attention_of,
    padding_mask,
    place_of,
    projections_of,
    randomise,
    reads_sentences,
    sentences_of,
    side_inputs_of,
    spec_of,
    with_side,
)  # fmt: skip

__all__ = [
    "HEADS", "MAX_POSITIONS", "ORACLES", "WIDTH", "assert_close", "attention_of", "cases", "padding_mask", "place_of",
    "projections_of", "randomise", "reads_sentences", "sentences_of", "side_inputs_of", "spec_of", "with_side",
]  # fmt: skip

_MODULES = [importlib.import_module(f".{file.stem}", __package__) for file in sorted(Path(__file__).parent.glob("oracle_*.py"))]
ORACLES = [oracle for module in _MODULES for oracle in module.ORACLES]


def cases(wanted) -> list:
    """Return (oracle, options, site) of every selected oracle.

    A case is marked as a variant if its options are not the defaults, or if its site is not the first site for these options.
    The quick tier of the tests skips variants.
    """
    return [
        pytest.param(
            oracle,
            options,
            site,
            id=f"{spec_of(oracle.name, options)}-{site}",
            marks=[pytest.mark.variant] * (bool(options) or number > 0),
        )
        for oracle in ORACLES
        if wanted(oracle)
        for options, sites in oracle.cases
        for number, site in enumerate(sites.split())
    ]
