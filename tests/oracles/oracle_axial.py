"""Axial positions (Kitaev et al. 2020): a position is a row and a column of a grid."""

import numpy as np

from fairseq_posenc.testing.reference import Oracle


def embed(x, ids, at):
    vectors = []
    for t in ids:
        segment = t // at["columns"]
        row, column = at.parameters["of_row"][segment], at.parameters["of_column"][t - segment * at["columns"]]
        vectors.append(row + column if at["combine"] == "sum" else np.array([*row, *column]))
    return x + np.array(vectors)


ORACLES = [
    Oracle(
        "axial",
        embed=embed,
        defaults={"rows": 32, "columns": 32, "combine": "concatenation", "row_width": None},
        cases=[
            ({}, "encoder decoder"),
            ({"rows": 3, "columns": 4}, "encoder decoder"),
            ({"rows": 4, "columns": 3, "combine": "sum"}, "encoder decoder"),
            ({"rows": 6, "columns": 2, "row_width": 5}, "encoder"),
        ],
        reach=12,
    )
]
