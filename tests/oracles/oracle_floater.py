"""FLOATER (Liu et al. 2020): positions on the path of an ordinary differential equation, solved by a Runge-Kutta loop.

p is the position vector. With start=random, the oracle integrates p. With start=sinusoidal, the oracle integrates R(-t) p:
d/dt [R(-t) p] = Delta R(-t) network(t Delta, p). R(t) rotates pair k of channels by the angle t w_k, where w_k is the frequency
of the sinusoid.
"""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle


def network(x, time, at, number):
    w_in, w_out = at.parameters["flow_in"][number], at.parameters["flow_out"][number]
    hidden = np.maximum(np.append(x, time) @ w_in + at.parameters["flow_in_bias"][number][0], 0.0)
    return np.append(hidden, time) @ w_out + at.parameters["flow_out_bias"][number][0]


def turned(p, t, at):
    if at["start"] != "sinusoidal":
        return p
    half, out = len(p) // 2, p.copy()
    for k in range(half):
        angle = t * 10000.0 ** (-2 * k / len(p))
        wave = (p[half + k] + 1j * p[k]) * complex(math.cos(angle), math.sin(angle))  # cosine + i sine
        out[k], out[half + k] = wave.imag, wave.real
    return out


def step(f, t, h, y):
    """Return one step of torchdiffeq's euler, midpoint or 3/8 rule."""
    if f.solver == "euler":
        return y + h * f(t, y)
    if f.solver == "midpoint":
        return y + h * f(t + h / 2, y + h / 2 * f(t, y))
    a = f(t, y)
    b = f(t + h / 3, y + h * a / 3)
    c = f(t + 2 * h / 3, y + h * (b - a / 3))
    d = f(t + h, y + h * (a - b + c))
    return y + h * (a + 3 * b + 3 * c + d) / 8


def path(t, at, stream, layer):
    """Return p at position t for one layer and one stream. The streams are queries (0), keys (1) and values (2)."""
    first = at.parameters["first"].reshape(-1, at.parameters["first"].shape[-1])
    own = 0 if at["at"] == "input" else stream * (len(first) // 3) + layer
    number = own // at.parameters["first"].shape[1]

    def change(time, z):
        return at["delta"] * turned(network(turned(z, time, at), time * at["delta"], at, number), -time, at)

    change.solver = at["solver"]
    z = first[own].copy()
    for n in range(int(t) * at["substeps"]):
        z = step(change, n / at["substeps"], 1 / at["substeps"], z)
    return turned(z, t, at)


def embed(x, ids, at):
    return np.array([x[i] + path(t, at, 0, 0) for i, t in enumerate(ids)])


DEFAULTS = {
    "at": "layers", "share": "all", "start": "sinusoidal", "delta": 0.01, "solver": "rk4", "substeps": 1, "adjoint": False,
}  # fmt: skip
REACH = 12  # with random weights, longer paths would have too large values for a comparison

ORACLES = [
    Oracle(
        "floater",
        query_input=lambda x, t, at: x + path(t, at, 0, at.layer),
        key_input=lambda x, t, at: x + path(t, at, 1, at.layer),
        value_input=lambda x, t, at: x + path(t, at, 2, at.layer),
        defaults=DEFAULTS,
        cases=[
            ({}, "encoder decoder cross"),
            ({"share": "layers"}, "encoder decoder cross"),
            ({"share": "none"}, "encoder"),
            ({"start": "random"}, "encoder decoder"),
            ({"solver": "midpoint"}, "encoder"),
            ({"solver": "euler", "substeps": 3}, "decoder"),
            ({"delta": 0.002, "substeps": 2}, "encoder"),
            ({"adjoint": True}, "encoder"),
        ],
        reach=REACH,
        atol=1e-7,  # the solver computes the time in float32
    ),
    Oracle(
        "floater",
        embed=embed,
        defaults=DEFAULTS,
        cases=[({"at": "input"}, "encoder decoder"), ({"at": "input", "start": "random"}, "encoder")],
        reach=REACH,
        atol=1e-7,
    ),
]
