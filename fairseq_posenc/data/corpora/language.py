"""A small artificial language pair, generated from a seed. The meaning of a sentence depends on word order.

The model of the quickstart learns to translate this language. Source and target are generated from the same tree, which
represents the meaning. The source has verb-second order, and the target has verb-final order:

    source (svo)                                         target (sov)
    sentence    clause {CONJ clause}                     clause {CONJ clause}
    clause      NP VERB NP [PARTICLE] [PREP NP]          NP [PARTICLE] [NP POST] NP VERB+agr
                NP SAY COMP clause                       NP clause COMP SAY+agr
    NP          [THE | A] {ADJ} NOUN[+pl] [relative]     [THE+agr] NOUN[+pl] {ADJ+agr} [relative]
    relative    THAT VERB NP                             WHO+agr NP VERB+agr      WHO and VERB agree with the head noun
                THAT NP VERB                             WHOM+agr NP VERB+agr     WHOM agrees with the head noun, VERB with NP

A model must learn the following:

* Only word order distinguishes subject and object. There is no case, and every noun can be subject or object.
* `agr` is one of six endings: three genders times two numbers. The form of a noun does not show its gender. A final verb agrees
  with its subject. A particle, an adverbial, an object and relative clauses may be between the verb and its subject. A whole
  embedded clause is between SAY and the subject of SAY.
* The source particle follows the object, which can have any length. The target particle precedes the object.
* `A` has no counterpart in the target, so that source and target can differ in length.

Relative clauses modify subjects and objects of a clause. Relative clauses are not nested, and contain neither particles nor
adverbials. Embedded clauses contain no other embedded clauses. Every source sentence therefore has exactly one meaning, and
exactly one target sentence.

All random numbers are from `random.Random(text).random()`. Python guarantees the same sequence in all versions, so that a seed
leads to the same files on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import TypeVar

from ...core import PositionError

SOURCE, TARGET = "svo", "sov"
NORMAL = (4, 40)  # minimum and maximum number of words of source and target, in train, valid and test
LONG = (41, 60)  # minimum and maximum number of words of source and target, in test_long
# lengths -> numbers of clauses. The number of clauses of each sentence is drawn from these numbers. Afterwards, sentences with a
# wrong length are rejected
CLAUSES = {NORMAL: (1,) * 9 + (2, 2, 3, 4), LONG: (4, 5, 6)}
# MOST_WORDS: maximum number of words per sentence. MOST_TRIES: maximum number of successive rejected sentences
MOST_WORDS, MOST_TRIES = 1000, 50_000
SIZES = {"train": 20000, "valid": 200, "test": 300, "test_long": 150}

T = TypeVar("T")
#: part -> minimum and maximum number of words of its sentences
Lengths = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Word:
    source: str
    target: str
    gender: int = 0  # only for nouns


@dataclass(frozen=True)
class Lexicon:
    nouns: Sequence[Word]
    verbs: Sequence[Word]
    sayings: Sequence[Word]
    adjectives: Sequence[Word]
    prepositions: Sequence[Word]
    particles: Sequence[Word]
    conjunctions: Sequence[Word]
    definite: Word
    complementizer: Word
    who: Word  # in the source, `who` and `whom` are the same word, THAT
    whom: Word
    indefinite: str
    plural: Word  # endings of nouns
    endings: Sequence[str]  # endings of agreement, at the index 2 * gender + plural


@dataclass(frozen=True)
class NounPhrase:
    noun: Word
    plural: bool
    definite: bool
    adjectives: Sequence[Word] = ()
    relative: Relative | None = None

    @property
    def agreement(self) -> int:
        return 2 * self.noun.gender + self.plural


@dataclass(frozen=True)
class Relative:
    verb: Word
    other: NounPhrase
    head_is_subject: bool


@dataclass(frozen=True)
class Clause:
    subject: NounPhrase
    verb: Word
    object: NounPhrase | None = None
    particle: Word | None = None
    preposition: Word | None = None
    place: NounPhrase | None = None
    said: Clause | None = None  # the embedded clause after SAY. It replaces the four fields above


@dataclass(frozen=True)
class Sentence:
    clauses: Sequence[Clause]
    conjunctions: Sequence[Word]  # one conjunction between successive clauses


# --- the two sides ----------------------------------------------------------------------------------------------------


def source(sentence: Sentence, lexicon: Lexicon) -> list[str]:
    """Return the words of the source side of a sentence."""

    def phrase(np: NounPhrase) -> list[str]:
        article = [lexicon.definite.source] if np.definite else [] if np.plural else [lexicon.indefinite]
        words = article + [a.source for a in np.adjectives] + [np.noun.source + (lexicon.plural.source if np.plural else "")]
        if np.relative:
            verb, other = [np.relative.verb.source], phrase(np.relative.other)
            words += [lexicon.who.source] + (verb + other if np.relative.head_is_subject else other + verb)
        return words

    def clause(c: Clause) -> list[str]:
        words = [*phrase(c.subject), c.verb.source]
        if c.said:
            return [*words, lexicon.complementizer.source, *clause(c.said)]
        words += phrase(c.object) + ([c.particle.source] if c.particle else [])
        return words + ([c.preposition.source, *phrase(c.place)] if c.place else [])

    return _join([clause(c) for c in sentence.clauses], [w.source for w in sentence.conjunctions])


def target(sentence: Sentence, lexicon: Lexicon) -> list[str]:
    """Return the words of the target side of a sentence."""

    def agree(word: Word, np: NounPhrase) -> str:
        return word.target + lexicon.endings[np.agreement]

    def phrase(np: NounPhrase) -> list[str]:
        words = [agree(lexicon.definite, np)] if np.definite else []
        words += [np.noun.target + (lexicon.plural.target if np.plural else "")] + [agree(a, np) for a in np.adjectives]
        if np.relative:
            head_is_subject = np.relative.head_is_subject
            relative, subject = (lexicon.who, np) if head_is_subject else (lexicon.whom, np.relative.other)
            words += [agree(relative, np), *phrase(np.relative.other), agree(np.relative.verb, subject)]
        return words

    def clause(c: Clause) -> list[str]:
        words, verb = phrase(c.subject), agree(c.verb, c.subject)
        if c.said:
            return words + clause(c.said) + [lexicon.complementizer.target, verb]
        words += [c.particle.target] if c.particle else []
        words += [*phrase(c.place), c.preposition.target] if c.place else []
        return words + phrase(c.object) + [verb]

    return _join([clause(c) for c in sentence.clauses], [w.target for w in sentence.conjunctions])


def _join(clauses: Sequence[list[str]], conjunctions: Sequence[str]) -> list[str]:
    words = list(clauses[0])
    for conjunction, clause in zip(conjunctions, clauses[1:]):
        words += [conjunction, *clause]
    return words


# --- drawing ----------------------------------------------------------------------------------------------------------


def _pick(rng: Random, items: Sequence[T]) -> T:
    return items[int(rng.random() * len(items))]


def make_lexicon(seed: int) -> Lexicon:
    """Draw the words of the language. No form is drawn twice.

    Function words begin with a vowel, and content words begin with a consonant.
    """
    rng, taken = Random(f"lexicon {seed}"), set()

    def form(shape: str) -> str:
        while True:
            word = "".join(_pick(rng, "aeiou" if letter == "v" else "bdfgklmnprtz") for letter in shape)
            if word not in taken:
                taken.add(word)
                return word

    def function(count: int) -> list[Word]:
        return [Word(form("vc"), form("vc")) for _ in range(count)]

    def content(count: int) -> list[Word]:
        genders = cycle(range(3))
        return [Word(form("cvcv"), form("cvcv"), next(genders)) for _ in range(count)]

    definite, complementizer, who = function(3)
    return Lexicon(
        nouns=content(24), verbs=content(12), sayings=content(3), adjectives=content(6),
        prepositions=function(5), particles=function(4), conjunctions=function(4),
        definite=definite, complementizer=complementizer, who=who, whom=Word(who.source, form("vc")), indefinite=form("vc"),
        plural=Word("s", form("cv")), endings=[form("cv") for _ in range(6)],
    )  # fmt: skip


def draw_sentence(rng: Random, lexicon: Lexicon, clauses: int) -> Sentence:
    """Draw a random sentence with this number of clauses."""

    def chance(probability: float) -> bool:
        return rng.random() < probability

    def phrase(relative: float) -> NounPhrase:
        adjectives = tuple(_pick(rng, lexicon.adjectives) for _ in range(_pick(rng, (0, 0, 0, 1, 1, 2))))
        inner = Relative(_pick(rng, lexicon.verbs), phrase(relative=0), chance(0.5)) if chance(relative) else None
        return NounPhrase(_pick(rng, lexicon.nouns), chance(0.4), chance(0.5), adjectives, inner)

    def clause(saying: float) -> Clause:
        if chance(saying):
            return Clause(phrase(relative=0.2), _pick(rng, lexicon.sayings), said=clause(saying=0))
        subject, verb, thing = phrase(relative=0.2), _pick(rng, lexicon.verbs), phrase(relative=0.2)
        particle = _pick(rng, lexicon.particles) if chance(0.3) else None
        preposition, place = (_pick(rng, lexicon.prepositions), phrase(relative=0)) if chance(0.25) else (None, None)
        return Clause(subject, verb, thing, particle, preposition, place)

    return Sentence(
        tuple(clause(saying=0.1) for _ in range(clauses)), tuple(_pick(rng, lexicon.conjunctions) for _ in range(clauses - 1))
    )


def clauses(lengths: tuple[int, int]) -> Sequence[int]:
    """Return the numbers of clauses that a sentence can have. One of these numbers is drawn for each sentence.

    `lengths` are the minimum and maximum number of words of a sentence. A clause has at least 3 words, and seldom more than
    20 words.
    """
    low, high = lengths
    return CLAUSES.get(lengths) or range(max(1, low // 10), max(1, high // 8) + 1)


def sentences(seed: int, part: str, lengths: tuple[int, int] | None = None) -> Iterator[tuple[Sentence, str, str] | None]:
    """Yield (sentence, source, target). Yield None instead if source or target has a length outside `lengths`.

    By default, the split `part` determines the allowed lengths.
    """
    low, high = lengths = lengths or (LONG if part == "test_long" else NORMAL)
    rng, lexicon, numbers = Random(f"{part} {seed}"), make_lexicon(seed), clauses(lengths)
    while True:
        sentence = draw_sentence(rng, lexicon, _pick(rng, numbers))
        sides = source(sentence, lexicon), target(sentence, lexicon)
        fits = all(low <= len(side) <= high for side in sides)
        yield (sentence, " ".join(sides[0]), " ".join(sides[1])) if fits else None


def drawn_splits(seed: int, sizes: dict[str, int], lengths: Lengths | None) -> dict[str, list[tuple[Sentence, str, str]]]:
    """Return a mapping from part ("train", ...) to a list of (sentence, source, target).

    Raise PositionError if there are too few different sentences.
    """
    seen: set[str] = set()
    parts: dict[str, list[tuple[Sentence, str, str]]] = {}
    for part in sorted(sizes, key="train".__eq__):  # train is drawn last, so that its size does not change other parts
        found, stream, tries = [], sentences(seed, part, (lengths or {}).get(part)), 0
        while len(found) < sizes[part]:
            drawn, tries = next(stream), tries + 1
            if drawn and drawn[1] not in seen:
                seen.add(drawn[1])
                found.append(drawn)
                tries = 0
            if tries == MOST_TRIES:
                raise PositionError(
                    f"{part}: {sizes[part]:,} sentences requested. Expected about {len(found):,}, all sentences of these lengths "
                    "in this language. Request fewer sentences, or more lengths with --words and --long-words."
                )
        parts[part] = found
    return parts
