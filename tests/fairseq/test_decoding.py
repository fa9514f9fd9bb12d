"""Decode with fairseq-generate and fairseq-interactive: the options that researchers use, on one trained model."""

import re

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.ngram_repeat_block import NGramRepeatBlock

import fairseq_posenc.host.plugin  # noqa: F401  (registers the models)
from fairseq_posenc.host.models.transformer.model import PositionTransformer


@pytest.fixture(scope="module")
def plain(fairseq, shaw) -> str:
    return fairseq.generate(shaw, "--beam", 4).succeeded()


@pytest.fixture(scope="module")
def numbers(fairseq, plain) -> dict:
    """Return a dictionary from the number of a sentence to its source, its hypothesis and the score of the hypothesis."""
    sources, rows = fairseq.rows(plain, "S"), fairseq.rows(plain, "H")
    split = {i: row[0].split("\t") for i, row in rows.items()}
    return {i: (sources[i][0], text, float(score)) for i, (score, text) in split.items()}


def hypotheses(fairseq, output: str) -> dict:
    return {i: [row.split("\t")[1] for row in rows] for i, rows in fairseq.rows(output, "H").items()}


def test_the_model_answers_with_letters(fairseq, numbers):
    assert sorted(numbers) == list(range(6))
    assert len({text for _, text, _ in numbers.values()}) > 2


def test_one_sentence_a_batch_gives_the_same(fairseq, shaw, numbers):
    """A batch of one sentence has no padding."""
    output = fairseq.generate(shaw, "--beam", 4, "--batch-size", 1).succeeded()
    for number, rows in fairseq.rows(output, "H").items():
        score, text = rows[0].split("\t")
        assert text == numbers[number][1]
        assert float(score) == pytest.approx(numbers[number][2], abs=1e-4)


def test_right_padded_sources_give_the_same(fairseq, shaw, numbers):
    # The option --left-pad-source sets left_pad_source to False.
    output = fairseq.generate(shaw, "--beam", 4, "--left-pad-source").succeeded()
    assert "'left_pad_source': False" in output
    assert {i: texts[0] for i, texts in hypotheses(fairseq, output).items()} == {i: row[1] for i, row in numbers.items()}


@pytest.mark.parametrize("beam", [1, 7])
def test_beams_of_any_size(fairseq, shaw, beam):
    found = hypotheses(fairseq, fairseq.generate(shaw, "--beam", beam, "--nbest", beam).succeeded())
    assert all(len(texts) == beam == len(set(texts)) for texts in found.values())


@pytest.mark.parametrize(
    "options",
    [["--sampling", "--nbest", 2], ["--sampling", "--nbest", 2, "--sampling-topk", 3], ["--match-source-len"], ["--lenpen", 2]],
    ids=["sampling", "sampling-topk", "match-source-len", "lenpen"],
)
def test_other_searches(fairseq, shaw, options):
    found = hypotheses(fairseq, fairseq.generate(shaw, "--beam", 2, *options).succeeded())
    assert sorted(found) == list(range(6))


def test_prefixes_are_kept(fairseq, shaw):
    output = fairseq.generate(shaw, "--beam", 2, "--prefix-size", 2).succeeded()
    targets = fairseq.rows(output, "T")
    for number, texts in hypotheses(fairseq, output).items():
        wanted = targets[number][0].split()[:2]
        assert texts[0].split()[: len(wanted)] == wanted


def test_references_are_scored(fairseq, shaw):
    output = fairseq.generate(shaw, "--score-reference").succeeded()
    targets = fairseq.rows(output, "T")
    assert {i: texts for i, texts in hypotheses(fairseq, output).items()} == targets


def test_ensembles_of_one_model_are_that_model(fairseq, shaw, numbers):
    output = fairseq.generate(f"{shaw}:{shaw}", "--beam", 4).succeeded()
    for number, rows in fairseq.rows(output, "H").items():
        score, text = rows[0].split("\t")
        assert text == numbers[number][1]
        assert float(score) == pytest.approx(numbers[number][2], abs=1e-4)


def test_ensembles_of_different_methods(fairseq, shaw, tmp_path):
    """The probabilities of the ensemble are the mean of the probabilities of its members."""
    fairseq.train("posenc_rope_tiny", tmp_path, "--share-all-embeddings", "--max-update", 20).succeeded()
    both = fairseq.generate(f"{shaw}:{tmp_path / 'checkpoint_last.pt'}", "--beam", 4, "--score-reference").succeeded()
    alone = [fairseq.generate(p, "--score-reference").succeeded() for p in (shaw, tmp_path / "checkpoint_last.pt")]

    def probabilities(output: str) -> torch.Tensor:  # probabilities of reference tokens. fairseq prints base-2 logarithms
        rows = fairseq.rows(output, "P")
        return torch.tensor([2 ** float(value) for i in sorted(rows) for value in rows[i][0].split()])

    mean = (probabilities(alone[0]) + probabilities(alone[1])) / 2
    torch.testing.assert_close(probabilities(both), mean, rtol=1e-3, atol=1e-4)


def test_ensembles_with_stock_score_references(fairseq, shaw, tmp_path):
    """In decoding, a model of stock fairseq always returns attention weights. Models of this plugin compute them on request."""
    fairseq.train("transformer", tmp_path, "--share-all-embeddings").succeeded()
    stock = tmp_path / "checkpoint_last.pt"
    outputs = [fairseq.generate(both, "--score-reference").succeeded() for both in (f"{stock}:{shaw}", f"{shaw}:{stock}")]
    scores = [[float(rows[0].split()[0]) for _, rows in sorted(fairseq.rows(output, "H").items())] for output in outputs]
    assert len(scores[0]) == 6 and scores[0] == pytest.approx(scores[1], abs=1e-3)


