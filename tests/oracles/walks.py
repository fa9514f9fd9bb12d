"""Paths in the tree or the graph of a sentence, as plain loops."""


def edges(at) -> list[tuple[int, int, int]]:
    """Return (from, to, relation) of every edge. Edges of a tree lead from heads to dependents."""
    if at["graph"] == "edges":
        return [tuple(map(int, edge)) for edge in at.sentence.edges]
    relations = at.sentence.relations
    return [(int(head), word, int(relations[word])) for word, head in enumerate(at.sentence.heads) if head >= 0]


def steps(start: int, end: int, known: list) -> float:
    """Return the length of the shortest path between two words, in the direction of the edges. Without a path, return inf."""
    reached, number = {start}, 0
    while end not in reached:
        further = reached | {after for before, after, _ in known if before in reached}
        if further == reached:
            return float("inf")
        reached, number = further, number + 1
    return number


def undirected(known: list) -> list:
    return known + [(after, before, relation) for before, after, relation in known]


def shortest(start: int, end: int, known: list) -> list[int]:
    """Return the labels of the shortest path: 2r + 1 along an edge with relation r, 2r against it.

    If there are several shortest paths, return the first list of labels in lexicographic order.
    """
    labelled = [(a, b, 2 * r + 1) for a, b, r in known] + [(b, a, 2 * r) for a, b, r in known]
    if steps(start, end, labelled) == float("inf"):
        return []
    best: dict[int, list[int]] = {start: []}  # word -> labels of a path. All paths have the same length
    while end not in best:
        further: dict[int, list[int]] = {}
        for before, after, label in labelled:
            if before in best:
                labels = [*best[before], label]
                further[after] = min(further.get(after, labels), labels)
        best = further
    return best[end]
