"""The trees and orders of the artificial language.

A tree must be correct, and contain the words of its source sentence. An order must be the word order of the target sentence.
"""

from random import Random

import conllu
import pytest

from fairseq_posenc.data.corpora import language, language_files, language_trees
from fairseq_posenc.data.corpora.language import Clause, NounPhrase, Relative, Sentence, Word
from fairseq_posenc.data.side import orders
from fairseq_posenc.data.side.trees import Job, convert


@pytest.fixture(scope="module")
def lexicon():
    return language.make_lexicon(3)


@pytest.fixture(scope="module")
def sentences(lexicon):
    rng = Random("sentences of the tests")
    return [language.draw_sentence(rng, lexicon, 1 + i % 3) for i in range(400)]


def words_of(lexicon):
    """Return a dictionary: source word -> beginning of its counterpart in the target."""
    kinds = ("nouns", "verbs", "sayings", "adjectives", "prepositions", "particles", "conjunctions")
    found = {word.source: word.target for kind in kinds for word in getattr(lexicon, kind)}
    found |= {word.source + lexicon.plural.source: word.target + lexicon.plural.target for word in lexicon.nouns}
    return found | {word.source: word.target for word in (lexicon.definite, lexicon.complementizer)}


def test_every_sentence_has_a_tree_of_its_words(sentences, lexicon):
    for sentence in sentences:
        found = language_trees.analyse(sentence, lexicon)
        assert found.forms == language.source(sentence, lexicon)
        assert found.heads.count(0) == 1 and found.relations[found.heads.index(0)] == "root"
        for word in range(1, len(found.forms) + 1):
            walked = word
            for _ in found.forms:
                walked = found.heads[walked - 1] if walked else 0
            assert walked == 0


def test_the_order_is_that_of_the_target(sentences, lexicon):
    """`order` contains the source words in the order of their counterparts in the target.

    The test does not compare words without a counterpart.
    """
    counterpart = words_of(lexicon)
    for sentence in sentences:
        found = language_trees.analyse(sentence, lexicon)
        assert sorted(found.order) == list(range(1, len(found.forms) + 1))
        read = [found.forms[word - 1] for word in found.order if found.forms[word - 1] != lexicon.indefinite]
        target = language.target(sentence, lexicon)
        assert len(read) == len(target)
        for word, there in zip(read, target):
            relative = word == lexicon.who.source
            begins = (lexicon.who.target, lexicon.whom.target) if relative else (counterpart[word],)
            assert there.startswith(begins), (word, there)


def test_a_sentence_by_hand():
    """Compare the tree, the order and the edges of one sentence with an analysis by hand.

    The sentence is: THE noun THAT verb A noun SAY COMP nouns verb THE noun PREP THE noun.
    """
    lexicon = language.make_lexicon(3)

    def noun(number, **options):
        return NounPhrase(Word(f"noun{number}", f"NOUN{number}"), **{"plural": False, "definite": True, **options})

    verb = [Word(f"verb{number}", f"VERB{number}") for number in range(3)]
    subject = noun(1, relative=Relative(verb[0], noun(2, definite=False), head_is_subject=True))
    said = Clause(noun(3, plural=True, definite=False), verb[2], noun(4), place=noun(5), preposition=Word("prep", "POST"))
    found = language_trees.analyse(Sentence((Clause(subject, verb[1], said=said),), ()), lexicon)
    the, that, comp, a = (
        lexicon.definite.source, lexicon.who.source, lexicon.complementizer.source, lexicon.indefinite,
    )  # fmt: skip
    rows = [  # form, head, relation
        (the, 2, "det"), ("noun1", 7, "nsubj"), (that, 4, "nsubj"), ("verb0", 2, "acl:relcl"), (a, 6, "det"), ("noun2", 4, "obj"),
        ("verb1", 0, "root"), (comp, 10, "mark"), ("noun3s", 10, "nsubj"), ("verb2", 7, "ccomp"), (the, 12, "det"),
        ("noun4", 10, "obj"), ("prep", 15, "case"), (the, 15, "det"), ("noun5", 10, "obl"),
    ]  # fmt: skip
    assert list(zip(found.forms, found.heads, found.relations)) == rows
    assert found.order == [1, 2, 3, 5, 6, 4, 9, 14, 15, 13, 11, 12, 10, 8, 7]
    assert found.edges(3) == [(2, "ref")] and found.edges(2) == [(4, "nsubj"), (7, "nsubj")] and found.edges(7) == [(0, "root")]


def test_the_files_are_conllu_and_side_files(tmp_path, lexicon):
    sizes = {"train": 40, "valid": 5, "test": 5, "test_long": 3}
    language_files.write(tmp_path / "plain", 3, sizes)
    language_files.write(tmp_path / "structure", 3, sizes, structure=True)
    for path in (tmp_path / "plain").iterdir():
        assert path.read_bytes() == (tmp_path / "structure" / path.name).read_bytes()
    for part, size in sizes.items():
        text = tmp_path / "structure" / f"{part}.svo"
        trees = conllu.parse(text.with_name(f"{part}.svo.conllu").read_text())
        assert [" ".join(word["form"] for word in tree) for tree in trees] == text.read_text().splitlines()
        assert convert(Job(text.with_name(f"{part}.svo.conllu"), text, edges="enhanced")) == size
        order = [list(map(int, line.split())) for line in text.with_name(f"{part}.svo.order").read_text().splitlines()]
        assert len(order) == size and all(sorted(places) == list(range(len(places))) for places in order)
        assert sum(map(orders.fuzzy_reordering_score, order)) / size < 0.7  # the word orders of both sides differ
        assert text.with_name(f"{part}.svo.order.source").read_text() == "the grammar of the language\n"
    assert "acl:relcl" in (tmp_path / "structure" / "train.svo.relations").read_text()
    assert ":ref " in (tmp_path / "structure" / "train.svo.edges").read_text()
