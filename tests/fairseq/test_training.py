"""Training with the options that researchers use. For some options, the tests also check the effect of the option."""

import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils, tasks
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import fairseq_posenc
import fairseq_posenc.host.plugin

#: sources, their lengths, and targets. The first source is padded on the left
SENTENCES = (
    torch.tensor([[1, 1, 5, 7, 9, 2], [8, 5, 5, 6, 9, 2]]), torch.tensor([4, 6]), torch.tensor([[2, 9, 7, 5], [2, 9, 6, 5]])
)  # fmt: skip


@pytest.fixture(scope="module")
def models(fairseq, shaw):
    """Return three copies of the trained model: one unchanged copy, and two copies to change."""
    return [checkpoint_utils.load_model_ensemble([str(shaw)], {"data": str(fairseq.data)})[0][0].eval() for _ in range(3)]


def losses(output: str) -> list:
    """Return the training loss at the end of every epoch."""
    return [float(value) for value in re.findall(r"\| loss ([\d.]+)", output)]


@pytest.mark.parametrize(
    "options",
    [
        ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"],
        ["--encoder-normalize-before", "--decoder-normalize-before", "--share-all-embeddings"],
        ["--share-decoder-input-output-embed", "--layernorm-embedding", "--no-scale-embedding", "--activation-fn", "gelu"],
        ["--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5", "--encoder-layers", "3", "--decoder-layers", "3"],
        ["--update-freq", "2", "--clip-norm", "0.1"],
        ["--attention-dropout", "0.2", "--activation-dropout", "0.2"],
        ["--max-source-positions", "12", "--max-target-positions", "11"],
        ["--cross-position", "alibi", "--encoder-position", "tupe_rel", "--decoder-position", "sinusoidal+shaw:max_distance=3"],
        ["--encoder-embed-dim", "24", "--encoder-attention-heads", "3"],
        ["--lr-scheduler", "inverse_sqrt", "--warmup-updates", "4", "--warmup-init-lr", "1e-7", "--weight-decay", "0.0001"],
        ["--left-pad-source"],
        ["--encoder-ffn-kernel", "3", "--decoder-ffn-kernel", "2", "--encoder-drop-residual", "0"],
        ["--criterion", "posenc_label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--report-accuracy"],
        ["--loss-in-blocks", "--criterion", "posenc_label_smoothed_cross_entropy", "--label-smoothing", "0.1"],
    ],
    ids=lambda options: options[0],
)
def test_it_trains_and_decodes_with(fairseq, tmp_path, options):
    output = fairseq.train("posenc_shaw_tiny", tmp_path, *options).succeeded()
    assert losses(output) and losses(output)[-1] < 10
    decoded = fairseq.generate(tmp_path / "checkpoint_last.pt", "--beam", 2).succeeded()
    assert sorted(fairseq.rows(decoded, "H")) == list(range(6))


def test_a_model_learns(shaw):
    epochs = losses((shaw.parent / "log").read_text())
    assert len(epochs) == 10 and epochs[-1] < epochs[0] - 0.5


def test_no_dropout_is_no_dropout(fairseq, tmp_path):
    """Without dropout, two seeds have the same result. Both training runs start from the weights of one checkpoint."""
    begin = tmp_path / "begin"
    fairseq.train("posenc_t5_tiny", begin, "--max-update", 1).succeeded()
    states = []
    for seed in (5, 6):
        restore = ["--restore-file", begin / "checkpoint_last.pt", "--reset-dataloader", "--reset-optimizer"]
        restore += ["--reset-meters", "--reset-lr-scheduler"]
        more = ["--seed", seed, "--dropout", 0, "--batch-size", 64, "--required-batch-size-multiple", 1]
        fairseq.train("posenc_t5_tiny", tmp_path / str(seed), *restore, *more).succeeded()
        states.append(fairseq.state(tmp_path / str(seed) / "checkpoint_last.pt")["model"])
    for name, value in states[0].items():
        torch.testing.assert_close(value, states[1][name], rtol=1e-3, atol=1e-4, msg=name)


def test_checkpointed_activations_change_nothing(fairseq, tmp_path):
    """If a layer is computed again in the backward pass, dropout draws the same random numbers."""
    states = []
    for name, options in (("plain", []), ("checkpointed", ["--checkpoint-activations"])):
        fairseq.train("posenc_tupe_rel_tiny", tmp_path / name, *options).succeeded()
        states.append(fairseq.state(tmp_path / name / "checkpoint_last.pt")["model"])
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_tied_layers_are_one(fairseq, tmp_path):
    options = ["--encoder-layers", 4, "--decoder-layers", 3]
    fairseq.train("posenc_universal_tiny", tmp_path, *options).succeeded()
    layers = {name.split(".")[2] for name in fairseq.state(tmp_path / "checkpoint_last.pt")["model"] if ".layers." in name}
    assert layers == {"0"}
    assert len(fairseq.rows(fairseq.generate(tmp_path / "checkpoint_last.pt").succeeded(), "H")) == 6


