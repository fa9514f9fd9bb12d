"""posenc score: its input, its output, and its errors."""

import json
import os
import re
import shutil
import subprocess

import pytest
import sacrebleu
import torch

from fairseq_posenc.cli import main
from fairseq_posenc.common.versions import commit
from fairseq_posenc.core import PositionError
from fairseq_posenc.evaluation.scoring import generated as outputs
from fairseq_posenc.evaluation.scoring.sentences import SentenceStatistics, corpus_score
from fairseq_posenc.host.checkpoints.checksum import checksum
from fairseq_posenc.host.checkpoints.read import data_digest
from tests.checkpoints.files import write_checkpoint

REFERENCES = ["the dog sees the cat", "the cat sees the dog", "dogs sleep"]
HYPOTHESES = ["the dog sees the cat", "the cat sees a dog", "dogs sleep"]
LOG = """
2026-01-01 10:00:00 | INFO | fairseq_cli.train | num. shared model params: 968,704 (num. trained: 968,704)
2026-01-01 10:00:01 | INFO | train_inner | epoch 001: 50 / 99 loss=8, ppl=256, wps=100.4, ups=1, num_updates=50, wall=9
2026-01-01 10:00:02 | INFO | train_inner | epoch 001: 100 / 99 loss=8, ppl=256, wps=9000, ups=1, num_updates=100, wall=9
2026-01-01 10:00:03 | INFO | train_inner | epoch 002: 150 / 99 loss=8, ppl=256, wps=7000.2, ups=1, num_updates=150, wall=9
2026-01-01 10:00:03 | INFO | train | epoch 002 | loss 8 | wps 1 | ups 1 | num_updates 150
"""
DONE = "2026-01-01 10:00:04 | INFO | fairseq_cli.train | done training in 7.4 seconds\n"


def generated(hypotheses, order=(2, 0, 1), config="", targets=REFERENCES):
    """Return an output of fairseq-generate: log lines, and hypotheses ordered by length instead of by number."""
    lines = [f"INFO:fairseq_cli.generate:{config}"] if config else []
    for i in order[: len(hypotheses)]:
        lines += [
            f"S-{i}\tx",
            f"T-{i}\t{targets[i]}",
            f"H-{i}\t-0.5\tpie ces {i}",
            f"D-{i}\t-0.5\t{hypotheses[i]}",
            f"P-{i}\t-0.1",
        ]
    return "\n".join([*lines, "Generate test with beam=4: BLEU4 = 1.00"]) + "\n"


@pytest.fixture
def trained(tmp_path):
    """Return a run with the files that a recipe writes. The reference and the data are in the parent folder."""
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
    assert (part["bleu"], part["chrf"]) == expected
    assert "tok:13a" in part["bleu_signature"] and "nc:6" in part["chrf_signature"]
    assert part["sentences"] == 3 and part["decoding"] == {"beam": 4, "lenpen": 1.0, "post_process": "sentencepiece"}
    assert (record["parameters"], record["tokens_per_second"]) == (968704, 7000)  # the median, not the mean
    assert (record["arch"], record["seed"], record["updates"]) == ("posenc_t5_tiny", 3, 150)
    assert record["method"] == {"encoder": "t5", "decoder": "t5", "cross": "none"}
    assert record["signature"]["encoder"] == "t5:layers=none"
    assert record["settings"] == {"dropout": 0.1, "lr": [0.003]}  # neither paths nor log_interval
    assert set(record["versions"]) == {"posenc", "fairseq", "torch", "sacrebleu"}
    assert record["commit"] == commit()
    assert f"BLEU {part['bleu']:.2f}" in capsys.readouterr().out


def test_the_commit_is_that_of_the_checkout(tmp_path):
    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    assert commit(tmp_path) is None  # an installation without a repository
    git("init", "-q")
    assert commit(tmp_path) is None
    (tmp_path / "file").write_text("a")
    git("add", "file")
    git("commit", "-q", "-m", "a")
    assert commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "file").write_text("b")
    assert commit(tmp_path) == f"{git('rev-parse', 'HEAD')}-dirty"


