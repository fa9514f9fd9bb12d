"""The recipe multi30k_uk: its commands, its errors, and its continuation after every interruption."""

import json
import re
import shutil
import subprocess

import pytest

from tests.recipes.captions import RECIPE, Recipe, assert_same_parameters, commands, of, value
from tests.recipes.process import ROOT, environment

# --- commands ---


def test_dry_run_changes_nothing(tmp_path):
    commands(OUT=str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())


def test_every_method_and_seed_is_trained_decoded_and_scored():
    found = commands(METHODS="none shaw:max_distance=8", SEEDS="1 2")
    folders = [f"runs/x/{method}/seed{seed}" for seed in (1, 2) for method in ("none", "shaw_max_distance=8")]
    assert [value(words, "--save-dir") for words in of("fairseq-train", found)] == folders
    assert [value(words, "--path") for words in of("fairseq-generate", found)] == [f"{f}/checkpoint_last.pt" for f in folders]
    assert [words[-2] for words in of("score", found)] == folders
    assert found[-1][3:] == [
        "report", "runs/x", "--seed-variance", "results/chance", "--methods", "none", "shaw:max_distance=8",
        "--published", "recipes/multi30k_uk/published.json",
    ]  # fmt: skip


def test_rows_differ_in_the_spec_and_the_folder_alone():
    def general(words, method):
        return [word.replace(f"/{method}/", "/*/") if "/" in word else re.sub(f"^{method}$", "*", word) for word in words]

    found = commands("train", "decode", METHODS="sinusoidal t5")
    for tool in ("fairseq-train", "fairseq-generate"):
        one, other = of(tool, found)
        assert general(one, "sinusoidal") == general(other, "t5") and one != other
    train = of("fairseq-train", found)[0]
    assert value(train, "--encoder-position") == value(train, "--decoder-position") == "sinusoidal"


def test_the_methods_can_stand_in_a_file(tmp_path):
    path = tmp_path / "my methods.txt"
    path.write_text("# rows\n\n  none\nt5:layers=0 # the first layer\nalibi+learned")
    train = of("fairseq-train", commands("train", METHODS=str(path)))
    assert [value(words, "--encoder-position") for words in train] == ["none", "t5:layers=0", "alibi+learned"]


def test_by_default_they_are_the_rows_of_the_study():
    figures = json.loads((RECIPE.parent / "published.json").read_text())["figures"]
    train = of("fairseq-train", commands("train"))
    assert [value(words, "--encoder-position") for words in train] == list(figures)


