"""The artificial language: it is reproducible, and its sentences have the requested lengths.

The order of the source words determines the target.
"""

from collections import Counter
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from random import Random

import pytest

from fairseq_posenc.data.corpora import language, language_files
from fairseq_posenc.data.corpora.language import LONG, NORMAL, Sentence

SEED = 7
SIZES = {"train": 2000, "valid": 50, "test": 80, "test_long": 60}


def splits(sizes, lengths=None):
    """Return a mapping from part ("train", ...) to a list of sentence pairs (source, target)."""
    drawn = language.drawn_splits(SEED, sizes, lengths)
    return {part: [(source, target) for _, source, target in found] for part, found in drawn.items()}


@pytest.fixture(scope="module")
def parts():
    return splits(SIZES)


@pytest.fixture(scope="module")
def lexicon():
    return language.make_lexicon(SEED)


@pytest.fixture(scope="module")
def sentences(lexicon):
    rng = Random("sentences of the tests")
    return [language.draw_sentence(rng, lexicon, 1 + i % 3) for i in range(500)]


class Translator:
    """Read a source sentence word by word, and return its translation.

    This translator was written from the grammar, without the code of the package.
    """

    def __init__(self, lexicon):
        self.lexicon = lexicon
        self.kinds = {}
        for kind in ("nouns", "verbs", "sayings", "adjectives", "prepositions", "particles", "conjunctions"):
            self.kinds.update({word.source: (kind, word) for word in getattr(lexicon, kind)})

    def kind(self):
        return self.kinds.get(self.words[0], (None, None))[0] if self.words else None

    def take(self, *kinds):
        kind, word = self.kinds[self.words.pop(0)]
        assert kind in kinds
        return word.target

    def noun_phrase(self, may_have_relative=True):
        """Return the words of a noun phrase in the target, and its agreement ending."""
        definite = self.words[0] == self.lexicon.definite.source
        if definite or self.words[0] == self.lexicon.indefinite:
            self.words.pop(0)
        adjectives = []
        while self.kind() == "adjectives":
            adjectives.append(self.take("adjectives"))
        plural = self.words[0].endswith("s")
        self.words[0] = self.words[0].removesuffix("s")
        gender = self.kinds[self.words[0]][1].gender
        ending = self.lexicon.endings[gender * 2 + plural]
        out = [self.lexicon.definite.target + ending] if definite else []
        out += [self.take("nouns") + (self.lexicon.plural.target if plural else "")] + [a + ending for a in adjectives]
        if may_have_relative and self.words and self.words[0] == self.lexicon.who.source:
            self.words.pop(0)
            out += self.relative(ending)
        return out, ending

    def relative(self, ending):
        if self.kind() == "verbs":
            verb = self.take("verbs")
            return [self.lexicon.who.target + ending, *self.noun_phrase(False)[0], verb + ending]
        subject, subject_ending = self.noun_phrase(False)
        return [self.lexicon.whom.target + ending, *subject, self.take("verbs") + subject_ending]

    def clause(self):
        subject, ending = self.noun_phrase()
        saying = self.kind() == "sayings"
        verb = self.take("verbs", "sayings") + ending
        if saying:
            assert self.words.pop(0) == self.lexicon.complementizer.source
            return [*subject, *self.clause(), self.lexicon.complementizer.target, verb]
        thing = self.noun_phrase()[0]
        particle = [self.take("particles")] if self.kind() == "particles" else []
        place = []
        if self.kind() == "prepositions":
            postposition = self.take("prepositions")
            place = [*self.noun_phrase(False)[0], postposition]
        return [*subject, *particle, *place, *thing, verb]

    def __call__(self, source):
        self.words = source.split()
        out = self.clause()
        while self.words:
            out += [self.take("conjunctions"), *self.clause()]
        return " ".join(out)


def test_one_seed_gives_the_same_files_and_another_seed_a_different_language(tmp_path):
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        language_files.write(tmp_path / folder, seed, SIZES)
    read = {folder: {p.name: p.read_bytes() for p in (tmp_path / folder).iterdir()} for folder in "abc"}
    assert read["a"] == read["b"]
    assert read["a"].keys() == {f"{part}.{side}" for part in SIZES for side in ("svo", "sov")}
    assert not any(read["a"][name] == read["c"][name] for name in read["a"])


@pytest.mark.parametrize(("part", "digest"), [("test", "f80c7286edcbcfaa"), ("test_long", "6cd8a01fc4892159")])
def test_the_sentences_of_seed_1_never_change(part, digest):
    """The numbers in the README and in reports were computed on sentences of seed 1."""
    drawn = filter(None, language.sentences(1, part))
    text = "".join(f"{source}\t{target}\n" for _, source, target in islice(drawn, 100))
    assert sha256(text.encode()).hexdigest()[:16] == digest


def test_sizes_and_lengths(parts):
    assert {name: len(part) for name, part in parts.items()} == SIZES
    for name, part in parts.items():
        low, high = LONG if name == "test_long" else NORMAL
        assert all(low <= len(side.split()) <= high for pair in part for side in pair)
    lengths = [[len(source.split()) for source, _ in parts[name]] for name in ("train", "test_long")]
    assert min(lengths[0]) <= 5 and max(lengths[0]) == 40 < min(lengths[1])


def test_no_sentence_occurs_twice(parts):
    sources = [source for part in parts.values() for source, _ in part]
    assert len(sources) == len(set(sources))


def test_more_training_sentences_change_nothing_else(parts):
    more = splits({**SIZES, "train": 2100})
    assert {**more, "train": more["train"][:2000]} == parts


