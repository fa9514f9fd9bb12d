"""Directional masks and multi-dimensional attention (Shen et al. 2018)."""

import numpy as np

from fairseq_posenc.testing.reference import Oracle


def allowed(t, s, at):
    if at["diagonal"] and s == t:
        return True
    forward = at["directions"] == "forward" or (at["directions"] == "both" and at.head < at.heads / 2)
    return s < t if at.site == "decoder" or forward else s > t


def head(values, t, seen, at):
    """Compute the output of a head. The head has no queries and keys. Every channel has its own scores.

    A gate mixes the weighted sum of the visible tokens with the vector of the token itself.
    """
    hidden = [np.where(v > 0, v, np.exp(v) - 1) for v in values]
    c, here = at["temperature"], hidden[t]
    summed = np.zeros(len(here))
    if seen:
        of_query, bias = here @ at.own("of_query"), at.own("score_bias")
        powers = [np.exp(c * np.tanh((hidden[s] @ at.own("of_key") + of_query + bias) / c)) for s in seen]
        for s, power in zip(seen, powers):
            summed += power / sum(powers) * hidden[s]
    gate = here @ at.own("gate_of_input") + summed @ at.own("gate_of_sum") + at.own("gate_bias")
    gate = 1 / (1 + np.exp(-gate))
    return gate * here + (1 - gate) * summed


DEFAULTS = {"directions": "both", "diagonal": False, "multi_dimensional": False, "temperature": 5.0}
ORACLES = [
    Oracle(
        "disan",
        allowed=allowed,
        defaults=DEFAULTS,
        cases=[
            ({}, "encoder decoder"),
            ({"diagonal": True}, "encoder"),
            ({"directions": "forward"}, "encoder decoder"),
            ({"directions": "backward"}, "encoder"),
            ({"directions": "backward", "diagonal": True}, "encoder"),
        ],
    ),
    Oracle(
        "disan",
        allowed=allowed,
        head=head,
        defaults=DEFAULTS,
        cases=[
            ({"multi_dimensional": True}, "encoder decoder"),
            ({"multi_dimensional": True, "diagonal": True, "temperature": 0.7}, "encoder decoder"),
            ({"multi_dimensional": True, "directions": "forward"}, "encoder"),
        ],
    ),
]
