"""Whether our distances between words of trees are those of an independent graph library, networkx, in all trees of some files.

distances.py HEADS...     files of heads, as posenc side trees writes them
"""

import sys

import networkx
import numpy as np

from fairseq_posenc.ops.trees import Tree


def independent(heads: list[int]) -> np.ndarray:
    """The number of edges between every two words, by breadth-first search in an undirected graph."""
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(heads)))
    graph.add_edges_from((word, head - 1) for word, head in enumerate(heads) if head)
    found = np.zeros((len(heads), len(heads)), int)
    for word, lengths in networkx.all_pairs_shortest_path_length(graph):
        for other, length in lengths.items():
            found[word, other] = length
    return found


def main(*paths: str) -> None:
    for path in paths:
        trees = longest = 0
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                heads = [int(head) for head in line.split()]
                if not np.array_equal(Tree(np.array(heads, int) - 1).distances, independent(heads)):
                    sys.exit(f"distances.py: {path}, line {number}: the distances are not those of networkx")
                trees, longest = trees + 1, max(longest, len(heads))
        print(f"{path}: the distances of {trees} trees of up to {longest} words are those of networkx")


if __name__ == "__main__":
    main(*sys.argv[1:])
