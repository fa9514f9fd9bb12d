"""Values of score.json that are read from a log of fairseq-train, including resumed training runs."""

import json
import math
import subprocess
import sys

import pytest

from fairseq_posenc.evaluation.scoring import memory
from fairseq_posenc.evaluation.scoring.training_log import parse_training_log

STAMP = "2026-01-01 10:00:00 | INFO |"


def valid(epoch, updates, loss, subset="valid"):
    losses = f"loss {loss} | ppl 9 | num_updates {updates} | best_loss 1"
    return f"{STAMP} {subset} | epoch {epoch:03d} | valid on '{subset}' subset | {losses}"


def train(epoch, seconds):
    return f"{STAMP} train | epoch {epoch:03d} | loss 2 | ppl 5 | num_updates 800 | lr 0 | train_wall {seconds} | wall 999"


def test_a_resumed_training_counts_once():
    log = [valid(1, 200, 3.8), valid(2, 400, 2.9), train(1, 40), "killed", valid(2, 400, 2.8), valid(2, 600, 2.5), train(2, 41)]
    log += ["continued", valid(3, 800, 2.2), train(2, 50), train(3, 42)]
    found = parse_training_log("\n".join(log))
    assert found["learning_curve"] == [[200, 3.8], [400, 2.8], [600, 2.5], [800, 2.2]]
    assert found["training_seconds"] == 40 + 50 + 42
    assert found["peak_memory"] is None and found["device"] is None


def attempt(parameters, start, *lines):
    """Return the lines of one attempt, in the order of fairseq-train."""
    return [f"{STAMP} fairseq_cli.train | num. shared model params: {parameters} (num. trained: 9)", GPU, start, *lines]


GPU = f"{STAMP} fairseq.utils | rank   0: capabilities =  9.0  ; total memory = 100 GB ; name = NVIDIA H200"
BEGUN = f"{STAMP} fairseq.trainer | No existing checkpoint found runs/t5/checkpoint_last.pt"
RESUMED = f"{STAMP} fairseq.trainer | Loaded checkpoint runs/t5/checkpoint_last.pt (epoch 2 @ 400 updates)"
FINETUNED = f"{STAMP} fairseq.trainer | Loaded checkpoint other.pt (epoch 9 @ 0 updates)"


@pytest.mark.parametrize("start", [BEGUN, FINETUNED], ids=["begun", "fine-tuned"])
def test_an_attempt_that_started_again_replaces_earlier_attempts(start):
    """The first attempt ended before its first checkpoint, so that the model is from the second attempt."""
    killed = attempt("60,526,080", BEGUN, inner("100", free=1), valid(1, 100, 9.9), train(1, 999))
    killed += [memory.PEAK_OF_PROCESS.format(50)]
    kept = attempt("968,704", start, inner("9000", free=98), valid(1, 200, 3.8), train(1, 40))
    found = parse_training_log("\n".join([*killed, *kept]))
    assert found == parse_training_log("\n".join(kept))
    assert (found["parameters"], found["tokens_per_second"], found["peak_memory"]["gib"]) == (968704, 9000, 2)
    assert found["learning_curve"] == [[200, 3.8]] and found["training_seconds"] == 40


def test_attempts_that_resumed_belong_to_the_attempt_before_them():
    begun = attempt("968,704", BEGUN, inner("9000", free=98), valid(1, 200, 3.8), train(1, 40))
    failed = attempt("60,526,080", "RuntimeError: the checkpoint is of another size")
    resumed = attempt("968,704", RESUMED, inner("7000", free=90), valid(2, 400, 2.8), train(2, 41))
    for last in ([], failed):
        found = parse_training_log("\n".join([*begun, *failed, *resumed, *last]))
        assert (found["parameters"], found["tokens_per_second"], found["peak_memory"]["gib"]) == (968704, 8000, 10)
        assert found["learning_curve"] == [[200, 3.8], [400, 2.8]] and found["training_seconds"] == 81


