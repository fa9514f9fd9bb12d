"""Output lengths with fairseq's commands: lengths in training, requested lengths in generation, and the end of sentences."""

import re

import pytest
import torch
from fairseq import checkpoint_utils

import fairseq_posenc.host.plugin  # noqa: F401  (patches fairseq, so that tests can read checkpoints)

TASK = ("--task", "posenc_translation")
CRITERION = ("--criterion", "posenc_label_smoothed_cross_entropy")
REFERENCE = [5, 6, 7, 2, 1, 8]  # numbers of letters of the test sentences


@pytest.fixture(scope="module")
def ldpe(fairseq, tmp_path_factory):
    """Train a model for some updates, with a length predictor."""
    folder = tmp_path_factory.mktemp("ldpe")
    options = [*TASK, *CRITERION, "--length-loss-weight", 1, "--share-all-embeddings", "--max-update", 40, "--dropout", 0]
    output = fairseq.train("posenc_ldpe_tiny", folder, *options, "--log-interval", 10, "--log-format", "simple").succeeded()
    (folder / "log").write_text(output)
    return folder / "checkpoint_last.pt"


def generate(fairseq, path, *options):
    """Decode the test sentences with beam 4. The sentences of a batch end at different steps."""
    return fairseq.generate(path, *TASK, "--beam", 4, *options)


def letters(fairseq, output: str) -> list:
    """Return the hypotheses of every sentence, each as a list of letters."""
    rows = fairseq.rows(output, "H")
    return [[row.split("\t")[1].split() for row in rows[number]] for number in sorted(rows)]


def got(fairseq, output: str) -> list:
    return [len(best[0]) for best in letters(fairseq, output)]


def asked(output: str) -> list:
    """Return the requested lengths from the log, by sentence."""
    found = re.findall(r"asked: (.*)$", output, re.MULTILINE)
    pairs = dict(tuple(map(int, pair.split(":"))) for line in found for pair in line.split())
    return [pairs[number] for number in sorted(pairs)]


# --- where lengths come from ---


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "test.tlen"
    path.write_text("3\n4\n5\n6\n7\n8\n")
    return str(path)


SOURCES = [
    ([], REFERENCE, "reference, ratio 1"),
    (["--length-ratio", "1.5"], [8, 9, 11, 3, 2, 12], "reference, ratio 1.5"),
    (["--length-from", "FILE"], [3, 4, 5, 6, 7, 8], "file, ratio 1"),
    (["--length-from", "predictor"], None, "predictor, ratio 1"),
    *(
        pytest.param(*row, marks=pytest.mark.slow)
        for row in (
            (["--length-ratio", "0.3"], [2, 2, 2, 1, 1, 2], "reference, ratio 0.3"),
            (["--length-from", "source", "--length-ratio", "0.5"], [3, 3, 4, 1, 1, 4], "source, ratio 0.5"),
            (["--length-from", "4"], [4] * 6, "4, ratio 1"),
        )
    ),
]


@pytest.mark.parametrize("options, wanted, named", SOURCES, ids=lambda value: value if isinstance(value, str) else "")
def test_lengths_are_asked_for_and_given(fairseq, ldpe, file, options, wanted, named):
    """All hypotheses of a sentence have the requested length, also if other sentences of the batch end earlier.

    The output contains the requested lengths.
    """
    options = [file if option == "FILE" else option for option in options]
    output = generate(fairseq, ldpe, *options, "--length-eos", "exact", "--nbest", 4).succeeded()
    assert f"output lengths: {named}, unit token, end exact" in output
    wanted = asked(output) if wanted is None else wanted
    assert asked(output) == wanted and min(wanted) >= 1
    assert [[len(words) for words in beams] for beams in letters(fairseq, output)] == [[n] * 4 for n in wanted]


def test_the_predictor_has_learned_something(fairseq, ldpe):
    """The predictor selects one of 256 differences between source length and target length. Here, the difference is always 0."""
    loss = [float(found) for found in re.findall(r"\| length ([\d.]+)", (ldpe.parent / "log").read_text())]
    assert loss[-1] < 0.5 * loss[0]
    assert asked(generate(fairseq, ldpe, "--length-from", "predictor").succeeded()) == REFERENCE


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--length-eos", "exact"]], ids=["free", "exact"])
def test_neighbours_do_not_change_a_sentence(fairseq, ldpe, options):
    together, alone = (fairseq.rows(generate(fairseq, ldpe, *options, "--batch-size", size).succeeded(), "H") for size in (6, 1))
    for number, rows in together.items():
        (score, words), (expected, same) = rows[0].split("\t"), alone[number][0].split("\t")
        assert words == same and float(score) == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.slow
