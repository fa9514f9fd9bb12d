"""Projected relative bias (as in the model Inkling): products of the projected query with learned functions of the distance."""

from fairseq_posenc.testing.reference import Oracle, product


def row(q, k, column, seen, at):
    read = at.own("weight").T @ at.inputs[0][column]  # [vectors]
    if at["bias"]:
        read = read + at.own("offset")
    found = []
    for s in seen:
        delta, reach = at.key_ids[s] - at.query_ids[column], at["reach"]
        # column 0 of `bank` is for the largest distance to the left. In a decoder, the last column of `bank` is for distance 0
        added = read @ at.own("bank")[:, delta + reach - 1] if abs(delta) < reach else 0.0
        found.append(product(q[column], k[s], None, None, at) + added)
    return found


ORACLES = [
    Oracle(
        "rel_proj",
        row=row,
        defaults={"vectors": 16, "reach": 128, "bias": False, "start": "zero"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"vectors": 3, "reach": 3}, "encoder decoder cross"),
            ({"reach": 2, "bias": True}, "encoder decoder cross"),
            ({"vectors": 1, "reach": 1, "start": "normal"}, "encoder decoder"),
        ],
    )
]
