"""What score.json takes from a log of fairseq-train, resumed ones among them."""

import json
import subprocess
import sys

from fairseq_posenc.report import memory
from fairseq_posenc.report.training_log import course

STAMP = "2026-01-01 10:00:00 | INFO |"


def valid(epoch, updates, loss, subset="valid"):
    losses = f"loss {loss} | ppl 9 | num_updates {updates} | best_loss 1"
    return f"{STAMP} {subset} | epoch {epoch:03d} | valid on '{subset}' subset | {losses}"


def train(epoch, seconds):
    return f"{STAMP} train | epoch {epoch:03d} | loss 2 | ppl 5 | num_updates 800 | lr 0 | train_wall {seconds} | wall 999"


def test_a_resumed_training_counts_once():
    log = [valid(1, 200, 3.8), valid(2, 400, 2.9), train(1, 40), "killed", valid(2, 400, 2.8), valid(2, 600, 2.5), train(2, 41)]
    log += ["continued", valid(3, 800, 2.2), train(2, 50), train(3, 42)]
    found = course("\n".join(log))
    assert found["learning_curve"] == [[200, 3.8], [400, 2.8], [600, 2.5], [800, 2.2]]
    assert found["training_seconds"] == 40 + 50 + 42
    assert found["peak_memory"] is None and found["device"] is None


def test_json_logs_are_read_too():
    lines = [
        f"{STAMP} valid | " + json.dumps({"epoch": 1, "valid_loss": "3.8", "valid_num_updates": "200"}),
        f"{STAMP} other | " + json.dumps({"epoch": 1, "other_loss": "9.8", "other_num_updates": "200"}),
        f"{STAMP} train | " + json.dumps({"epoch": 1, "train_loss": "3", "train_train_wall": "40"}),
    ]
    found = course("\n".join(lines))
    assert (found["learning_curve"], found["training_seconds"]) == ([[200, 3.8]], 40)


def test_only_the_first_validation_set_counts():
    assert course("\n".join([valid(1, 5, 3.0), valid(1, 5, 9.0, "valid1")]))["learning_curve"] == [[5, 3.0]]


def test_memory_of_a_gpu_and_of_a_process():
    gpu = f"{STAMP} fairseq.utils | rank   0: capabilities =  9.0  ; total memory = 139.801 GB ; name = NVIDIA H200      "
    inner = [f"{STAMP} train_inner | epoch 001: 5 / 9 loss=3, gb_free={free}, wall=9" for free in (130.2, 128.7, 129.9)]
    found = course("\n".join([gpu, *inner]))
    assert found["peak_memory"] == {"of": "GPU", "gib": 11.1} and found["device"] == "NVIDIA H200"
    peaks = [memory.PEAK_OF_PROCESS.format(gib) for gib in (0.5, 0.75)]
    assert course("\n".join(peaks))["peak_memory"] == {"of": "process", "gib": 0.75}


def test_an_empty_log_says_nothing():
    assert course("") == {"learning_curve": [], "training_seconds": None, "peak_memory": None, "device": None}


def test_the_memory_of_a_command_is_printed_when_it_ends(tmp_path):
    script = tmp_path / "train"
    script.write_text(f"#!{sys.executable}\nimport sys\nblock = bytearray(2**28)\nprint(sys.argv[1:])\nsys.exit(3)\n")
    script.chmod(0o755)
    done = subprocess.run([sys.executable, memory.__file__, str(script), "DATA", "--x"], capture_output=True, text=True)
    assert done.returncode == 3 and done.stdout.startswith("['DATA', '--x']")
    assert 0.25 < course(done.stdout)["peak_memory"]["gib"] < 0.5


def test_a_command_that_is_not_there_is_one_line():
    done = subprocess.run([sys.executable, memory.__file__, "no-such-command"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == "no-such-command: give the command that trains, e.g. fairseq-train\n"