STAGES = {
    "fetch": {"multi30k"},
    "prepare": {"spm.py", "fairseq-preprocess", "cp"},
    "train": {"fairseq-train"},
    "decode": {"fairseq-generate"},
    "score": {"score"},
    "table": {"report"},
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_can_be_run_alone(stage):
    found = [words for words in commands(stage) if words[0] not in ("mkdir", "rm")]
    assert found and all(sum(words in of(tool, found) for tool in STAGES[stage]) == 1 for words in found)


@pytest.mark.parametrize(
    "size, arch, batch",
    [("tiny", "posenc_transformer_tiny", 4096), ("small", "posenc_transformer_small", 4096), ("base", "posenc_transformer", 128)],
)
@pytest.mark.parametrize(
    "workers",
    [
        {"GPUS": "0"},
        {"GPUS": "0", "PROCS": "2"},
        {"GPUS": "1"},
        {"GPUS": "2"},
        {"GPUS": "8", "UNITS": "16"},
        {"GPUS": "1", "NNODES": "2", "MASTER_ADDR": "m0"},
        {"GPUS": "2", "NNODES": "2", "SLURM": "1", "UNITS": "4"},
    ],
    ids=str,
)
def test_an_update_has_the_same_batch_on_any_number_of_workers(size, arch, batch, workers):
    train = of("fairseq-train", commands("train", SIZE=size, METHODS="none", **workers))
    number = int(workers.get("PROCS", 1)) if workers["GPUS"] == "0" else int(workers["GPUS"]) * int(workers.get("NNODES", 1))
    assert len(train) == (number if workers["GPUS"] == "0" else 1)
    for words in train:
        assert value(words, "--arch") == arch
        assert value(words, "--max-source-positions") == value(words, "--max-target-positions") == "758"
        assert int(value(words, "--distributed-world-size")) == number
        unit = int(value(words, "--batch-size" if size == "base" else "--max-tokens"))
        assert unit * int(value(words, "--update-freq")) * number == batch
        assert ("--cpu" in words) == (workers["GPUS"] == "0")


def test_processes_on_a_cpu_are_ranks_of_one_training():
    train = of("fairseq-train", commands("train", METHODS="none", PROCS="2"))
    assert [value(words, "--distributed-rank") for words in train] == ["1", "0"]
    one, other = ([w for w in words if w not in "01"] for words in train)
    assert one == other and value(one, "--distributed-backend") == "gloo" and "--distributed-no-spawn" in one


def test_its_page_names_the_rule_that_changes_characters():
    (words, *_) = of("spm.py", commands("prepare"))
    rule = words[4]
    page = " ".join((ROOT / "recipes" / "multi30k_uk" / "README.md").read_text(encoding="utf-8").split())
    assert rule == "identity" or f"the rule `{rule}`, which changes some characters" in page


def test_machines_start_through_torchrun_or_srun():
    nodes = {"SIZE": "base", "METHODS": "none", "NNODES": "2", "GPUS": "2"}
    for rank in "01":
        (words,) = of("torchrun", commands("train", MASTER_ADDR="m0", NODE_RANK=rank, **nodes))
        assert words[1:13] == [
            "--nnodes", "2", "--node-rank", rank, "--nproc-per-node", "2", "--master-addr", "m0", "--master-port", "29500",
            "--rdzv-conf", "timeout=600",
        ]  # fmt: skip
        assert words[13] == "/opt/bin/fairseq-train"
    (words,) = of("srun", commands("train", SLURM="1", **nodes))
    assert words[1:6] == ["--nodes", "2", "--ntasks-per-node", "2", "/opt/bin/fairseq-train"]
    assert value(words, "--distributed-port") == "29500"
    assert not of("fairseq-generate", commands(MASTER_ADDR="m0", NODE_RANK="1", **nodes))
    prepared = commands("fetch", "prepare", MASTER_ADDR="m0", NODE_RANK="1", **nodes)
    assert of("fairseq-preprocess", prepared) and not of("fairseq-train", prepared)


def test_machines_without_gpus_start_gloo():
    nodes = {"METHODS": "none", "NNODES": "2", "PROCS": "2", "UNITS": "4"}
    (words,) = of("torchrun", commands("train", MASTER_ADDR="m0", NODE_RANK="1", **nodes))
    assert value(words, "--nproc-per-node") == "2" and value(words, "--distributed-world-size") == "4"
    assert value(words, "--distributed-backend") == "gloo" and value(words, "--ddp-backend") == "legacy_ddp" and "--cpu" in words
    (words,) = of("torchrun", commands("train", RDZV="m0:29501", NODE_RANK="1", LOCAL_ADDR="m1", MAX_RESTARTS="3", **nodes))
    meeting = {"--rdzv-backend": "c10d", "--rdzv-endpoint": "m0:29501", "--local-addr": "m1", "--max-restarts": "3"}
    assert {option: value(words, option) for option in meeting} == meeting
    assert value(words, "--rdzv-conf") == "is_host=0,join_timeout=600,read_timeout=600"
    (words,) = of("srun", commands("train", SLURM="1", **nodes))
    assert words[1:5] == ["--nodes", "2", "--ntasks-per-node", "2"] and value(words, "--distributed-backend") == "gloo"


def test_other_languages_and_subwords():
    found = commands(TARGET="de", SUBWORDS="bpe", METHODS="none")
    assert not of("spm.py", found) and len(of("apply-bpe", found)) == 6
    assert value(of("fairseq-generate", found)[0], "--remove-bpe") == "subword_nmt"
    assert value(of("fairseq-preprocess", found)[0], "--target-lang") == "de"
    assert value(of("multi30k", found)[0], "--target") == "de"
    assert "--published" not in found[-1]  # the published results are only for Ukrainian


def test_more_test_sets_do_not_change_the_training_data():
    """Additional test sets have a separate data folder, with the same subwords and dictionaries.

    Runs with different TESTS can therefore be compared.
    """
    options = {"TARGET": "de", "METHODS": "none", "OUT": "runs/x"}
    plain, found = commands(**options), commands(**options, TESTS="test_2017_flickr test_2017_mscoco")
    assert [command for command in plain if command not in found and "score" not in command] == []
    (tests,) = [command for command in of("fairseq-preprocess", found) if command not in plain]
    assert value(tests, "--srcdict") == "runs/x/data/dict.en.txt" and value(tests, "--destdir") == "runs/x/tests/data"
    assert value(tests, "--testpref") == "runs/x/tests/text/test_2017_flickr.sub,runs/x/tests/text/test_2017_mscoco.sub"
    decoded = [(command[1], value(command, "--gen-subset"), command[-1]) for command in of("fairseq-generate", found)]
    run = "runs/x/none/seed1"
    assert decoded == [
        ("runs/x/data", "test", f"{run}/test_2016_flickr.out"),
        ("runs/x/tests/data", "test", f"{run}/test_2017_flickr.out"),
        ("runs/x/tests/data", "test1", f"{run}/test_2017_mscoco.out"),
    ]


@pytest.mark.parametrize(
    "options, line",
    [
        ({"SIZE": "huge"}, "SIZE=huge: not allowed. Expected one of: tiny small base"),
        ({"SUBWORDS": "words"}, "SUBWORDS=words: not allowed. Expected one of: unigram spbpe bpe"),
        ({"PROCS": "3"}, "UNITS=2: not divisible by the number of workers. Expected a multiple of 3."),
        ({"GPUS": "0", "PROCS": "0"}, "PROCS=0: not allowed. Expected a whole number from 1"),
        ({"BATCH": "4097"}, "BATCH=4097: not divisible by UNITS=2"),
        ({"EPOCHS": "ten"}, "EPOCHS=ten: not allowed. Expected a whole number from 1"),
        ({"EPOCHS": "0"}, "EPOCHS=0: not allowed. Expected a whole number from 1"),
        ({"SOURCE": "de", "TARGET": "de"}, "SOURCE=de TARGET=de: the same language twice. Expected two languages."),
        ({"TARGET": "../de"}, "TARGET=../de: not allowed. Expected a language code, such as en or pt-BR"),
        ({"NNODES": "2", "GPUS": "1", "NODE_RANK": "2", "SLURM": "1"}, "NODE_RANK=2: too large. Expected less than NNODES=2"),
        ({"DROP_EMPTY": "0"}, "DROP_EMPTY=0: not allowed. Expected 1. To switch it off, remove it."),
        ({"SEEDS": "1 x"}, "SEEDS=1 x: not allowed. Expected a list in which each value is a whole number from 0"),
        ({"NNODES": "2"}, "NNODES=2: the address of machine 0 is missing. Set MASTER_ADDR, RDZV=ADDRESS:PORT or SLURM=1."),
        ({"NNODES": "2", "RDZV": "m0"}, "RDZV=m0: not allowed. Expected ADDRESS:PORT of machine 0, such as m0:29500"),
        ({"NNODES": "2", "RDZV": "m0:1", "MASTER_ADDR": "m0"}, "RDZV=m0:1: cannot be combined with MASTER_ADDR."),
        (
            {"NNODES": "2", "MASTER_ADDR": "m0", "MAX_RESTARTS": "1"},
            "MAX_RESTARTS=1: requires several machines and RDZV",
        ),
        ({"NNODES": "2", "GPUS": "1"}, "NNODES=2: the address of machine 0 is missing"),
        ({"NNODES": "2", "MASTER_ADDR": "m0", "NODE_RANK": "1", "stage": "score"}, "the stage score is for machine 0"),
        ({"METHODS": "  "}, ": no method. Expected"),
        ({"OUT": "a:b"}, "OUT=a:b: contains a colon"),
        ({"stage": "tran"}, "stage 'tran': unknown. Expected fetch prepare train decode score table"),
    ],
    ids=str,
)
def test_wrong_options_are_one_line(options, line):
    stages = [options["stage"]] if "stage" in options else []
    done = subprocess.run([RECIPE, *stages], env=environment(**options), capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and line in done.stderr


# --- errors ---


def test_a_wrong_data_folder_is_one_line(tmp_path):
    recipe = Recipe(tmp_path / "nowhere", tmp_path / "out", METHODS="none")
    line = recipe.start("fetch").finish(status=2).splitlines()[-1]
    assert line == f"posenc: {tmp_path}/nowhere: no such folder. Expected a folder, http://ADDRESS or https://ADDRESS."
    recipe.corpus = tmp_path / "elsewhere"  # another folder is accepted, because nothing was created from the first folder
    assert f"posenc: {tmp_path}/elsewhere: no such folder" in recipe.start("fetch").finish(status=2)


def test_unknown_methods_are_named_before_anything_else(captions, tmp_path):
    line = Recipe(captions, tmp_path / "out", METHODS="none shw t5:layers=7").fails()
    assert line.startswith("posenc: spec 'shw': method 'shw': unknown. Did you mean 'shaw'?")
    assert "t5:layers=7: there is no layer 7. Expected layers 0 to 1." in line
    assert not (tmp_path / "out").exists()


def test_a_stage_names_the_one_that_it_needs(captions, tmp_path):
    recipe = Recipe(captions, tmp_path / "out", METHODS="none")
    for stage, file, before in (
        ("prepare", "text/.fetch.done", "fetch"),
        ("train", "data/.preprocess.done", "prepare"),
        ("decode", "none/seed1/.train.done", "train"),
        ("score", "none/seed1/test_2016_flickr.out", "decode"),
    ):
        line = f"{file}: no such file. Run the stage before: recipes/multi30k_uk/run {before}."
        assert recipe.fails(stage).endswith(line)


def test_a_vocabulary_that_does_not_fit_the_text_binds_nobody(captions, tmp_path):
    recipe = Recipe(captions, tmp_path / "out", METHODS="none")
    many = recipe.fails("fetch", "prepare", VOCABULARY="72000")
    assert re.search(
        r"size 72000: too large for this text\. Expected at most (\d+) pieces \(unigram\)\. Set VOCABULARY to at most \1\.$", many
    )
    assert re.search(
        r"size 3: too small for this text\. Expected at least (\d+) pieces \(bpe\)\. Set VOCABULARY to at least \1\.$",
        recipe.fails("prepare", VOCABULARY="3", SUBWORDS="spbpe"),
    )
    recipe.run("prepare")
    line = recipe.fails("prepare", VOCABULARY="3")
    assert f"{recipe.out}/text: created with other settings (VOCABULARY=60, now 3)" in line


# --- a whole run ---


@pytest.fixture(scope="module")
def whole(prepared, tmp_path_factory):
    recipe = prepared.beside(tmp_path_factory.mktemp("whole") / "out", METHODS="none t5:layers=0")
    return recipe, recipe.run()


@pytest.mark.slow
def test_it_ends_with_the_table_that_names_the_data(whole):
    recipe, printed = whole
    table = [line.split("|")[1].strip() for line in printed.splitlines() if line.startswith("|")]
    assert table[0] == "method" and sorted(table[2:]) == ["none", "t5:layers=0"]
    assert f"data unknown data en-uk of {recipe.corpus} " in printed and "not run" not in printed
    assert "BLEU nrefs:1|case:mixed|eff:no|tok:13a" in printed and "chrF nrefs:1" in printed
    assert "Traceback" not in printed and "Warning" not in printed


@pytest.mark.slow
def test_hypotheses_are_plain_text(whole):
    """Scores are computed on words, not on pieces."""
    recipe, _ = whole
    generated = (recipe.out / "none" / "seed1" / "test_2016_flickr.out").read_text()
    found = re.findall(r"^D-\d+\t\S+\t(.*)$|^H-\d+\t\S+\t(.*)$", generated, re.MULTILINE)
    assert len(found) >= 16 and not any("▁" in "".join(row) for row in found)
    sources = {line.split("\t", 1)[1] for line in generated.splitlines() if line.startswith("S-")}
    assert sources == set((recipe.out / "text" / "test.en").read_text().splitlines())


@pytest.mark.slow
def test_tensorboard_gets_the_curves(whole):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recipe, _ = whole
    for curve, tag in (("train_inner", "loss"), ("valid", "loss")):
        events = EventAccumulator(str(recipe.out / "none" / "seed1" / "tensorboard" / curve)).Reload()
        assert len(events.Scalars(tag)) >= 3


@pytest.mark.slow
def test_started_again_it_does_nothing_twice(whole):
    recipe, printed = whole
    before = recipe.files()
    again = recipe.run()
    assert before == recipe.files()
    assert again.count("done before") == 9 and again.split("the table")[1] == printed.split("the table")[1]


@pytest.mark.slow
def test_the_shown_commands_do_the_same(whole, tmp_path):
    """The commands are pasted into a shell."""
    recipe, _ = whole
    other = Recipe(recipe.corpus, tmp_path / "out", METHODS="none")
    shown = other.run("fetch", "prepare", "train", DRY_RUN="1")
    subprocess.run(["bash", "-e"], input=shown, text=True, cwd=ROOT, env=environment(), check=True, capture_output=True)
    assert_same_parameters(recipe.state(), other.state(), rtol=0, atol=0)


@pytest.mark.slow
def test_the_output_folder_may_have_any_name(captions, tmp_path):
    """The name contains many characters that bash, sed or fairseq's configuration interpret.

    When the recipe runs again, it finds the stamps of its stages (the files .NAME.done) and the settings in these stamps.
    """
    (tmp_path / "a ").mkdir()
    recipe = Recipe(captions, tmp_path / "a " / """& b\\ 'c' "d" $e {f} [g] *%s=~;#\\""", METHODS="none", EPOCHS="1")
    assert recipe.run().splitlines()[-1].startswith("* published")
    before = recipe.files()
    assert recipe.run().count("done before") == 6 and recipe.files() == before
    assert {path.name for path in tmp_path.iterdir()} == {"a "}
    line = recipe.fails(BEAM="3")
    command = line.partition("without training again: ")[2]
    subprocess.run(["bash", "-ec", command], check=True)
    assert recipe.run(BEAM="3").count("done before") == 4


# --- killed, or a full disk ---


@pytest.mark.slow
def test_fewer_updates_than_lie_between_two_lines_of_the_log(whole, tmp_path):
    few = {"TRAIN_OPTIONS": "--encoder-layers 1 --decoder-layers 1", "EPOCHS": "1", "BATCH": "2048"}
    recipe = whole[0].beside(tmp_path / "out", METHODS="none", **few)
    printed = recipe.run("train", "decode", "score", "table")
    assert "train_inner" not in recipe.log() and "not run" not in printed


@pytest.mark.slow
def test_killed_in_every_stage_and_before_its_stamp_it_ends_the_same(whole, tmp_path):
    recipe = Recipe(whole[0].corpus, tmp_path / "out", METHODS="none")
    recipe.kill_in_every_stage()
    recipe.run()
    assert_same_parameters(recipe.state(), whole[0].state(), rtol=0, atol=0)
    (one,), (other, _) = recipe.scores().values(), whole[0].scores().values()
    assert one["parts"] == other["parts"] and one["learning_curve"] == other["learning_curve"]


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_parameters(whole, tmp_path):
    recipe = whole[0].beside(tmp_path / "out", METHODS="none")
    last = int(re.findall(r"num_updates=(\d+)", whole[0].log())[-1])
    assert last > 20
    moments = [
        r"num_updates=2,",  # before the first checkpoint
        r"Saving checkpoint to .*/checkpoint_1_8\.pt",  # while a checkpoint is written
        r"Saved checkpoint .*/checkpoint_\d_12\.pt",  # directly after a checkpoint is written
        r"begin validation",  # at the end of an epoch
        rf"num_updates={last - 2},",
    ]
    for moment in moments:
        begin = len(recipe.log())
        recipe.start("train")
        recipe.wait_until(lambda: re.search(moment, recipe.log()[begin:]))  # noqa: B023
        recipe.kill()
    assert recipe.resumed(recipe.run("train"))[0] >= 12
    assert_same_parameters(whole[0].state(), recipe.state(), rtol=0, atol=0)


@pytest.mark.slow
def test_a_full_disk_loses_nothing(whole, tmp_path):
    recipe = whole[0].beside(tmp_path / "out", METHODS="none")
    recipe.start("train")
    recipe.wait_until(lambda: recipe.checkpoint("checkpoint_last.pt").exists())
    recipe.kill()
    before = {path.name: path.read_bytes() for path in recipe.checkpoint().parent.glob("*.pt")}
    shutil.rmtree(recipe.checkpoint().parent / "tensorboard")
    printed = recipe.start("train", limit=1000).finish(status=1)
    lines = {line for line in printed.splitlines() if line.startswith("fairseq_posenc: ")}
    assert len(lines) == 1 and re.search(r"checkpoint_\d_\d+\.pt: cannot be written \(File too large\)", lines.pop())
    assert "Traceback" not in printed
    after = {path.name: path.read_bytes() for path in recipe.checkpoint().parent.glob("*.pt*")}
    assert after == before
    recipe.run("train")
    assert_same_parameters(whole[0].state(), recipe.state(), rtol=0, atol=0)
