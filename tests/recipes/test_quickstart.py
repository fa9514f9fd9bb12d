"""The quickstart: what it would run, and that it survives being killed."""

import functools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairseq_posenc import registry

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "quickstart"
BIN = Path(sys.executable).parent
MICRO = {"SENTENCES": "400", "UPDATES": "60", "SAVE_EVERY": "20", "TEST": "12", "TEST_LONG": "9", "POSENC_BIN": str(BIN)}


def environment(**options):
    return {**os.environ, "OMP_NUM_THREADS": "1", **options}


def commands(**options):
    """Every command that the quickstart would run, as lists of words without redirections."""
    shown = subprocess.run([RECIPE], env=environment(DRY_RUN="1", **options), capture_output=True, text=True, check=True).stdout
    lines = [re.sub(r" >>? \S+\s*$", "", line) for line in shown.splitlines() if not line.startswith("#")]
    return [shlex.split(line) for line in lines]


def of(tool, folder, found):
    return [
        words for words in found if any(Path(word).name == tool for word in words[:4]) and any(folder in word for word in words)
    ]


@pytest.fixture(scope="module")
def shown():
    return commands(METHODS="none sinusoidal t5", OUT="runs/x")


def test_dry_run_changes_nothing(tmp_path):
    commands(OUT=str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["none", "sinusoidal", "t5"])
def test_every_method_is_trained_decoded_and_scored(shown, method):
    (train,) = of("fairseq-train", f"/{method}/", shown)
    assert train[train.index("--encoder-position") + 1] == train[train.index("--decoder-position") + 1] == method
    generate = of("fairseq-generate", f"/{method}/", shown)
    assert [words[words.index("--gen-subset") + 1] for words in generate] == ["test", "test1"]
    for words in [train, *generate]:
        assert words[words.index("--user-dir") + 1] == "fairseq_posenc"
        assert words[words.index("--required-batch-size-multiple") + 1] == "1"
    (score,) = of("score", f"/{method}/", shown)
    assert [word.split("=")[0] for word in score[-2:]] == ["test", "test_long"]


def test_commands_of_two_methods_differ_in_the_spec_alone(shown):
    def without(method):
        mine = [words for words in shown if any(f"/{method}/" in word for word in words)]
        return [
            [word.replace(f"/{method}/", "/*/") if "/" in word else re.sub(f"^{method}$", "*", word) for word in w] for w in mine
        ]

    assert without("none") == without("sinusoidal") == without("t5") != []


def test_the_last_command_makes_the_table_of_all_methods(shown):
    assert shown[-1][-6:] == ["report", "runs/x", "--methods", "none", "sinusoidal", "t5"]


def test_setup_runs_first_unless_an_installation_is_named(shown):
    assert shown[0] == ["recipes/setup"]
    named = commands(POSENC_BIN="/opt/posenc/bin")
    assert ["recipes/setup"] not in named
    assert all(words[0].startswith("/opt/posenc/bin/") for words in named if words[0] != "mkdir")


def test_options_reach_the_commands():
    found = commands(METHODS="shaw:max_distance=8+alibi", SEED="5", SENTENCES="77", UPDATES="33", OUT="runs/x")
    (train,) = of("fairseq-train", "", found)
    assert train[train.index("--encoder-position") + 1] == "shaw:max_distance=8+alibi"
    assert train[train.index("--max-update") + 1] == train[train.index("--total-num-update") + 1] == "33"
    folder = train[train.index("--save-dir") + 1]
    assert folder.endswith("/seed5") and ":" not in folder  # fairseq takes a colon in --path for two models
    (language,) = of("language", "", found)
    assert language[language.index("--train") + 1] == "77"


