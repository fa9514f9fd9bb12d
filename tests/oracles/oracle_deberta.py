"""Disentangled attention of DeBERTa (He et al. 2021).

In deberta_emd, absolute positions are added to the input of the queries in the last layer.
"""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, linear, split


def bucket(distance: int, buckets: int, max_distance: int) -> int:
    """Return the signed bucket of a signed distance.

    If the absolute distance is at most half of `buckets`, the bucket equals the distance. For larger distances, the bucket
    grows with the logarithm of the distance.
    """
    mid, a = buckets // 2, abs(distance)
    if a <= mid:
        return distance
    further = math.log(a / mid) / math.log((max_distance - 1) / mid) * (mid - 1)
    return int(math.copysign(mid + math.ceil(further), distance))


def place_in_table(distance: int, at) -> int:
    """Return the row of a signed distance in the table of 2 K rows.

    K is `max_distance`, or the maximum number of positions if `max_distance` is None. With the option `buckets`, K is
    `buckets`, and the signed bucket replaces the distance.

    Row 0 is used for the distance -K and all smaller distances. The last row is used for the distance K - 1 and all larger
    distances.
    """
    reach = at.max_positions if at["max_distance"] is None else at["max_distance"]
    if at["buckets"] is not None:
        distance, reach = bucket(distance, at["buckets"], reach), at["buckets"]
    return max(0, min(2 * reach - 1, distance + reach))


def projected(which: str, row: int, at) -> np.ndarray:
    """Return a row of the table, projected as a key ("k") or as a query ("q"). Return only the channels of this head."""
    p = at.parameters["table"][row]
    if at["norm"]:
        p = (p - p.mean()) / np.sqrt(((p - p.mean()) ** 2).mean() + 1e-7)
        p = p * at.parameters["norm.weight"] + at.parameters["norm.bias"]
    if at["share_key"]:
        p = linear(p, *at.projections[which])
    elif which == "k":
        p = at.parameters["key_weight"][at.layer] @ p
    else:
        p = linear(p, at.parameters["query_weight"][at.layer], at.parameters["query_bias"][at.layer])
    return split(p, at.head, at.heads)


def score(q, k, t, s, at):
    parts = [q @ k]
    if at["terms"] in ("both", "c2p"):
        parts.append(q @ projected("k", place_in_table(t - s, at), at))
    # D(t,s) is the row of the distance t - s. In the product with k, the paper uses row D(s,t). The authors' code uses row
    # D(t,s) in the products with q and with k.
    if at["terms"] in ("both", "p2c"):
        parts.append(k @ projected("q", place_in_table(s - t if at["index"] == "paper" else t - s, at), at))
    return sum(parts) / math.sqrt(len(parts) * len(q))


def with_absolute(x, t, at):
    return x + at.parameters["absolute"][t] if at.layer == at.layers - 1 else x


DEFAULTS = {"max_distance": None, "buckets": None, "index": "code", "terms": "both", "share_key": False, "norm": False}
ORACLES = [
    Oracle(
        "deberta",
        score=score,
        defaults=DEFAULTS,
        cases=[
            ({}, "encoder decoder cross"),
            ({"max_distance": 2, "index": "paper"}, "encoder decoder cross"),
            ({"max_distance": 3, "terms": "c2p"}, "encoder decoder"),
            ({"max_distance": 3, "terms": "p2c", "index": "paper", "share_key": True}, "encoder cross"),
            ({"max_distance": 20, "buckets": 6, "norm": True}, "encoder decoder cross"),
            ({"buckets": 8, "index": "paper", "share_key": True, "norm": True}, "encoder decoder cross"),
            ({"terms": "c2p", "share_key": True}, "encoder"),
        ],
    ),
    Oracle(
        "deberta_emd",
        score=score,
        query_input=with_absolute,
        defaults=DEFAULTS,
        cases=[
            ({}, "encoder decoder"),
            ({"max_distance": 2, "index": "paper", "norm": True}, "encoder decoder"),
            ({"max_distance": 3, "terms": "p2c"}, "encoder"),
            ({"max_distance": 9, "buckets": 4, "share_key": True}, "encoder decoder"),
        ],
        reach=12,
    ),
]