def test_sacrebleu_scores(fairseq, shaw):
    output = fairseq.generate(shaw, "--beam", 2, "--scoring", "sacrebleu", "--sacrebleu-tokenizer", "none").succeeded()
    assert re.search(r"Generate test with beam=2: .*BLEU\D+[\d.]+ ", output)


def test_the_long_test_set_decodes_too(fairseq, shaw):
    """Two sentences of this test set are more than twice as long as the longest training sentence."""
    output = fairseq.generate(shaw, "--gen-subset", "test1", "--beam", 2).succeeded()
    assert sorted(fairseq.rows(output, "H")) == list(range(6))


# --- alignments ---


def alignments(fairseq, output: str) -> dict:
    """Return a dictionary from sentence numbers to the pairs (source column, target column) of the best hypothesis."""
    return {i: [tuple(map(int, pair.split("-"))) for pair in rows[0].split()] for i, rows in fairseq.rows(output, "A").items()}


def test_hard_alignments_point_into_the_source(fairseq, shaw, numbers):
    found, alone = (
        alignments(fairseq, fairseq.generate(shaw, "--beam", 4, "--print-alignment", "--batch-size", size).succeeded())
        for size in (4, 1)
    )
    assert sorted(found) == list(range(6))
    assert found == alone  # a batch of 4 has padding on the left, a batch of 1 has no padding
    for number, pairs in found.items():
        source, hypothesis, _ = numbers[number]
        assert {at for _, at in pairs} <= set(range(len(hypothesis.split()) + 1))
        assert {column for column, _ in pairs} <= set(range(len(source.split()) + 1))
    assert len({column for pairs in found.values() for column, _ in pairs}) > 2


def test_soft_alignments_cover_the_source(fairseq, shaw, numbers):
    output = fairseq.generate(shaw, "--beam", 4, "--print-alignment", "soft").succeeded()
    found = fairseq.rows(output, "A")
    for number, (source, _, _) in numbers.items():
        rows = [[float(value) for value in row.split(",")] for row in found[number][0].split()]
        assert {len(row) for row in rows} == {len(source.split()) + 1}
        assert all(sum(row) == pytest.approx(1, abs=0.02) for row in rows)


# --- fairseq-interactive ---


def test_interactive_translates_what_it_reads(fairseq, shaw, numbers):
    text = "".join(source + "\n" for source, _, _ in (numbers[i] for i in sorted(numbers)))
    common = ["--path", shaw, "--cpu", "--beam", 4, "--max-len-b", 12, "--buffer-size", 6, "--batch-size", 3]
    output = fairseq.run("fairseq-interactive", fairseq.data, *common, input=text).succeeded()
    found = {i: texts[0] for i, texts in hypotheses(fairseq, output).items()}
    assert found == {i: row[1] for i, row in numbers.items()}


def test_validate_gives_the_loss(fairseq, shaw):
    options = ["--task", "translation", "--path", shaw, "--cpu", "--batch-size", 4, "--num-workers", 0, "--valid-subset", "valid"]
    output = fairseq.run("fairseq-validate", fairseq.data, *options, "--required-batch-size-multiple", 1).succeeded()
    assert 0 < float(re.search(r"valid on 'valid' subset \| loss ([\d.]+)", output)[1]) < 5


def test_a_checkpoint_loads_as_a_python_object(fairseq, shaw):
    """Notebooks and fairseq's hub interface load checkpoints in this way."""
    models, cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(shaw)], {"data": str(fairseq.data)})
    generator = task.build_generator(models, cfg.generation)
    source = task.source_dictionary.encode_line("a b c", add_if_not_exist=False).long().unsqueeze(0)
    sample = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([source.size(1)])}}
    best = generator.generate([models[0].eval()], sample)[0][0]
    assert best["tokens"][-1] == task.target_dictionary.eos()
    assert best["attention"].size(0) == source.size(1)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_the_hub_aligns_when_it_is_asked_to(fairseq, shaw, kind):
    """The first translation is without alignments. In this translation, attention computes no weights."""
    hub = PositionTransformer.from_pretrained(str(shaw.parent), shaw.name, data_name_or_path=str(fairseq.data))
    sentence = "a b c"
    expected = hub.translate([sentence], beam=2)
    assert hub.translate([sentence], beam=2, print_alignment=kind) == expected
    best = hub.generate([hub.encode(sentence)], beam=2, print_alignment=kind)[0][0]
    assert len(best["alignment"]) > 0


@pytest.mark.parametrize("size, banned", [(1, {5, 6, 7}), (2, {7}), (3, {7}), (4, set())])
def test_repeated_ngrams_are_not_generated_on_a_cpu(size, banned):
    """fairseq's function for CPUs compares padding instead of the last generated tokens, so it has no effect."""
    end, pad = 2, 1
    tokens = torch.tensor([[end, 5, 6, 7, 5, 6, pad, pad], [end, 8, 9, 10, 11, 12, pad, pad]])
    scores = NGramRepeatBlock(size, use_extension=False)(tokens, torch.zeros(2, 14), 1, 2, 5)
    found = [set(row.eq(float("-inf")).nonzero().flatten().tolist()) for row in scores]
    assert found == [banned, {8, 9, 10, 11, 12} if size == 1 else set()]