def test_another_commit_keeps_the_parts_that_are_scored(trained, monkeypatch):
    for name, part in (("a", "test"), ("b", "again")):
        monkeypatch.setattr("fairseq_posenc.common.versions.commit", lambda name=name: name)
        (trained / f"{part}.out").write_text((trained / "test.out").read_text())
        assert main(["score", str(trained), f"{part}={trained.parent / 'test.sov'}"]) == 0
    record = json.loads((trained / "score.json").read_text())
    assert record["commit"] == "b" and set(record["parts"]) == {"test", "again"}


def test_tokenised_text_is_counted_as_it_stands(trained):
    """With --tokenize none, neither BLEU nor the statistics of sentences tokenise the text again."""
    words = ["ein &apos; hund . .", "die katze &quot; sieht &quot; den hund .", "hunde , die schlafen ."]
    given = [words[0], words[1].replace("den", "einen"), words[2]]
    (trained.parent / "test.sov").write_text("\n".join(words) + "\n")
    (trained / "test.out").write_text(generated(given, config=config(trained), targets=words))
    assert main(["score", str(trained), f"test={trained.parent / 'test.sov'}", "--tokenize", "none"]) == 0
    part = json.loads((trained / "score.json").read_text())["parts"]["test"]
    assert part["bleu"] == sacrebleu.corpus_bleu(given, [words], tokenize="none").score
    assert part["bleu"] != sacrebleu.corpus_bleu(given, [words]).score and "tok:none" in part["bleu_signature"]
    counted = SentenceStatistics.unpack(part["statistics"])
    assert corpus_score("bleu", counted.bleu).score == pytest.approx(part["bleu"])
    assert sum(row[1] for row in counted.bleu) == sum(len(line.split()) for line in words)


def test_what_it_prints_as_json(trained, capsys):
    reference = trained.parent / "test.sov"
    (trained / "long.out").write_text((trained / "test.out").read_text())
    assert main(["score", str(trained), f"test={reference}", f"long={reference}", "--json"]) == 0
    out, error = capsys.readouterr()
    parts = json.loads((trained / "score.json").read_text())["parts"]
    shown = ("sentences", "bleu", "bleu_signature", "chrf", "chrf_signature", "others")
    assert not error and json.loads(out) == [
        {"run": str(trained), "part": part, **{key: parts[part][key] for key in shown}} for part in ("test", "long")
    ]


def test_perfect_translations_have_100_bleu(trained):
    """sacreBLEU's sum of logarithms gives 100.00000000000004."""
    run = config(trained)
    (trained / "test.out").write_text(generated(REFERENCES, config=run))
    assert main(["score", str(trained), f"test={trained.parent / 'test.sov'}"]) == 0
    assert json.loads((trained / "score.json").read_text())["parts"]["test"]["bleu"] == 100


def test_test_sets_of_one_call_are_from_one_training_run(trained, capsys):
    reference = trained.parent / "test.sov"
    (trained / "long.out").write_text((trained / "test.out").read_text().replace("checkpoint_last", "checkpoint_1_100"))
    write_checkpoint(trained / "checkpoint_1_100.pt", trained.parent / "data", updates=100)
    assert main(["score", str(trained), f"test={reference}", f"long={reference}"]) == 2
    assert "(updates differs). Expected one training run and one number of updates." in capsys.readouterr().err


def test_settings_in_the_name_of_a_row_remove_no_scores(trained):
    reference = trained.parent / "test.sov"
    (trained / "long.out").write_text((trained / "test.out").read_text())
    assert main(["score", str(trained), f"test={reference}"]) == 0
    assert main(["score", str(trained), f"long={reference}", "--row", "lr"]) == 0
    found = json.loads((trained / "score.json").read_text())
    assert set(found["parts"]) == {"test", "long"} and found["row"] == ["lr"]


def test_a_second_part_joins_the_first_and_another_training_replaces_it(trained, capsys):
    reference = trained.parent / "test.sov"
    (trained / "long.out").write_text((trained / "test.out").read_text())
    assert main(["score", str(trained), f"test={reference}"]) == 0
    assert main(["score", str(trained), f"long={reference}"]) == 0
    assert set(json.loads((trained / "score.json").read_text())["parts"]) == {"test", "long"}
    write_checkpoint(trained / "checkpoint_last.pt", trained.parent / "data", updates=300)
    assert main(["score", str(trained), f"long={reference}"]) == 0
    assert set(json.loads((trained / "score.json").read_text())["parts"]) == {"long"}
    line = "from another training run (another updates), so the scores of test are removed. Score these test sets again."
    assert line in capsys.readouterr().err


