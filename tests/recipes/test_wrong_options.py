"""Options that cannot work together, and rows that cannot be trained, are errors before any work starts."""

import re
import subprocess

import pytest

from tests.recipes.declared import run
from tests.recipes.process import ROOT, environment, programs

REFUSED = [
    (
        "compare",
        "AVERAGE=5 SAVE_UPDATES=200",
        "AVERAGE=5: too large for UPDATES=500 with a checkpoint every",
    ),
    ("wmt18/run", "AVERAGE=50", "AVERAGE=50: too large for UPDATES=250000 with a checkpoint every SAVE_UPDATES=5000 updates."),
    ("studies/lengths", "METHODS=ldep", "method 'ldep': unknown. Did you mean 'ldpe'?"),
    ("studies/lengths", "METHODS=all", "METHODS: all is not allowed. Expected specs of the decoder."),
    ("studies/lengths", "METHODS=posenc_ldpe", "method 'posenc_ldpe': unknown."),
    ("studies/lengths", "NOISY=lrep", "NOISY=lrep: lrep is not a row of METHODS."),
    ("quickstart", "METHODS=slope.py", "METHODS: slope.py is not a row of a table. Expected specs or architectures"),
    ("wmt18/run", "METHODS=recipes/wmt18/method.txt", "METHODS: recipes/wmt18/method.txt is not a row of a table."),
    ("quickstart", "METHODS=posenc_pnat", "METHODS: posenc_pnat is a non-autoregressive model, which needs another task."),
    ("studies/concatenation", "SINGLE=recipes/wmt18/methods.txt", "SINGLE: recipes/wmt18/methods.txt is not a row of a table."),
    ("studies/concatenation", "NNODES=2 NODE_RANK=1 MASTER_ADDR=m0 decode", "the stage decode is for machine 0"),
    ("studies/lengths", "TARGET=cs", "TARGET=cs: has no effect with DATA=language. Set DATA=multi30k, or remove TARGET."),
    ("studies/pnat", "DATA_FROM=x", "DATA_FROM=x: has no effect with DATA=language. Set DATA=multi30k, or remove DATA_FROM."),
    ("studies/peers", "TARGET=uk", "TARGET=uk: has no effect with DATA=language."),
    ("studies/concatenation", "DATA=language DATA_FROM=x", "DATA_FROM=x: has no effect with DATA=language."),
    ("multi30k_uk/run", "TESTS=test_2017_flickr", "TESTS=test_2017_flickr: not available for en-uk."),
]


@pytest.mark.parametrize(("recipe", "given", "error"), REFUSED, ids=[f"{recipe} {given}" for recipe, given, _ in REFUSED])
def test_they_are_refused(recipe, given, error):
    done = run(recipe, *given.split())
    assert done.returncode and done.stdout == "" and done.stderr.count("\n") == 1 and error in done.stderr


def trained(recipe, *given, **options):
    return [line for line in run(recipe, *given, **options).stdout.splitlines() if "fairseq-train" in line]


@pytest.mark.parametrize("recipe", ["quickstart", "multi30k_uk/run", "wmt18/run"])
def test_methods_with_a_training_loss_have_their_criterion(recipe):
    """fairseq-train refuses `posenc_universal_halting` with the criterion of stock fairseq."""
    commands = trained(recipe, "METHODS=posenc_universal_halting", "train")
    assert commands and all("--criterion posenc_label_smoothed_cross_entropy" in command for command in commands)


def test_an_average_has_enough_checkpoints_by_default():
    (line,) = trained("compare", "AVERAGE=5", "METHODS=none", "train")
    assert "--save-interval-updates 83 --keep-interval-updates 5" in line and "--max-update 500" in line


def test_a_seed_replaces_the_seeds_of_a_study():
    for given in ({"SEED": "7"}, {"SEED": "7", "DATA": "language"}):
        assert {re.search(r"--seed (\d+)", line)[1] for line in trained("studies/chance", "train", **given)} == {"7"}
    lines = trained("studies/chance", "SEED=7", "SEEDS=1 2", "train")
    assert {re.search(r"--seed (\d+)", line)[1] for line in lines} == {"1", "2"}


def test_both_languages_of_a_study_name_its_folder():
    assert "runs/chance_multi30k_de-en/data" in trained("studies/chance", "train", DATA="multi30k", SOURCE="de", TARGET="en")[0]


def test_a_folder_may_contain_blanks():
    shown = run("wmt18/run", "OUT=my runs/of WMT", "METHODS=none", "prepare").stdout
    assert shown.count("--trainpref") == 1 and r"--trainpref my\ runs/of\ WMT/text/train.sub" in shown


def test_only_the_first_machine_prepares_and_decodes():
    shown = run("studies/concatenation", "NNODES=2", "NODE_RANK=1", "MASTER_ADDR=m0", "CONDITIONS=L1", "SINGLE=none").stdout
    assert "--node-rank 1" in shown and not re.search("fairseq-preprocess|fairseq-generate|cli data", shown)