DONE = f"{STAMP} fairseq_cli.train | done training in 7.4 seconds"
STOPPED = f"{STAMP} fairseq_posenc.host.compat.patience | the training has stopped early, after 3 validations without a gain"
FINISHED = f"{STAMP} fairseq_posenc.host.compat.machines | the training has finished before, at update 800"
EPOCH = f"{STAMP} fairseq.trainer | begin training epoch 2"


@pytest.mark.parametrize(
    ("lines", "ended"),
    [
        ([*attempt("7", BEGUN, EPOCH, valid(1, 200, 3.8), train(1, 40), DONE), memory.PEAK_OF_PROCESS.format(50)], True),
        (attempt("7", BEGUN, EPOCH, valid(1, 200, 3.8), train(1, 40)), False),
        # the limit of updates or of --patience is reached, but the last checkpoint is not saved
        (
            attempt("7", BEGUN, EPOCH, f"{STAMP} fairseq_cli.train | Stopping training due to num_updates: 8 >= max_update: 8"),
            False,
        ),
        (attempt("7", BEGUN, EPOCH, f"{STAMP} fairseq_cli.train | early stop since valid performance hasn't improved"), False),
        # resumed attempts
        ([*attempt("7", BEGUN, EPOCH, valid(1, 200, 3.8)), *attempt("7", RESUMED, EPOCH, train(1, 40), DONE)], True),
        ([*attempt("7", BEGUN, EPOCH, valid(1, 200, 3.8)), *attempt("7", RESUMED, STOPPED)], True),
        ([*attempt("7", BEGUN, EPOCH, valid(1, 200, 3.8)), *attempt("7", RESUMED, FINISHED)], True),
        ([*attempt("7", BEGUN, EPOCH, valid(1, 200, 3.8), DONE), *attempt("7", RESUMED, EPOCH)], False),
        ([*attempt("7", BEGUN, EPOCH, DONE), *attempt("7", "RuntimeError: the checkpoint is of another size")], True),
        # started again
        ([*attempt("7", BEGUN, EPOCH, DONE), *attempt("7", BEGUN)], False),
    ],
)
def test_the_end_of_a_training_run_is_found(lines, ended):
    assert parse_training_log("\n".join(lines))["ended"] is ended


def test_json_logs_are_read_too():
    lines = [
        f"{STAMP} valid | " + json.dumps({"epoch": 1, "valid_loss": "3.8", "valid_num_updates": "200"}),
        f"{STAMP} other | " + json.dumps({"epoch": 1, "other_loss": "9.8", "other_num_updates": "200"}),
        f"{STAMP} train | " + json.dumps({"epoch": 1, "train_loss": "3", "train_train_wall": "40"}),
    ]
    found = parse_training_log("\n".join(lines))
    assert (found["learning_curve"], found["training_seconds"]) == ([[200, 3.8]], 40)


def test_only_the_first_validation_set_counts():
    assert parse_training_log("\n".join([valid(1, 5, 3.0), valid(1, 5, 9.0, "valid1")]))["learning_curve"] == [[5, 3.0]]


def test_memory_of_a_gpu_and_of_a_process():
    gpu = f"{STAMP} fairseq.utils | rank   0: capabilities =  9.0  ; total memory = 139.801 GB ; name = NVIDIA H200      "
    inner = [f"{STAMP} train_inner | epoch 001: 5 / 9 loss=3, gb_free={free}, wall=9" for free in (130.2, 128.7, 129.9)]
    found = parse_training_log("\n".join([gpu, *inner]))
    assert found["peak_memory"] == {"of": "GPU", "gib": 11.1} and found["device"] == "NVIDIA H200"
    peaks = [memory.PEAK_OF_PROCESS.format(gib) for gib in (0.5, 0.75)]
    assert parse_training_log("\n".join(peaks))["peak_memory"] == {"of": "process", "gib": 0.75}


def test_an_empty_log_says_nothing():
    found = parse_training_log("")
    assert found.pop("learning_curve") == [] and found.pop("ended") is False and set(found.values()) == {None}


