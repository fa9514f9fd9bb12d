"""posenc analyse on small models: its tables and files, and its messages about wrong input."""

import csv
import shutil

import numpy
import pytest
import torch

from fairseq_posenc.evaluation.analysis import moved, reordering
from fairseq_posenc.evaluation.analysis.command import ANALYSES
from fairseq_posenc.evaluation.analysis.runs import load_runs


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def files(folder, name):
    found = {path.name for path in folder.iterdir()}
    assert {f"{name}.md", f"{name}.csv", f"{name}.svg", f"{name}.png"} <= found
    assert "![" in (folder / f"{name}.md").read_text()
    return found


def test_vectors(posenc, runs, tmp_path):
    status, out, _ = posenc("analyse", "vectors", runs["none"], runs["sinusoidal"], "--output", tmp_path / "new")
    assert status == 0 and "sinusoidal" in out
    none, sinusoidal = table(tmp_path / "new" / "vectors.csv")
    assert none["positions"] == "" and sinusoidal["positions"] == "40" and float(sinusoidal["absolute error"]) < 3
    alike = numpy.load(tmp_path / "new" / "vectors_1.npy")
    assert "vectors_1.npy" in files(tmp_path / "new", "vectors") and numpy.abs(alike - alike.T).max() < 1e-6
    for k in range(40):  # Toeplitz
        assert numpy.ptp(numpy.diagonal(alike, k)) < 1e-5


def test_identical_words_are_limited_to_the_maximum_of_the_model(posenc, runs):
    (longest,) = {run.model.encoder.max_positions() for run in load_runs([runs["none"]], None)}
    assert f"The input is {int(longest)} copies of one word." in posenc("analyse", "identical", runs["none"], "--length", 5000)[1]


def test_identical(posenc, runs, tmp_path):
    options = ["--length", 20, "--words", 5, "--output", tmp_path]
    assert posenc("analyse", "identical", runs["none"], runs["t5"], runs["gaussian"], *options)[0] == 0
    rows = {(row["method"], row["head"]): row for row in table(tmp_path / "identical.csv")}
    assert set(rows) == {(spec, head) for spec in ("none", "t5") for head in "01"}
    for head in "01":  # without positions, all scores are equal. With relative positions, scores of the same distance are equal
        assert [float(value) for value in list(rows["none", head].values())[2:]] == pytest.approx([1, 1, 0, 1], abs=1e-3)
        assert float(rows["t5", head]["translation invariance"]) == pytest.approx(1, abs=1e-3)
        assert float(rows["t5", head]["symmetry"]) < 0.999
    assert "encoder gaussian | -" in " ".join((tmp_path / "identical.md").read_text().split())
    files(tmp_path, "identical")


def test_sinusoids(posenc, tmp_path):
    assert posenc("analyse", "sinusoids", "--output", tmp_path)[0] == 0
    products = {int(row["k"]): float(row["P_t . P_(t+k)"]) for row in table(tmp_path / "sinusoids.csv")}
    assert len(products) == 101 and products[-2] == products[2] == pytest.approx(231.826)
    files(tmp_path, "sinusoids")


def test_moved_words_mean_nothing_to_a_model_without_positions(posenc, runs, tmp_path):
    status, _, _ = posenc("analyse", "moved", runs["none"], runs["sinusoidal"], "--beam", 1, "--output", tmp_path)
    none, sinusoidal = table(tmp_path / "moved.csv")
    assert status == 0 and none["BLEU"] == none["one word moved"] and float(none["loss"]) == 0
    assert sum(int(name.split("n = ")[1].rstrip(")")) for name in none if name.startswith("loss, by")) == 60
    assert sinusoidal["method"] == "sinusoidal"
    files(tmp_path, "moved")


def test_no_hypothesis_matches_an_unknown_word_of_a_reference(runs):
    (run,) = load_runs([runs["none"]])
    translator = moved.Translator(run, 1)
    unknown = torch.tensor([run.words.unk()])
    assert translator.text(unknown) == "<unk>" and translator.text(unknown, reference=True) == "<<unk>>"


