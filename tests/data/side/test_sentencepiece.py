"""Words of SentencePiece's pieces. SentencePiece can delete characters of a word, or replace them by blanks."""

import sys
import unicodedata

import numpy as np
import pytest
import sentencepiece

from fairseq_posenc.core import Sentence
from fairseq_posenc.data.side import words
from fairseq_posenc.data.side.files import Fault, SideError
from fairseq_posenc.host.side.binarise import binarise
from fairseq_posenc.host.side.load import SideFiles
from fairseq_posenc.registry import card, method_class, names

RULES = ("identity", "nfkc", "nmt_nfkc")


@pytest.fixture(scope="module", params=RULES)
def model(request, tmp_path_factory):
    prefix = tmp_path_factory.mktemp("pieces") / request.param
    text = ["the cat sat on a mat", "a dog chased the small cat", "that mat is a small mat"] * 20
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_prefix=str(prefix), vocab_size=30, model_type="bpe",
        normalization_rule_name=request.param, minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")


#: words of a text. SentencePiece deletes or replaces some of their characters
TEXTS = [
    "the c\u200bat sat",  # a blank within a word
    "the c\u200b\u200bat s\ufeffat",
    "\ufeffthe cat\u200b sat",  # at the edges of words
    "the \u200b cat \u200b\ufeff",  # words without any other character
    "\u0001 the c\u0002at s\u007fat \u0003",  # deleted control characters
    "\u200b the cat\u00b4s mat",  # one word is deleted, and another word becomes two words
    "the\u00a8 \u00b4cat\u00b4\u00b4 \ufdfa",  # NFKC maps these characters to blanks and other characters
    "the c\u00ads\u200dat \u2060 m\ufffdat",  # no rule changes U+00AD, U+200D or U+2060
    "the\u2581cat sat \u2581",
    "日\u200b本 a \u200b 猫",
    "the cat sat",
]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_every_piece_belongs_to_the_word_from_which_it_was_made(model, text):
    """The text before the n-th blank leads to pieces of the first n words. Unknown pieces may be written as <unk>."""
    given = text.split()
    pieces = model.encode(text, out_type=str)
    ends = [len(model.encode(" ".join(given[:count]), out_type=str)) for count in range(len(given) + 1)]
    expected = [number for number in range(1, len(ends)) for _ in range(ends[number] - ends[number - 1])]
    assert words.of_sentencepiece(pieces, given) == expected
    known = {model.id_to_piece(number) for number in range(model.get_piece_size())}
    assert words.of_sentencepiece([piece if piece in known else "<unk>" for piece in pieces], given) == expected


def test_the_rules_are_the_rules_of_sentencepiece():
    """Compare the number of words that each character leads to, for all characters of Unicode that Python knows."""
    characters = [chr(number) for number in range(1, sys.maxunicode + 1)]
    characters = [each for each in characters if not each.isspace() and unicodedata.category(each) not in ("Cn", "Co", "Cs")]
    for place, rule in enumerate(RULES):
        normalise = sentencepiece.SentencePieceNormalizer(rule_name=rule).normalize
        for each in characters:
            expected = normalise(f"a{each}b").replace("\u2581", " ").split()
            assert len(words.readings.__wrapped__(f"a{each}b")[place]) == len(expected), ascii(each)


def test_a_binary_file_has_words_without_tokens(corpus, tmp_path):
    rows = [("the \u200b c\u200bat", "▁the ▁c ▁at"), ("\u200b", "")]
    part = corpus.write("train", rows, heads=["3 1 0", "0"])
    binarise([part], corpus.data, subwords="sentencepiece")
    sentence, empty = (SideFiles(part.data, ["heads"])[number] for number in range(2))
    assert sentence.words.tolist() == [0, 2, 2, 3] and sentence.heads.tolist() == [2, 0, -1, 2]
    assert empty.words.tolist() == [1] and empty.heads.tolist() == [-1, 0]


@pytest.mark.parametrize(
    "text, pieces, message",
    [
        ("the cat", "▁the ▁ca ▁t", "the subwords belong to 3 words, but the text has 2. Expected subwords of the same text."),
        (
            "the c\u00adat",
            "▁the ▁c ▁at",
            "the subwords belong to 3 words, but the text has 2. Word 2 contains the character U+00AD, which SentencePiece may "
            "have deleted or replaced by a blank. Expected subwords of the same text. Remove the character from the text.",
        ),
        ("", "▁the", "the subwords belong to 1 words, but the text has 0. Expected subwords of the same text."),
        (
            "日\u200b本 \u200b 猫",  # three unknown words, with and without U+200B
            "▁ <unk> ▁ <unk> ▁ <unk>",
            "the words of the subwords are ambiguous. Word 1 contains the character U+200B, which SentencePiece may have",
        ),
        (
            "a▁ b\u200bc",  # identity makes an empty word of the mark. nmt_nfkc makes two words of the second word
            "▁a ▁ ▁b\u200bc",
            "the words of the subwords are ambiguous. Word 1 contains the character U+2581, which SentencePiece may have",
        ),
        ("a\u0001", "", "the subwords belong to 0 words, but the text has 1. Word 1 contains the character U+0001,"),
    ],
)
def test_other_subwords_are_an_error_that_names_the_character(corpus, text, pieces, message):
    with pytest.raises(Fault) as fault:
        words.of_sentencepiece(pieces.split(), text.split())
    assert fault.value.code == "SIDE-MAP" and message in fault.value.detail
    part = corpus.write("train", [("a", "▁a"), (text, pieces)], heads=["0", " ".join(map(str, range(len(text.split()))))])
    with pytest.raises(SideError, match=r"^SIDE-MAP: .*train\.sub\.fw, line 2: the .*words"):
        binarise([part], corpus.data, subwords="sentencepiece")


@pytest.mark.parametrize("name", [name for name in names() if any(side.files for side in card(name).side_inputs)])
def test_a_word_without_tokens_stays_in_the_tree(name):
    """The values of all other tokens are equal to their values in the sentence in which the word has a token."""
    method = method_class(name)
    heads, order = np.array([1, 3, 1, -1, 3, 3]), np.array([2, 0, 1, 4, 3, 5])
    edges = np.array([[1, 0, 4], [3, 1, 5], [1, 2, 4], [3, 4, 6], [3, 5, 2]])
    of_tokens = np.array([0, 0, 1, 2, 2, 3, 4, 5])
    for word in range(5):
        kept = np.flatnonzero(of_tokens != word)
        whole, other = (
            method.side_values(Sentence(which, heads, np.array([4, 5, 4, 4, 6, 2]), edges, order), method.Options())
            for which in (of_tokens, of_tokens[kept])
        )
        for side in card(name).side_inputs:
            expected = whole[side.name][kept][:, kept] if side.words == 2 else whole[side.name][kept]
            if name == "xl_pe":  # positions of tokens in the other order, without gaps
                expected = np.argsort(np.argsort(expected))
            assert np.array_equal(other[side.name], expected)