@pytest.mark.parametrize(("folder", "program"), [("recipes/studies", "./pnat"), ("recipes/multi30k_uk", "./run")])
def test_a_recipe_can_be_called_from_its_folder(folder, program):
    shown = subprocess.run([program, "--help"], cwd=ROOT / folder, env=environment(), capture_output=True, text=True, check=True)
    assert shown.stderr == "" and "Stages, all by default" in shown.stdout
    wrong = subprocess.run([program, "nonsense"], cwd=ROOT / folder, env=environment(), capture_output=True, text=True)
    assert wrong.stderr.startswith(f"{folder}/{program[2:]}: stage 'nonsense': unknown.")


def stamped(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f".{name}.done").write_text(text)


def test_messages_about_settings_name_options(tmp_path):
    stamped(tmp_path / "none" / "seed1", "train", "SUBWORD_KIND=subword-nmt\nPEAK=3e-3\nAVERAGED=5\n")
    given = ["SUBWORDS=bpe", "LR=1e-3", "AVERAGE=3", "METHODS=none", f"OUT={tmp_path}", "train"]
    done = run("compare", *given, env={"DRY_RUN": "", "POSENC_BIN": programs()})
    assert "(SUBWORDS=subword-nmt, now bpe; LR=3e-3, now 1e-3; AVERAGE=5, now 3)" in done.stderr


def test_a_larger_average_needs_another_training_run(tmp_path):
    stamped(tmp_path / "en-de" / "base" / "none" / "seed1", "train", "AVERAGED=1\n")
    done = run(
        "wmt18/run", "AVERAGE=5", "METHODS=none", f"OUT={tmp_path}", "decode", env={"DRY_RUN": "", "POSENC_BIN": programs()}
    )
    assert "created with other settings (AVERAGE=1, now 5)" in done.stderr and "remove" in done.stderr


def test_analyses_of_new_runs_are_not_done_before(tmp_path):
    for name in ("none", "t5"):
        (tmp_path / name / "seed1").mkdir(parents=True)
        (tmp_path / name / "seed1" / "score.json").write_text("{}")
    stamped(tmp_path / "analyses", "vectors", "FOUND=none/seed1\n")
    done = run("studies/analyses", f"RUNS={tmp_path}", "vectors", env={"DRY_RUN": "", "POSENC_BIN": programs()})
    assert f"{tmp_path}/analyses/.vectors.done: created with other settings (FOUND=none/seed1, now" in done.stderr
    assert done.stderr.rstrip().endswith(f"or remove {tmp_path}/analyses/.vectors.done.")


def test_analyses_of_a_folder_that_is_reached_through_a_link(tmp_path):
    (tmp_path / "runs" / "none" / "seed1").mkdir(parents=True)
    (tmp_path / "runs" / "none" / "seed1" / "score.json").write_text("{}")
    (tmp_path / "link").symlink_to("runs")
    stamped(tmp_path / "link" / "analyses", "vectors", "FOUND=other\n")
    done = run("studies/analyses", f"RUNS={tmp_path}/link", "vectors", env={"DRY_RUN": "", "POSENC_BIN": programs()})
    assert "created with other settings (FOUND=other, now none/seed1" in done.stderr


#: recipe -> stage, languages, and options
TOO_LONG = {
    "quickstart": ("train", "svo sov", ["METHODS=none"]),
    "studies/extrapolation": ("train", "svo sov", ["METHODS=none"]),
    "studies/lengths": ("train", "svo sov", ["METHODS=ldpe"]),
    "studies/pnat": ("teacher", "svo sov", []),
    "studies/trees": ("train", "en de", ["METHODS=posenc_tpe", "DATA_FROM=x"]),
    "studies/concatenation": ("train", "svo sov", ["CONDITIONS=L2", "DOCUMENTS=none", "DATA=language"]),
    "studies/transformer_tiny/run": ("train", "en de", ["METHODS=none"]),
    "wmt18/run": ("train", "en de", ["METHODS=none"]),
    "multi30k_uk/run": ("train", "en uk", ["METHODS=none"]),
}


@pytest.mark.parametrize("recipe", TOO_LONG)
def test_a_sentence_that_is_too_long_is_an_error_before_the_training(recipe, tmp_path):
    stage, languages, options = TOO_LONG[recipe]
    words = 19 if recipe == "studies/pnat" else 20  # its task adds <s> and </s>, and the other tasks add </s>
    for folder in (tmp_path, tmp_path / "L2"):
        for data in (folder / "text", folder / "data", folder / "data" / "en-de"):
            stamped(data, "preprocess", "")
        for language in languages.split():
            (folder / "text" / f"valid.sub.{language}").write_text("a b\n" + "a " * words + "\n")
    done = run(recipe, "LENGTH=20", f"OUT={tmp_path}", stage, *options, env={"DRY_RUN": "", "POSENC_BIN": programs()})
    assert f"valid.sub.{languages.split()[0]}, line 2, has {words} subwords" in done.stdout
    assert "LENGTH=20: too short for the sentence above." in done.stderr
    assert not list(tmp_path.rglob("train.log"))
