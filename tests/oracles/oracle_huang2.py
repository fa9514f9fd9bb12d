"""Method 2 of Huang et al. (2020): a learned factor for every signed distance."""

from fairseq_posenc.testing.reference import Oracle, product


def score(q, k, t, s, at):
    reach = at.max_positions - 1 if at["max_distance"] is None else at["max_distance"]
    return product(q, k, t, s, at) * at.own("factor")[max(-reach, min(reach, s - t)) + reach]


ORACLES = [
    Oracle(
        "huang2",
        score=score,
        defaults={"max_distance": None, "share": "none"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"max_distance": 2}, "encoder decoder cross"),
            ({"max_distance": 3, "share": "heads"}, "encoder"),
            ({"share": "layers"}, "encoder"),
        ],
    )
]
