"""A bias for the directed distance in the tree (Schmitt et al. 2021)."""

from fairseq_posenc.testing.reference import Oracle, product

from .oracle_spr import ancestors


def steps(i: int, j: int, heads, undirected: bool) -> float:
    """Edges from i to j: down the tree, or in any direction."""
    if undirected:
        common = next(word for word in ancestors(i, heads) if word in ancestors(j, heads))
        return ancestors(i, heads).index(common) + ancestors(j, heads).index(common)
    return ancestors(j, heads).index(i) if i in ancestors(j, heads) else float("inf")


def bucket(t: int, s: int, at) -> int:
    words, far, near = at.sentence.words, at["max_distance"], at["max_offset"]
    if t == s:
        return 0
    if words[t] == words[s]:
        offset = max(-near, min(near, s - t))
        return 2 * far + 2 + 2 * (abs(offset) - 1) + (offset < 0)
    there, back = (steps(i, j, at.sentence.heads, at["undirected"]) for i, j in ((words[t], words[s]), (words[s], words[t])))
    if there == back == float("inf"):
        return 1
    return 2 * min(far, there) if there <= back else 2 * min(far, back) + 1


def score(q, k, t, s, at):
    return product(q, k, t, s, at) + at.own("table")[bucket(t, s, at)]


ORACLES = [
    Oracle(
        "graformer",
        score=score,
        defaults={"max_distance": 10, "max_offset": 10, "undirected": False, "share": "layers"},
        cases=[
            ({}, "encoder"),
            ({"max_distance": 1, "max_offset": 1}, "encoder"),
            ({"undirected": True, "share": "none"}, "encoder"),
            ({"share": "all", "max_distance": 2}, "encoder"),
        ],
    )
]
