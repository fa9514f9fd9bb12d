"""Learned positions with a separate table for every language (Artetxe et al. 2020).

All sentences of these tests are in language `a`.
"""

import numpy as np

from fairseq_posenc.testing.reference import Oracle


def embed(x, ids, at):
    language = 0 if at["tokens"] is None else at["tokens"].split("/").index("a")
    return np.array([x[i] + at.parameters["weight"][language][at.padding_idx + 1 + t] for i, t in enumerate(ids)])


ORACLES = [
    Oracle(
        "language",
        embed=embed,
        defaults={"tokens": None},
        cases=[({}, "encoder decoder"), ({"tokens": "b/a"}, "encoder decoder")],
        reach=12,
    )
]