@pytest.mark.parametrize("mode", ["frozen", "scratch"])
def test_reordering(posenc, runs, tmp_path, mode):
    training = ["--updates", 4, "--every", 2, "--batch", 8, "--lr", 0.01]
    status, out, _ = posenc("analyse", "reordering", runs["t5"], "--mode", mode, *training, "--output", tmp_path)
    (row,) = table(tmp_path / f"reordering_{mode}.csv")
    assert status == 0 and row["updates"] in ("2", "4") and "240 instances" in out
    assert 0 <= float(row["both"]) <= min(float(row["moved word"]), float(row["its place"])) <= 100
    files(tmp_path, f"reordering_{mode}")


def test_a_frozen_encoder_stays_and_a_new_one_learns(runs):
    (run,) = load_runs([runs["sinusoidal"]])
    given = {name: tensor.clone() for name, tensor in run.model.encoder.state_dict().items()}
    frozen, new = (reordering.detector(run, mode, 2) for mode in ("frozen", "scratch"))
    assert all(not p.requires_grad for p in frozen.encoder.parameters())
    learned = {name for name, p in new.encoder.named_parameters() if p.requires_grad}
    assert learned and not any("embed_tokens" in name for name in learned)
    assert new.encoder.embed_tokens.weight.equal(given["embed_tokens.weight"])
    assert not new.encoder.layers[0].fc1.weight.equal(given["layers.0.fc1.weight"])


@pytest.mark.slow
def test_a_moved_word_is_learned_where_states_show_it(runs):
    """If encoder states contain words and positions, the output layer learns to find the moved word and its old position."""
    import argparse
    from random import Random

    import torch

    class Plain(torch.nn.Module):
        """Return for each token the one-hot vector of its word, the one-hot vector of its position, and the difference.

        In the sentence of this test, word i is at position i. If a move changes the position of a word, the difference of the
        two vectors of this word is not zero.
        """

        def __init__(self):
            super().__init__()
            self.embed_tokens = torch.nn.Embedding(8, 48)

        def forward(self, tokens):
            size = tokens.size(1)
            code = torch.nn.functional.one_hot(tokens, 16).float()
            place = torch.eye(16)[:size].expand(len(tokens), -1, -1)
            return {"encoder_out": [torch.cat([code, place, code - place], -1).transpose(0, 1)]}

    class Words:
        @staticmethod
        def pad():
            return 15

        @staticmethod
        def eos():
            return 14

    (run,) = load_runs([runs["none"]])
    run = type(run)(run.path, "plain", run.model, run.settings, type("Task", (), {"source_dictionary": Words}))
    torch.manual_seed(1)
    found = reordering.Detector(Plain(), True)
    from fairseq_posenc.common.progress import Progress

    args = argparse.Namespace(lr=0.01, mode="frozen", seed=1, updates=300, every=100, batch=32, min_distance=2)
    words = [list(range(8))]
    tested = [reordering.instance(words[0], Random(seed), 2) for seed in range(60)]
    reordering.train(found, run, words, tested, args, Progress())
    assert reordering.accuracies(found, run, tested, 32).both > 0.9


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["vectors", "nowhere"], "nowhere: no such file or folder"),
        (["vectors", "{t5}"], "t5: no position vectors at site encoder"),
        (["vectors", "{none}", "--length", 5], "at least 10"),
        (["identical", "{gaussian}"], "the method replaces softmax attention"),
        (["identical", "{none}", "--length", 2], "at least 3 words"),
        (["reordering", "{none}", "--subset", "test7"], "the data has no split 'test7'"),
        (["reordering", "{none}", "--min-distance", 60], "Reduce --min-distance"),
        (["moved", "{none}", "--data", "nowhere"], "--data"),
        (["lengths", "{none}"], "score.json is missing. Expected a scored run. Run posenc score"),
        (["lengths", "{none}/nothing.pt"], "nothing.pt: no such file or folder. Expected a scored run"),
    ],
    ids=str,
)
def test_wrong_input_is_one_line(refusal, runs, arguments, says):
    given = [str(word).format(**runs) for word in arguments]
    assert says in refusal("analyse", *given)