def test_lengths_change_what_a_model_says(fairseq, ldpe):
    short, long = (fairseq.rows(generate(fairseq, ldpe, "--length-from", n).succeeded(), "P") for n in (1, 9))
    assert all(short[number] != long[number] for number in short)


# --- where sentences end ---


def test_not_before_the_length(fairseq, ldpe):
    output = generate(fairseq, ldpe, "--length-from", "7", "--length-eos", "min").succeeded()
    assert min(got(fairseq, output)) >= 7


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--sampling", "--nbest", 4],
        ["--sampling", "--sampling-topk", 3, "--nbest", 4],
        ["--print-alignment"],
        ["--no-repeat-ngram-size", 2],
    ],
    ids=lambda options: options[-2] if len(options) > 1 else options[0],
)
def test_other_searches(fairseq, ldpe, options):
    output = generate(fairseq, ldpe, "--length-ratio", "1.2", "--length-eos", "exact", *options).succeeded()
    assert got(fairseq, output) == asked(output)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 5])
def test_prefixes(fairseq, ldpe, size):
    """The prefix of some references contains all words.

    If a reference has fewer words than --prefix-size, its prefix also contains </s>.
    """
    output = generate(fairseq, ldpe, "--length-eos", "exact", "--prefix-size", size).succeeded()
    assert got(fairseq, output) == REFERENCE
    targets = fairseq.rows(output, "T")
    for number, beams in enumerate(letters(fairseq, output)):
        wanted = targets[number][0].split()[:size]
        assert beams[0][: len(wanted)] == wanted


def test_predicted_lengths_and_the_minimum_length(fairseq, ldpe):
    """For two sentences, the predicted length is less than --min-len."""
    options = ["--length-from", "predictor", "--length-eos", "exact", "--min-len", 3]
    output = generate(fairseq, ldpe, *options).succeeded()
    assert got(fairseq, output) == asked(output) == [max(length, 3) for length in REFERENCE]


def test_a_prefix_as_long_as_the_sentence(fairseq, ldpe):
    output = generate(fairseq, ldpe, "--length-ratio", "0.5", "--length-eos", "exact", "--prefix-size", 1).succeeded()
    assert got(fairseq, output) == [3, 3, 4, 1, 1, 4]


def test_ensembles_and_models_that_read_no_length(fairseq, ldpe, shaw):
    for paths in (f"{ldpe}:{ldpe}", f"{ldpe}:{shaw}", shaw):
        output = generate(fairseq, paths, "--length-from", "reference", "--length-eos", "exact").succeeded()
        assert got(fairseq, output) == asked(output) == REFERENCE
    plain, twice = (generate(fairseq, path).succeeded() for path in (ldpe, f"{ldpe}:{ldpe}"))
    assert letters(fairseq, plain) == letters(fairseq, twice)


@pytest.mark.slow
def test_without_the_option_other_models_are_asked_nothing(fairseq, shaw):
    assert "output lengths" not in generate(fairseq, shaw).succeeded()


@pytest.mark.slow
def test_characters(fairseq, tmp_path):
    """Every word is one letter. It counts as 2 characters: the letter and a space."""
    options = ["--decoder-position", "ldpe:unit=char", *TASK, "--share-all-embeddings"]
    fairseq.train("posenc_transformer_tiny", tmp_path, *options).succeeded()
    path = tmp_path / "checkpoint_last.pt"
    output = generate(fairseq, path, "--length-eos", "exact").succeeded()
    assert "unit char" in output and asked(output) == [2 * n for n in REFERENCE] and got(fairseq, output) == REFERENCE
    assert got(fairseq, generate(fairseq, path, "--length-from", "7", "--length-eos", "exact").succeeded()) == [4] * 6


# --- references ---