def test_a_wrong_installation_is_one_line(tmp_path):
    options = environment(POSENC_BIN=str(tmp_path), OUT=str(tmp_path / "out"))
    done = subprocess.run([RECIPE], env=options, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "holds no fairseq-train" in done.stderr


def start(out, **options):
    """The quickstart with two small runs, in a process group of its own."""
    options = environment(OUT=str(out), METHODS="none t5", **{**MICRO, **options})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    interruptible = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # also where the tests run in the background
    return subprocess.Popen([RECIPE], env=options, start_new_session=True, preexec_fn=interruptible, **pipes)


def finish(process):
    printed = process.communicate(timeout=900)[0]
    assert process.returncode == 0, printed
    return printed


def wait_for(path, process):
    while not list(path.parent.glob(path.name)):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("quickstart") / "out"
    return out, finish(start(out))


def scores(out):
    """What every run scored and hangs on, without what a clock or the machine says."""
    measured = {"tokens_per_second", "training_seconds", "peak_memory"}
    read = {path.parent.relative_to(out): json.loads(path.read_text()) for path in out.rglob("score.json")}
    return {run: {key: value for key, value in record.items() if key not in measured} for run, record in read.items()}


@pytest.mark.slow
def test_it_ends_with_the_table_and_shows_its_progress(uninterrupted):
    out, printed = uninterrupted
    lines = printed.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in table] == [
        "method",
        ":" + "-" * (len(table[1].split("|")[1]) - 1),
        "none",
        "t5",
    ]
    assert "not run" not in printed and re.search(r"\[ ?\d+:\d\d\]   update 50, loss ", printed)
    assert {record["updates"] for record in scores(out).values()} == {60}


@pytest.mark.slow
def test_started_again_it_does_nothing_twice(uninterrupted):
    out, printed = uninterrupted
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    again = finish(start(out))
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert again.count("done before") == 11 and again.splitlines()[-6:] == printed.splitlines()[-6:]


@pytest.mark.slow
def test_stopped_again_and_again_it_goes_on_to_the_same_numbers(uninterrupted, tmp_path):
    out = tmp_path / "out"
    stops = ("none", 20, signal.SIGINT), ("none", 40, signal.SIGTERM), ("t5", 20, signal.SIGKILL)
    for nth, (method, updates, how) in enumerate(stops):
        process = start(out)
        wait_for(out / method / "seed1" / f"checkpoint_*_{updates}.pt", process)
        if how == signal.SIGKILL:
            os.killpg(process.pid, how)
            (out / method / "seed1" / "checkpoint_last.pt").write_bytes(b"half a copy")
        else:
            process.send_signal(how)  # to the recipe alone, which must end its command
        printed = process.communicate(timeout=60)[0]
        assert process.returncode != 0 and "|" not in printed.splitlines()[-1]
        assert ("of 60 updates are there" in printed) == (nth > 0)
    assert "of 60 updates are there" in finish(start(out))
    assert scores(out) == scores(uninterrupted[0])


def test_architectures_and_all_of_them():
    some = commands(METHODS="posenc_xpos t5", OUT="runs/x", TRAIN_OPTIONS="--bf16", POSENC_BIN=str(BIN))
    (xpos,), (t5,) = of("fairseq-train", "/posenc_xpos/", some), of("fairseq-train", "/t5/", some)
    assert xpos[xpos.index("--arch") + 1] == "posenc_xpos_tiny" and "--encoder-position" not in xpos
    assert t5[t5.index("--arch") + 1] == "posenc_transformer_tiny" and "--bf16" in t5 and "--bf16" in xpos
    (report,) = [words for words in some if "report" in words]
    assert report[-2:] == ["--methods", "t5"]  # the rows of an architecture are named by what it has
    trained = of("fairseq-train", "/posenc_", commands(METHODS="all", OUT="runs/x", POSENC_BIN=str(BIN)))
    assert [words[words.index("--arch") + 1] for words in trained] == [
        f"posenc_{name}_tiny"
        for name in registry.names()
        if name != "alibi_symmetric"  # the same model as alibi
    ]


@pytest.mark.slow
def test_other_settings_are_refused_and_named(uninterrupted):
    out, _ = uninterrupted
    process = start(out, SENTENCES="500")
    printed = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert "made with other settings" in printed and "< SENTENCES=400\n> SENTENCES=500" in printed and "UPDATES" not in printed


@pytest.mark.slow
def test_two_at_once_in_one_folder_are_refused(tmp_path):
    first = start(tmp_path / "out")
    wait_for(tmp_path / "out" / "settings", first)
    second = start(tmp_path / "out")
    printed = second.communicate(timeout=60)[0]
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert second.returncode == 1 and "is in use" in printed
