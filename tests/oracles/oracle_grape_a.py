"""ALiBi with slopes that depend on queries or keys (additive GRAPE, Zhang et al. 2026)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, product

from .oracle_alibi import slopes


def softplus(x: float) -> float:
    return np.logaddexp(0, x)


def score(q, k, t, s, at):
    if at.causal and s > t:
        return math.nan
    side = 0 if s <= t else 1
    gate = 0.0
    for which, x in (("key", k), ("query", q)):
        if at["gate"] in (which, "both"):
            vector = at.own(f"of_{which}")[side]
            gate += softplus(vector @ x / math.sqrt(vector @ vector) / math.sqrt(len(x)))
    slope = slopes(at.heads)[at.head] * softplus(at.own("rate"))
    return product(q, k, t, s, at) - abs(t - s) * slope * gate


ORACLES = [
    Oracle(
        "grape_a",
        score=score,
        defaults={"gate": "key"},
        cases=[({}, "encoder decoder"), ({"gate": "query"}, "encoder decoder"), ({"gate": "both"}, "encoder decoder")],
        real=True,
    )
]