def test_another_version_of_the_software_is_named(trained, capsys):
    reference = trained.parent / "test.sov"
    (trained / "long.out").write_text((trained / "test.out").read_text())
    assert main(["score", str(trained), f"test={reference}"]) == 0
    content = json.loads((trained / "score.json").read_text())
    (trained / "score.json").write_text(json.dumps({**content, "versions": {"posenc": "0.0.1"}}))
    assert main(["score", str(trained), f"long={reference}"]) == 0
    line = "from other versions of the software (another versions), so the scores of test are removed."
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, best",
    [("checkpoint_best.pt", True), ("checkpoint.best_bleu_31.5.pt", True), ("checkpoint_last.pt", False), ("average.pt", False)],
)
def test_the_best_checkpoint_is_known_by_its_name(trained, name, best):
    if name != "checkpoint_last.pt":
        (trained / "checkpoint_last.pt").rename(trained / name)
    assert main(["score", str(trained), f"test={trained.parent / 'test.sov'}", "--checkpoint", str(trained / name)]) == 0
    assert json.loads((trained / "score.json").read_text())["best_checkpoint"] is best


def test_a_training_with_another_learning_curve_replaces_the_scores(trained, capsys):
    """A model that is trained again has equal settings, seed and updates, but other losses."""
    reference, line = trained.parent / "test.sov", "epoch 001 | valid on 'valid' subset | loss {} | ppl 9 | num_updates {}\n"
    (trained / "long.out").write_text((trained / "test.out").read_text())
    kept = []
    for part, curve in (("test", {100: 5.0}), ("long", {100: 5.0, 200: 4.0}), ("long", {100: 5.1, 200: 4.0})):
        lines = (line.format(loss, updates) for updates, loss in curve.items())
        (trained / "train.log").write_text("num. shared model params: 7 (num. trained: 7)\n" + "".join(lines))
        assert main(["score", str(trained), f"{part}={reference}"]) == 0
        kept.append(set(json.loads((trained / "score.json").read_text())["parts"]))
    assert kept == [{"test"}, {"test", "long"}, {"long"}]
    assert "from another training run (another learning_curve), so the scores of test are removed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("log", "options", "ended", "warned"),
    [
        (LOG, {"patience": 3}, False, True),
        (LOG + DONE, {"patience": 3}, True, False),
        (LOG, {"patience": 3, "max_update": 150}, True, False),  # a recipe does not resume this training run
        (LOG, {"patience": 3, "max_update": 200}, False, True),
        (LOG, {"patience": -1, "max_update": 200}, False, False),  # a report compares the number of updates
    ],
)
def test_a_training_with_patience_must_have_ended(posenc, trained, log, options, ended, warned):
    write_checkpoint(trained / "checkpoint_last.pt", trained.parent / "data", options=options)
    (trained / "train.log").write_text(log)
    found = warnings(posenc, trained)
    start = f"posenc: {trained / 'train.log'}: the training run did not end, or its end is not in the log. "
    assert [line[: len(start)] for line in found] == [start] * warned
    assert json.loads((trained / "score.json").read_text())["ended"] is ended


def test_a_validation_loss_that_is_not_finite_is_reported(posenc, trained):
    line = "epoch 001 | valid on 'valid' subset | loss {} | ppl 9 | num_updates {}\n"
    (trained / "train.log").write_text(LOG + "".join(line.format(*found) for found in ((5.0, 50), ("nan", 100), ("inf", 150))))
    assert warnings(posenc, trained) == [
        f"posenc: {trained / 'train.log'}: the validation loss is NaN or infinite in 2 of 3 validations, first at update 100. "
        "Expected finite losses. Train again, for example with a smaller learning rate."
    ]
    assert json.loads((trained / "score.json").read_text())["learning_curve"] == [[50, 5.0], [100, None], [150, None]]


