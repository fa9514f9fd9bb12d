"""Trees and reorderings of the artificial language, computed from its grammar. Trees have relations of Universal Dependencies.

Trees: the verb is the root of its clause, and the noun is the root of its phrase. The verb of each later clause depends on the
verb of the first clause (conj). The conjunction of a later clause depends on the verb of this later clause (cc). The relative
pronoun `THAT` depends on the verb of its relative clause. In the enhanced graph, `THAT` depends on the noun that the relative
clause describes (ref). In the enhanced graph, this noun also depends on the verb of the relative clause, with the relation that
`THAT` has in the tree.

Reorderings: the source words are in the order of their target words. The indefinite article `A` has no target word. `A` is
directly before its noun, like the definite article `THE`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...common.files import write_files
from .language import Clause, Lexicon, NounPhrase, Sentence

#: origin of these reorderings, for the file TEXT.order.source
ORDER_SOURCE = "the grammar of the language"


@dataclass
class Analysis:
    """A source sentence with its tree and reordering. Word indices are counted from 1. The root has head 0."""

    forms: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    relations: list[str] = field(default_factory=list)
    # word -> (head, relation) of every edge to this word in the enhanced graph. The dictionary contains only words whose
    # edges in the graph differ from their edge in the tree
    further: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)  # [n], the original word index at each position of the reordered sentence

    def add(self, form: str, tag: str) -> int:
        self.forms.append(form)
        self.tags.append(tag)
        self.heads.append(0)
        self.relations.append("root")
        return len(self.forms)

    def attach(self, word: int, head: int, relation: str) -> None:
        self.heads[word - 1], self.relations[word - 1] = head, relation

    def edges(self, word: int) -> list[tuple[int, str]]:
        """Return (head, relation) of every edge of the enhanced graph to this word."""
        return sorted(self.further.get(word, [(self.heads[word - 1], self.relations[word - 1])]))


def analyse(sentence: Sentence, lexicon: Lexicon) -> Analysis:
    """Return the source words of a sentence with their tree and their reordering."""
    found = Analysis()

    def phrase(np: NounPhrase) -> tuple[int, list[int]]:
        """Add the words of a noun phrase. Return the index of its noun, and the indices of its words in target order."""
        article = []
        if np.definite or not np.plural:
            article = [found.add(lexicon.definite.source if np.definite else lexicon.indefinite, "DET")]
        adjectives = [found.add(adjective.source, "ADJ") for adjective in np.adjectives]
        noun = found.add(np.noun.source + (lexicon.plural.source if np.plural else ""), "NOUN")
        for word in article:
            found.attach(word, noun, "det")
        for word in adjectives:
            found.attach(word, noun, "amod")
        return noun, [*article, noun, *adjectives, *(relative(np, noun) if np.relative else [])]

    def relative(np: NounPhrase, noun: int) -> list[int]:
        who = found.add(lexicon.who.source, "PRON")
        if np.relative.head_is_subject:
            verb = found.add(np.relative.verb.source, "VERB")
            other, rest = phrase(np.relative.other)
        else:
            other, rest = phrase(np.relative.other)
            verb = found.add(np.relative.verb.source, "VERB")
        roles = ("nsubj", "obj") if np.relative.head_is_subject else ("obj", "nsubj")
        found.attach(verb, noun, "acl:relcl")
        found.attach(who, verb, roles[0])
        found.attach(other, verb, roles[1])
        found.further[who] = [(noun, "ref")]
        found.further[noun] = [(verb, roles[0])]  # the edge from the noun's head in the tree is added at the end
        return [who, *rest, verb]

    def clause(c: Clause) -> tuple[int, list[int]]:
        """Add the words of a clause. Return the index of its verb, and the indices of its words in target order."""
        subject, order = phrase(c.subject)
        verb = found.add(c.verb.source, "VERB")
        found.attach(subject, verb, "nsubj")
        if c.said:
            complementizer = found.add(lexicon.complementizer.source, "SCONJ")
            said, inner = clause(c.said)
            found.attach(complementizer, said, "mark")
            found.attach(said, verb, "ccomp")
            return verb, [*order, *inner, complementizer, verb]
        thing, things = phrase(c.object)
        found.attach(thing, verb, "obj")
        particle, place = [], []
        if c.particle:
            particle = [found.add(c.particle.source, "ADV")]
            found.attach(particle[0], verb, "compound:prt")
        if c.place:
            preposition = found.add(c.preposition.source, "ADP")
            noun, where = phrase(c.place)
            found.attach(preposition, noun, "case")
            found.attach(noun, verb, "obl")
            place = [*where, preposition]
        return verb, [*order, *particle, *place, *things, verb]

    first = 0
    for number, each in enumerate(sentence.clauses):
        conjunction = [found.add(sentence.conjunctions[number - 1].source, "CCONJ")] if number else []
        verb, order = clause(each)
        for word in conjunction:
            found.attach(word, verb, "cc")
            found.attach(verb, first, "conj")
        first = first or verb
        found.order += [*conjunction, *order]
    for word, edges in found.further.items():
        if edges[0][1] != "ref":
            edges.append((found.heads[word - 1], found.relations[word - 1]))
    return found


def conllu(analysis: Analysis, number: int) -> str:
    """Return the CoNLL-U block of one sentence, including the blank line at the end."""
    lines = [f"# sent_id = {number}", f"# text = {' '.join(analysis.forms)}"]
    rows = zip(analysis.forms, analysis.tags, analysis.heads, analysis.relations)
    for word, (form, tag, head, relation) in enumerate(rows, 1):
        graph = "|".join(f"{start}:{label}" for start, label in analysis.edges(word))
        lines.append("\t".join([str(word), form, form, tag, "_", "_", str(head), relation, graph, "_"]))
    return "\n".join(lines) + "\n\n"


def write(text: Path, sentences: list[Sentence], lexicon: Lexicon) -> None:
    """Write TEXT.conllu, TEXT.order and TEXT.order.source next to the source text of these sentences."""
    analyses = [analyse(sentence, lexicon) for sentence in sentences]
    blocks = (conllu(analysis, number) for number, analysis in enumerate(analyses, 1))
    orders = (" ".join(str(word - 1) for word in analysis.order) + "\n" for analysis in analyses)
    contents = {"conllu": "".join(blocks), "order": "".join(orders), "order.source": ORDER_SOURCE + "\n"}
    write_files(text.parent, {f"{text.name}.{ending}": content for ending, content in contents.items()})
