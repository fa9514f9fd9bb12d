"""Lines of side files with every kind of problem. Each problem has a code, and the error contains this code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_posenc.data.side import files, orders, words
from fairseq_posenc.data.side.files import Fault, SideError

from .conftest import EDGES, HEADS, ORDER, RELATIONS, SUBWORDS, WORDS

WRONG = [
    (files.parse_heads, "2 0", 3, "SIDE-LEN", "2 heads for the 3 words"),
    (files.parse_heads, "2 0 2 1", 3, "SIDE-LEN", "4 heads for the 3 words"),
    (files.parse_heads, "2 0 x", 3, "TREE-RANGE", "'x' is not the number of a word"),
    (files.parse_heads, "2 0 -1", 3, "TREE-RANGE", "'-1' is not the number of a word"),
    (files.parse_heads, "2 0 1_0", 3, "TREE-RANGE", "'1_0' is not the number of a word"),
    (files.parse_heads, "2 0 ٣", 3, "TREE-RANGE", "'٣' is not the number of a word"),
    (files.parse_heads, "2 0 99999999999999999999", 3, "TREE-RANGE", "is not the number of a word"),
    (files.parse_heads, "2 0 4", 3, "TREE-RANGE", "the head of word 3 is 4. Expected 0 (root) or a word from 1 to 3."),
    (files.parse_heads, "2 0 3", 3, "TREE-SELF", "word 3 is its own head"),
    (files.parse_heads, "2 3 1", 3, "TREE-ROOT", "there is no root"),
    (files.parse_heads, "0 0 1", 3, "TREE-ROOT", "words 1, 2 are roots"),
    (files.parse_heads, "0 3 2", 3, "TREE-CYCLE", "2 -> 3 -> 2"),
    (files.parse_heads, "0 3 4 2 2 5", 6, "TREE-CYCLE", "2 -> 3 -> 4 -> 2"),
    (files.parse_relations, "det root", 3, "SIDE-LEN", "2 relations for the 3 words"),
    (files.parse_edges, "1-2", 3, "SIDE-FORMAT", "'1-2' is not an edge. Expected FROM-TO:LABEL"),
    (files.parse_edges, "1-2:", 3, "SIDE-FORMAT", "'1-2:' is not an edge"),
    (files.parse_edges, "1-4:det", 3, "TREE-RANGE", "'1-4:det' has a wrong word. Expected words from 1 to 3"),
    (files.parse_edges, "4-1:det", 3, "TREE-RANGE", "'4-1:det' has a wrong word. Expected words from 1 to 3"),
    (files.parse_edges, "1-0:det", 3, "TREE-RANGE", "'1-0:det'"),
    (files.parse_edges, "2-2:det", 3, "TREE-SELF", "leads from a word to itself"),
    (files.parse_order, "0 2 2", 3, "ORDER-PERM", "word 1 is missing"),
    (files.parse_order, "1 2 3", 3, "ORDER-PERM", "word 0 is missing"),
    (files.parse_order, "0 2 one", 3, "ORDER-PERM", "'one' is not the number of a word"),
    (files.parse_order, "0 1", 3, "SIDE-LEN", "2 places for the 3 words"),
    (lambda line, n: files.parse_words(line, 4, n), "1 1 2", 3, "SIDE-MAP", "3 word numbers for 4 subwords"),
    (
        lambda line, n: files.parse_words(line, 4, n),
        "1 2 1 3",
        3,
        "SIDE-MAP",
        "subword 3 belongs to word 1, but the one before it to word 2",
    ),
    (
        lambda line, n: files.parse_words(line, 4, n),
        "1 1 3 3",
        3,
        "SIDE-MAP",
        "subword 3 belongs to word 3, but the one before it to word 1",
    ),
    (lambda line, n: files.parse_words(line, 4, n), "0 1 2 3", 3, "SIDE-MAP", "subword 1 belongs to word 0"),
    (
        lambda line, n: files.parse_words(line, 4, n),
        "1 1 2 2",
        3,
        "SIDE-MAP",
        "the subwords belong to 2 words, but the",
    ),
    (orders.parse_links, "0-0 1", 3, "SIDE-FORMAT", "'1' is not a word alignment"),
    (orders.parse_links, "0-0 3-1", 3, "SIDE-LEN", "Expected source words from 0 to 2"),
]


@pytest.mark.parametrize("parse, line, words, code, message", WRONG, ids=[f"{row[3]}-{row[1]}" for row in WRONG])
def test_what_is_wrong_is_named(parse, line, words, code, message):
    with pytest.raises(Fault) as fault:
        parse(line, words)
    assert fault.value.code == code and message in fault.value.detail
    error = fault.value.at("text/train.en.heads", 7)
    assert isinstance(error, SideError) and str(error).startswith(f"{code}: text/train.en.heads, line 7: ")
    assert "\n" not in str(error)


def test_the_reference_is_right():
    assert files.parse_heads(HEADS, 6) == [2, 3, 0, 6, 6, 3]
    assert files.parse_relations(RELATIONS, 6) == RELATIONS.split()
    assert files.parse_edges(EDGES, 6)[2:4] == [(0, 3, "root"), (6, 4, "det")]
    assert files.parse_edges("1-2:nmod:in-between", 2) == [(1, 2, "nmod:in-between")]
    assert files.parse_order(ORDER, 6) == [0, 1, 3, 4, 5, 2]
    assert files.parse_heads("", 0) == files.parse_order("", 0) == files.parse_edges("", 0) == []


def test_further_roots_hang_off_the_first():
    assert files.parse_heads("0 1 0 3 0", 5, "first") == [0, 1, 1, 3, 1]
    with pytest.raises(Fault, match="TREE-CYCLE"):
        files.parse_heads("0 0 4 3", 4, "first")


@given(st.lists(st.integers(0, 8), max_size=8))
def test_a_tree_is_what_leads_to_one_root(heads):
    """Compare with the definition: there is one root, and every word reaches it in at most n steps."""

    def reaches_root(word):
        for _ in range(len(heads) + 1):
            if word == 0:
                return True
            if word > len(heads):
                return False
            word = heads[word - 1]
        return False

    right = all(reaches_root(word) for word in range(1, len(heads) + 1)) and heads.count(0) == bool(heads)
    try:
        assert files.check_tree(heads) == heads
        accepted = True
    except Fault:
        accepted = False
    assert accepted == right


# --- words of subwords ---


@pytest.mark.parametrize(
    "scheme, line, text, expected",
    [
        ("none", "a b c", "a b c", [1, 2, 3]),
        ("subword_nmt", SUBWORDS, WORDS, [1, 2, 3, 4, 5, 5, 6]),
        ("subword_nmt", "a@@ b@@ c d", "abc d", [1, 1, 1, 2]),
        ("sentencepiece", "▁The ▁c at ▁ch as ed", "The cat chased", [1, 2, 2, 3, 3, 3]),
        ("sentencepiece", "The ▁ cat", "The cat", [1, 2, 2]),
        ("sentencepiece", "", "", []),
    ],
)
def test_words_of_subwords(scheme, line, text, expected):
    assert words.SUBWORDS[scheme](line.split(), text.split()) == expected


def test_a_piece_of_several_words_is_refused():
    with pytest.raises(Fault, match="several words"):
        words.SUBWORDS["sentencepiece"](["▁of▁the"], ["of", "the"])


# --- orders ---


def test_the_order_of_an_alignment():
    links = orders.parse_links("0-0 0-1 1-4 1-5 3-2 4-6", 5)
    order = orders.order_of_links(links, 5)
    assert order == [0, 3, 1, 2, 4]
    assert orders.kendall_tau(order) == pytest.approx(0.8)
    assert orders.fuzzy_reordering_score(order) == pytest.approx(0.5)  # 3 of 6 pairs are discontinuous: 0->3, 3->1, 2->4


@pytest.mark.parametrize(
    "line, words, order",
    [
        ("", 3, [0, 1, 2]),  # no word is aligned
        ("2-0", 3, [0, 1, 2]),  # words before the first linked word stay before this word
        ("1-5 2-0", 4, [2, 3, 0, 1]),  # other words follow the nearest linked word on their left
        ("0-1 1-1 2-0", 3, [2, 0, 1]),  # equal positions keep the order of the source
        ("3-2 ||| 0-1 1-0", 3, [1, 2, 0]),  # with word numbers before the links
    ],
)
def test_words_without_links(line, words, order):
    assert orders.order_of_links(orders.parse_links(line, words), words) == order


@given(st.permutations(range(7)), st.permutations(range(7)))
def test_an_order_relative_to_another_order(order, other):
    assert orders.relative_to(order, order) == sorted(order)
    assert orders.kendall_tau(orders.relative_to(order, other)) == pytest.approx(
        orders.kendall_tau(orders.relative_to(other, order))
    )
    assert 0 <= orders.kendall_tau(order) <= 1 and 0 <= orders.fuzzy_reordering_score(order) <= 1


def test_measures_at_their_ends():
    assert orders.kendall_tau([2, 1, 0]) == 0 and orders.fuzzy_reordering_score([2, 1, 0]) == 0
    assert orders.kendall_tau(range(5)) == orders.fuzzy_reordering_score(range(5)) == 1
    assert orders.kendall_tau([0]) == orders.fuzzy_reordering_score([]) == 1
