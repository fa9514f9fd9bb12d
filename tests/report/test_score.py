"""posenc score: what it reads, what it writes, and its errors."""

import json
import re
from argparse import Namespace

import pytest
import sacrebleu
import torch

from fairseq_posenc.cli import main
from fairseq_posenc.contract import PositionError
from fairseq_posenc.report import checkpoint, score

REFERENCES = ["the dog sees the cat", "the cat sees the dog", "dogs sleep"]
HYPOTHESES = ["the dog sees the cat", "the cat sees a dog", "dogs sleep"]
LOG = """
2026-01-01 10:00:00 | INFO | fairseq_cli.train | num. shared model params: 968,704 (num. trained: 968,704)
2026-01-01 10:00:01 | INFO | train_inner | epoch 001: 50 / 99 loss=8, ppl=256, wps=100.4, ups=1, num_updates=50, wall=9
2026-01-01 10:00:02 | INFO | train_inner | epoch 001: 100 / 99 loss=8, ppl=256, wps=9000, ups=1, num_updates=100, wall=9
2026-01-01 10:00:03 | INFO | train_inner | epoch 002: 150 / 99 loss=8, ppl=256, wps=7000.2, ups=1, num_updates=150, wall=9
2026-01-01 10:00:03 | INFO | train | epoch 002 | loss 8 | wps 1 | ups 1 | num_updates 150
"""


def generated(hypotheses, order=(2, 0, 1), config=""):
    """In the order of fairseq-generate: by length, with the log around it."""
    lines = [f"INFO:fairseq_cli.generate:{config}"] if config else []
    for i in order[: len(hypotheses)]:
        lines += [f"S-{i}\tx", f"T-{i}\ty", f"H-{i}\t-0.5\tpie ces {i}", f"D-{i}\t-0.5\t{hypotheses[i]}", f"P-{i}\t-0.1"]
    return "\n".join([*lines, "Generate test with beam=4: BLEU4 = 1.00"]) + "\n"