def test_an_output_of_another_checkpoint_is_refused(posenc, trained):
    """Times of files are not compared, because a copy of the files can have any times."""
    checkpoint, output = trained / "checkpoint_last.pt", trained / "test.out"
    line = f"2026-01-01 10:00:00 | INFO | fairseq_posenc | checksum {checksum(checkpoint)} of the checkpoint {checkpoint}\n"
    output.write_text(line + output.read_text())
    os.utime(output, (0, 0))
    assert warnings(posenc, trained) == []
    write_checkpoint(checkpoint, trained.parent / "data", weight=torch.ones(1))  # equal settings, seed and number of updates
    os.utime(checkpoint, (0, 0))
    (trained / "score.json").unlink()
    status, _, error = posenc("score", trained, f"test={trained.parent / 'test.sov'}")
    assert status == 2 and f"posenc: {output}: {checkpoint} has changed after this decoding, or is another checkpoint." in error
    assert not (trained / "score.json").exists()
    output.write_text(output.read_text().removeprefix(line).replace("\tpie ces 2", f"\t{line.strip()}"))
    assert warnings(posenc, trained) == []  # the output of an earlier version, and a hypothesis that looks like the line


def test_the_data_hash_follows_the_content(trained):
    data = trained.parent / "data"
    before = data_digest([data])
    (data / "preprocess.log").write_text("a name of this machine")
    assert data_digest([data]) == before
    (data / "train.svo-sov.sov.bin").write_bytes(b"124")
    assert data_digest([data]) != before


def test_the_data_hash_follows_raw_text(trained):
    """fairseq-preprocess --dataset-impl raw writes text files, whose names end with a language."""
    data = trained.parent / "data"
    before = data_digest([data])
    (data / "train.svo-sov.sov").write_text("a b\n")
    assert data_digest([data]) != before


def test_the_data_hash_follows_all_folders_of_sharded_data(posenc, trained):
    data, other = trained.parent / "data", trained.parent / "other"
    shutil.copytree(data, other)
    write_checkpoint(trained / "checkpoint_last.pt", f"{data}{os.pathsep}{other}")

    def scored():
        posenc("score", trained, f"test={trained.parent / 'test.sov'}")
        return json.loads((trained / "score.json").read_text())["data"]

    before = scored()
    assert before not in (data_digest([data]), data_digest([data, data, data]))
    (other / "train.svo-sov.sov.bin").write_bytes(b"124")
    assert scored() not in {before, data_digest([other, data])}


def test_hypotheses_come_in_the_order_of_the_references():
    assert outputs.hypotheses(generated(HYPOTHESES), 3, "out") == HYPOTHESES
    only_h = "".join(f"H-{i}\t-1\t{text}\n" for i, text in enumerate(HYPOTHESES))
    assert outputs.hypotheses(only_h, 3, "out") == HYPOTHESES
    assert outputs.hypotheses("D-0\t-1\tbest\nD-0\t-2\tsecond\nD-1\t-1\t\n", 2, "out") == ["best", ""]


NBEST = "S-{0}\tx\nT-{0}\ty\nH-{0}\t-1\ta{0}\nD-{0}\t-1\ta{0}\nH-{0}\t-2\tb\nD-{0}\t-2\tb\n"


def test_several_hypotheses_of_a_sentence_are_one_decoding():
    assert outputs.parse("".join(map(NBEST.format, (1, 0))), 2, "out").hypotheses == ["a0", "a1"]


@pytest.mark.parametrize(
    "text",
    [
        generated(HYPOTHESES) * 2,
        generated(HYPOTHESES) + generated(HYPOTHESES, order=(0,)),  # the second call was interrupted
        NBEST.format(0) * 2,
        "".join(f"H-{i}\t-1\t{text}\n" for i, text in enumerate(HYPOTHESES)) * 2,
    ],
    ids=["complete", "interrupted", "one sentence", "H lines"],
)
def test_an_output_of_two_decodings_is_refused(text):
    with pytest.raises(
        PositionError, match=r"^out: sentence [012] was decoded twice\. Expected .* Decode again, into a new file\.$"
    ):
        outputs.parse(text, 3, "out")


