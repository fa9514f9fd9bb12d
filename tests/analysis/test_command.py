"""posenc analyse on small models: its tables and files, and its messages about wrong input."""

import csv
import json
import shutil
from dataclasses import replace

import numpy
import pytest
import torch

from fairseq_posenc.evaluation.analysis import identical, lengths, moved, reordering
from fairseq_posenc.evaluation.analysis.command import ANALYSES
from fairseq_posenc.evaluation.analysis.runs import Runs, batch_of, pairs
from fairseq_posenc.evaluation.analysis.vectors import similarity, vectors_of
from tests.analysis.conftest import options_of, write_run


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
    assert "before layer normalization" in out and "the error also depends on the size of the vectors" in out
    none, sinusoidal = table(tmp_path / "new" / "vectors.csv")
    assert none["positions"] == "" and sinusoidal["positions"] == "40" and float(sinusoidal["absolute error"]) < 3
    alike = numpy.load(tmp_path / "new" / "vectors_1.npy")
    assert "vectors_1.npy" in files(tmp_path / "new", "vectors") and numpy.abs(alike - alike.T).max() < 1e-6
    for k in range(40):  # Toeplitz
        assert numpy.ptp(numpy.diagonal(alike, k)) < 1e-5


def test_identical_words_are_limited_to_the_maximum_of_the_model(posenc, runs):
    (longest,) = {run.model.encoder.max_positions() for run in Runs([runs["none"]])}
    assert f"The input is {int(longest)} copies of one word." in posenc("analyse", "identical", runs["none"], "--length", 5000)[1]


def test_identical(posenc, runs, tmp_path):
    options = ["--length", 20, "--words", 5, "--output", tmp_path]
    status, out, _ = posenc("analyse", "identical", runs["none"], runs["t5"], runs["gaussian"], *options)
    assert status == 0 and "Scores and weights are means over 5 words. * The values are computed from these means" in " ".join(
        out.split()
    )
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
    (run,) = Runs([runs["none"]])
    translator = moved.Translator(run, 1)
    unknown = torch.tensor([run.words.unk()])
    texts = translator.text(unknown), translator.text(unknown, reference=True)
    assert texts[0] == "<unk>" and moved._bleu([texts[0]] * 9, [f"{texts[1]} {texts[1]}"] * 9, None) == 0


def test_bleu_of_text_without_spaces():
    hypotheses, references = ["我喜欢猫和狗以及鸟儿"] * 9, ["我喜欢猫和狗以及鱼儿"] * 9
    assert moved._bleu(hypotheses, references, None) == 0 and moved._bleu(hypotheses, references, "zh") > 50


def test_the_tokenizer_is_an_option_of_moved_words(posenc, runs):
    status, out, _ = posenc("analyse", "moved", runs["none"], "--beam", 2, "--tokenize", "char")
    assert status == 0 and "BLEU is computed by sacreBLEU with the tokenizer char on words, with beam 2." in out


def test_sentences_of_a_non_autoregressive_model_begin_with_a_symbol_that_is_no_word(posenc, runs, other_models):
    (run,) = Runs([other_models["posenc_pnat"]])
    (plain,) = Runs([runs["none"]])
    both = pairs(run, "test")
    assert both == pairs(plain, "test")
    assert batch_of([both[0][0]], run).tolist() == [[run.words.bos(), *both[0][0], run.words.eos()]]
    status, out, _ = posenc("analyse", "moved", runs["none"], other_models["posenc_pnat"])
    assert status == 0 and "60 sentences" in out and "with beam 4 or 1." in out
    training = ["--updates", 2, "--every", 2, "--batch", 8]
    assert posenc("analyse", "reordering", runs["none"], other_models["posenc_pnat"], *training)[0] == 0
    found = reordering.detector(run, "frozen", 1)
    tokens, lengths = reordering._tensors(run, [reordering.Instance([5, 6, 7, 8, 9], 0, 2)])
    assert [logits.shape for logits in found(tokens, lengths)] == [(1, 6)] * 2  # five words and </s>