def test_an_output_that_cannot_be_made(refusal, runs, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refusal("analyse", "sinusoids", "--output", tmp_path / "file")


@pytest.mark.parametrize("given", ["2", "x", "-1"])
def test_a_learning_rate_is_a_small_number(posenc, runs, given):
    status, _, error = posenc("analyse", "reordering", runs["none"], f"--lr={given}")
    assert status == 2 and "is not a learning rate" in error


@pytest.mark.parametrize("name", ANALYSES)
def test_help_says_what_an_analysis_is(posenc, name):
    status, out, _ = posenc("analyse", name, "--help")
    assert status == 0 and ANALYSES[name][1] in " ".join(out.split())


def test_methods_with_side_inputs_are_refused(refusal, runs, tmp_path, monkeypatch):
    from fairseq_posenc.evaluation.analysis import runs as loading

    folder = shutil.copytree(runs["none"], tmp_path / "run")
    load = loading.load_with_task

    def with_side_input(path, data):
        model, settings, task = load(path, data)
        model.encoder.side_inputs = {"depth": None}
        return model, settings, task

    monkeypatch.setattr(loading, "load_with_task", with_side_input)
    assert "reads the side input depth, which does not exist" in refusal("analyse", "moved", folder)


# --- lengths ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def scored(tmp_path):
    """Return two runs with a score.json. In the first run, the translations of long sentences are wrong."""
    from fairseq_posenc.evaluation.scoring import record
    from fairseq_posenc.evaluation.scoring.score import measure
    from fairseq_posenc.evaluation.scoring.sentences import count

    references = [" ".join(f"w{(7 * i + k) % 50}" for k in range(5 if i < 60 else 20)) for i in range(120)]
    wrong = [text if len(text.split()) < 10 else " ".join(text.split()[::-1]) for text in references]
    found = []
    for spec, hypotheses in (("none", wrong), ("rope", references)):
        words = [len(text.split()) for text in references]
        part = {**measure(hypotheses, references), "source": "abc", "statistics": count(hypotheses, references, words).pack()}
        method = {"encoder": spec, "decoder": spec, "cross": "none"}
        fields = {"arch": "a", "method": method, "seed": 1, "updates": 1, "data": "d", "versions": {"posenc": "1"}}
        folder = tmp_path / spec
        folder.mkdir()
        record.write(folder / record.FILE, {**fields, "parameters": 1, "parts": {"test": part}})
        found.append(folder)
    return found


def test_lengths(posenc, scored, tmp_path):
    out = tmp_path / "out"
    status, printed, _ = posenc("analyse", "lengths", *scored, "--seen", 10, "--output", out)
    rows = {(row["method"], row["source words"]): row for row in table(out / "lengths.csv")}
    assert status == 0 and set(rows) == {
        (spec, name) for spec in ("none", "rope") for name in ("1-9", "20-29", "seen (up to 10)", "unseen (11+)")
    }
    assert float(rows["none", "1-9"]["BLEU"]) == float(rows["rope", "20-29"]["BLEU"]) == pytest.approx(100)
    assert float(rows["none", "20-29"]["BLEU"]) < 10 and float(rows["rope", "20-29"]["p"]) < 0.05
    assert rows["none", "20-29"]["p"] == "" and rows["rope", "1-9"]["n"] == "60"
    assert "100.0*" in printed and "unseen - seen" in printed
    files(out, "lengths")


def test_lengths_of_wrong_input(refusal, scored):
    assert "no test set dev. Expected test." in refusal("analyse", "lengths", *scored, "--parts", "dev")
    assert "--baseline t5: no such run. Expected one of none, rope." in refusal("analyse", "lengths", *scored, "--baseline", "t5")
    text = (scored[1] / "score.json").read_text()
    (scored[1] / "score.json").write_text(text.replace('"source": "abc"', '"source": "other"'))
    assert "Expected the same sentences" in refusal("analyse", "lengths", *scored)
    (scored[1] / "score.json").write_text(text.replace('"statistics": "', '"statistics": "x'))
    assert "are damaged. Run posenc score again" in refusal("analyse", "lengths", *scored)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"source": "abc",', '"source": "abc", "reference": "other",', "test.reference"),
        ('"source": "abc",', '"source": "abc", "decoding": {"beam": 9},', "test.decoding.beam"),
        ("tok:13a", "tok:none", "test.bleu_signature"),
    ],
)
def test_lengths_of_runs_that_were_not_scored_alike(refusal, scored, old, new, named):
    text = (scored[1] / "score.json").read_text()
    assert old in text
    (scored[1] / "score.json").write_text(text.replace(old, new))
    assert f"{named} differ. Expected the same sentences" in refusal("analyse", "lengths", *scored)
