"""The reference tree of the specification, properties of trees, and comparisons with an independent graph library."""

import dataclasses
import itertools

import networkx
import numpy as np
import pytest
import torch

from fairseq_posenc.core import (
    END_RELATION,
    FIRST_RELATION,
    UNKNOWN_RELATION,
    AttentionContext,
    Dims,
    Positions,
    Sentence,
    SideInputs,
)
from fairseq_posenc.core.side import declared_by
from fairseq_posenc.data.side import examples
from fairseq_posenc.methods.structure.graph_bert import closeness, colours
from fairseq_posenc.methods.structure.laplacian import eigenvectors
from fairseq_posenc.ops import graphs
from fairseq_posenc.ops.kernels import banks
from fairseq_posenc.ops.paths import unique_paths
from fairseq_posenc.ops.trees import Tree, by_token, path_labels
from fairseq_posenc.registry import method_class
from fairseq_posenc.registry import spec as parsing

#: The0 cat1 chased2 a3 small4 dog5: det nsubj root det amod obj
HEADS = np.array([1, 2, -1, 5, 5, 2])
DET, NSUBJ, ROOT, AMOD, OBJ = range(FIRST_RELATION, FIRST_RELATION + 5)
RELATIONS = np.array([DET, NSUBJ, ROOT, DET, AMOD, OBJ])
DISTANCES = [
    [0, 1, 2, 4, 4, 3],
    [1, 0, 1, 3, 3, 2],
    [2, 1, 0, 2, 2, 1],
    [4, 3, 2, 0, 2, 1],
    [4, 3, 2, 2, 0, 1],
    [3, 2, 1, 1, 1, 0],
]
#: The cat chased a sm@@ all dog </s>
TOKENS = Sentence(np.array([0, 1, 2, 3, 4, 4, 5, 6]), np.append(HEADS, 2), np.append(RELATIONS, END_RELATION))
#: pairs of words with an edge, in the undirected reference tree
JOINED = graphs.leads(graphs.tree_edges(HEADS), 6) | graphs.leads(graphs.tree_edges(HEADS), 6).T
#: a graph of the same words. "small" has no edges, "cat" also leads to "dog", and </s> depends on "chased"
FRIEND = OBJ + 1
EDGES = np.array([[2, 1, NSUBJ], [1, 0, DET], [2, 5, OBJ], [5, 3, DET], [1, 5, FRIEND], [2, 6, END_RELATION]])
GRAPH = Sentence(TOKENS.words, edges=EDGES)


def words(heads=HEADS, relations=None) -> Sentence:
    """Return a sentence in which every word is one token, without </s>."""
    return Sentence(np.arange(len(heads)), np.asarray(heads), relations)


def values(spec: str, sentence: Sentence) -> np.ndarray:
    (given,) = parsing.parse(spec, "encoder").methods
    (found,) = method_class(given.name).side_values(sentence, given.options).values()
    return found


def method(spec: str, width: int = 16, heads: int = 4, relations: int = 0) -> torch.nn.Module:
    dims = Dims(width, heads, 1, 12, 12, relations=relations).at("encoder")
    return parsing.build(spec, dims, "encoder")[0].eval()


def context(built, sentence: Sentence) -> AttentionContext:
    at = Positions.counted(0, len(sentence.words))
    given = examples.side_inputs([built], [sentence], len(sentence.words))
    return AttentionContext(at, at, scale=0.5, side=SideInputs(given, declared_by([built.card])))