def test_a_complex_model_is_analysed_as_it_attends(posenc, other_models):
    """Scores of a complex model are moduli, so none is negative."""
    folder = other_models["posenc_complex_transformer"]
    (run,) = Runs([folder])
    found = identical.probe(run, identical.frequent_words(run, 2), 10)
    assert (found.scores > 0).all()
    assert posenc("analyse", "reordering", folder, "--updates", 2, "--every", 2, "--batch", 8)[0] == 0


def test_vectors_are_those_of_one_word(runs):
    """The frequencies of `complex` depend on the word. Without dependence on words, cosines of neighbours are almost equal."""
    (run,) = Runs([runs["complex"]])
    vectors = vectors_of(run, "encoder", 40)
    run.model.encoder.position.methods[0].load_state_dict(
        {name: torch.rand_like(value) for name, value in run.model.encoder.position.methods[0].state_dict().items()}
    )
    alike = similarity(vectors_of(run, "encoder", 40)).diagonal(1)
    assert vectors.shape == (40, 16) and alike.max() - alike.min() < 1e-4


@pytest.mark.parametrize("mode", ["frozen", "scratch"])
def test_reordering(posenc, runs, tmp_path, mode):
    training = ["--updates", 4, "--every", 2, "--batch", 8, "--lr", 0.01]
    status, out, _ = posenc("analyse", "reordering", runs["t5"], "--mode", mode, *training, "--output", tmp_path)
    (row,) = table(tmp_path / f"reordering_{mode}.csv")
    assert status == 0 and row["updates"] in ("2", "4") and "240 instances" in out
    assert 0 <= float(row["both"]) <= min(float(row["moved word"]), float(row["its place"])) <= 100
    files(tmp_path, f"reordering_{mode}")


def test_a_frozen_encoder_stays_and_a_new_one_learns(runs):
    (run,) = Runs([runs["sinusoidal"]])
    given = {name: tensor.clone() for name, tensor in run.model.encoder.state_dict().items()}
    frozen, new = (reordering.detector(run, mode, 2) for mode in ("frozen", "scratch"))
    assert all(not p.requires_grad for p in frozen.encoder.parameters())
    learned = {name for name, p in new.encoder.named_parameters() if p.requires_grad}
    assert learned and not any("embed_tokens" in name for name in learned)
    assert new.encoder.embed_tokens.weight.equal(given["embed_tokens.weight"])
    assert not new.encoder.layers[0].fc1.weight.equal(given["layers.0.fc1.weight"])


def test_a_new_encoder_learns_what_the_model_learns_and_reads_words_in_their_order(data, tmp_path):
    extra = "--encoder-position learned --decoder-position none --cross-position none --encoder-freeze-position"
    folder = write_run(tmp_path, data, "posenc_transformer", *extra.split(), "--encoder-shuffle-words", "1.0")
    (run,) = Runs([folder])
    new = reordering.detector(run, "scratch", 2)
    fixed = {name for name, parameter in run.model.encoder.named_parameters() if not parameter.requires_grad}
    new_fixed = {name for name, parameter in new.encoder.named_parameters() if not parameter.requires_grad}
    assert fixed and new_fixed == fixed | {"embed_tokens.weight"} and new.encoder.shuffle is None


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

    (run,) = Runs([runs["none"]])
    run = replace(run, title="plain", task=type("Task", (), {"source_dictionary": Words}))
    torch.manual_seed(1)
    found = reordering.Detector(Plain(), 48, 0, frozen=True)
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


#: analysis -> options with which it is fast, and a method that it can measure
SMALL = {
    "vectors": ([], "sinusoidal"),
    "identical": (["--length", 8, "--words", 2], "t5"),
    "moved": (["--beam", 1], "none"),
    "reordering": (["--updates", 2, "--every", 2, "--batch", 8], "none"),
}


@pytest.fixture
def with_side_inputs(runs, tmp_path, monkeypatch):
    """Return the folder of a run. A method of its model reads a side input."""
    from fairseq_posenc.evaluation.analysis import runs as loading

    folder = shutil.copytree(runs["t5"], tmp_path / "run")
    load = loading.load_with_task

    def with_side_input(path, data):
        model, settings, task = load(path, data)
        if path.parent == folder:
            model.encoder.side_inputs = side_inputs = {"depth": None}
            positions = model.encoder.position
            positions.__class__ = type("Reading", (type(positions),), {"side_inputs": side_inputs})
        return model, settings, task

    monkeypatch.setattr(loading, "load_with_task", with_side_input)
    return folder


