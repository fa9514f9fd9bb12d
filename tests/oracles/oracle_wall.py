"""Wall attention: every channel of a head decays by its own forget gates."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, split


def row(q, k, column, seen, at):
    weight, offset = at.parameters["weight"][at.layer], at.parameters["offset"][at.layer]

    def gates(j):
        return split(-np.logaddexp(0, -(at.inputs[1][j] @ weight + offset)), at.head, at.heads)

    def score(s):
        kept = np.exp(sum((gates(j) for j in seen if s < j <= column), 0 * k[s]))
        return (q[column] * k[s] * kept).sum() / math.sqrt(len(k[s]))

    return [score(s) for s in seen]


ORACLES = [Oracle("wall", row=row, cases=[({}, "decoder")])]
