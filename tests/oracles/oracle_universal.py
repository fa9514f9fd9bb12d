"""Universal Transformer (Dehghani et al. 2019): position and number of the layer, added before every layer."""

import numpy as np

from fairseq_posenc.testing.reference import Oracle

from .oracle_sinusoidal import sinusoid


def before_layer(x, ids, at):
    if at["steps"] == "learned":
        step = at.parameters["steps"][at.layer]
    else:
        step = sinusoid(at.layer + at["first_step"], x.shape[1], at["layout"], at["grid"])
    first = at["first_position"]
    return np.array([x[i] + sinusoid(t + first, x.shape[1], at["layout"], at["grid"]) + step for i, t in enumerate(ids)])


ORACLES = [
    Oracle(
        "universal",
        before_layer=before_layer,
        defaults={"steps": "sinusoidal", "first_step": 1, "first_position": 0, "layout": "interleaved", "grid": "paper"},
        cases=[
            ({}, "encoder decoder"),
            ({"steps": "learned"}, "encoder decoder"),
            ({"first_step": 0}, "encoder"),
            ({"first_position": 1}, "encoder decoder"),
            ({"layout": "halves", "grid": "fairseq"}, "encoder"),
        ],
        atol=1e-6,
    )
]