@pytest.mark.parametrize(
    ("text", "references", "message"),
    [
        ("", 3, "out: no hypotheses"),
        (generated(HYPOTHESES, order=(2, 0)), 3, r"out: 2 hypotheses for 3 references\. Sentence 1 is the first missing one"),
        (generated(HYPOTHESES, order=(2, 0)), 3, "--required-batch-size-multiple 1"),
        (generated(HYPOTHESES), 2, r"out: 3 hypotheses for 2 references\. Expected one each\.$"),
    ],
)
def test_misaligned_output_is_refused(text, references, message):
    with pytest.raises(PositionError, match=message):
        outputs.hypotheses(text, references, "out")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: (run / "test.out").unlink(), r"test.out: cannot be read \(No such file"),
        (lambda run: (run / "train.log").unlink(), r"train.log: cannot be read \(No such file"),
        (lambda run: (run / "train.log").write_text("nothing"), "train.log: no number of parameters found"),
        (lambda run: (run / "checkpoint_last.pt").unlink(), "checkpoint_last.pt: no such file"),
        (lambda run: (run / "test.out").write_text(generated(HYPOTHESES)), "no checkpoint named"),
        (lambda run: (run.parent / "test.sov").write_text("one\n"), "test.out: 3 hypotheses for 1 references"),
        (lambda run: [p.unlink() for p in (run.parent / "data").iterdir()], "data: the training data is missing"),
    ],
)
def test_every_error_is_one_line(trained, capsys, spoil, message):
    spoil(trained)
    assert main(["score", str(trained), f"test={trained.parent / 'test.sov'}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("posenc: ") and error.count("\n") == 1 and re.search(message, error)
    assert not (trained / "score.json").exists()


def scored(posenc, run, *options, reference="test.sov"):
    status, _, error = posenc("score", run, f"test={run.parent / reference}", *options)
    assert error.count("\n") == (status != 0) and len(error) < 500
    return status, error


def warnings(posenc, run):
    """Return the lines that posenc score prints to standard error for an output that it scores."""
    status, _, error = posenc("score", run, f"test={run.parent / 'test.sov'}")
    assert status == 0
    return error.splitlines()


def config(run, **generation):
    common_eval = {"path": str(run / "checkpoint_last.pt"), "post_process": "sentencepiece"}
    return {"_name": None, "common_eval": common_eval, "generation": {"beam": 4, "lenpen": 1.0, **generation}}


def test_forced_sentences_are_part_of_the_decoding(posenc, trained):
    """Decoding with a forced number of sentences differs from decoding without it."""
    for forced in ("", "<sep>"):
        logged = {**config(trained), "task": {"_name": "posenc_translation", "segments_forced": forced}}
        (trained / "test.out").write_text(generated(HYPOTHESES, config=logged))
        assert scored(posenc, trained) == (0, "")
        decoding = json.loads((trained / "score.json").read_text())["parts"]["test"]["decoding"]
        assert decoding.get("segments_forced", "") == forced


def test_changed_options_of_the_model_are_part_of_the_decoding(posenc, trained):
    for overrides in ("{}", "{'max_source_positions': 99}"):
        logged = config(trained)
        logged["common_eval"]["model_overrides"] = overrides
        (trained / "test.out").write_text(generated(HYPOTHESES, config=logged))
        assert scored(posenc, trained) == (0, "")
        decoding = json.loads((trained / "score.json").read_text())["parts"]["test"]["decoding"]
        assert decoding.get("model_overrides", "{}") == overrides


@pytest.mark.parametrize("kind", ["reference", "output"])
def test_text_that_is_not_utf8_is_one_line(posenc, trained, kind):
    path = {"reference": trained.parent / "test.sov", "output": trained / "test.out"}[kind]
    path.write_bytes(path.read_bytes() + b"\xff\xfe")
    status, error = scored(posenc, trained)
    assert status == 2 and f"{path}: not UTF-8 text" in error


def test_a_log_with_other_bytes_is_read(posenc, trained):
    (trained / "train.log").write_bytes(b"\xff" + LOG.encode())
    assert scored(posenc, trained) == (0, "")


def test_a_byte_order_mark_belongs_to_no_text(posenc, trained):
    assert scored(posenc, trained) == (0, "")
    before = json.loads((trained / "score.json").read_text())["parts"]
    for path in (trained.parent / "test.sov", trained / "test.out"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert scored(posenc, trained) == (0, "")
    assert json.loads((trained / "score.json").read_text())["parts"] == before


def test_left_over_subwords_are_refused(posenc, trained):
    pieces = {"sentencepiece": ["▁the ▁dog", "▁the ▁c at", "▁dog s"], "subword_nmt": ["the dog", "the c@@ at", "dogs"]}
    for kind, hypotheses in pieces.items():
        for best, targets in ((hypotheses, REFERENCES), (HYPOTHESES, hypotheses)):
            (trained / "test.out").write_text(generated(best, config=config(trained), targets=targets))
            status, error = scored(posenc, trained)
            assert status == 2 and "test.out: subwords (" in error and f"--remove-bpe {kind}" in error


def test_subwords_beside_a_reference_that_contains_their_mark(posenc, trained):
    """One reference contains the mark as text. Other lines must not contain it, unless they are few."""
    references = [*REFERENCES[:2], "a @@ b"]
    (trained / "other.txt").write_text("".join(line + "\n" for line in references))
    (trained / "test.out").write_text(generated(["the dog", "the c@@ at", "a @@ b"], config=config(trained), targets=references))
    status, _, error = posenc("score", trained, f"test={trained / 'other.txt'}")
    assert status == 2 and "subwords ('@@' in 1 of 6" in error
    (trained / "test.out").write_text(generated(references, config=config(trained), targets=references))
    assert posenc("score", trained, f"test={trained / 'other.txt'}")[0] == 0


def test_scores_of_the_reference_are_no_translations(posenc, trained):
    (trained / "test.out").write_text(generated(REFERENCES, config=config(trained, score_reference=True)))
    status, error = scored(posenc, trained)
    assert status == 2 and "Decode without --score-reference" in error


@pytest.mark.parametrize("log", ["settings", "line"])
def test_an_ensemble_is_not_one_model(posenc, trained, log):
    """--checkpoint names one checkpoint. The output is from two."""
    path = f"{trained}/checkpoint_last.pt{os.pathsep}{trained}/other.pt"
    logged = config(trained)
    logged["common_eval"]["path"] = path
    text = generated(HYPOTHESES, config=logged if log == "settings" else "loading model(s) from " + path)
    (trained / "test.out").write_text(text)
    for options in ([], ["--checkpoint", trained / "checkpoint_last.pt"]):
        status, error = scored(posenc, trained, *options)
        assert status == 2 and "test.out: decoded with an ensemble of 2 models (" in error and "Expected one model." in error
    assert not (trained / "score.json").exists()


def test_a_reranker_is_not_an_ensemble(posenc, trained):
    logged = config(trained, iter_decode_with_external_reranker=True)
    logged["common_eval"]["path"] += f"{os.pathsep}{trained}/other.pt"
    (trained / "test.out").write_text(
        generated(HYPOTHESES, config=logged) + f"loading model(s) from {logged['common_eval']['path']}\n"
    )
    assert scored(posenc, trained) == (0, "")


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        ([REFERENCES[1], REFERENCES[0], REFERENCES[2]], 1),  # shuffled
        ([*REFERENCES[:2], "quite another sentence of this file"], 3),
    ],
)
def test_a_reference_of_other_sentences_is_refused(posenc, trained, lines, first):
    (trained.parent / "test.sov").write_text("\n".join(lines) + "\n")
    status, error = scored(posenc, trained)
    assert status == 2 and "differ from the targets in" in error and f"first line {first} (" in error
    assert not (trained / "score.json").exists()
    assert scored(posenc, trained, "--other-reference") == (0, "")


def test_targets_may_be_tokenised_lower_case_or_have_unknown_words(posenc, trained):
    raw = ["The dog's “sees” a&b.", "The cat sees the dog-house.", "Dogs sleep…"]
    targets = ["the dog &apos;s &quot; sees &quot; a &amp; b .", "<<unk>> <<unk>> sees <<unk>> dog @-@ house .", "dogs sleep ..."]
    (trained / "test.out").write_text(generated(HYPOTHESES, config=config(trained), targets=targets))
    (trained.parent / "test.sov").write_text("\n".join(raw) + "\n")
    assert warnings(posenc, trained) == [
        f"posenc: {trained / 'test.out'}: in 3 of 3 sentences, only the hypothesis or only the reference has uppercase letters. "
        "Expected text of the same case, because BLEU and chrF are case-sensitive. Use a reference with the case of the prepared "
        "data, or restore the case of the hypotheses."
    ]


UPPER = [line.capitalize() for line in REFERENCES]


@pytest.mark.parametrize(
    ("hypotheses", "targets", "references", "number"),
    [
        (REFERENCES, REFERENCES, UPPER, 3),  # the prepared data are lowercase
        (UPPER, UPPER, REFERENCES, 3),  # the reference is lowercase
        (REFERENCES, [], UPPER, 3),
        ([REFERENCES[0], *UPPER[1:]], [], UPPER, 1),
        (UPPER, UPPER, UPPER, 0),
        (REFERENCES, REFERENCES, REFERENCES, 0),
        (REFERENCES, UPPER, UPPER, 0),  # the model was trained on text of this case, and its translations are poor
        (["", ". .", "3"], [], UPPER, 0),
        (["Ähre", "é"], [], ["ähre", "É"], 2),
        (["狗"], [], ["狗"], 0),
    ],
)
def test_text_of_another_case_is_noticed(hypotheses, targets, references, number):
    found = outputs.Generated(hypotheses, [], dict(enumerate(targets)), {}, None)
    assert outputs.lines_of_other_case(found, references) == number


def test_an_output_without_targets_is_scored(posenc, trained):
    lines = (trained / "test.out").read_text().splitlines()
    (trained / "test.out").write_text("\n".join(line for line in lines if not line.startswith("T-")) + "\n")
    assert scored(posenc, trained) == (0, "")


def test_names_of_outputs_may_hold_braces(posenc, trained):
    status, error = scored(posenc, trained, "--generated", "{x}")
    assert status == 2 and "{x}: cannot be read (No such file" in error
    (trained / "test.out").rename(trained / "{x} test {")
    assert scored(posenc, trained, "--generated", "{x} {part} {") == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["test={ref}", "test={ref}"], "is given twice"),
        (["a={ref}", "b={ref}", "--generated", "test.out"], "one file for 2 test sets. Expected {part}"),
        (["test"], "'test': not a test set. Expected PART=REFERENCE"),
        (["a\nb={ref}", "--generated", "test.out"], "wrong fields"),
    ],
)
def test_wrong_parts_are_one_line(posenc, trained, arguments, message):
    status, _, error = posenc("score", trained, *(text.replace("{ref}", str(trained.parent / "test.sov")) for text in arguments))
    assert status == 2 and message in error and error.count("\n") == 1