def write_checkpoint(path, data, seed=3, updates=150, arch="posenc_t5_tiny", dropout=0.1, **positions):
    """With the parts of a fairseq checkpoint that are read."""
    specs = {"encoder": "t5", "decoder": "t5", "cross": "none", **positions}
    text = "\n".join(f"{site}: {spec}:layers=none" for site, spec in specs.items())
    history = {"criterion_name": "c", "optimizer_name": "o", "lr_scheduler_state": {}, "num_updates": updates}
    state = {
        "args": None,
        "cfg": {
            "common": {"seed": seed, "log_interval": 50},
            "optimization": {"lr": [0.003]},
            "checkpoint": {"save_dir": str(path.parent)},
            "task": {"data": str(data)},
            "model": Namespace(arch=arch, dropout=dropout, **{f"{site}_position": spec for site, spec in specs.items()}),
        },
        "model": {"positions_version": torch.tensor(list(text.encode()))},
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    torch.save(state, path)


@pytest.fixture
def trained(tmp_path):
    """A run as the recipes leave it, its reference, and its output without hypotheses."""
    score.training_record.cache_clear()
    run, data = tmp_path / "t5", tmp_path / "data"
    run.mkdir()
    data.mkdir()
    (data / "dict.sov.txt").write_text("dog 3\n")
    (data / "train.svo-sov.sov.bin").write_bytes(b"123")
    write_checkpoint(run / "checkpoint_last.pt", data)
    (run / "train.log").write_text(LOG)
    (tmp_path / "test.sov").write_text("\n".join(REFERENCES) + "\n")
    common_eval = {"path": str(run / "checkpoint_last.pt"), "post_process": "sentencepiece"}
    config = {"_name": None, "common_eval": common_eval, "generation": {"beam": 4, "lenpen": 1.0}}
    (run / "test.out").write_text(generated(HYPOTHESES, config=config))
    return run


def test_score_json_says_what_was_measured_and_how(trained, capsys):
    assert main(["score", str(trained), f"test={trained.parent / 'test.sov'}"]) == 0
    record = json.loads((trained / "score.json").read_text())
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score, sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    part = record["parts"]["test"]
    assert (part["bleu"], part["chrf"]) == tuple(round(value, 2) for value in expected)
    assert "tok:13a" in part["bleu_signature"] and "nc:6" in part["chrf_signature"]
    assert part["sentences"] == 3 and part["decoding"] == {"beam": 4, "lenpen": 1.0, "post_process": "sentencepiece"}
    assert (record["parameters"], record["tokens_per_second"]) == (968704, 7000)  # the median, not the mean
    assert (record["arch"], record["seed"], record["updates"]) == ("posenc_t5_tiny", 3, 150)
    assert record["method"] == {"encoder": "t5", "decoder": "t5", "cross": "none"}
    assert record["signature"]["encoder"] == "t5:layers=none"
    assert record["settings"] == {"dropout": 0.1, "lr": [0.003]}  # neither places nor what the screen shows
    assert set(record["versions"]) == {"posenc", "fairseq", "torch", "sacrebleu"}
    assert f"BLEU {part['bleu']:.2f}" in capsys.readouterr().out


def test_a_second_part_joins_the_first_and_another_training_replaces_it(trained):
    reference = trained.parent / "test.sov"
    (trained / "long.out").write_text((trained / "test.out").read_text())
    assert main(["score", str(trained), f"test={reference}"]) == 0
    assert main(["score", str(trained), f"long={reference}"]) == 0
    assert set(json.loads((trained / "score.json").read_text())["parts"]) == {"test", "long"}
    score.training_record.cache_clear()
    write_checkpoint(trained / "checkpoint_last.pt", trained.parent / "data", updates=300)
    assert main(["score", str(trained), f"long={reference}"]) == 0
    assert set(json.loads((trained / "score.json").read_text())["parts"]) == {"long"}


def test_the_data_hash_follows_the_content(trained):
    data = trained.parent / "data"
    before = checkpoint.digest(data)
    (data / "preprocess.log").write_text("a name of this machine")
    assert checkpoint.digest(data) == before
    (data / "train.svo-sov.sov.bin").write_bytes(b"124")
    assert checkpoint.digest(data) != before


def test_json_logs_are_read_too():
    line = (
        '2026-01-01 10:00:03 | INFO | train_inner | {"epoch": 1, "loss": "8.1", "wps": "5500.5", "ups": "2", "num_updates": "9"}'
    )
    log = "num. shared model params: 12 (num. trained: 12)\n" + line
    assert score.training_log(log, "log") == {"parameters": 12, "tokens_per_second": 5500}


def test_hypotheses_come_in_the_order_of_the_references():
    assert score.hypotheses(generated(HYPOTHESES), 3, "out") == HYPOTHESES
    only_h = "".join(f"H-{i}\t-1\t{text}\n" for i, text in enumerate(HYPOTHESES))
    assert score.hypotheses(only_h, 3, "out") == HYPOTHESES
    assert score.hypotheses("D-0\t-1\tbest\nD-0\t-2\tsecond\nD-1\t-1\t\n", 2, "out") == ["best", ""]


@pytest.mark.parametrize(
    ("text", "references", "message"),
    [
        ("", 3, "out holds no hypothesis"),
        (generated(HYPOTHESES, order=(2, 0)), 3, "out has 2 hypotheses for 3 references, the first missing one is 1"),
        (generated(HYPOTHESES, order=(2, 0)), 3, "--required-batch-size-multiple 1"),
        (generated(HYPOTHESES), 2, "out has 3 hypotheses for 2 references$"),
    ],
)
def test_misaligned_output_is_refused(text, references, message):
    with pytest.raises(PositionError, match=message):
        score.hypotheses(text, references, "out")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: (run / "test.out").unlink(), "test.out cannot be read: No such file"),
        (lambda run: (run / "train.log").unlink(), "train.log cannot be read: No such file"),
        (lambda run: (run / "train.log").write_text("nothing"), "train.log shows no parameters"),
        (lambda run: (run / "checkpoint_last.pt").unlink(), "checkpoint_last.pt is missing"),
        (lambda run: (run / "test.out").write_text(generated(HYPOTHESES)), "does not name the checkpoint"),
        (lambda run: (run.parent / "test.sov").write_text("one\n"), "test.out has 3 hypotheses for 1 references"),
        (lambda run: [p.unlink() for p in (run.parent / "data").iterdir()], "data .* is not here"),
    ],
)
def test_every_error_is_one_line(trained, capsys, spoil, message):
    spoil(trained)
    assert main(["score", str(trained), f"test={trained.parent / 'test.sov'}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("posenc: ") and error.count("\n") == 1 and re.search(message, error)
    assert not (trained / "score.json").exists()


def test_mend_puts_the_newest_whole_checkpoint_in_the_place_of_half_a_copy(tmp_path):
    for name, updates in {"checkpoint_1_400.pt": 400, "checkpoint_best.pt": 200, "checkpoint_last.pt": 400}.items():
        write_checkpoint(tmp_path / name, tmp_path, updates=updates)
    whole = (tmp_path / "checkpoint_1_400.pt").read_bytes()
    assert checkpoint.mend(tmp_path) == 400
    assert (tmp_path / "checkpoint_best.pt").read_bytes() != whole  # whole as well, and stays
    (tmp_path / "checkpoint_last.pt").write_bytes(whole[: len(whole) // 2])
    assert checkpoint.mend(tmp_path) == 400
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == whole
    (tmp_path / "checkpoint_last.pt").unlink()
    assert checkpoint.mend(tmp_path) == 400
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == whole


def test_mend_leaves_nothing_where_nothing_is_whole(tmp_path):
    assert checkpoint.mend(tmp_path) == 0
    (tmp_path / "checkpoint_last.pt").write_bytes(b"half")
    assert checkpoint.mend(tmp_path) == 0
    assert not list(tmp_path.iterdir())