def inner(wps, updates=50, free=None):
    memory = "" if free is None else f"gb_free={free}, "
    return f"{STAMP} train_inner | epoch 001: 50 / 99 loss=8, ppl=256, wps={wps}, ups=1, num_updates={updates}, {memory}wall=9"


def test_speed_is_the_median_of_simple_and_json_logs():
    log = "num. shared model params: 1,212 (num. trained: 12)\n" + "\n".join(map(inner, ("100.4", "9000", "7000.2")))
    found = parse_training_log(log)
    assert (found["parameters"], found["tokens_per_second"]) == (1212, 7000)
    line = f"{STAMP} train_inner | " + json.dumps({"epoch": 1, "wps": "5500.5", "num_updates": "9"})
    assert parse_training_log(line)["tokens_per_second"] == 5500


def test_large_numbers_are_read_whole():
    log = "\n".join([inner("1.23457e+06"), valid(9, "1.2e+06", "1.5e-05"), train(9, "1.5e+06")])
    found = parse_training_log(log)
    assert found["tokens_per_second"] == 1234570
    assert found["learning_curve"] == [[1200000, 1.5e-05]] and found["training_seconds"] == 1.5e6


def test_a_progress_bar_and_few_updates_leave_the_speed_of_epochs():
    bar = "epoch 001:  50%|█████     | 5/10 [00:01<00:01,  3.1it/s, loss=8, wps=77, num_updates=5]"
    ends = [f"{STAMP} train | epoch 00{n} | loss 8 | wps {wps} | ups 1 | num_updates {n}" for n, wps in ((1, 4000), (2, 6000))]
    assert parse_training_log("\n".join([bar, *ends]))["tokens_per_second"] == 5000
    line = f"{STAMP} train | " + json.dumps({"epoch": 1, "train_loss": "3", "train_wps": "4000"})
    assert parse_training_log(line)["tokens_per_second"] == 4000
    assert parse_training_log(f"{STAMP} train | epoch 001 | loss 8 | wps 0 | ups 0")["tokens_per_second"] is None


def test_losses_that_are_not_finite_are_kept():
    simple = [valid(1, 200, 3.8), valid(2, 400, "nan"), valid(3, 600, "inf"), valid(4, 800, 3.5)]
    expected = [[200, 3.8], [400, None], [600, None], [800, 3.5]]
    assert parse_training_log("\n".join(simple))["learning_curve"] == expected
    fields = [{"epoch": 1, "valid_loss": str(loss or "nan"), "valid_num_updates": str(updates)} for updates, loss in expected]
    fields[2]["valid_loss"] = math.inf  # json.dumps writes Infinity
    lines = [f"{STAMP} valid | {json.dumps(found)}" for found in fields]
    assert parse_training_log("\n".join(lines))["learning_curve"] == expected


def test_cut_lines_and_losses_that_are_no_number_are_left_out():
    lines = [
        f'{STAMP} valid | {{"epoch": 1, "valid_loss": "3.8", "valid_num}}',
        f"{STAMP} valid | " + json.dumps({"epoch": 1, "valid_loss": "none", "valid_num_updates": "200"}),
        f"{STAMP} valid | " + json.dumps({"epoch": 2, "valid_loss": "3.5", "valid_num_updates": "400"}),
    ]
    assert parse_training_log("\n".join(lines))["learning_curve"] == [[400, 3.5]]


def test_the_memory_of_a_command_is_printed_when_it_ends(tmp_path):
    script = tmp_path / "train"
    script.write_text(f"#!{sys.executable}\nimport sys\nblock = bytearray(2**28)\nprint(sys.argv[1:])\nsys.exit(3)\n")
    script.chmod(0o755)
    done = subprocess.run([sys.executable, memory.__file__, str(script), "DATA", "--x"], capture_output=True, text=True)
    assert done.returncode == 3 and done.stdout.startswith("['DATA', '--x']")
    assert 0.25 < parse_training_log(done.stdout)["peak_memory"]["gib"] < 0.5


def test_a_command_that_is_not_there_is_one_line():
    done = subprocess.run([sys.executable, memory.__file__, "no-such-command"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == "no-such-command: not a command. Expected fairseq-train with its options.\n"
