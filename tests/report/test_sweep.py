"""Runs that differ in one setting, where the row name contains this setting. Scores other than BLEU and chrF."""

import json

import pytest

from fairseq_posenc.core import PositionError
from fairseq_posenc.evaluation.report.records import identity, label, require_comparable
from fairseq_posenc.evaluation.scoring.record import parse
from tests.report.runs import run


def swept(row, lr, **settings):
    return parse(json.dumps(run("t5", row=row, settings={"lr": [lr], "encoder_layers": 2, "decoder_layers": 2, **settings})), "x")


def test_a_setting_that_names_a_row_may_differ():
    one, other = swept(["lr"], 0.001), swept(["lr"], 0.0005)
    require_comparable([one, other])
    assert (label(one), label(other)) == ("t5 (lr=0.001)", "t5 (lr=0.0005)") and identity(one) != identity(other)
    with pytest.raises(PositionError, match=r"differ in settings\.lr"):
        require_comparable([swept([], 0.001), swept([], 0.0005)])
    with pytest.raises(PositionError, match=r"settings\.dropout"):
        require_comparable([one, swept(["lr"], 0.0005, dropout=0.3)])


def test_numbers_of_layers_may_name_a_row():
    row = ["encoder_layers", "decoder_layers"]
    deep = swept(row, 0.001, encoder_layers=6, decoder_layers=6)
    require_comparable([swept(row, 0.001), deep])
    assert label(deep) == "t5 (encoder_layers=6) (decoder_layers=6)"


def test_other_scores_may_differ_and_must_be_of_one_metric():
    def scored(score, metric="TER nrefs:1"):
        record = run("t5")
        record["parts"]["test"]["others"] = {"ter": {"score": score, "metric": metric, "statistics": ""}}
        return parse(json.dumps(record), "x")

    require_comparable([scored(50.0), scored(60.0), parse(json.dumps(run("none")), "x")])
    with pytest.raises(PositionError, match=r"parts\.test\.ter"):
        require_comparable([scored(50.0), scored(50.0, "TER nrefs:2")])
