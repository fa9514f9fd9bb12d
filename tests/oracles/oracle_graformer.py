"""A bias for the directed distance in the tree or graph (Schmitt et al. 2021)."""

from fairseq_posenc.testing.reference import Oracle, product

from .walks import edges, steps, undirected


def bucket(t: int, s: int, at) -> int:
    words, far, near = at.sentence.words, at["max_distance"], at["max_offset"]
    if t == s:
        return 0
    if words[t] == words[s]:
        offset = max(-near, min(near, s - t))
        return 2 * far + 2 + 2 * (abs(offset) - 1) + (offset < 0)
    known = undirected(edges(at)) if at["undirected"] else edges(at)
    there, back = steps(words[t], words[s], known), steps(words[s], words[t], known)
    if there == back == float("inf"):
        return 1
    return 2 * min(far, there) if there <= back else 2 * min(far, back) + 1


def score(q, k, t, s, at):
    return product(q, k, t, s, at) + at.own("table")[bucket(t, s, at)]


ORACLES = [
    Oracle(
        "graformer",
        score=score,
        defaults={"max_distance": 10, "max_offset": 10, "graph": "tree", "undirected": False, "share": "layers"},
        cases=[
            ({}, "encoder"),
            ({"max_distance": 1, "max_offset": 1}, "encoder"),
            ({"undirected": True, "share": "none"}, "encoder"),
            ({"share": "all", "max_distance": 2}, "encoder"),
            ({"graph": "edges"}, "encoder"),
            ({"graph": "edges", "undirected": True}, "encoder"),
        ],
    )
]
