"""RR-Transformer (Neishi and Yoshinaga 2019): the states of a GRU replace the embeddings. Self-attention has Shaw's vectors."""

import dataclasses

from fairseq_posenc.testing.reference import Oracle

from . import oracle_rnn, oracle_shaw


def part(name: str, at):
    """Return `at` with the parameters and options of one of the two methods, `rnn` or `shaw`."""
    own = {key.removeprefix(f"{name}."): x for key, x in at.parameters.items() if key.startswith(f"{name}.")}
    options = {**at.options, "keys": True, "values": True, "tie": False}  # keys and values have separate vectors
    return dataclasses.replace(at, parameters=own, options=options)


def embed(x, ids, at):
    return oracle_rnn.embed(x, ids, part("rnn", at))


def score(q, k, t, s, at):
    return oracle_shaw.score(q, k, t, s, part("shaw", at))


def value(v, t, s, at):
    return oracle_shaw.value(v, t, s, part("shaw", at))


ORACLES = [
    Oracle(
        "rr",
        score=score,
        value=value,
        embed=embed,
        defaults={"bidirectional": False, "max_distance": 16, "share": "heads"},
        cases=[
            ({}, "encoder decoder"),
            ({"bidirectional": True}, "encoder"),
            ({"max_distance": 2}, "encoder decoder"),
            ({"max_distance": 2, "share": "none"}, "encoder decoder"),
            ({"bidirectional": True, "max_distance": 3, "share": "layers"}, "encoder"),
        ],
    )
]
