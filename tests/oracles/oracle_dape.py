"""DAPE (Zheng et al. 2024a, 2024b): for each pair of words, a network mixes the scores and the biases of all heads."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, product, projected, split  # noqa: F401

from .oracle_alibi import slopes


def softplus(x: float) -> float:
    return np.logaddexp(0, x)


def base_bias(head: int, t, s, at) -> float:
    """Return the bias of the base method for one head."""
    distance = abs(s - t)
    if at["base"] == "alibi":
        return -slopes(at.heads)[head] * distance
    if at["base"] == "kerple_log":
        side = 1 if not at.causal and s > t else 0  # in a decoder, keys are only on the left
        power, rate = (0.01 + softplus(at.parameters[f"base.{name}"][at.layer, head, side]) for name in ("power", "rate"))
        return -power * math.log(1 + rate * distance)
    # fire: a network reads psi(distance) / psi(max(position of the query, threshold)). Each layer has its own network and its
    # own function psi.
    own = {name: at.parameters[f"base.{name}"][at.layer] for name in (
        "slope", "multiplier", "mlp.0.weight", "mlp.0.bias", "mlp.2.weight", "mlp.2.bias",
    )}  # fmt: skip

    def psi(x):
        return math.log(abs(own["slope"] * x) + 1)

    ratio = psi(distance) / (psi(max(t, abs(own["multiplier"] * 512.0))) + 1e-6)
    hidden = np.maximum(own["mlp.0.weight"] @ np.array([ratio]) + own["mlp.0.bias"], 0)
    return (own["mlp.2.weight"] @ hidden + own["mlp.2.bias"])[head]


def row(q, k, column, seen, at):
    """Return a row of scores.

    For each key, the network reads the scores and the biases of all heads. With base=none, there are no biases.
    With kernel > 1, the network also reads the scores and biases of neighbouring keys, if the query attends to these keys.
    """
    t, ids, heads = at.query_ids[column], at.key_ids, range(at.heads)
    everyone = {}
    for which, x, columns in (("q", at.inputs[0], [column]), ("k", at.inputs[1], seen)):
        weight, bias = at.projections[which]
        everyone[which] = {c: [split(weight @ x[c] + bias, head, at.heads) for head in heads] for c in columns}
    score = {s: [product(everyone["q"][column][h], everyone["k"][s][h], t, ids[s], at) for h in heads] for s in seen}
    added = {s: [base_bias(h, t, ids[s], at) if at["base"] != "none" else 0.0 for h in heads] for s in seen}
    read = {s: np.array(score[s] + (added[s] if at["base"] != "none" else [])) for s in seen}

    def convolved(name, given, s):
        """Return the convolution of the vectors in `given` at key s.

        The convolution reads the keys from s - kernel//2 to s + kernel//2. Keys to which the query cannot attend count as zero.
        """
        weight, total = at.parameters[f"{name}_weight"][at.layer], at.parameters[f"{name}_bias"][at.layer].copy()
        for tap in range(at["kernel"]):
            neighbour = s + tap - at["kernel"] // 2
            if neighbour in given:
                total = total + weight[:, :, tap] @ given[neighbour]
        return total

    hidden = {s: convolved("first", read, s) for s in seen}
    hidden = {s: np.where(x > 0, x, 0.01 * x) for s, x in hidden.items()}
    return [score[s][at.head] + added[s][at.head] + convolved("second", hidden, s)[at.head] for s in seen]


ORACLES = [
    Oracle(
        "dape",
        row=row,
        defaults={"base": "kerple_log", "kernel": 1, "hidden": 32, "start": "random"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"base": "alibi", "hidden": 3}, "encoder decoder cross"),
            ({"base": "none", "hidden": 5}, "encoder decoder cross"),
            ({"base": "fire", "hidden": 5}, "encoder decoder"),
            ({"kernel": 3, "hidden": 5}, "encoder decoder cross"),
            ({"base": "alibi", "kernel": 5, "hidden": 4}, "encoder decoder"),
            ({"base": "none", "kernel": 3, "hidden": 4, "start": "zero"}, "encoder decoder cross"),
        ],
    )
]