def test_references_are_scored_with_their_lengths(fairseq, ldpe):
    """The printed log-probabilities are equal to the model's log-probabilities for the reference.

    As in training, the forward pass receives the reference and its length.
    """
    rows = fairseq.rows(generate(fairseq, ldpe, "--score-reference").succeeded(), "P")
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(ldpe)], {"data": str(fairseq.data)})
    task.load_dataset("test")
    batch = task.datasets["test"].collater([task.datasets["test"][number] for number in range(6)])
    task.lengths.add_reference(batch)
    with torch.no_grad():
        scores = model.eval().get_normalized_probs(model(**batch["net_input"]), log_probs=True)
    scores = scores.gather(2, batch["target"].unsqueeze(2)).squeeze(2) / torch.log(torch.tensor(2.0))
    for row, number in enumerate(batch["id"].tolist()):
        found = torch.tensor([float(value) for value in rows[number][0].split()])
        torch.testing.assert_close(found, scores[row, : len(found)], rtol=0, atol=2e-4)


@pytest.mark.slow
def test_validation_decodes_towards_references(fairseq, tmp_path):
    options = [*TASK, "--eval-bleu", "--eval-bleu-args", '{"beam": 2}', "--eval-bleu-print-samples", "--max-update", 6]
    command = fairseq.training("posenc_lrpe_tiny", tmp_path, *options)
    command.remove("--disable-validation")
    output = fairseq.run(*command).succeeded()
    assert "valid" in output and "bleu" in output


# --- interactive ---


def interactive(fairseq, path, *options):
    arguments = ["--path", path, "--cpu", *TASK, "--beam", 2, "--buffer-size", 3, "--batch-size", 3, *options]
    return fairseq.run("fairseq-interactive", fairseq.data, *arguments, input="a b c d\nb\nc d e f g h\n")


@pytest.mark.parametrize(
    "options, wanted",
    [(["--length-from", "3"], [3, 3, 3]), (["--length-from", "source", "--length-ratio", "1.5"], [6, 2, 9])],
    ids=["constant", "source"],
)
def test_interactive(fairseq, ldpe, options, wanted):
    assert got(fairseq, interactive(fairseq, ldpe, *options, "--length-eos", "exact").succeeded()) == wanted


def test_interactive_with_the_predictor(fairseq, ldpe):
    assert got(fairseq, interactive(fairseq, ldpe, "--length-from", "predictor", "--length-eos", "exact").succeeded()) == [
        4,
        1,
        6,
    ]


def test_interactive_without_lengths(fairseq, ldpe, file):
    assert "Expected source, predictor, a number, or a file" in interactive(fairseq, ldpe).refusal()
    assert "supported only by fairseq-generate" in interactive(fairseq, ldpe, "--length-from", file).refusal()


# --- errors ---