def random_heads(size: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    heads, order = np.full(size, -1), generator.permutation(size)
    for place in range(1, size):
        heads[order[place]] = order[generator.integers(place)]
    return heads


# -- trees ---------------------------------------------------------------------------------------------------------------


def test_the_reference_tree():
    tree = Tree(HEADS)
    assert tree.depths.tolist() == [2, 1, 0, 2, 2, 1]
    assert tree.distances.tolist() == DISTANCES
    assert tree.paths.tolist() == [[2, 1, 0], [2, 1, -1], [2, -1, -1], [2, 5, 3], [2, 5, 4], [2, 5, -1]]
    assert [tree.siblings[0].tolist(), tree.siblings[1].tolist()] == [[0, 0, 0, 0, 1, 1], [-1, -1, -1, -1, 3, 1]]
    assert by_token(np.append(tree.depths, 1), TOKENS.words).tolist() == [2, 1, 0, 2, 2, 2, 1, 1]


@pytest.mark.parametrize("seed", range(12))
def test_trees_against_networkx(seed):
    heads = random_heads(1 + 4 * seed, seed)
    tree, root = Tree(heads), int(np.flatnonzero(heads < 0)[0])
    down = networkx.DiGraph()
    down.add_nodes_from(range(len(heads)))
    down.add_edges_from((int(head), word) for word, head in enumerate(heads) if head >= 0)
    lengths = dict(networkx.all_pairs_shortest_path_length(down.to_undirected()))
    assert tree.depths.tolist() == [lengths[root][word] for word in range(len(heads))]
    assert all(tree.distances[i, j] == lengths[i][j] for i in lengths for j in lengths)
    assert all(tree.ancestors[i, j] == networkx.has_path(down, i, j) for i in lengths for j in lengths)
    pairs = [(i, j) for i in lengths for j in lengths]
    common = networkx.tree_all_pairs_lowest_common_ancestor(down, root, pairs)
    assert all(tree.depths[word] == tree.common[i, j] for (i, j), word in common)
    ways = dict(networkx.all_pairs_shortest_path(down.to_undirected()))
    below, rising = tree.path_words(int(tree.distances.max()) + 1)
    for i, j in pairs:  # every edge has the number of its lower word
        edges = [a if heads[a] == b else b for a, b in zip(ways[i][j], ways[i][j][1:])]
        assert below[i, j][: len(edges)].tolist() == edges and (below[i, j][len(edges) :] == -1).all()
        assert rising[i, j] == sum(heads[a] == b for a, b in zip(ways[i][j], ways[i][j][1:]))
    leads = graphs.leads(graphs.tree_edges(heads), len(heads))
    assert leads.tolist() == networkx.to_numpy_array(down, range(len(heads))).tolist()
    assert (graphs.distances(leads | leads.T) == tree.distances).all()


def test_a_cycle_ends():
    with pytest.raises(ValueError, match="cycle"):
        assert Tree(np.array([1, 0, -1])).depths is None


def test_a_sentence_of_the_end_alone():
    tree = Tree(np.array([-1]))
    assert tree.depths.tolist() == [0] and tree.distances.tolist() == [[0]]


def test_a_sentence_without_words():
    tree = Tree(np.array([], int))
    assert tree.up.shape[0] == 0 and tree.depths.shape == (0,)
    assert tree.distances.shape == tree.common.shape == (0, 0)
    assert tree.path_words(3)[0].shape == (0, 0, 3)


# -- graphs --------------------------------------------------------------------------------------------------------------


def random_edges(size: int, seed: int) -> np.ndarray:
    """Return edges of a graph with cycles, several components, words without edges, and two edges between the same words."""
    generator = np.random.default_rng(seed)
    edges = generator.integers(size, size=(size + size // 4, 2))
    edges = np.column_stack([edges, generator.integers(FIRST_RELATION, FIRST_RELATION + 4, len(edges))])
    return edges[edges[:, 0] != edges[:, 1]]


@pytest.mark.parametrize("seed", range(12))
def test_graphs_against_networkx(seed):
    size = 2 + 3 * seed
    edges = random_edges(size, seed)
    directed = networkx.MultiDiGraph()
    directed.add_nodes_from(range(size))
    directed.add_weighted_edges_from(edges.tolist(), "relation")
    leads = graphs.leads(edges, size)
    for joined, graph in ((leads, directed), (leads | leads.T, directed.to_undirected())):
        lengths, found = dict(networkx.all_pairs_shortest_path_length(graph)), graphs.distances(joined)
        assert all(found[i, j] == lengths[i].get(j, graphs.FAR) for i in range(size) for j in range(size))
    labels, lengths = graphs.path_labels(edges, size, 6)
    assert (lengths == graphs.distances(leads | leads.T)).all()
    both = networkx.MultiDiGraph(directed)  # every edge again in the opposite direction, with another label
    for _, _, edge in both.edges(data=True):
        edge["label"] = 2 * edge["relation"] + 1
    for start, end, relation in edges.tolist():
        both.add_edge(end, start, label=2 * relation)
    for i in range(size):
        for j in range(size):
            ways = networkx.all_shortest_paths(both, i, j) if i != j and networkx.has_path(both, i, j) else [[i]]
            written = [[min(edge["label"] for edge in both[a][b].values()) for a, b in itertools.pairwise(way)] for way in ways]
            assert labels[i, j].tolist() == (min(written) + [0] * 6)[:6]


@pytest.mark.parametrize("seed", range(5))
def test_a_tree_is_a_graph(seed):
    heads = random_heads(20, seed)
    relations = np.random.default_rng(seed).integers(FIRST_RELATION, FIRST_RELATION + 4, 20)
    edges = graphs.tree_edges(heads)
    edges = np.column_stack([edges, relations[edges[:, 1]]])
    sentence = Sentence(np.arange(20), heads, relations, edges)
    for spec in ("graformer", "graformer:undirected=true", "laplacian", "graph_bert", "zhu", "zhu:paths=feature", "cai_lam"):
        (given,) = parsing.parse(spec, "encoder").methods
        read = [
            method_class(given.name).side_values(sentence, dataclasses.replace(given.options, graph=graph))
            for graph in ("tree", "edges")
        ]
        for name in read[0]:
            np.testing.assert_array_equal(read[0][name], read[1][name], err_msg=f"{spec} {name}")


def test_what_reads_edges_reads_no_tree():
    for name in ("graformer", "laplacian", "graph_bert", "zhu", "cai_lam"):
        found = method_class(name)
        assert found.card.side_files(found.Options()) == {"heads", *["relations"] * (name in ("zhu", "cai_lam"))}
        assert found.card.side_files(found.Options(graph="edges")) == {"edges"}


# -- Wang et al. ---------------------------------------------------------------------------------------------------------


def test_relations_of_wang_et_al():
    expected = [[0, 1, 2, -4, -4, -3], [-1, 0, 1, -3, -3, -2], [-2, -1, 0, -2, -2, -1]]
    expected += [[4, 3, 2, 0, -4, 1], [4, 3, 2, 4, 0, 1], [3, 2, 1, -1, -1, 0]]
    assert values("spr_rel", words()).tolist() == expected
    assert values("spr_rel", TOKENS)[-1].tolist() == [3, 2, 1, 3, 3, 3, 2, 0]
    assert values("spr_abs", TOKENS).tolist() == [2, 1, 0, 2, 2, 2, 1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_relations_of_wang_et_al_are_antisymmetric(seed):
    found = values("spr_rel", words(random_heads(20, seed)))
    assert (found == -found.T).all()


def test_in_a_chain_structure_is_position():
    chain = words(np.arange(9) - 1)
    place = np.arange(9)
    assert values("spr_abs", chain).tolist() == place.tolist()
    assert (values("spr_rel", chain) == place[:, None] - place).all()
    structural, sequential = method("spr_abs"), method("sinusoidal:origin=zero")
    ctx, x, tokens = context(structural, chain), torch.zeros(1, 9, 16), torch.full((1, 9), 7)
    assert torch.equal(structural.embed(x, tokens, ctx), sequential.embed(x, tokens, ctx))
    related, shaw = method("spr_rel:max_distance=3"), method("shaw:max_distance=3")
    with torch.no_grad():
        shaw.key_table.copy_(related.key_table.flip(2))
        shaw.value_table.copy_(related.value_table.flip(2))
    q, k, ctx = torch.randn(1, 4, 9, 4), torch.randn(1, 4, 9, 4), context(related, chain)
    weights = torch.rand(1, 4, 9, 9)
    torch.testing.assert_close(related.content_scores(q, k, ctx), shaw.content_scores(q, k, ctx))
    torch.testing.assert_close(related.content_values(weights, k, ctx), shaw.content_values(weights, k, ctx))


def test_a_star_has_two_depths():
    assert values("spr_abs", words([2, 2, -1, 2, 2])).tolist() == [1, 1, 0, 1, 1]


# -- Graformer -----------------------------------------------------------------------------------------------------------


def test_distances_of_graformer():
    found, none = values("graformer", words()), 10000
    assert found[0].tolist() == [0, -1, -2, none, none, none]
    assert found[2].tolist() == [2, 1, 0, 2, 2, 1]
    assert found[5].tolist() == [none, none, -1, 1, 1, 0]
    assert values("graformer:undirected=true", words()).tolist() == DISTANCES


def test_buckets_of_graformer():
    built = method("graformer:max_distance=2,max_offset=2")
    buckets = built._buckets(context(built, TOKENS).side["graformer_distance"].long())[0].tolist()
    assert buckets[4] == [1, 1, 5, 1, 0, 6, 3, 1]
    assert buckets[5] == [1, 1, 5, 1, 7, 0, 3, 1]
    assert buckets[2] == [4, 2, 0, 4, 4, 4, 2, 2]
    assert built.table.shape == (1, 4, 10)
    assert not built.bias(context(built, TOKENS)).any()  # the bias is initially zero, as in plain attention


def test_far_distances_of_graformer_keep_their_sign():
    built, chain = method("graformer:max_distance=2"), words(np.arange(5) - 1)
    found = built._buckets(context(built, chain).side["graformer_distance"].long())[0]
    assert found[0].tolist() == [0, 2, 4, 4, 4] and found[4].tolist() == [5, 5, 5, 3, 0]


def test_distances_of_graformer_in_a_graph():
    none, within = 10000, 20000
    found = values("graformer:graph=edges", GRAPH)
    assert found[0].tolist() == [0, -1, -2, none, none, none, none, none]
    assert found[1].tolist() == [1, 0, -1, 2, none, none, 1, none]
    assert found[2].tolist() == [2, 1, 0, 2, none, none, 1, 1]
    assert found[3].tolist() == [none, -2, -2, 0, none, none, -1, none]
    assert found[4].tolist() == [none, none, none, none, 0, 2 * within + 1, none, none]  # sm@@ all
    found = values("graformer:graph=edges,undirected=true", GRAPH)
    assert found[0].tolist() == [0, 1, 2, 3, none, none, 2, 3]


def test_circles_of_graformer():
    circle = Sentence(np.arange(5), edges=np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]]))
    found = values("graformer:graph=edges", circle)
    # If the paths in both directions have the same length, the distance is positive.
    assert found[0].tolist() == [0, 1, 2, -1, 10000] and found[2].tolist() == [2, -1, 0, 1, 10000]


# -- Laplacian -----------------------------------------------------------------------------------------------------------


def test_spectrum_of_the_reference_tree():
    found, vectors = eigenvectors(JOINED)
    np.testing.assert_allclose(found, [0, 0.236237, 1, 1, 1.763763, 2], atol=1e-6)
    np.testing.assert_allclose(np.abs(vectors[:, 0]), np.sqrt([0.1, 0.2, 0.2, 0.1, 0.1, 0.3]), atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_spectrum_of_any_tree(seed):
    heads = random_heads(15, seed)
    leads = graphs.leads(graphs.tree_edges(heads), 15)
    found, vectors = eigenvectors(leads | leads.T)
    np.testing.assert_allclose(found, 2 - found[::-1], atol=1e-12)
    graph = networkx.Graph((word, int(head)) for word, head in enumerate(heads) if head >= 0)
    laplacian = networkx.normalized_laplacian_matrix(graph, range(15)).toarray()
    for value in np.unique(found.round(6)):  # compare eigenspaces, because a basis of an eigenspace is arbitrary
        here = np.abs(found - value) < 1e-5
        projector = vectors[:, here] @ vectors[:, here].T
        np.testing.assert_allclose(laplacian @ projector, value * projector, atol=1e-5)


def test_spectrum_of_a_graph_of_several_components():
    """The graph has two triangles and a single word. The eigenvalue 0 occurs once per triangle.

    The single word has eigenvalue 1, because its degree counts as 1.
    """
    edges = np.array([[0, 1, 4], [1, 2, 4], [2, 0, 4], [3, 4, 4], [4, 5, 4], [5, 3, 4], [5, 3, 5]])
    leads = graphs.leads(edges, 7)
    found, vectors = eigenvectors(leads | leads.T)
    np.testing.assert_allclose(found, [0, 0, 1, 1.5, 1.5, 1.5, 1.5], atol=1e-12)
    constant = np.zeros((7, 7))
    constant[:3, :3] = constant[3:6, 3:6] = 1 / 3
    np.testing.assert_allclose(vectors[:, :2] @ vectors[:, :2].T, constant, atol=1e-12)
    given = values("laplacian:graph=edges,eigenvectors=4", Sentence(np.arange(8), edges=np.append(edges, [[0, 7, 2]], 0)))
    assert given.shape == (8, 4) and np.abs(given[:7]).sum() > 1 and not given[7].any()


@pytest.mark.parametrize("seed", range(5))
def test_spectrum_of_any_graph(seed):
    edges = random_edges(14, seed)
    leads = graphs.leads(edges, 14)
    graph = networkx.Graph(edges[:, :2].tolist())  # this graph lacks the words without edges
    laplacian = networkx.normalized_laplacian_matrix(graph).toarray()
    alone = [1.0] * (14 - len(graph))
    found, _ = eigenvectors(leads | leads.T)
    np.testing.assert_allclose(found, sorted([*np.linalg.eigvalsh(laplacian), *alone]), atol=1e-9)
    assert (found < 1e-9).sum() == networkx.number_connected_components(graph)


def test_few_words_have_few_coordinates():
    assert not values("laplacian", words([1, -1])).any()  # a word and </s>
    found = values("laplacian", words([1, -1, 1, 1]))  # three words and </s>
    assert found.shape == (4, 8) and found[:3, :2].any() and not found[:, 2:].any() and not found[3].any()


def test_signs_are_drawn_in_training_for_every_sentence():
    built = method("laplacian")
    ctx = context(built, TOKENS)
    assert built.prepare(ctx) is None
    wide = ctx.replace(side=SideInputs({"laplacian": ctx.side["laplacian"].expand(50, -1, -1)}, declared_by([built.card])))
    signs = built.train().prepare(wide)
    assert signs.shape == (50, 1, 8) and signs.unique().tolist() == [-1, 1] and len(signs.unique(dim=0)) > 30
    x = torch.zeros(50, 8, 16)
    once = wide.with_prepared({built: signs})
    twice = once.replace(side=SideInputs({"laplacian": wide.side["laplacian"] * signs}, declared_by([built.card])))
    torch.testing.assert_close(built.embed(x, x, twice), built.embed(x, x, wide.with_prepared({built: None})))


# -- identities ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["spr_rel", "graformer", "laplacian"])
def test_zero_parameters_change_nothing(spec):
    built = method(spec)
    for parameter in built.parameters():
        torch.nn.init.zeros_(parameter)
    ctx, x = context(built, TOKENS).prepared_by(built), torch.randn(1, 8, 16)
    heads = x.view(1, 8, 4, 4).transpose(1, 2)
    if "embed" in built.hooks:
        assert torch.equal(built.embed(x, x, ctx), x)
    added = [built.bias(ctx)] if "bias" in built.hooks else []
    added += [built.content_scores(heads, heads, ctx)] if "content_scores" in built.hooks else []
    added += [built.content_values(torch.rand(1, 4, 8, 8), heads, ctx)] if "content_values" in built.hooks else []
    assert not any(term.any() for term in added)


# -- Shiv and Quirk ------------------------------------------------------------------------------------------------------


def one_hot(spec: str, sentence: Sentence, branches: int) -> list[str]:
    found = values(spec, sentence)
    return ["".join(str(int(b == taken)) for taken in row for b in range(branches)) for row in found.tolist()]


def test_branches_of_the_reference_tree():
    children = ["100100000", "100000000", "000000000", "100010000", "010010000", "010000000"]
    assert one_hot("tpe:branches=3,depth=3", words(), 3) == children
    siblings = ["10100000", "10000000", "00000000", "10011000", "01100110", "01100000"]
    assert one_hot("tpe:depth=4", words(), 2) == siblings


@pytest.mark.parametrize("spec", ["tpe:depth=40", "tpe:branches=20,depth=20"])
def test_words_with_room_have_places_of_their_own(spec):
    assert len(np.unique(values(spec, words(random_heads(20, 3))), axis=0)) == 20


def test_deep_words_keep_the_branches_near_them():
    chain = words(np.arange(6) - 1)
    assert values("tpe:depth=2", chain).tolist() == [[-1, -1], [0, -1], *[[0, 0]] * 4]


def test_norms_of_tree_positions():
    built = method("tpe:branches=3,depth=3", width=18, heads=1)
    with torch.no_grad():
        built.factor.fill_(np.arctanh(0.5))
    x = torch.zeros(1, 6, 18)
    norms = built.embed(x, x, context(built, words()))[0].square().sum(-1)
    one, two = 6.75, 8.4375
    # The vector of a word contains two copies of its features. `one` and `two` are squared norms of one copy.
    torch.testing.assert_close(norms, 2 * torch.tensor([two, one, 0, two, two, one]))
    with torch.no_grad():
        built.factor.fill_(20.0)  # p = 1
    assert built.embed(x, x, context(built, words())).abs().max() < 1e-3


def test_tree_positions_that_do_not_fit():
    with pytest.raises(parsing.PositionError, match=r"branches=17 is too large\. Expected at most the embedding dimension 16"):
        method("tpe:branches=17")


# -- Zhang et al. --------------------------------------------------------------------------------------------------------


def test_colours_of_the_reference_tree():
    assert colours(JOINED, 1).tolist() == [1, 2, 2, 1, 1, 3]
    two, three = colours(JOINED, 2), colours(JOINED, 3)
    same = [[row == other for other in (1, 3, 4, 2, 2, 5)] for row in (1, 3, 4, 2, 2, 5)]
    for found in (two, three):
        assert (found[:, None] == found).tolist() == same


@pytest.mark.parametrize(
    "normalise, order, close",
    [
        ("columns", [1, 0, 5, 3, 4], [0.2058, 0.1749, 0.1691, 0.1437, 0.1437]),
        ("both", [5, 1, 0, 3, 4], [0.2071, 0.2058, 0.1237, 0.1016, 0.1016]),
    ],
)
def test_closeness_of_the_reference_tree(normalise, order, close):
    found = closeness(JOINED, normalise)
    np.testing.assert_allclose(found[2, order], close, atol=5e-5)
    if normalise == "columns":
        np.testing.assert_allclose(found.sum(0), 1)
    numbers = values(f"graph_bert:normalise={normalise}", Sentence(np.arange(7), np.append(HEADS, 2)))
    assert numbers[[2, *order], 1].tolist() == list(range(6))
    assert numbers[:6, 2].tolist() == [2, 1, 0, 2, 2, 1] and (numbers[6] == -1).all()


def test_numbers_of_words_that_the_root_does_not_reach():
    found = values("graph_bert:graph=edges", Sentence(np.arange(7), edges=EDGES))
    assert found[:6, 0].tolist() == [1, 3, 2, 1, 0, 3]  # degrees
    assert found[:6, 2].tolist() == [2, 1, 0, 2, 99, 1]
    assert found[2, 1] == 0 and found[4, 1] == 5 and (found[6] == -1).all()


# -- Ding et al. ---------------------------------------------------------------------------------------------------------

#: the sentence "I have a pen . </s>". `order` is the order of its words in the other language
ORDER = Sentence(np.arange(6), order=np.array([0, 3, 1, 2, 4, 5]))


def test_places_in_the_other_order():
    assert values("xl_pe", ORDER).tolist() == [0, 2, 3, 1, 4, 5]
    assert values("xl_pe", Sentence(np.array([0, 1, 2, 3, 3, 4, 5]), order=ORDER.order)).tolist() == [0, 3, 4, 1, 2, 5, 6]


def test_a_sentence_in_its_own_order():
    same, plain = Sentence(np.arange(6), order=np.arange(6)), method("sinusoidal")
    x = torch.randn(1, 6, 16)
    wanted = plain.embed(x, x, AttentionContext(Positions.counted(0, 6), Positions.counted(0, 6)))
    summed, heads = method("xl_pe"), method("xl_pe:fuse=heads")
    torch.testing.assert_close(summed.embed(x, x, context(summed, same)), 2 * wanted - x)
    assert torch.equal(heads.embed(x, x, context(heads, same)), wanted)
    project, q = torch.nn.Linear(16, 16), torch.randn(1, 4, 6, 4)
    ctx = context(heads, same).replace(project=lambda which, x: project(x).unflatten(-1, (4, 4)).transpose(-3, -2))
    assert torch.equal(heads.rotate("query", q, ctx.queries, ctx), q)


@pytest.mark.parametrize("spec", ["xl_pe:heads=2", "xl_pe:fuse=heads,heads=5"])
def test_heads_that_there_are_not(spec):
    with pytest.raises(parsing.PositionError, match=r"heads=\d is not allowed\. Expected fuse=heads and at most 4"):
        method(spec)


# -- paths: Zhu et al., Cai and Lam --------------------------------------------------------------------------------------


def up(relation: int) -> int:
    return 2 * relation


def down(relation: int) -> int:
    return 2 * relation + 1


def path(found: np.ndarray, i: int, j: int) -> list[int]:
    return [label for label in found[i, j].tolist() if label]


def test_paths_of_the_reference_tree():
    found = values("zhu", words(relations=RELATIONS))
    assert path(found, 0, 5) == [up(DET), up(NSUBJ), down(OBJ)]
    assert path(found, 5, 0) == [up(OBJ), down(NSUBJ), down(DET)]
    assert path(found, 3, 4) == [up(DET), down(AMOD)]
    assert path(found, 1, 4) == [up(NSUBJ), down(OBJ), down(AMOD)]
    assert path(found, 0, 2) == [up(DET), up(NSUBJ)]
    lengths = (found != 0).sum(2)
    assert [[lengths[i, j] for j in range(6)] for i in range(6)] == (np.array(DISTANCES) + np.eye(6)).tolist()
    split = values("zhu", TOKENS)
    assert path(split, 4, 5) == [up(AMOD), down(AMOD)] and path(split, 4, 4) == [1]
    assert path(split, 0, 7) == [up(DET), up(NSUBJ), down(END_RELATION)]


def test_paths_of_cai_and_lam_lead_from_the_query_to_the_key():
    """The authors' code indexes relations by target and source. The attention transposes these indices back."""
    sentence = Sentence(TOKENS.words, TOKENS.heads, TOKENS.relations)
    paths = method_class("cai_lam").side_values(sentence, method_class("cai_lam").Options())["cai_lam_path"]
    assert path(paths, 0, 6) == [up(DET), up(NSUBJ), down(OBJ)]
    assert path(paths, 6, 0) == [up(OBJ), down(NSUBJ), down(DET)]
    assert path(paths, 4, 5) == path(paths, 2, 2) == [1]
    chain = Sentence(np.arange(11), np.arange(11) - 1, np.full(11, DET))
    paths = method_class("cai_lam").side_values(chain, method_class("cai_lam").Options())["cai_lam_path"]
    assert path(paths, 8, 0) == [up(DET)] * 8 and path(paths, 0, 9) == [2] and path(paths, 10, 0) == [2]


def test_paths_of_a_graph():
    found = values("zhu:graph=edges", GRAPH)
    assert path(found, 0, 6) == [up(DET), down(FRIEND)] and path(found, 6, 0) == [up(FRIEND), down(DET)]
    assert path(found, 0, 7) == [up(DET), up(NSUBJ), down(END_RELATION)]
    assert path(found, 4, 2) == [] and path(found, 4, 4) == [1]  # no path connects words 4 and 2
    # Tokens of the same word are siblings. This word has no edge, so its relation is unknown.
    assert path(found, 4, 5) == [up(UNKNOWN_RELATION), down(UNKNOWN_RELATION)]
    (given,) = parsing.parse("cai_lam:graph=edges", "encoder").methods
    made = method_class("cai_lam").side_values(GRAPH, given.options)
    assert path(made["cai_lam_path"], 0, 6) == [up(DET), down(FRIEND)] and path(made["cai_lam_path"], 4, 2) == []
    assert path(made["cai_lam_path"], 4, 5) == [1]
    assert made["cai_lam_depth"].tolist() == [2, 1, 0, 2, 31, 31, 1, 1]


def test_whole_paths_have_vectors_of_their_own():
    found = values("zhu:paths=feature", words(relations=RELATIONS))[..., 0]
    whole = path_labels(HEADS, RELATIONS, 6)[0]
    assert len(np.unique(found)) == len(np.unique(whole.reshape(36, 6), axis=0))
    assert found.min() > 0 and found.max() < 20000


@pytest.mark.parametrize("count", [12, 2**20])
def test_different_paths_of_a_batch(count):
    """With count=2**20, one integer for all 8 labels of a path would need more than 64 bits."""
    torch.manual_seed(1)
    labels = torch.randint(12, (2, 9, 9, 8)) * torch.randint(2, (2, 9, 9, 8)) * torch.randint(2, (2, 9, 9, 1))
    paths, index = unique_paths(labels, count)
    assert torch.equal(paths[index], labels)
    assert len(paths) == len(labels.flatten(0, 2).unique(dim=0))


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("block", [1, 10**6])
def test_products_with_a_bank_in_blocks(block, heads, monkeypatch):
    monkeypatch.setattr(banks, "_BLOCK_ON_CPU", block)
    torch.manual_seed(2)
    x, weights = torch.randn(2, 3, 5, 4).double(), torch.rand(2, 3, 5, 6).double()
    bank, index = torch.randn(7, heads, 4).double(), torch.randint(7, (2, 5, 6))
    vectors = bank[index].expand(-1, -1, -1, 3, -1)
    given = [tensor.requires_grad_() for tensor in (x, weights, bank)]
    torch.testing.assert_close(banks.BankScores.apply(x, bank, index), torch.einsum("bhtd,btshd->bhts", x, vectors))
    torch.testing.assert_close(banks.BankSums.apply(weights, bank, index), torch.einsum("bhts,btshd->bhtd", weights, vectors))
    assert torch.autograd.gradcheck(lambda x, bank: banks.BankScores.apply(x, bank, index), (given[0], given[2]))
    assert torch.autograd.gradcheck(lambda weights, bank: banks.BankSums.apply(weights, bank, index), (given[1], given[2]))


@pytest.mark.parametrize("block", [1, 200, 10**6])
def test_products_of_queries_and_of_weights_with_the_same_vectors(block, monkeypatch):
    """gradcheck also checks the gradients of the scores without the sums, and of the sums without the scores."""
    monkeypatch.setattr(banks, "_LINKED_BLOCK", block)
    torch.manual_seed(2)
    shapes = (2, 3, 5, 4), (2, 3, 5, 6), (7, 8), (4, 8), (4,), (4, 8), (4,)
    given = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    index = torch.randint(7, (2, 5, 6))

    def both(q, weights, bank, *maps):
        scores, link = banks.linked_scores(q, banks.Maps(*maps), bank, index)
        return scores, banks.linked_sums(weights, link)

    q, weights, bank, key, key_bias, value, value_bias = given
    keys, values = bank[index] @ key.T + key_bias, bank[index] @ value.T + value_bias
    scores, sums = both(*given)
    torch.testing.assert_close(scores, torch.einsum("bhtd,btsd->bhts", q, keys))
    torch.testing.assert_close(sums, torch.einsum("bhts,btsd->bhtd", weights, values))
    assert torch.autograd.gradcheck(both, given)


@pytest.mark.parametrize("block", [1, 60, 10**6])
def test_products_of_queries_and_of_keys_with_the_same_vectors(block, monkeypatch):
    monkeypatch.setattr(banks, "_BLOCK", block)
    torch.manual_seed(2)
    given = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3, 5, 4), (2, 3, 6, 4), (7, 4))]
    index = torch.randint(7, (2, 5, 6))
    x, z, vectors = *given[:2], given[2][index]
    expected = torch.einsum("bhtd,btsd->bhts", x, vectors) + torch.einsum("bhsd,btsd->bhts", z, vectors)
    torch.testing.assert_close(banks.BankScoresOfBoth.apply(*given, index), expected)
    assert torch.autograd.gradcheck(lambda *given: banks.BankScoresOfBoth.apply(*given, index), given)


