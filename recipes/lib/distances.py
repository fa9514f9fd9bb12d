"""Compare this project's distances between words in trees and graphs with the distances that networkx computes.

distances.py FILE...     files of heads (.heads) and of edges (.edges) that posenc side trees has written
"""

import sys

import networkx
import numpy as np

from fairseq_posenc.data.side.files import parse_edges
from fairseq_posenc.ops import graphs
from fairseq_posenc.ops.trees import Tree


def independent(graph: networkx.Graph) -> np.ndarray:
    """Return the distances that networkx computes by breadth-first search: the number of edges from every word to every word."""
    found = np.full((len(graph), len(graph)), graphs.FAR)
    for word, lengths in networkx.all_pairs_shortest_path_length(graph):
        for other, length in lengths.items():
            found[word, other] = length
    return found


def of_heads(line: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the tree distances that this project computes, and the tree distances that networkx computes.

    `line` contains the index of the head of each word. Indices begin with 1, and the root has the head 0.

    Edges can be followed in both directions.
    """
    heads = np.array(line.split(), int) - 1
    graph = networkx.Graph((word, head) for word, head in enumerate(heads.tolist()) if head >= 0)
    graph.add_nodes_from(range(len(heads)))
    return Tree(heads).distances, independent(graph)


def of_edges(line: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the graph distances that this project computes for a line of edges, and the distances that networkx computes.

    Edges can be followed only in their direction.
    """
    edges = [(start - 1, end - 1) for start, end, _ in parse_edges(line, sys.maxsize) if start]
    words = 1 + max((word for edge in edges for word in edge), default=-1)
    graph = networkx.DiGraph(edges)
    graph.add_nodes_from(range(words))
    return graphs.distances(graphs.leads(np.array(edges, int).reshape(-1, 2), words)), independent(graph)


def main(*paths: str) -> None:
    for path in paths:
        kind, compare = ("graphs", of_edges) if path.endswith(".edges") else ("trees", of_heads)
        count = longest = 0
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                ours, theirs = compare(line)
                if not np.array_equal(ours, theirs):
                    sys.exit(f"distances.py: {path}, line {number}: the distances are not those of networkx")
                count, longest = count + 1, max(longest, len(ours))
        print(f"{path}: the distances of {count} {kind} of up to {longest} words are those of networkx")


if __name__ == "__main__":
    main(*sys.argv[1:])