@pytest.mark.parametrize(
    "options, words",
    [
        (["--length-from", "13"], ["requested length is 13. Expected at most 12", "--max-len-b 12", "request a shorter output"]),
        (
            ["--length-from", "5000", "--max-len-b", "9000"],
            ["requested length is 5000. Expected at most 1023", "--max-target-positions"],
        ),
        (["--length-from", "9", "--length-eos", "min", "--prefix-size", "3"], ["--prefix-size 3", "does not fit", "length 9"]),
        (["--length-from", "predictor", "--length-eos", "exact", "--prefix-size", "2"], ["predictor", "--prefix-size", "exact"]),
        (["--length-from", "predictor", "--score-reference"], ["--score-reference", "--length-from reference"]),
        (["--length-eos", "min", "--score-reference"], ["--length-eos min: no effect with --score-reference"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_lengths_that_cannot_be(fairseq, ldpe, options, words):
    line = generate(fairseq, ldpe, *options).refusal()
    assert all(word in line for word in words), line


def test_a_file_that_is_too_short(fairseq, ldpe, tmp_path):
    (tmp_path / "lengths").write_text("3\n4\n")
    line = generate(fairseq, ldpe, "--length-from", tmp_path / "lengths").refusal()
    assert "has 2 lengths. Expected 6, one per sentence of test" in line


def test_a_model_without_a_predictor(fairseq, shaw):
    assert "no length predictor" in generate(fairseq, shaw, "--length-from", "predictor").refusal()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arch, options, words",
    [
        ("posenc_shaw_tiny", [*TASK, "--length-noise", "2"], ["--length-noise 2: no effect"]),
        ("posenc_ldpe_tiny", [*TASK, "--length-noise", "-2"], ["--length-noise -2: not allowed. Expected at least 0"]),
        ("posenc_ldpe_tiny", [*TASK, "--length-loss-weight", "1"], ["--length-loss-weight", CRITERION[1]]),
        (
            "posenc_ldpe_tiny",
            [*TASK, "--length-loss-weight", "-1"],
            ["--length-loss-weight -1.0: not allowed. Expected at least 0"],
        ),
        ("posenc_ldpe_tiny", [*TASK, "--length-stop-gradient"], ["--length-stop-gradient: no effect"]),
        (
            "posenc_transformer_tiny",
            [*TASK, "--decoder-position", "ldpe+lrpe:unit=char"],
            ["unit=char", "unit=token", "the same unit"],
        ),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_trainings_that_are_refused(fairseq, tmp_path, arch, options, words):
    line = fairseq.train(arch, tmp_path, *options).refusal()
    assert all(word in line for word in words), line


def test_the_task_that_knows_no_lengths(fairseq, ldpe, tmp_path):
    for refused in (fairseq.train("posenc_ldpe_tiny", tmp_path), fairseq.generate(ldpe)):
        line = refused.refusal()
        assert all(word in line for word in ("'target_length'", "--task translation", "Expected --task posenc_translation")), line


def test_a_file_of_lengths_for_validation_with_bleu(fairseq, tmp_path):
    """The file has one length per sentence of the validation set. The training set has another number of sentences."""
    file = tmp_path / "valid.tlen"
    bleu = [*TASK, "--eval-bleu", "--eval-bleu-args", '{"beam": 2}', "--length-from", file, "--length-eos", "exact"]
    options = [*bleu, "--max-update", 2, "--validate-interval-updates", 1]
    command = fairseq.training("posenc_ldpe_tiny", tmp_path / "run", *options)
    command.remove("--disable-validation")
    file.write_text("3\n" * 5)
    found = re.search(r"the file has 5 lengths\. Expected (\d+), one per sentence of valid", fairseq.run(*command).refusal())
    file.write_text("3\n" * int(found[1]))
    assert "bleu" in fairseq.run(*command).succeeded()
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    validation = ("fairseq-validate", fairseq.data, "--path", checkpoint, *TASK, "--cpu", "--batch-size", 8)
    line = fairseq.run(*validation, "--valid-subset", "train", "--length-from", file).refusal()
    assert f"--length-from: the file has {found[1]} lengths. Expected one per sentence of the data set" in line
    # the file is for the validation set of the training run. Later commands do not read it
    file.unlink()
    assert "bleu" in fairseq.run(*validation, "--valid-subset", "valid").succeeded()
    task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])[2]
    assert (task.cfg.length_from, task.cfg.length_eos) == ("", "free")


# --- noise ---


@pytest.fixture(scope="module")
def noisy(fairseq, tmp_path_factory):
    """Return a function that trains a model for eight updates with --length-noise 3. The first epoch has six updates."""

    def train(*options, folder=None, arch="posenc_ldpe_tiny"):
        folder = folder or tmp_path_factory.mktemp("noisy")
        fairseq.train(arch, folder, *TASK, "--length-noise", 3, "--dropout", 0, "--max-update", 8, *options).succeeded()
        return folder

    return train


def parameters(fairseq, folder) -> dict:
    return fairseq.state(folder / "checkpoint_last.pt")["model"]


def same(one: dict, other: dict) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.slow
def test_noise_repeats_with_workers_and_after_resuming(fairseq, noisy):
    folder = noisy()
    first = parameters(fairseq, folder)
    assert same(first, parameters(fairseq, noisy("--num-workers", 2)))
    halved = noisy("--max-update", 3)
    assert same(first, parameters(fairseq, noisy(folder=halved)))
    assert not same(first, parameters(fairseq, noisy("--length-noise", 0, "--decoder-position", "ldpe:min_remaining=-3")))
    assert "min_remaining=-3" in "".join(map(chr, first["positions_version"].tolist()))
    assert got(fairseq, generate(fairseq, folder / "checkpoint_last.pt", "--length-eos", "exact").succeeded()) == REFERENCE


@pytest.mark.slow
def test_what_is_given_stays(fairseq, noisy):
    folder = noisy("--decoder-position", "ldpe:min_remaining=-1+sinusoidal", arch="posenc_transformer_tiny")
    assert "min_remaining=-1" in "".join(map(chr, parameters(fairseq, folder)["positions_version"].tolist()))