def test_a_checkpoint_after_bleu_resumes_and_decodes(fairseq, tmp_path):
    """The meters of the checkpoint contain numpy numbers, which the safe loader must allow."""
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 12}', "--best-checkpoint-metric", "bleu"]
    bleu += ["--maximize-best-checkpoint-metric", "--batch-size-valid", 8]
    arguments = [str(a) for a in fairseq.training("posenc_rope_tiny", tmp_path, *bleu) if a != "--disable-validation"]
    assert re.search(r"bleu \d", fairseq.run(*arguments).succeeded())
    resumed = fairseq.run(*arguments, "--max-update", 4).succeeded()
    assert "(epoch 1 @ 2 updates)" in resumed
    assert (tmp_path / "checkpoint_best.pt").exists()
    assert len(fairseq.rows(fairseq.generate(tmp_path / "checkpoint_best.pt").succeeded(), "H")) == 6


def test_finetuning_starts_from_other_weights(fairseq, shaw, tmp_path):
    options = ["--encoder-layers", 2, "--decoder-layers", 2, "--share-all-embeddings", "--finetune-from-model", shaw]
    fairseq.train("posenc_shaw_tiny", tmp_path, *options, "--lr", "1e-9").succeeded()
    before, after = (fairseq.state(path)["model"] for path in (shaw, tmp_path / "checkpoint_last.pt"))
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_a_moving_average_of_the_weights_is_stored_and_resumed(fairseq, tmp_path):
    for updates in (2, 4):
        fairseq.train("posenc_t5_tiny", tmp_path, "--store-ema", "--ema-fp32", "--max-update", updates).succeeded()
    state = fairseq.state(tmp_path / "checkpoint_last.pt")
    average, last = state["extra_state"]["ema_fp32_params"], state["model"]
    name = "encoder.position.methods.0.weight"
    assert not torch.equal(average[name], last[name])
    torch.testing.assert_close(average[name], last[name], rtol=0, atol=0.1)