@pytest.mark.parametrize("name", SMALL)
def test_a_run_with_side_inputs_has_an_empty_row_and_does_not_stop_the_others(posenc, runs, with_side_inputs, tmp_path, name):
    options, spec = SMALL[name]
    status, out, _ = posenc("analyse", name, with_side_inputs, runs[spec], *options, "--output", tmp_path / "out")
    assert status == 0 and "t5 reads side inputs, which this analysis does not have: not measured" in out
    ((first, *cells),) = [line.split() for line in out.splitlines() if line.startswith("t5 ") and "reads" not in line][:1]
    assert first == "t5" and set(cells) == {"-"}


@pytest.mark.parametrize("name", ["vectors", "identical", "reordering"])
def test_an_analysis_of_the_encoder_needs_no_side_inputs_of_the_decoder(posenc, data, tmp_path, name):
    extra = [*options_of("sinusoidal", "ldpe"), "--task", "posenc_translation"]
    folder = write_run(tmp_path, data, "posenc_transformer", *extra)
    status, out, _ = posenc("analyse", name, folder, *SMALL[name][0])
    assert status == 0 and "side inputs" not in out


@pytest.mark.parametrize("name", SMALL)
def test_runs_that_all_read_side_inputs_are_refused(refusal, with_side_inputs, name):
    said = refusal("analyse", name, with_side_inputs, *SMALL[name][0])
    assert "t5: the methods read side inputs, which this analysis does not have. Expected a run without side inputs" in said


@pytest.mark.parametrize(("module", "name"), [(moved, "moved"), (reordering, "reordering")])
def test_runs_with_different_sentences_are_refused(refusal, runs, monkeypatch, module, name):
    pairs = module.pairs
    monkeypatch.setattr(module, "pairs", lambda run, subset: pairs(run, subset)[run.path == runs["t5"] :])
    said = refusal("analyse", name, runs["none"], runs["t5"], *SMALL[name][0])
    assert "t5 and none: different sentences. Expected the same" in said


def test_methods_that_mask_keys_have_no_symmetry(posenc, runs, tmp_path):
    options = ["--length", 12, "--words", 2, "--output", tmp_path]
    status, out, _ = posenc("analyse", "identical", runs["none"], runs["disan"], runs["window:width=4"], *options)
    rows = {(row["method"], row["head"]): list(row.values())[2:] for row in table(tmp_path / "identical.csv")}
    assert status == 0 and "encoder disan, encoder window:width=4: methods of the layer mask keys" in out
    assert "" not in rows["none", "0"]
    assert rows["encoder window:width=4", "0"][:3] == rows["encoder disan", "0"][:3] == ["", "", ""]
    assert float(rows["encoder window:width=4", "0"][3]) == pytest.approx(1, abs=1e-3)
    assert (rows["encoder disan", "0"][3], rows["encoder disan", "1"][3]) == ("0", "")  # a head sees only one side


def test_fully_masked_queries_have_no_weights(runs):
    (run,) = Runs([runs["disan"]])
    found = identical.probe(run, identical.frequent_words(run, 2), 10)
    assert found.weights[0, 0].sum() == found.weights[1, 9].sum() == 0
    assert not found.allowed[0, 0].any() and found.allowed[0, 3].tolist() == [True] * 3 + [False] * 7
    for head in range(2):
        assert found.weights[head, 5].sum() == pytest.approx(1)


@pytest.mark.parametrize("name", ["vectors", "identical"])
def test_a_model_with_few_positions_is_one_line(refusal, runs, monkeypatch, name):
    from fairseq_posenc.host.models.transformer.encoder import Encoder

    monkeypatch.setattr(Encoder, "max_positions", lambda self: 2)
    assert "the model has at most 2 positions" in refusal("analyse", name, runs["sinusoidal"])


# --- checkpoints -----------------------------------------------------------------------------------------------------


