"""The common functions of the recipes, with short shell functions instead of slow commands."""

import fcntl
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fairseq.data.data_utils import infer_language_pair

from tests.recipes.declared import RECIPES, run

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def bash(script, arguments=(), **options):
    command = ["bash", "-c", f"cd . && source recipes/lib/engine.sh; {script}", "recipes/recipe", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **options}, capture_output=True, text=True, timeout=60)


# --- stages ---

#: two stages. Their commands append their arguments to a file. `second` fails if FAIL is set
STAGES = """
first() { echo "first $COLOUR" >>"$OUT/log"; }
second() { echo "second $COLOUR $SHAPE" >>"$OUT/log"; [[ -z ${FAIL:-} ]]; }
stages() {
  stage one "$OUT/a" first "COLOUR" first
  stage two "$OUT/a" second "COLOUR SHAPE" second
}
read_arguments "$@"
option OUT text "" "output folder"
one_worker
choose_stages "one two"
check_output
open_output
run_stages stages
"""


def stages(out, *chosen, before="", **options):
    return bash(before + STAGES, chosen, **{"OUT": str(out), "COLOUR": "red", "SHAPE": "round", **options})


def log(out):
    return (out / "log").read_text().splitlines()


def test_a_stage_is_done_once(tmp_path):
    assert stages(tmp_path).returncode == stages(tmp_path).returncode == 0
    assert log(tmp_path) == ["first red", "second red round"]
    assert "a second: done before" in stages(tmp_path).stdout


def test_its_stamp_lists_its_settings(tmp_path):
    stages(tmp_path, COLOUR="dark\nred")
    assert (tmp_path / "a" / ".second.done").read_text() == "COLOUR=dark red\nSHAPE=round\n"
    assert stages(tmp_path, COLOUR="dark\nred").returncode == 0