def test_sums_of_checkpoints_load(models):
    """fairseq's average_checkpoints.py adds the tensors of checkpoints, and divides each sum. Integers are rounded down."""
    state, count = models[0].state_dict(), 7
    average = {name: sum([value] * count) for name, value in state.items()}
    average = {name: value / count if value.is_floating_point() else value // count for name, value in average.items()}
    models[0].load_state_dict(average)
    for name, value in models[0].state_dict().items():
        torch.testing.assert_close(value, state[name])


def test_the_real_console_script_in_another_folder(fairseq, tmp_path):
    """The command runs in another folder, without PYTHONPATH. --user-dir is sufficient to find the plugin.

    --tensorboard-logdir writes the training curve.
    """
    user_dir = Path(fairseq_posenc.__file__).parent
    script = Path(sys.executable).with_name("fairseq-train")
    options = ["--user-dir", user_dir, "--tensorboard-logdir", "curves", "--max-update", 1, "--log-interval", 1]
    arguments = fairseq.training("posenc_t5_tiny", "models", *options)
    done = subprocess.run(
        [script, *map(str, arguments[1:])],
        cwd=tmp_path, env={"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "models" / "checkpoint_last.pt").exists()
    curves = [path for path in (tmp_path / "curves").rglob("events.*") if path.stat().st_size > 0]
    assert any(path.parent.name.startswith("train") for path in curves)


# --- half precision ---

HALF = ["--fp16", "--memory-efficient-fp16", "--bf16", "--memory-efficient-bf16", "--amp"]


@pytest.mark.parametrize("flag", HALF)
def test_half_precision_trains_on_a_cpu(fairseq, tmp_path, flag):
    """After training, the losses of a stock model and of the plugin's model differ by at most 2.

    All parameters of the plugin's model are finite.
    """
    options = [flag, "--fp16-init-scale", 4] if "16" in flag else [flag]
    stock, ours = (fairseq.train(arch, tmp_path / arch, *options) for arch in ("transformer", "posenc_tupe_rel_tiny"))
    assert ours.status == 0, ours.output[-3000:]
    assert losses(ours.output)[-1] == pytest.approx(losses(stock.output)[-1], abs=2)
    state = fairseq.state(tmp_path / "posenc_tupe_rel_tiny" / "checkpoint_last.pt")["model"]
    assert all(value.isfinite().all() for value in state.values())


def test_an_overflow_of_gradients_on_a_cpu_is_skipped(fairseq, tmp_path):
    done = fairseq.train("posenc_rope_tiny", tmp_path, "--fp16", "--fp16-init-scale", 2**30)
    assert done.status == 0, done.output[-3000:]
    assert "gradient overflow detected, ignoring gradient" in done.output
    state = fairseq.state(tmp_path / "checkpoint_last.pt")["model"]
    assert all(value.isfinite().all() for value in state.values())


def last_error(output: str) -> str:
    return re.findall(r"^(?:\[rank\d\]: )?(\w*(?:Error|Exception)\b.*)", output, re.MULTILINE)[-1]


@pytest.mark.parametrize("how", ["bfloat16", "half", "autocast"])
def test_half_precision_decodes_near_single(models, how):
    expected = models[0](*SENTENCES)[0]
    if how == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            found = models[0](*SENTENCES)[0]
    else:
        found = getattr(models[1 if how == "half" else 2], how)()(*SENTENCES)[0]
        assert found.dtype == getattr(torch, how)
    assert expected.abs().max() > 1
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.15)


# --- two workers ---


def two_workers(fairseq, backend: str, *training) -> list:
    """Return the final results of both ranks of a training run."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    gloo = ["--ddp-backend", backend, "--distributed-backend", "gloo", "--distributed-no-spawn", "--distributed-world-size", 2]
    gloo += ["--distributed-init-method", f"tcp://127.0.0.1:{port}"]
    workers = [fairseq.start(*training, *gloo, "--distributed-rank", rank) for rank in (0, 1)]
    return [worker.finish() for worker in workers]


@pytest.mark.slow
def test_two_workers_train_as_one(fairseq, tmp_path):
    """Compare two workers with one worker. In one update, each of the two workers reads one batch of 4 sentences.

    The one worker reads two batches of 4 sentences per update. The resulting parameters are equal.

    The training run with two workers is also resumed.
    """

    def training(folder: Path, updates: int) -> list:
        return fairseq.training(
            "posenc_tupe_rel_tiny", folder, "--batch-size", 4, "--max-update", updates, "--dropout", 0, "--optimizer", "sgd"
        )

    for updates in (2, 4):
        outputs = [result.succeeded() for result in two_workers(fairseq, "legacy_ddp", *training(tmp_path / "two", updates))]
    assert "(epoch 1 @ 2 updates)" in outputs[0]  # the other rank prints nothing
    fairseq.run(*training(tmp_path / "one", 4), "--update-freq", 2).succeeded()
    two, one = (fairseq.state(tmp_path / name / "checkpoint_last.pt")["model"] for name in ("two", "one"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.slow
def test_the_other_backend_goes_as_far_as_stock_on_a_cpu(fairseq, tmp_path):
    """fairseq passes a device number to torch's DistributedDataParallel. For a model on the CPU, torch rejects the number."""
    ends = [
        two_workers(fairseq, "pytorch_ddp", *fairseq.training(arch, tmp_path / arch))
        for arch in ("transformer", "posenc_tupe_rel_tiny")
    ]
    assert ends[0][0].status == ends[1][0].status
    if ends[0][0].status:
        assert own_error(ends[0]) == own_error(ends[1])


def own_error(workers) -> str:
    """Return the error that ended the training run. The worker that stopped later only reports a lost connection."""
    errors = [last_error(worker.output) for worker in workers]
    return next((error for error in errors if "Connection closed by peer" not in error), errors[0])


@pytest.mark.parametrize("arch", ["posenc_tupe_rel_tiny", "posenc_universal_tiny"])
def test_torch_shares_every_gradient(fairseq, arch):
    """torch's DistributedDataParallel with one process fails if the loss does not depend on a parameter."""
    given = [str(fairseq.data), "--arch", arch, *fairseq.tiny, "--source-lang=fw", "--target-lang=bw"]
    args = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), given)
    task = tasks.setup_task(convert_namespace_to_omegaconf(args).task)
    model = task.build_model(args)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        shared = torch.nn.parallel.DistributedDataParallel(model)
        for _ in range(2):
            shared(*SENTENCES)[0].logsumexp(-1).sum().backward()
        # Without this `del`, destroy_process_group would hold Python's global lock (GIL) and wait for a thread. The thread
        # may wait for the same lock.
        del shared
    finally:
        torch.distributed.destroy_process_group()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_copy_of_a_folder_resumes(fairseq, shaw, tmp_path):
    """A checkpoint can be copied to another folder, because a checkpoint does not contain its path."""
    shutil.copy(shaw, tmp_path / "checkpoint_last.pt")
    options = ["--encoder-layers", 2, "--decoder-layers", 2, "--share-all-embeddings", "--max-update", 61, "--dropout", 0]
    assert "@ 60 updates" in fairseq.train("posenc_shaw_tiny", tmp_path, *options).succeeded()


@pytest.mark.slow
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_stack_without_layers_trains(fairseq, tmp_path, side):
    fairseq.train("posenc_sinusoidal_tiny", tmp_path, f"--{side}-layers", 0).succeeded()
