"""The non-autoregressive model with fairseq's commands."""

import re
import socket

import pytest
import torch
from fairseq import checkpoint_utils

import fairseq_posenc.host.plugin  # noqa: F401  (patches fairseq's loader of checkpoints)

TASK = ("--task", "posenc_nat_translation")
TRAIN = (*TASK, "--criterion", "posenc_nat_loss", "--share-all-embeddings")


@pytest.fixture(scope="module")
def pnat(fairseq, tmp_path_factory):
    """Train a model for some updates. Return its checkpoint. The log is in the same folder."""
    folder = tmp_path_factory.mktemp("pnat")
    validating = ["--eval-bleu", "--validate-interval-updates", 20, "--search-loss-weight", 1, "--label-smoothing", 0.1]
    command = fairseq.training("posenc_pnat_tiny", folder, *TRAIN, *validating, "--max-update", 40, "--dropout", 0)
    command.remove("--disable-validation")
    (folder / "log").write_text(fairseq.run(*command, "--log-interval", 10, "--log-format", "simple").succeeded())
    return folder / "checkpoint_last.pt"


def hypotheses(fairseq, output):
    return {number: rows[0].split("\t") for number, rows in fairseq.rows(output, "H").items()}


def test_training_logs_every_loss_and_validation_bleu_and_accuracies(pnat):
    log = (pnat.parent / "log").read_text()
    trained, valid = ([line for line in log.splitlines() if f"| {logger} |" in line] for logger in ("train_inner", "valid"))
    for name in ("word_ins", "length", "position", "search"):
        assert all(re.search(rf"\b{name}[= ][\d.]+", line) for line in (trained[-1], valid[-1])), name
    for name in ("bleu", "position_accuracy", "order_accuracy", "near_order_accuracy"):
        (number,) = re.findall(rf" {name} ([\d.]+)", valid[-1])
        assert 0 <= float(number) <= 100


@pytest.mark.parametrize("side", [[], ["--left-pad-source"]], ids=["left", "right"])  # this option disables left padding
def test_padding_changes_no_hypothesis(fairseq, pnat, side):
    output = fairseq.generate(pnat, *TASK, *side, "--iter-decode-max-iter", 0).succeeded()
    one_by_one = fairseq.generate(pnat, *TASK, "--batch-size", 1).succeeded()
    found, alone = hypotheses(fairseq, output), hypotheses(fairseq, one_by_one)
    assert len(found) == 6 and {n: row[1] for n, row in found.items()} == {n: row[1] for n, row in alone.items()}
    assert not any("<" in words for _, words in found.values())


def test_length_beam_and_rescoring_by_an_autoregressive_model(fairseq, pnat, shaw):
    """Several lengths are decoded. The hypothesis with the highest mean log-probability is selected.

    With rescoring, the autoregressive model computes the log-probabilities.
    """
    beam = ["--iter-decode-with-beam", 5]
    plain = hypotheses(fairseq, fairseq.generate(pnat, *TASK, *beam).succeeded())
    rescored = hypotheses(
        fairseq, fairseq.generate(f"{pnat}:{shaw}", *TASK, *beam, "--iter-decode-with-external-reranker").succeeded()
    )
    assert plain.keys() == rescored.keys() and len(plain) == 6
    assert any(plain[n] != rescored[n] for n in plain)
    # the score is the mean log-probability (base 2) of the words and </s> under the autoregressive model
    for number, (score, words) in rescored.items():
        assert float(score) == pytest.approx(scored_by(fairseq, shaw, number, words), abs=2e-3)