def generated(path):
    """Return the output of fairseq-generate for one sentence. `path` is the checkpoint that its log names."""
    log = {"_name": None, "common_eval": {"path": str(path), "post_process": None}, "generation": {"beam": 4}}
    return f"INFO | {log}\nS-0\ta\nT-0\ta\nH-0\t-1.0\ta\nD-0\t-1.0\ta\n"


@pytest.fixture
def decoded(runs, tmp_path):
    """Return a run that was decoded with an average of checkpoints. It also contains the best and the last checkpoint."""
    folder = tmp_path / "decoded"
    folder.mkdir()
    for name in ("checkpoint_best.pt", "checkpoint_last.pt", "average5.pt"):
        shutil.copy(runs["sinusoidal"] / "checkpoint_last.pt", folder / name)
    write_score(folder, "sinusoidal", ["a"], ["a"])
    (folder / "test.out").write_text(generated("elsewhere/average5.pt"))
    return folder


def test_the_scored_checkpoint_of_a_folder_is_loaded(posenc, runs, decoded):
    status, out, _ = posenc("analyse", "vectors", decoded, runs["t5"], "--length", 12)
    assert status == 0 and "Checkpoints: average5.pt (sinusoidal), checkpoint_last.pt (t5)." in out


@pytest.mark.parametrize(
    ("changed", "text"),
    [("test.out", ""), ("test.out", generated("a.pt:b.pt")), ("test.out", generated("gone.pt")), ("score.json", "{}")],
)
def test_without_a_scored_checkpoint_the_best_one_is_loaded(decoded, changed, text):
    (decoded / changed).write_text(text)
    (run,) = Runs([decoded])
    assert run.checkpoint == "checkpoint_best.pt"


def test_a_checkpoint_file_is_loaded_as_it_is(decoded):
    (run,) = Runs([decoded / "checkpoint_last.pt"])
    assert run.checkpoint == "checkpoint_last.pt"


@pytest.mark.parametrize("name", ["identical", "moved", "reordering"])
def test_every_analysis_names_its_checkpoints(posenc, runs, name):
    assert "Checkpoints: checkpoint_last.pt." in posenc("analyse", name, runs["none"], *SMALL[name][0])[1]


# --- lengths ---------------------------------------------------------------------------------------------------------


def write_score(folder, spec, hypotheses, references):
    """Write a score.json with one test set."""
    from fairseq_posenc.evaluation.scoring import record
    from fairseq_posenc.evaluation.scoring.score import measure
    from fairseq_posenc.evaluation.scoring.sentences import count

    words = [len(text.split()) for text in references]
    part = {**measure(hypotheses, references), "source": "abc", "statistics": count(hypotheses, references, words).pack()}
    method = {"encoder": spec, "decoder": spec, "cross": "none"}
    fields = {"arch": "a", "method": method, "seed": 1, "updates": 1, "data": "d", "versions": {"posenc": "1"}}
    record.write(folder / record.FILE, {**fields, "parameters": 1, "parts": {"test": part}})


@pytest.fixture
def scored(tmp_path):
    """Return two runs with a score.json. In the first run, the translations of long sentences are wrong."""
    references = [" ".join(f"w{(7 * i + k) % 50}" for k in range(5 if i < 60 else 20)) for i in range(120)]
    wrong = [text if len(text.split()) < 10 else " ".join(text.split()[::-1]) for text in references]
    found = []
    for spec, hypotheses in (("none", wrong), ("rope", references)):
        folder = tmp_path / spec
        folder.mkdir()
        write_score(folder, spec, hypotheses, references)
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
    assert "The vertical line of the plot is at 10 words" in printed
    files(out, "lengths")


def test_lengths_of_test_sets_in_another_order(posenc, scored, tmp_path):
    for folder, names in zip(scored, (["test", "web"], ["web", "test"])):
        content = json.loads((folder / "score.json").read_text())
        content["parts"] = {name: content["parts"]["test"] for name in names}
        (folder / "score.json").write_text(json.dumps(content))
    status, printed, _ = posenc("analyse", "lengths", *scored, "--output", tmp_path / "out")
    assert status == 0 and "BLEU of the test sets test, web combined" in printed


