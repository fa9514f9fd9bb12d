"""fairseq's commands with side files: training, validation and decoding. Missing side files lead to a one-line error."""

import dataclasses
import random
import re
import shutil

import pytest

from fairseq_posenc import registry
from fairseq_posenc.cli import main

TASK = ["--task", "posenc_translation"]
READ_FILES = [name for name in registry.names() if registry.card(name).side_files(registry.declaration(name).options())]


@pytest.fixture(scope="module")
def structured(fairseq, tmp_path_factory):
    """Return an object that runs fairseq's commands on data with a random tree and a random order for every sentence."""
    folder = tmp_path_factory.mktemp("structured")
    text, data, draw = fairseq.data.parent, folder / "binary", random.Random(1)
    shutil.copytree(fairseq.data, data)
    for part in ("train", "valid", "valid1", "test", "test1"):
        lines = {"heads": [], "relations": [], "order": []}
        shutil.copy(text / f"{part}.fw", folder / f"{part}.fw")
        for sentence in (text / f"{part}.fw").read_text().splitlines():
            words = range(1, len(sentence.split()) + 1)
            lines["heads"].append([draw.randrange(0, word) if word > 1 else 0 for word in words])
            lines["heads"][-1][1:] = [head or 1 for head in lines["heads"][-1][1:]]
            lines["relations"].append([draw.choice("abc") for _ in words])
            lines["order"].append(draw.sample(range(len(words)), len(words)))
        for kind, rows in lines.items():
            (folder / f"{part}.fw.{kind}").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
        (folder / f"{part}.fw.order.source").write_text("drawn\n")
    prefixes = {split: ",".join(f"{folder}/{split}{number}" for number in ("", "1")) for split in ("valid", "test")}
    command = ["side", "binarise", str(data), "-s", "fw", "-t", "bw", "--trainpref", f"{folder}/train"]
    assert main([*command, "--validpref", prefixes["valid"], "--testpref", prefixes["test"]]) == 0
    return type(fairseq)(tmp_path_factory.mktemp("structured_commands"), data)


@pytest.fixture(scope="module")
def trained(structured, tmp_path_factory):
    """Train and validate a model that reads trees, with two data loader processes."""
    folder = tmp_path_factory.mktemp("trees")
    training = structured.training("posenc_spr_rel_tiny", folder, *TASK, "--num-workers", 2, "--valid-subset", "valid,valid1")
    training = [word for word in training if word != "--disable-validation"]
    output = structured.run(*training).succeeded()
    assert "valid on 'valid1' subset" in output
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize("name", READ_FILES)
def test_the_command_on_the_page_of_a_method_trains(structured, tmp_path, name):
    assert "num_updates 2" in structured.train_as_on_its_page(name, tmp_path).succeeded()


@pytest.mark.parametrize("subset", ["test", "test1"])
def test_decoding_reads_the_trees(structured, trained, subset):
    found = structured.rows(structured.generate(trained, *TASK, "--gen-subset", subset, "--beam", 3).succeeded(), "H")
    assert len(found) == 6


def test_orders_are_read_and_where_they_are_from_is_told(structured, tmp_path):
    output = structured.train("posenc_xl_pe_tiny", tmp_path / "run", *TASK).succeeded()
    assert f"orders of {structured.data} are from drawn" in output
    structured.generate(tmp_path / "run" / "checkpoint_last.pt", *TASK).succeeded()
    oracle = shutil.copytree(structured.data, tmp_path / "oracle")
    (oracle / "order.source.txt").write_text("an oracle\n")
    other = dataclasses.replace(structured, folder=tmp_path, data=oracle)
    line = other.generate(tmp_path / "run" / "checkpoint_last.pt", *TASK).refusal()
    assert f"{oracle}: reorderings from 'an oracle'. Expected 'drawn', as in the training of the model." in line


def test_without_files_there_is_one_line(fairseq, trained):
    line = fairseq.generate(trained, *TASK).refusal()
    assert f"SIDE-MISSING: {fairseq.data}/test.fw-bw.fw.heads.idx" in line and "posenc side binarise" in line


def test_another_task_is_refused_at_building(structured, trained):
    line = structured.generate(trained).refusal()
    assert "--task translation: the model reads the side input" in line


def test_sentences_of_the_keyboard_are_refused(structured, trained):
    line = structured.run(
        "fairseq-interactive", structured.data, "--path", trained, "--cpu", *TASK, input="a b c\n"
    ).refusal()  # fmt: skip
    assert (
        "SIDE-INTERACTIVE: fairseq-interactive: not supported, because the model reads side files (heads)" in line
        and ("posenc side binarise and fairseq-generate") in line
    )


@pytest.mark.parametrize("how", ["--restore-file", "--finetune-from-model"])
def test_a_training_that_goes_on_has_the_same_structure(structured, trained, tmp_path, how):
    given = (tmp_path / "run", *TASK, how, trained, "--max-update", 3, "--random-structure", 1)
    line = structured.train("posenc_spr_rel_tiny", *given).refusal()
    assert f"{trained}: trained with the real structure, but this command uses --random-structure 1." in line
    assert "start-from" in line and not (tmp_path / "run" / "checkpoint_last.pt").exists()


def test_batch_buckets_do_not_change_the_loss(structured, trained):
    """--num-batch-buckets pads sentences before the side inputs are added to the batch."""
    losses = []
    for options in ([], ["--num-batch-buckets", 2]):
        given = ["--path", trained, "--cpu", "--num-workers", 0, "--valid-subset", "valid1", "--max-tokens", 500, *TASK]
        output = structured.run("fairseq-validate", structured.data, *given, *options).succeeded()
        assert ("bucketing source lengths" in output) == bool(options)
        losses.append(float(re.search(r"loss ([\d.]+)", output)[1]))
    assert losses[0] == pytest.approx(losses[1], abs=0.002)


def test_start_from_is_the_way_to_other_structure(structured, fairseq, tmp_path, capsys):
    """The new model reads labels. The first checkpoint is of --task translation, and its data folder has no side files."""
    fairseq.train("posenc_sinusoidal_tiny", tmp_path / "plain").succeeded()
    start = [str(tmp_path / "plain" / "checkpoint_last.pt"), str(tmp_path / "start.pt"), "--method", "posenc_zhu"]
    assert main(["checkpoint", "start-from", *start, "--data", str(structured.data)]) == 0, capsys.readouterr().err
    for seed in (1, 2):
        given = (tmp_path / f"run{seed}", *TASK, "--finetune-from-model", tmp_path / "start.pt", "--random-structure", seed)
        structured.train("posenc_zhu_tiny", *given).succeeded()
        start[0] = str(tmp_path / "run1" / "checkpoint_last.pt")
        assert main(["checkpoint", "start-from", *start]) == 0, capsys.readouterr().err


def test_a_control_is_decoded_as_it_was_trained(structured, trained, tmp_path):
    line = structured.generate(trained, *TASK, "--random-structure", 1).refusal()
    assert (
        "this command uses --random-structure 1, but the model was trained with the real structure. Use the same option."
    ) in line
    structured.train("posenc_spr_abs_tiny", tmp_path, *TASK, "--random-structure", 1).succeeded()
    structured.generate(tmp_path / "checkpoint_last.pt", *TASK, "--random-structure", 1).succeeded()