def scored_by(fairseq, path, number, words):
    """Return the mean log-probability (base 2) of the words and </s> for a test sentence, under the model at `path`."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], arg_overrides={"data": str(fairseq.data)})
    model.eval()
    task.load_dataset("test")
    sample = task.dataset("test")[number]
    eos, dictionary = torch.tensor([task.tgt_dict.eos()]), task.tgt_dict
    target = torch.cat([dictionary.encode_line(words, append_eos=False, add_if_not_exist=False).long(), eos])
    with torch.no_grad():
        out = model(sample["source"][None], torch.tensor([len(sample["source"])]), torch.cat([eos, target[:-1]])[None])
        scores = model.get_normalized_probs(out, True)[0].gather(1, target[:, None])
    return float(scores.mean()) / torch.tensor(2.0).log().item()


def test_reference_positions_give_hypotheses_of_the_reference_length(fairseq, pnat):
    output = fairseq.generate(pnat, *TASK, "--decode-positions", "reference").succeeded()
    found, targets = hypotheses(fairseq, output), fairseq.rows(output, "T")
    assert {n: len(words.split()) for n, (_, words) in found.items()} == {n: len(t[0].split()) for n, t in targets.items()}


def test_interactive_translates(fairseq, pnat):
    output = fairseq.run(
        "fairseq-interactive", fairseq.data, *TASK, "--path", pnat, "--cpu", input="a b c d\nb a\n"
    ).succeeded()  # fmt: skip
    assert set(fairseq.rows(output, "H")) == {0, 1}


def test_a_resumed_training_goes_on_from_its_checkpoint(fairseq, pnat, tmp_path):
    more = [*TRAIN, "--search-loss-weight", 1, "--label-smoothing", 0.1, "--dropout", 0, "--max-update", 42]
    log = fairseq.train("posenc_pnat_tiny", tmp_path, *more, "--restore-file", pnat).succeeded()
    assert "num_updates=42" in log or "num_updates 42" in log


@pytest.mark.slow
def test_two_workers_train_without_shared_embeddings_and_validate_with_bleu(fairseq, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    validating = ["--max-update", 4, "--validate-interval-updates", 2, "--eval-bleu"]
    distributed = ["--ddp-backend", "legacy_ddp", "--distributed-backend", "gloo", "--distributed-no-spawn"]
    address = ["--distributed-init-method", f"tcp://127.0.0.1:{port}", "--distributed-world-size", 2]
    command = fairseq.training("posenc_pnat_tiny", tmp_path, *TRAIN, *validating, *distributed, *address)
    for removed in ("--disable-validation", "--share-all-embeddings"):
        command.remove(removed)
    workers = [fairseq.start(*command, "--distributed-rank", rank) for rank in (0, 1)]
    try:
        logs = [worker.finish().succeeded() for worker in workers]
    finally:
        for worker in workers:
            worker.process.kill()
    assert re.search(r" bleu [\d.]+", logs[0]) and "num_updates 4" in logs[0]


@pytest.mark.slow
@pytest.mark.parametrize("predictor", ["matching", "pointer", "relative"])
@pytest.mark.parametrize("bridge", ["interpolate", "soft_copy"])
def test_every_predictor_and_bridge_trains_and_decodes(fairseq, tmp_path, predictor, bridge):
    options = ["--position-predictor", predictor, "--bridge", bridge, "--bridge-states", "encoder"]
    fairseq.train("posenc_pnat_tiny", tmp_path, *TRAIN, *options).succeeded()
    output = fairseq.generate(tmp_path / "checkpoint_last.pt", *TASK, "--iter-decode-with-beam", 3).succeeded()
    assert len(fairseq.rows(output, "H")) == 6


@pytest.mark.parametrize(
    "options, message",
    [
        (["--task", "translation", "--criterion", "posenc_nat_loss"], "--task posenc_nat_translation"),
        ([*TASK, "--criterion", "cross_entropy"], "Expected --criterion posenc_nat_loss"),
        ([*TRAIN, "--decoder-position", "cope"], None),
        ([*TRAIN, "--predictor-position", "nothing"], "nothing"),
    ],
)
def test_refusals_of_training(fairseq, tmp_path, options, message):
    result = fairseq.train("posenc_pnat_tiny", tmp_path, *options)
    if message is None:
        result.succeeded()
    else:
        assert message in result.refusal()


@pytest.mark.parametrize(
    "options, message",
    [
        (["--iter-decode-with-external-reranker"], "Expected --iter-decode-with-beam"),
        (["--prefix-size", 1], "Remove --prefix-size"),
        (["--score-reference"], "Remove --score-reference"),
        (["--print-alignment"], "Remove --print-alignment"),
        (["--decode-positions", "reference", "--iter-decode-with-beam", 3], "Remove --iter-decode-with-beam"),
    ],
)
def test_refusals_of_generation(fairseq, pnat, options, message):
    assert message in fairseq.generate(pnat, *TASK, *options).refusal()


def test_an_ensemble_is_refused(fairseq, pnat):
    assert "Expected one posenc_pnat checkpoint" in fairseq.generate(f"{pnat}:{pnat}", *TASK).refusal()


def test_generation_with_another_task_is_refused(fairseq, pnat):
    assert "--task posenc_nat_translation" in fairseq.generate(pnat, "--task", "translation").refusal()
