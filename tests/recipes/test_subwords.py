"""recipes/lib/spm.py splits text into pieces. recipes/lib/parts.py writes the dictionary of these pieces."""

import subprocess

import pytest

from tests.recipes.process import ROOT, programs

#: a sentence with characters that SentencePiece's default normalisation rule changes
TEXT = "½ cup of ﬁne coffee ﬂour № 5 costs \uff11\uff12 €"


def script(name, *words):
    subprocess.run([f"{programs()}/python", f"recipes/lib/{name}", *map(str, words)], cwd=ROOT, check=True, capture_output=True)


def prepare(folder, lines, rule="identity", sampled=1_000_000, vocabulary=60, kind="bpe"):
    """Return the segmented English lines, the dictionary entries, and all pieces of the subword model.

    parts.py writes the dictionary.
    """
    for language in ("en", "de"):
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    texts = [folder / f"train.{language}" for language in ("en", "de")]
    script("spm.py", "train", kind, rule, vocabulary, folder / "subwords", sampled, *texts)
    files = [path for text in texts for path in (text, folder / f"train.sub{text.suffix}")]
    script("spm.py", "encode", folder / "subwords.model", 1, *files)
    script("parts.py", 1000000, folder / "dict", folder / "parts", folder / "train.sub", "en", "de")
    types = [line.rpartition(" ")[0] for line in (folder / "dict").read_text(encoding="utf-8").splitlines()]
    pieces = [line.partition("\t")[0] for line in (folder / "subwords.vocab").read_text(encoding="utf-8").splitlines()]
    return (folder / "train.sub.en").read_text(encoding="utf-8").splitlines(), types, pieces


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_dictionary_contains_only_pieces_of_the_model(tmp_path, kind):
    """Some lines contain characters that are not in the training text of the model.

    Each sequence of such characters becomes one unknown symbol.
    """
    foreign = [f"see {chr(0x4E00 + number)}{chr(0x5E00 + number)} there" for number in range(100)]
    lines = [line for pair in zip(["see him and her there now"] * 100, foreign) for line in pair]
    split, types, pieces = prepare(tmp_path, lines, sampled=100, vocabulary=18, kind=kind)
    types = [name for name in types if not name.startswith("madeupword")]
    assert set(types) <= set(pieces) and len(types) > 5
    assert all("<unk>" in line.split() for line in split[1::2]) and "<unk>" not in " ".join(split[::2]).split()


def test_identity_changes_no_character(tmp_path):
    split, _, _ = prepare(tmp_path, [TEXT] * 20)
    assert {line.replace(" ", "").replace("\u2581", " ").strip() for line in split} == {TEXT}


def test_the_default_rule_changes_characters(tmp_path):
    split, _, _ = prepare(tmp_path, [TEXT] * 20, rule="nmt_nfkc")
    joined = split[0].replace(" ", "").replace("\u2581", " ").strip()
    assert joined == "1\u20442 cup of fine coffee flour No 5 costs 12 €"


def test_white_space_of_any_kind_ends_a_word(tmp_path):
    lines = [f"a{space}b bc{space}cd a{space}b" for space in ("\u00a0", "\u3000", "\u2009", "\t", "\u2028", "\x85")]
    split, types, pieces = prepare(tmp_path, lines * 20, vocabulary=14)
    assert len(split) == len(lines) * 20
    assert {line.replace(" ", "").replace("\u2581", " ").strip() for line in split} == {"a b bc cd a b"}
    assert {name for name in types if not name.startswith("madeupword")} <= set(pieces)
