"""RNN-Transformer (Neishi and Yoshinaga 2019): a GRU reads the embeddings, and its states replace the embeddings."""

import numpy as np

from fairseq_posenc.testing.reference import Oracle, linear


def gru(x: np.ndarray, parameters: dict, suffix: str) -> list:
    """Return the states after each token. Weights are stacked as reset, update, new."""
    width = x.shape[1]
    state, states = np.zeros(width), []
    for token in x:
        i = linear(token, parameters[f"gru.weight_ih_l0{suffix}"], parameters[f"gru.bias_ih_l0{suffix}"])
        h = linear(state, parameters[f"gru.weight_hh_l0{suffix}"], parameters[f"gru.bias_hh_l0{suffix}"])
        i_reset, i_update, i_new = i[:width], i[width : 2 * width], i[2 * width :]
        h_reset, h_update, h_new = h[:width], h[width : 2 * width], h[2 * width :]
        reset, update = 1 / (1 + np.exp(-i_reset - h_reset)), 1 / (1 + np.exp(-i_update - h_update))
        new = np.tanh(i_new + reset * h_new)
        state = (1 - update) * new + update * state
        states.append(state)
    return states


def embed(x, ids, at):
    forward = gru(x, at.parameters, "")
    if not at["bidirectional"]:
        return np.array(forward)
    backward = gru(x[::-1], at.parameters, "_reverse")[::-1]
    merge = at.parameters["merge.weight"], at.parameters["merge.bias"]
    return np.array([linear(np.concatenate(both), *merge) for both in zip(forward, backward)])


ORACLES = [
    Oracle(
        "rnn",
        embed=embed,
        defaults={"bidirectional": False},
        cases=[({}, "encoder decoder"), ({"bidirectional": True}, "encoder")],
    )
]
