"""fairseq's hub interface: its translations of raw text are equal to the translations that fairseq-generate prints.

Its alignments are equal to the alignments of stock fairseq.
"""

import ast
import dataclasses
import random
import re
from pathlib import Path

import pytest
import sentencepiece
import torch
from fairseq.models.transformer import TransformerModel

import fairseq_posenc as posenc

DOCUMENT = Path(__file__).parents[2] / "docs" / "howto" / "translate_raw_text.md"
LANGUAGES = ["--source-lang", "fw", "--target-lang", "bw"]


@pytest.fixture(scope="module")
def subwords(fairseq, tmp_path_factory):
    """Write the folder of docs/howto/translate_raw_text.md: checkpoints/, data-bin/ and spm.model.

    Sentences are random words. The target has the words of the source in reverse order.
    """
    folder, draw = tmp_path_factory.mktemp("subwords"), random.Random(1)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 3))) for _ in range(12)]
    for part, size in (("train", 60), ("test", 6)):
        lines = [draw.choices(words, k=draw.randint(2, 5)) for _ in range(size)]
        (folder / f"raw.{part}.fw").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"raw.{part}.bw").write_text("".join(" ".join(reversed(line)) + "\n" for line in lines))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "raw.train.fw"), model_prefix=str(folder / "spm"), vocab_size=24, model_type="bpe", minloglevel=2
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    for raw in folder.glob("raw.*"):
        split = [" ".join(pieces.encode(line, out_type=str)) for line in raw.read_text().splitlines()]
        (folder / raw.name.removeprefix("raw.")).write_text("\n".join(split) + "\n")
    prefixes = [f"--{part}pref={folder / part}" for part in ("train", "test")]
    fairseq.run("fairseq-preprocess", *LANGUAGES, "--joined-dictionary", "--destdir", folder / "data-bin", *prefixes).succeeded()
    own = dataclasses.replace(fairseq, data=folder / "data-bin", folder=tmp_path_factory.mktemp("hub"))
    options = ["--share-all-embeddings", "--max-update", 40, "--dropout", 0, "--task", "posenc_translation"]
    own.train("posenc_t5_tiny", folder / "checkpoints", *options).succeeded()
    (folder / "checkpoints" / "checkpoint_last.pt").rename(folder / "checkpoints" / "checkpoint_best.pt")
    return folder, own


@pytest.mark.slow
def test_the_document_runs_as_printed_and_translates_as_generate(subwords, monkeypatch, capfd):
    folder, own = subwords
    monkeypatch.chdir(folder)
    blocks, names = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL), {}
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)
    translation, alignment = capfd.readouterr().out.splitlines()[-2:]
    assert "▁" not in translation and ast.literal_eval(alignment.replace("tensor", "")), (translation, alignment)

    model = names["model"]
    sources = (folder / "raw.test.fw").read_text().splitlines()
    options = ["--path", folder / "checkpoints" / "checkpoint_best.pt", "--beam", 5, "--remove-bpe", "sentencepiece", "--cpu"]
    job = ["fairseq-generate", own.data, *options, "--required-batch-size-multiple", 1, "--num-workers", 0]
    generated = own.run(*job).succeeded()
    expected = {number: row[0].split("\t")[1] for number, row in own.rows(generated, "D").items()}
    assert model.translate(sources, beam=5) == [expected[number] for number in range(len(sources))]
    assert len(set(expected.values())) > 1


@pytest.mark.slow
def test_alignments_are_those_of_stock_fairseq(fairseq, tmp_path):
    """Compare the alignments of a stock fairseq model and of this plugin's model with the same parameters."""
    sizes = ["--share-all-embeddings", "--max-update", 30]
    fairseq.train("transformer", tmp_path / "stock", *sizes).succeeded()
    same = ["--finetune-from-model", tmp_path / "stock" / "checkpoint_last.pt", "--max-update", 1, "--lr", 0]
    fairseq.train("posenc_sinusoidal", tmp_path / "own", *sizes, *same).succeeded()
    own, stock = (
        model.from_pretrained(str(tmp_path / name), "checkpoint_last.pt", str(fairseq.data))
        for model, name in ((posenc.PositionTransformer, "own"), (TransformerModel, "stock"))
    )
    assert type(own.models[0]) is posenc.PositionTransformer and type(stock.models[0]) is TransformerModel
    for sentence in ("a b c d e", "l", "c b a c"):
        found = [hub.generate([hub.encode(sentence)], beam=3, print_alignment="hard")[0][0] for hub in (own, stock)]
        assert torch.equal(found[0]["tokens"], found[1]["tokens"])
        assert list(found[0]["alignment"]) == list(found[1]["alignment"]) != []
        assert own.translate([sentence], beam=3, print_alignment="hard") == stock.translate([sentence], beam=3)


@pytest.mark.slow
def test_a_call_does_not_use_the_beam_size_of_an_earlier_call(subwords):
    folder, own = subwords
    hub = posenc.PositionTransformer.from_pretrained(str(folder / "checkpoints"), "checkpoint_best.pt", str(own.data))
    sentence = [hub.encode("a b c d")]
    expected = hub.generate(sentence * 3, beam=1)
    hub.generate(sentence * 3, beam=3)
    found = hub.generate(sentence * 3, beam=1)
    assert hub.models[0].decoder.beam_size == 1
    assert [[hypothesis["tokens"].tolist() for hypothesis in row] for row in found] == [
        [hypothesis["tokens"].tolist() for hypothesis in row] for row in expected
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "subject"),
    [(["--cross-position", "gaussian"], "gaussian"), (["--decoder-layers", 0], "a decoder without layers")],
)
def test_alignments_without_attention_weights_are_refused(fairseq, tmp_path, options, subject):
    fairseq.train("posenc_sinusoidal_tiny", tmp_path, *options).succeeded()
    hub = posenc.PositionTransformer.from_pretrained(str(tmp_path), "checkpoint_last.pt", str(fairseq.data))
    with pytest.raises(SystemExit, match=f"--print-alignment: {subject} computes no attention weights"):
        hub.generate([hub.encode("a b")], print_alignment="hard")