def test_parameters_of_the_authors():
    zhu, cai_lam = method_class("zhu"), method_class("cai_lam")
    dims = Dims(512, 8, 1, relations=40)
    assert zhu.card.count(zhu.Options(), dims) == 24896 + 80 * 64
    four = Dims(512, 8, 4, relations=40)
    assert cai_lam.card.count(cai_lam.Options(), four) == 4092416 + 80 * 100 + 16384


def test_average_and_sum_of_labels_are_one_model():
    """The layer norm removes the factor between average and sum.

    Without the layer norm, the sum of three labels would be three times their average.
    """
    sentence = examples.random_sentence(range(9))
    average, total = (method(f"zhu:paths={paths}", relations=examples.RELATIONS) for paths in ("average", "sum"))
    total.load_state_dict(average.state_dict())
    q = k = torch.randn(1, 4, 9, 4)
    found = [built.content_scores(q, k, context(built, sentence)) for built in (average, total)]
    assert found[0].abs().max() > 0.1
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("spec", ["zhu", "cai_lam"])
def test_data_without_relations_is_refused(spec):
    with pytest.raises(parsing.PositionError, match=f"{spec}: the data has no relations between words"):
        method(spec)


def test_zero_relations_are_plain_attention():
    built = method("cai_lam", relations=examples.RELATIONS)
    torch.nn.init.zeros_(built.relation_of_layer)
    ctx = context(built, examples.random_sentence(range(9)))
    x, heads = torch.randn(1, 9, 16), torch.randn(1, 4, 9, 4)
    assert torch.equal(built.embed(x, x, ctx), x)  # the vectors of the depths are initially zero
    assert not built.content_scores(heads, heads, ctx.prepared_by(built)).any()
    built = method("zhu", relations=examples.RELATIONS)
    for name in ("key", "value"):
        torch.nn.init.zeros_(built.get_parameter(name))
    assert not built.content_scores(heads, heads, ctx.replace(side=context(built, examples.random_sentence(range(9))).side)).any()