def test_machines_that_share_a_folder_stamp_it_together(tmp_path):
    """Two machines write the stamp of a stage (the file .NAME.done) at the same time.

    No machine may remove a file that the other machine will rename.
    """
    script = 'stage_settings=COLOUR; DRY_RUN=; for i in {1..300}; do record_settings "$1"; done'
    command = ["bash", "-c", f"source recipes/lib/engine.sh; {script}", "recipe", str(tmp_path / ".done")]
    options = {**os.environ, "COLOUR": "red"}
    machines = [subprocess.Popen(command, cwd=ROOT, env=options, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [machine.communicate(timeout=60)[1] for machine in machines] == ["", ""]
    assert [path.name for path in tmp_path.iterdir()] == [".done"] and (tmp_path / ".done").read_text() == "COLOUR=red\n"


def test_stages_can_be_chosen(tmp_path):
    stages(tmp_path, "one")
    assert log(tmp_path) == ["first red"]
    refused = stages(tmp_path, "three")
    assert (refused.returncode, refused.stderr) == (1, "recipes/recipe: stage 'three': unknown. Expected one two.\n")


def test_other_settings_are_refused_before_anything_is_run(tmp_path):
    stages(tmp_path, "two")
    refused = stages(tmp_path, SHAPE="square")
    assert refused.returncode == 1 and log(tmp_path) == ["second red round"]
    assert refused.stderr == (
        f"recipes/recipe: {tmp_path}/a: created with other settings (SHAPE=round, now square). "
        f"Use another folder (OUT), or remove {tmp_path}/a.\n"
    )


#: a stage of the data and a training run, which both depend on COLOUR. The training run also depends on WIDTH
DATA_AND_MODELS = """
training_settings="COLOUR WIDTH"
stages() {
  stage prepare "$OUT/text" text "COLOUR SHAPE" touch "$OUT/text/train"
  stage train "$OUT/a" train "$training_settings" touch "$OUT/a/.train.begun"
}
read_arguments "$@"
option OUT text "" "output folder"
one_worker
choose_stages "prepare train"
check_output
open_output
run_stages stages
"""


def test_if_trained_models_depend_on_a_setting_the_message_says_that_they_must_go(tmp_path):
    def refused(out, **changed):
        given = {"COLOUR": "red", "SHAPE": "round", "WIDTH": "9"}
        assert bash(DATA_AND_MODELS, OUT=str(out), **given).returncode == 0
        return bash(DATA_AND_MODELS, OUT=str(out), **{**given, **changed}).stderr

    models = f"or remove {tmp_path}/out/text and all trained models in {tmp_path}/out.\n"
    assert refused(tmp_path / "out", COLOUR="blue").endswith(models)
    assert refused(tmp_path / "out", SHAPE="square").endswith(f"or remove {tmp_path}/out/text.\n")
    assert refused(tmp_path / "out", WIDTH="8").endswith(f"or remove {tmp_path}/out/a.\n")


def test_training_on_more_gpus_than_the_machine_has_is_refused(tmp_path):
    """fairseq trains on the CPU if PyTorch finds no GPU."""
    (tmp_path / "python").write_text("#!/bin/sh\necho 1\n")
    (tmp_path / "python").chmod(0o755)
    script = "bin=$BIN SLURM=; require_gpus && echo fine"
    assert bash(script, BIN=str(tmp_path), GPUS="1").stdout == "fine\n"
    assert (
        "GPUS=2: PyTorch finds 1 GPUs on this machine. Expected at least 2." in bash(script, BIN=str(tmp_path), GPUS="2").stderr
    )
    assert bash(f"DRY_RUN=1; {script}", BIN=str(tmp_path), GPUS="2").stdout == "fine\n"


#: a training run, its decoding and its score. Decoding and score depend on WIDTH
DECODING = """
stages() {
  stage train "$OUT/a" train "COLOUR" touch "$OUT/a/model"
  stage decode "$OUT/a" decode-news "COLOUR WIDTH" touch "$OUT/a/out"
  stage score "$OUT/a" score "COLOUR WIDTH" touch "$OUT/a/score"
}
read_arguments "$@"
option OUT text "" "output folder"
one_worker
choose_stages "train decode score"
check_output
open_output
run_stages stages
"""


def test_a_changed_beam_names_the_stamps_of_decodings_and_never_the_training(tmp_path):
    out = tmp_path / "my runs"
    options = {"OUT": str(out), "COLOUR": "red"}
    assert bash(DECODING, WIDTH="5", **options).returncode == 0
    refused = bash(DECODING, WIDTH="9", **options)
    assert refused.returncode == 1 and refused.stdout == "" and refused.stderr.count("\n") == 1
    assert "decoded with other settings (WIDTH=5, now 9)" in refused.stderr
    command = refused.stderr.partition("without training again: ")[2]
    subprocess.run(["bash", "-ec", command], check=True)
    assert sorted(path.name for path in (out / "a").iterdir()) == [".train.done", "model", "out", "score"]
    assert bash(DECODING, WIDTH="9", **options).stdout.count("done before") == 1  # the training
    trained = bash(DECODING, WIDTH="9", **{**options, "COLOUR": "blue"})
    assert f"{out}/a: created with other settings (COLOUR=red, now blue)" in trained.stderr


def test_settings_belong_to_the_stages_that_have_run(tmp_path):
    stages(tmp_path, "one")
    assert stages(tmp_path, SHAPE="square").returncode == 0
    assert log(tmp_path) == ["first red", "second red square"]


def test_a_folder_belongs_to_one_recipe(tmp_path):
    stages(tmp_path)
    (tmp_path / ".recipe").write_text("recipes/quickstart\n")
    done = stages(tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert f"OUT={tmp_path}: contains the output of recipes/quickstart, according to {tmp_path}/.recipe. Expected" in done.stderr


def test_a_recipe_without_a_finished_stage_does_not_own_the_folder(tmp_path):
    failed = bash(STAGES.replace("first() {", "first() { fail broken;"), OUT=str(tmp_path), COLOUR="red", SHAPE="round")
    assert failed.stderr.endswith("broken\n") and not (tmp_path / ".recipe").exists()
    stages(tmp_path, "one")
    assert (tmp_path / ".recipe").read_text() == "recipes/recipe\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".recipe", "a", "log"]


def test_a_stage_that_failed_takes_other_settings(tmp_path):
    assert stages(tmp_path, FAIL="1").returncode == 1
    assert stages(tmp_path, SHAPE="square").returncode == 0
    assert log(tmp_path) == ["first red", "second red round", "second red square"]


def test_an_output_folder_of_an_earlier_version_keeps_its_settings(tmp_path):
    """In an earlier version, stamps were empty, and the file `settings` contained the settings of all stages."""
    (tmp_path / "a").mkdir()
    for name in ("first", "second"):
        (tmp_path / "a" / f".{name}.done").touch()
    (tmp_path / "settings").write_text("COLOUR=red\nSHAPE=round\n")
    assert stages(tmp_path).returncode == 0
    assert "SHAPE=round, now square" in stages(tmp_path, SHAPE="square").stderr
    assert not (tmp_path / "log").exists()


def test_a_dry_run_writes_nothing(tmp_path):
    out = tmp_path / "out"
    script = re.sub(r'\{ echo ("[^"]*") >>"\$OUT/log";', r"{ run echo \1;", STAGES)  # recipes call commands with `run`
    done = bash(script, OUT=str(out), COLOUR="red", SHAPE="round", DRY_RUN="1")
    assert done.returncode == 0 and "echo second\\ red\\ round" in done.stdout
    assert not out.exists()


def test_one_recipe_at_a_time(tmp_path):
    with (tmp_path / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = stages(tmp_path, before=f"{AT_ONCE}; ")
    assert refused.returncode == 1 and f"{tmp_path}: in use" in refused.stderr
    assert not (tmp_path / ".recipe").exists()


def test_the_length_of_sentences_in_a_folder_with_an_equals_sign(tmp_path):
    """awk would read such a file name as an assignment."""
    (tmp_path / "a=1").mkdir()
    (tmp_path / "a=1" / "text").write_text("a\na b c\n")
    done = bash('cd "$OUT"; require_length 3 a=1/text', OUT=str(tmp_path))
    assert done.returncode == 1 and "a=1/text, line 2, has 3 subwords" in done.stdout


#: opens the output folder OUT, prints a line, and waits for a line of input. The environment contains OUT and SHARE
OPENED = 'read_arguments "$@"; option OUT text "" "output folder"; one_worker; open_output; echo opened; read -r'

#: lets flock fail at once, instead of after 5 seconds
AT_ONCE = 'flock() { [[ $1 != -w ]] || set -- -n "$3"; [[ $2 != -w ]] || set -- -n "$1" "$4"; command flock "$@"; }'


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        ("1/2", "2/2", ""),
        ("1/2", "1/2", "in use by another recipe"),
        ("1/2", "", "in use by another recipe"),
        ("", "1/2", "in use by another recipe"),
        ("1/2", "2/3", "SHARE=2/3: another recipe divides the rows of OUT by another number: 1of2. Expected the same N"),
    ],
)
def test_shares_of_one_division_use_a_folder_together(tmp_path, first, second, error):
    given = {**os.environ, "OUT": str(tmp_path), "SHARE": first}
    command = ["bash", "-c", f"cd . && source recipes/lib/engine.sh; {OPENED}", "recipes/recipe"]
    with subprocess.Popen(command, cwd=ROOT, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "opened\n"
        done = bash(f"{AT_ONCE}; {OPENED} <<<go", OUT=str(tmp_path), SHARE=second)
        holder.communicate("go\n")
    assert error.replace("OUT", str(tmp_path)) in done.stderr and (done.returncode == 0) == (not error)
    assert bash(f"{OPENED} <<<go", OUT=str(tmp_path), SHARE=second).returncode == 0  # the first recipe has ended


@pytest.mark.parametrize("name", ["a:b", "a,b", "a${b}", "a\nb"])
def test_names_that_fairseq_would_split_are_refused(tmp_path, name):
    refused = stages(tmp_path / name)
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1 and "Choose another name" in refused.stderr


@pytest.mark.parametrize("name", ["a & b", "&", "a\\b", "\\", "a'b", 'a"b', " a  b ", "$(exit)", "a|b", "[a]*?", "~", "%s"])
def test_a_folder_of_any_other_name_has_its_own_stamps(tmp_path, name):
    (tmp_path / "plain").mkdir()
    for _ in range(2):
        done = stages(tmp_path / "plain" / name)
        assert done.returncode == 0 and done.stderr == ""
    assert "a second: done before" in done.stdout and log(tmp_path / "plain" / name) == ["first red", "second red round"]
    assert [path.name for path in (tmp_path / "plain").iterdir()] == [name]
    changed = stages(tmp_path / "plain" / name, SHAPE="flat & wide")
    assert changed.returncode == 1 and "SHAPE=round, now flat & wide" in changed.stderr


# --- options ---


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "1e3", "08", "1 2", "1000000000", "1٢", "x[0]"])
def test_a_number_is_written_in_decimal_digits(value):
    done = bash("option N whole:1 5 number", N=value)
    assert done.returncode == 1
    assert done.stderr == f"recipes/recipe: N={value}: not allowed. Expected a whole number from 1 to 999999999.\n"


def test_numbers_have_a_minimum():
    assert bash("option N whole:1 5 number", N="0").returncode == 1
    assert bash("option N whole:0 5 number; option M whole:7 9 number", N="0", M="7").returncode == 0
    assert bash("option N wholes:0 5 numbers", N=" 1\n 20 ").returncode == 0
    assert (
        "N=1 x: not allowed. Expected a list in which each value is a whole"
        in bash("option N wholes:0 5 numbers", N="1 x").stderr
    )
    assert bash("option N wholes:0 5 numbers", N=" ").returncode == 1


def test_options_that_differ_from_their_default_name_the_folder():
    script = 'option A whole:0 1 a; option B whole:0 2 b; option C text "x y" c; differing A B C'
    assert bash(script).stdout == ""
    assert bash(script, A="1", B="3", C="--lr 1,2").stdout == "_B=3_C=--lr_1_2"


# --- training ---


@pytest.mark.parametrize(
    "wps, speed, updates, number", [("1234.5", "1234", "50", "50"), ("1.23457e+06", "1234570", "1e+06", "1000000")]
)
@pytest.mark.parametrize("locale", ["C", "de_DE.UTF-8"])
def test_progress_reads_the_numbers_of_fairseq(wps, speed, updates, number, locale):
    line = f"2024-01-01 | INFO | train_inner | epoch 001:  1 / 9 loss=5.25, ppl=38, wps={wps}, ups=3, num_updates={updates}, lr=1"
    shown = bash('progress <<<"$LINE"', LINE=line, LC_ALL=locale).stdout
    assert shown.endswith(f"  update {number}, loss 5.25, {speed} tokens/s\n")


def test_progress_shows_a_loss_that_is_no_number():
    assert "update 50, loss nan, 10 tokens/s" in bash("progress <<<'loss=nan, wps=10, num_updates=50, lr=1'").stdout


#: starts or continues a training run in OUT. It prints `launched` instead of running fairseq-train
TRAINING = """
NODE_RANK=0 TRAIN_OPTIONS= bin=$BIN user_dir=fairseq_posenc stage_settings=COLOUR data=$OUT/data
launch() { echo launched; }
train "$OUT" --max-update 10
"""


@pytest.fixture
def begun(tmp_path):
    (tmp_path / "checkpoint_last.pt").touch()
    (tmp_path / ".train.begun").write_text("COLOUR=red\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".preprocess.done").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "options", "ends"),
    [
        ("--max-update 400", "", [" of 400", " of 400, 15 s left", " of 400, 0 s left"]),
        ("--max-epoch 50", "", [" of 5000", " of 5000, 5 min left", " of 5000, 4 min left"]),
        ("--max-epoch 5000", "", [" of 500000", " of 500000, 6 h 56 min left", " of 500000, 6 h 56 min left"]),
        ("--max-update 400", "--patience 3", [" of 400", " of 400, at most 15 s left", " of 400, at most 0 s left"]),
        ("--max-update 400", "--max-update 9000", ["", "", ""]),  # the user's option has precedence
    ],
)
def test_progress_estimates_the_time_that_is_left(begun, limit, options, ends):
    """With 20 updates per second."""
    line = "epoch {:03}: {:6} / 100 loss=5, wps=10, num_updates={}, lr=1, wall={}\n".format
    log = "".join(line(1 + updates // 101, updates % 100 or 100, updates, 30 + updates // 20) for updates in (20, 100, 400))
    script = TRAINING.replace("echo launched", 'progress <<<"$LOG"').replace("--max-update 10", limit)
    found = bash(
        script.replace("TRAIN_OPTIONS=", f"TRAIN_OPTIONS='{options}'"), OUT=str(begun), COLOUR="red", BIN=str(BIN), LOG=log
    )
    lines = [line for line in found.stdout.splitlines() if "update " in line]
    assert [re.sub(r".*update \d+|, loss 5, 10 tokens/s", "", line) for line in lines] == ends, found


def test_a_training_continues_with_its_own_settings_only(begun):
    refused = bash(TRAINING, OUT=str(begun), COLOUR="blue", BIN=str(BIN))
    assert refused.returncode == 1 and "(COLOUR=red, now blue)" in refused.stderr and (begun / "checkpoint_last.pt").exists()


def test_a_folder_with_brackets_has_its_checkpoints(tmp_path):
    folder = tmp_path / "g[1]"
    folder.mkdir()
    (folder / "checkpoint_last.pt").touch()
    (folder / ".train.begun").write_text("COLOUR=red\n")
    (folder / "data").mkdir()
    (folder / "data" / ".preprocess.done").touch()
    refused = bash(TRAINING, OUT=str(folder), COLOUR="blue", BIN=str(BIN))
    assert refused.returncode == 1 and "(COLOUR=red, now blue)" in refused.stderr


def test_a_training_without_checkpoints_takes_other_settings(begun):
    (begun / "checkpoint_last.pt").unlink()
    done = bash(TRAINING, OUT=str(begun), COLOUR="blue", BIN=str(BIN))
    assert (done.returncode, done.stdout) == (0, "launched\n")
    assert (begun / ".train.begun").read_text() == "COLOUR=blue\n"


# --- methods ---


def test_methods_come_from_the_option_or_a_file(tmp_path):
    path = tmp_path / "methods.txt"
    path.write_text("# rows\n\n none \nt5:layers=0 # the first layer\nalibi+learned")
    script = 'read_methods; printf "%s\n" "${methods[@]}"'
    assert bash(script, METHODS=str(path)).stdout.split() == ["none", "t5:layers=0", "alibi+learned"]
    assert bash(script, METHODS=" none\n *  t5").stdout.split() == ["none", "*", "t5"]
    assert ": no method. Expected" in bash(script, METHODS=" ").stderr
    path.write_bytes(b"\xef\xbb\xbfnone\r\nt5\r\n")  # a file from Windows
    assert bash(script, METHODS=str(path)).stdout == "none\nt5\n"


def test_whole_words_are_not_reserved_words(tmp_path):
    text = tmp_path / "train.en"
    text.write_text("a <unk> b\nc <s>d </s>x\n")
    assert bash('refuse_reserved_words "$TEXT" && echo fine', TEXT=str(text)).stdout == "fine\n"
    text.write_text("a\nb </s> c\n")
    done = bash('refuse_reserved_words "$TEXT"', TEXT=str(text))
    assert done.returncode == 1 and f"{text}, line 2: </s>" in done.stdout and "reserved for fairseq's dictionary" in done.stderr


def test_reserved_words_that_subword_nmt_keeps_are_refused(tmp_path):
    """A word such as </s> is one subword if it is frequent."""
    (tmp_path / "train.en").write_text("a\nb </s> c\n")
    (tmp_path / "train.de").write_text("a\nb c\n")
    (tmp_path / "codes").write_text("#version: 0.2\n< /\n</ s\n</s ></w>\n")
    script = 'bin=$BIN text=$TEXT SUBWORDS=bpe SOURCE=en TARGET=de; encode_subwords "$text" train'
    done = bash(script, BIN=str(BIN), TEXT=str(tmp_path))
    assert done.returncode == 1 and "SUBWORDS=bpe: the word above is reserved" in done.stderr


# --- the language of the recipes ---


def test_no_python_inside_bash():
    scripts = [path for path in (ROOT / "recipes").rglob("*") if path.is_file() and b"bash" in path.read_bytes()[:40]]
    scripts += (ROOT / "recipes").rglob("*.sh")
    assert len(scripts) > 9
    for path in scripts:
        assert not re.search(r"python\S* (-c|- <<)|-c '", path.read_text()), path


def test_fairseq_finds_no_languages_in_the_names_of_stamps(tmp_path):
    """Without --source-lang, fairseq takes the languages from the first file name of the form NAME.SOURCE-TARGET.ENDING."""
    scripts = [path for path in (ROOT / "recipes").rglob("*") if path.is_file() and path.suffix in ("", ".sh")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in scripts)
    stages = set(re.findall(r'stage \w+ "\S*data\S*" ([^\s"]+)', text))
    assert {"preprocess", "side_files"} <= stages
    for stage in stages:
        (tmp_path / f".{stage}.done").touch()
    assert infer_language_pair(str(tmp_path)) == (None, None)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_defaults_of_a_recipe_are_accepted(recipe, tmp_path):
    """A dry run also checks the methods. Recipes that require data of the user receive paths as values."""
    done = run(recipe, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


#: studies that are lists of rows. Two other recipes train these rows
LISTS = {"studies/blocks", "studies/chance", "studies/clipping", "studies/diet"}


@pytest.mark.parametrize("recipe", sorted(set(RECIPES) - LISTS))
def test_every_recipe_is_killed_in_every_stage(recipe):
    """Check that a test of this recipe calls `kill_in_every_stage`."""
    named = " / ".join(f'"{part}"' for part in ("recipes", *recipe.split("/")))
    tests = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    tests += [text + (Path(__file__).parent / "captions.py").read_text(encoding="utf-8") for text in tests if "captions" in text]
    assert any(named in text and ".kill_in_every_stage(" in text for text in tests)


def test_every_file_of_the_engine_is_sourced_and_no_name_is_defined_twice():
    files = [path for path in (ROOT / "recipes" / "lib").glob("*.sh") if path.name != "engine.sh"]
    sourced = re.findall(r"^source recipes/lib/(\S+)$", (ROOT / "recipes" / "lib" / "engine.sh").read_text(), re.MULTILINE)
    assert sorted(sourced) == sorted(path.name for path in files)
    names = [name for path in files for name in re.findall(r"^(\w+)\(\)", path.read_text(), re.MULTILINE)]
    assert len(names) == len(set(names))


# --- rows at the same time, and divided among machines ---

#: four rows. A decoding waits until MEET commands have begun. The score needs both decodings of its row
ROWS = """
begin() { echo "$1" >>"$OUT/begun"; }
decode_row() {
  begin "$1 $2"
  for ((tries = 0; tries < 300 && $(wc -l <"$OUT/begun") < MEET; tries++)); do sleep 0.1; done
  (($(wc -l <"$OUT/begun") >= MEET)) || fail "only $(wc -l <"$OUT/begun") began"
  echo "decoded $1"
  echo "with a second line"
  [[ $1 != *"$FAIL"* ]] || fail "no room for $1"
  touch "$1/$2"
}
score_row() { [[ -e $1/news && -e $1/web ]] && echo "score of $1"; }
stages() {
  local row
  for row in a b c d; do
    stage train "$OUT/$row" train "COLOUR" begin "train $row"
    stage decode "$OUT/$row" decode-news "COLOUR" decode_row "$OUT/$row" news
    stage decode "$OUT/$row" decode-web "COLOUR" decode_row "$OUT/$row" web
    stage score "$OUT/$row" score "COLOUR" score_row "$OUT/$row"
  done
}
read_arguments "$@"
option OUT text "" "output folder"
one_worker
row_options
choose_stages "train decode score"
leave_rows_to_others
open_output
run_stages stages
"""


def rows(out, *chosen, **options):
    return bash(ROWS, chosen, **{"OUT": str(out), "COLOUR": "red", "FAIL": "nothing", "MEET": "0", **options})


def test_rows_are_decoded_at_the_same_time_and_print_one_after_the_other(tmp_path):
    done = rows(tmp_path, PARALLEL="3", MEET="7")  # 4 trainings and 3 decodings
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    lines = [re.sub(r"^\[.*?\] ", "", line).replace(f"{tmp_path}/", "") for line in done.stdout.splitlines()]
    assert lines[:4] == [f"{row} train ({number} of 4)" for number, row in enumerate("abcd", 1)]
    decoded, scored = lines[4:28], lines[28:]
    assert {tuple(decoded[at + 1 : at + 3]) for at in range(0, 24, 3)} == {
        (f"decoded {row}", "with a second line") for row in "abcd"
    }
    assert {(scored[at], scored[at + 1]) for at in range(0, 8, 2)} == {(f"{row} score", f"score of {row}") for row in "abcd"}
    again = rows(tmp_path, PARALLEL="3")
    assert again.stdout.count("done before") == 16 == len(again.stdout.splitlines())


def test_a_row_that_fails_is_named_and_the_others_are_decoded(tmp_path):
    done = rows(tmp_path, PARALLEL="2", FAIL="c")
    assert done.returncode == 1 and done.stdout.count(f"recipes/recipe: no room for {tmp_path}/c") == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("recipes/recipe: 2 of 8 failed, for the reasons above: ")
    assert {f"{tmp_path}/c decode-news", f"{tmp_path}/c decode-web"} == set(line.partition("above: ")[2].split(", "))
    assert "score of" not in done.stdout
    assert sorted(path.parent.name for path in tmp_path.glob("*/web")) == ["a", "b", "d"]
    assert rows(tmp_path, PARALLEL="2").stdout.count("score of") == 4


def test_a_signal_ends_the_jobs(tmp_path):
    script = ROWS.replace("read_arguments", "decode_row() { run sleep 61.5; }\nread_arguments", 1)
    environ = {**os.environ, "OUT": str(tmp_path), "COLOUR": "red", "PARALLEL": "2", "MEET": "0", "FAIL": "nothing"}
    command = ["bash", "-c", f"source recipes/lib/engine.sh; {script}", "recipe"]
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True)

    def sleeping():
        return subprocess.run(["pgrep", "-fc", "sleep 61.5$"], capture_output=True, text=True).stdout.strip()

    while sleeping() != "2":
        assert process.poll() is None
        time.sleep(0.1)
    process.terminate()
    assert "the same command continues from here" in process.communicate(timeout=20)[0] and process.returncode == 143
    assert sleeping() == "0"


def test_machines_divide_the_rows(tmp_path):
    assert rows(tmp_path, SHARE="1/3").returncode == rows(tmp_path, SHARE="3/3", PARALLEL="2").returncode == 0
    assert sorted(path.parent.name for path in tmp_path.glob("*/.score.done")) == ["a", "c", "d"]
    assert rows(tmp_path, "train", "decode", "score", SHARE="2/3").returncode == 0
    assert rows(tmp_path).stdout.count("done before") == 16


@pytest.mark.parametrize("share", ["0/2", "3/2", "1", "1/2/3", "a/b", "$(touch trap)/2"])
def test_a_share_is_a_fraction(share, tmp_path):
    done = rows(tmp_path, SHARE=share)
    assert done.returncode == 1 and f"SHARE={share}: not allowed. Expected K/N" in done.stderr


def test_data_and_table_are_for_all_rows():
    done = run("quickstart", "prepare", SHARE="1/2")
    assert done.returncode == 1 and "SHARE=1/2: the stage prepare is for all rows. Run it without SHARE" in done.stderr
    shown = run("quickstart", SHARE="2/2", METHODS="none rope t5").stdout
    assert shown.count("fairseq-train") == 1 and "rope" in shown and "fairseq-preprocess" not in shown and " report " not in shown
    machine = {"SHARE": "1/2", "NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "m0", "UNITS": "2"}
    shown = run("quickstart", METHODS="none rope t5", **machine).stdout
    assert shown.count("fairseq-train") == 2 and "fairseq-generate" not in shown and " score " not in shown