def test_lengths_of_a_checkpoint_that_was_not_scored(posenc, refusal, decoded):
    write_score(decoded, "sinusoidal", ["a b"], ["a b"])
    assert posenc("analyse", "lengths", decoded / "average5.pt")[0] == 0
    said = refusal("analyse", "lengths", decoded / "checkpoint_last.pt")
    assert "checkpoint_last.pt: not the scored checkpoint. score.json has the scores of average5.pt. Expected" in said
    said = refusal("analyse", "lengths", decoded, decoded / "average5.pt")
    assert f"{decoded}: given twice. Expected each run once." in said


def test_lengths_of_wrong_input(refusal, scored):
    assert "no test set dev. Expected test." in refusal("analyse", "lengths", *scored, "--parts", "dev")
    assert "--baseline t5: no such run. Expected one of none, rope." in refusal("analyse", "lengths", *scored, "--baseline", "t5")
    text = (scored[1] / "score.json").read_text()
    (scored[1] / "score.json").write_text(text.replace('"source": "abc"', '"source": "other"'))
    assert "Expected the same sentences" in refusal("analyse", "lengths", *scored)
    (scored[1] / "score.json").write_text(text.replace('"statistics": "', '"statistics": "x'))
    assert "are damaged. Run posenc score again" in refusal("analyse", "lengths", *scored)


def test_runs_that_know_the_lengths_of_the_references_are_not_compared(posenc, scored, tmp_path):
    file = scored[1] / "score.json"
    content = json.loads(file.read_text())
    content["parts"]["test"]["asked"] = {"source": "reference", "ratio": 1.0, "unit": "token", "end": "free"}
    file.write_text(json.dumps(content))
    status, printed, _ = posenc("analyse", "lengths", *scored, "--output", tmp_path / "out")
    assert status == 0 and "not compared with none, because decoding read other properties of the references" in printed
    assert {row["p"] for row in table(tmp_path / "out" / "lengths.csv")} == {""}


def test_lengths_of_another_number_of_sentences(refusal, scored):
    file = scored[1] / "score.json"
    file.write_text(file.read_text().replace('"sentences": 120', '"sentences": 119'))
    assert "the sentence statistics of test set test are damaged" in refusal("analyse", "lengths", scored[1])


def test_lengths_of_a_run_that_did_not_end(refusal, scored):
    path = scored[1] / "score.json"
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "settings": {"patience": 10}, "ended": False}))
    assert refusal("analyse", "lengths", *scored).startswith(f"posenc: {scored[1]}: the training did not end.")


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


@pytest.mark.parametrize(
    ("old", "new", "named"), [('"updates": 1', '"updates": 2', "updates"), ('"a",', '"a", "settings": {"lr": 3},', "settings.lr")]
)
def test_lengths_of_runs_that_were_not_trained_alike(refusal, scored, old, new, named):
    """`posenc report` refuses the same runs."""
    text = (scored[1] / "score.json").read_text()
    assert old in text
    (scored[1] / "score.json").write_text(text.replace(old, new, 1))
    said = refusal("analyse", "lengths", *scored)
    assert f"none and rope differ in {named}" in said and "Expected differences only in method and seed" in said


def test_the_line_of_the_longest_training_sentence():
    """Each place of the plot has the width 1. The line divides the place of the bucket that contains the length."""
    shown = [(1, 9), (10, 19), (40, 49), (60, None)]
    found = {seen: lengths.line_at(seen, shown) for seen in (9, 10, 14, 19, 25, 40, 49, 55, 59, 80)}
    wanted = {9: 0.5, 10: 0.6, 14: 1.0, 19: 1.5, 25: 1.5, 40: 1.6, 49: 2.5, 55: 2.5, 59: 2.5, 80: 3.0}
    assert found == pytest.approx(wanted)
    assert lengths.line_at(5, shown[1:]) == -0.5


@pytest.mark.parametrize(("name", "option"), [("lengths", "--parts"), ("moved", "--subsets")])
def test_a_test_set_that_is_given_twice_is_one_line(refusal, scored, name, option):
    assert f"{option} test: given twice. Expected each test set once." in refusal(
        "analyse", name, *scored, option, "test", "test"
    )


def test_a_move_is_counted_in_tokens(posenc):
    assert "minimum distance of a move, in tokens" in " ".join(posenc("analyse", "reordering", "--help")[1].split())