def test_a_reader_of_the_grammar_translates_every_source(parts, lexicon):
    """`Translator` computes every target from its source only. Therefore, no source sentence has two meanings."""
    translate = Translator(lexicon)
    for source, target in (pair for part in parts.values() for pair in part):
        assert translate(source) == target


def test_exchanged_subject_and_object_keep_the_words_and_change_the_meaning(sentences, lexicon):
    exchanged = 0
    for sentence in sentences:
        clause = sentence.clauses[0]
        if clause.said or clause.subject == clause.object:
            continue
        swapped = replace(clause, subject=clause.object, object=clause.subject)
        other = Sentence((swapped, *sentence.clauses[1:]), sentence.conjunctions)
        before, after = language.source(sentence, lexicon), language.source(other, lexicon)
        assert Counter(before) == Counter(after) and before != after
        assert language.target(sentence, lexicon) != language.target(other, lexicon)
        exchanged += 1
    assert exchanged > 300


def test_the_verb_agrees_with_its_subject_at_a_distance(sentences, lexicon):
    """If the number of the subject changes, the ending of the verb changes. The verb is the last word of the target.

    The verb also agrees with its subject if many words are between them.
    """
    farthest = 0
    for sentence in sentences:
        clause = sentence.clauses[-1]
        other = replace(clause, subject=replace(clause.subject, plural=not clause.subject.plural))
        one, two = (language.target(Sentence((c,), ()), lexicon) for c in (clause, other))
        stem = clause.verb.target
        assert one[-1].startswith(stem) and two[-1].startswith(stem) and one[-1] != two[-1]
        changed = [i for i, (a, b) in enumerate(zip(one, two)) if a != b]
        farthest = max(farthest, changed[-1] - changed[-2])
    assert farthest >= 15


def test_verb_particle_and_adverbial_move(sentences, lexicon):
    for sentence in sentences:
        clause = next((c for c in sentence.clauses if c.particle and c.place), None)
        if clause is None:
            continue
        alone = Sentence((clause,), ())
        source, target = language.source(alone, lexicon), language.target(alone, lexicon)
        verb, particle, preposition = clause.verb, clause.particle, clause.preposition
        thing = clause.object.noun
        assert source.index(verb.source) < source.index(particle.source) < source.index(preposition.source)
        places = [target.index(particle.target), target.index(preposition.target), len(target) - 1]
        assert places == sorted(places) and target[-1].startswith(verb.target)
        assert any(word.startswith(thing.target) for word in target[places[1] + 1 : -1])


def test_words(lexicon, parts):
    sides = [{word for part in parts.values() for pair in part for word in pair[side].split()} for side in (0, 1)]
    assert not sides[0] & sides[1]
    assert 70 < len(sides[0]) < 100 and 150 < len(sides[1]) < 220
    trained = {word for source, _ in parts["train"] for word in source.split()}
    assert sides[0] == trained


def test_the_command_writes_and_tells(tmp_path, capsys):
    from fairseq_posenc.cli import main

    assert (
        main(["data", "language", str(tmp_path / "text"), "--train", "30", "--valid", "3", "--test", "4", "--test-long", "0"])
        == 0
    )
    printed = capsys.readouterr().out
    assert "train          30 sentences" in printed and "for example: " in printed
    assert len((tmp_path / "text" / "train.svo").read_text().splitlines()) == 30
    assert (tmp_path / "text" / "test_long.sov").read_text() == ""


def test_a_full_disk_is_one_line(tmp_path, capsys, full_disk):
    from fairseq_posenc.cli import main

    with full_disk(1000):
        assert main(["data", "language", str(tmp_path / "text"), "--train", "300"]) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path / 'text' / 'valid.svo'}: cannot be written (File too large" in error and error.count("\n") == 1
    assert not list((tmp_path / "text").iterdir())


def test_a_size_below_zero_is_one_line(tmp_path, capsys):
    from fairseq_posenc.cli import main

    assert main(["data", "language", str(tmp_path), "--test", "-1"]) == 2
    error = capsys.readouterr().err
    assert "argument --test: '-1' is not a whole number from 0" in error and error.count("\n") == 1


def test_lengths_that_are_asked_for():
    ranges = {"train": (4, 12), "valid": (4, 12), "test_long": (61, 80)}
    found = splits({"train": 50, "valid": 20, "test_long": 30}, ranges)
    for part, (low, high) in ranges.items():
        assert all(low <= len(side.split()) <= high for pair in found[part] for side in pair), part
    assert max(len(source.split()) for source, _ in found["test_long"]) > 70


@pytest.mark.parametrize(
    "options, says",
    [
        (
            ["--words", "5", "2"],
            "--words 5 2: not allowed. Expected the minimum and the maximum number of words, from 1 to 1000.",
        ),
        (["--long-words", "0", "9"], "--long-words: '0' is not a positive whole number"),
        (["--words", "1", "2"], "Expected about 0, all sentences of these lengths"),  # all sentences have more words
    ],
)
def test_lengths_that_cannot_be_are_one_line(options, says, tmp_path, capsys):
    from fairseq_posenc.cli import main

    assert main(["data", "language", str(tmp_path), *options]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_the_old_name_of_the_command_works_with_a_notice(tmp_path, capsys):
    from fairseq_posenc.cli import main

    assert main(["language", str(tmp_path / "text"), "--train", "3"]) == 0
    assert capsys.readouterr().err == "posenc language: renamed to posenc data language. The old name works in this version.\n"