def test_a_full_disk_is_one_line_and_keeps_the_earlier_scores(posenc, trained, small_files):
    assert scored(posenc, trained) == (0, "")
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    with small_files(100):
        status, error = scored(posenc, trained)
    assert status == 2 and "score.json: cannot be written (File too large" in error
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before


def test_a_damaged_score_json_is_not_overwritten(posenc, trained):
    (trained / "score.json").write_text('{"parts": ')
    status, error = scored(posenc, trained)
    assert status == 2 and "score.json: damaged" in error


def test_a_training_of_few_updates_has_scores_but_no_speed(posenc, trained):
    (trained / "train.log").write_text(LOG.splitlines()[1] + "\n")
    assert scored(posenc, trained) == (0, "")
    assert json.loads((trained / "score.json").read_text())["tokens_per_second"] is None
    status, out, _ = posenc("report", trained, "--full", "--samples", "10")
    assert status == 0 and "not measured" in out


def test_settings_that_are_no_literals_leave_the_checkpoint_to_be_named(posenc, trained):
    (trained / "test.out").write_text(generated(HYPOTHESES, config="{'_name': None, 'generation': {'lenpen': inf}}"))
    status, error = scored(posenc, trained)
    assert status == 2 and "use --checkpoint" in error
    assert scored(posenc, trained, "--checkpoint", trained / "checkpoint_last.pt") == (0, "")


def test_help_says_what_the_folder_must_hold(capsys):
    with pytest.raises(SystemExit):
        main(["score", "--help"])
    text = capsys.readouterr().out
    assert all(word in text for word in ("train.log", "PART.out", "tee -a RUN/train.log", "--remove-bpe"))


@pytest.mark.parametrize(
    ("hypotheses", "references", "tokenised"),
    [
        (["a dog .", "Is it ?", "so"], ["a dog.", "Is it?", "so"], (2, 2)),
        (["a dog.", "Is it?"], ["a dog.", "Is it?"], (0, 2)),
        (["a dog ."], ["a dog ."], (0, 0)),  # both are tokenised
        (["", "."], ["", "."], (0, 0)),
        (["", " x"], ["a.", "b!"], (0, 2)),
    ],
)
def test_hypotheses_that_are_still_tokenised_are_noticed_in_few_lines(hypotheses, references, tokenised):
    """sacreBLEU itself warns only from 100 lines on."""
    assert outputs.tokenised_lines(hypotheses, references) == tokenised
